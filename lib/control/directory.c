/*
 * directory.c - the business cards of all ranks of an endpoint
 *
 * Called by bootstrap (put, read) and by everything that connects or names a rank (get).
 */
#include <stdlib.h>
#include <string.h>

#include "control/directory.h"

struct single_record {
	size_t bytes;
	uint8_t data[];
};

bool tt_directory_make(struct tt_directory *d, int n)
{
	*d = (struct tt_directory){ .n = n };
	return tt_sparse_make(&d->record, n);
}

void tt_directory_free(struct tt_directory *d)
{
	tt_sparse_free_all(&d->record);
	free(d->table);
	free(d->at);
	free(d->held);
	free(d->held_at);
	tt_counted_bits_free(&d->firsts);
	free(d->host);
}

bool tt_directory_put(struct tt_directory *d, const struct tt_business_card *record)
{
	struct tt_writer w = { 0 };
	struct single_record *kept = NULL, *before = tt_sparse_get(&d->record, record->rank);

	tt_put_business_card(&w, record);
	if (!w.failed)
		kept = malloc(sizeof(*kept) + w.have);
	if (kept) {
		kept->bytes = w.have;
		memcpy(kept->data, w.data, w.have);
	}
	free(w.data);
	if (!kept || !tt_sparse_set(&d->record, record->rank, kept)) {
		free(kept);
		return false;
	}
	free(before);
	return true;
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Ranks of one host differ in process, port and key. Of a group of ranks, the first one has all facts. */
#define LIKE_BEFORE 1 /* host, network namespace, name and addresses are those of the rank before */
#define ONE_NUMBER 2  /* host and network namespace have one number */

static bool are_together(const struct tt_business_card *a, const struct tt_business_card *b)
{
	if (a->host != b->host || a->netns != b->netns || strcmp(a->name, b->name) ||
	    a->naddresses != b->naddresses)
		return false;
	for (int i = 0; i < a->naddresses; i++)
		if (a->addresses[i].prefix != b->addresses[i].prefix ||
		    !tt_address_equal(&a->addresses[i], &b->addresses[i]))
			return false;
	return true;
}

static size_t address_bytes(const struct tt_address *a)
{
	return a->family == 4 ? 4 : sizeof(a->bytes);
}

/* before: the record of the rank before */
static void pack(struct tt_writer *w, const struct tt_business_card *before,
		 const struct tt_business_card *c)
{
	bool like = c->rank % TT_GROUP && are_together(before, c), one = c->host == c->netns;

	tt_put(w, (like ? LIKE_BEFORE : 0) | (one ? ONE_NUMBER : 0), 1);
	tt_put(w, (uint16_t)c->port, 2);
	tt_put(w, (uint16_t)c->pid, 2);
	tt_put(w, (uint8_t)(c->pid >> 16), 1); /* Linux has processes up to 2^22 */
	tt_put_bytes(w, c->public_key, TT_KEY_KNOWN);
	if (like)
		return;
	tt_put(w, c->host, 8);
	if (!one)
		tt_put(w, c->netns, 8);
	tt_put_text(w, c->name);
	tt_put(w, (uint8_t)c->naddresses, 1);
	for (int i = 0; i < c->naddresses; i++) {
		tt_put(w, c->addresses[i].family, 1);
		tt_put(w, c->addresses[i].prefix, 1);
		tt_put_bytes(w, c->addresses[i].bytes, address_bytes(&c->addresses[i]));
	}
}

static void unpack_host(struct tt_reader *r, bool one, struct tt_business_card *c)
{
	c->host = tt_get(r, 8);
	c->netns = one ? c->host : tt_get(r, 8);
	tt_get_text(r, c->name, sizeof(c->name));
	c->naddresses = (int)tt_get_upto(r, 1, TT_ADDRESSES);
	memset(c->addresses, 0, sizeof(c->addresses));
	for (int i = 0; i < c->naddresses; i++) {
		struct tt_address *a = &c->addresses[i];

		a->family = (uint8_t)tt_get(r, 1);
		a->prefix = (uint8_t)tt_get_upto(r, 1, 128);
		r->failed |= a->family != 4 && a->family != 6;
		tt_get_copy(r, a->bytes, address_bytes(a));
	}
}

/* c: the record of the rank before, which becomes the record of rank */
static void unpack(struct tt_reader *r, int rank, struct tt_business_card *c)
{
	unsigned facts = (unsigned)tt_get_upto(r, 1, LIKE_BEFORE | ONE_NUMBER);

	c->rank = rank;
	c->port = (int)tt_get(r, 2);
	c->pid = (uint32_t)tt_get(r, 2);
	c->pid |= (uint32_t)tt_get(r, 1) << 16;
	tt_get_copy(r, c->public_key, TT_KEY_KNOWN);
	if (!(facts & LIKE_BEFORE))
		unpack_host(r, facts & ONE_NUMBER, c);
	else
		r->failed |= rank % TT_GROUP == 0;
}

void tt_directory_pack(const struct tt_directory *d, int from, int to, struct tt_writer *w)
{
	struct tt_business_card record = { 0 }, before;

	for (int rank = from; rank < to; rank++) {
		before = record;
		tt_directory_get(d, rank, &record);
		pack(w, &before, &record);
	}
}

bool tt_directory_first(struct tt_reader table, struct tt_business_card *ret_record)
{
	*ret_record = (struct tt_business_card){ 0 };
	unpack(&table, 0, ret_record);
	return !table.failed;
}

/* Fill at with the places of the groups. false: the table is malformed */
static bool find_groups(const struct tt_directory *d, const uint8_t *table, size_t bytes,
			uint32_t *ret_at)
{
	struct tt_reader r = { .at = table, .left = bytes };
	struct tt_business_card record = { 0 };

	for (int rank = 0; rank < d->n; rank++) {
		if (rank % TT_GROUP == 0)
			ret_at[rank / TT_GROUP] = (uint32_t)(r.at - table);
		unpack(&r, rank, &record);
		if (r.failed || !record.port)
			return false;
		if (d->holders.first && ((rank + 1) % TT_GROUP == 0 || rank + 1 == d->n))
			tt_get_bytes(&r, TT_SIGNATURE);
	}
	return tt_get_end(&r);
}

int tt_directory_read(struct tt_directory *d, const uint8_t *table, size_t bytes)
{
	uint32_t *at = malloc(((size_t)d->n + TT_GROUP - 1) / TT_GROUP * sizeof(*at));
	uint8_t *copy = malloc(bytes + 1);
	int rc = at && copy ? find_groups(d, table, bytes, at) : TT_SYSTEM;

	if (rc <= 0) {
		free(at);
		free(copy);
		return rc;
	}
	memcpy(copy, table, bytes);
	tt_sparse_free_all(&d->record);
	free(d->held);
	free(d->held_at);
	d->held = NULL;
	d->held_at = NULL;
	d->table = copy;
	d->bytes = bytes;
	d->at = at;
	return 1;
}

static struct tt_reader group_of(const struct tt_directory *d, int rank)
{
	size_t at = d->at[rank / TT_GROUP];

	return (struct tt_reader){ .at = d->table + at, .left = d->bytes - at };
}

const uint8_t *tt_directory_group(const struct tt_directory *d, int rank, size_t *ret_bytes)
{
	int next = rank / TT_GROUP + 1;
	size_t end;

	if (!d->table || !d->holders.first || rank >= d->n)
		return NULL;
	end = next * TT_GROUP < d->n ? d->at[next] : d->bytes;
	*ret_bytes = end - d->at[next - 1];
	return d->table + d->at[next - 1];
}

bool tt_directory_of_group(struct tt_reader records, int rank, struct tt_business_card *ret_record)
{
	*ret_record = (struct tt_business_card){ 0 };
	for (int i = rank - rank % TT_GROUP; i <= rank; i++)
		unpack(&records, i, ret_record);
	return !records.failed && ret_record->port;
}

void tt_directory_get(const struct tt_directory *d, int rank, struct tt_business_card *ret_record)
{
	const struct single_record *record = d->table ? NULL : tt_sparse_get(&d->record, rank);
	struct tt_reader r;

	*ret_record = (struct tt_business_card){ .rank = rank };
	if (record) {
		r = (struct tt_reader){ .at = record->data, .left = record->bytes };
		tt_get_business_card(&r, ret_record);
	} else if (d->held && tt_is_holder(d->holders, rank)) {
		size_t at = d->held_at[tt_holders_below(d->holders, rank)];

		r = (struct tt_reader){ .at = d->held + at, .left = d->held_bytes - at };
		tt_get_business_card(&r, ret_record);
	} else if (d->table) {
		tt_directory_of_group(group_of(d, rank), rank, ret_record);
	}
}

/* ---- holders --------------------------------------------------------------------------------- */

/* 1 | 0: malformed; ret_at [nheld] */
static int find_holders(const struct tt_directory *d, struct tt_reader *r, uint32_t *ret_at)
{
	const uint8_t *start = r->at;
	struct tt_business_card record;

	for (int rank = 0; rank < d->n; rank = tt_next_holder(d->holders, rank)) {
		*ret_at++ = (uint32_t)(r->at - start);
		tt_get_business_card(r, &record);
		if (r->failed || record.rank != rank || !record.port)
			return 0;
	}
	return 1;
}

int tt_directory_get_holders(struct tt_directory *d, struct tt_reader *r)
{
	size_t n = (size_t)tt_holders_below(d->holders, d->n);
	const uint8_t *records = r->at;
	uint32_t *at = malloc(n * sizeof(*at));
	uint8_t *copy = NULL;
	int rc = at ? find_holders(d, r, at) : TT_SYSTEM;

	if (rc > 0 && !(copy = malloc((size_t)(r->at - records))))
		rc = TT_SYSTEM;
	if (rc <= 0) {
		free(at);
		return rc;
	}
	d->held_bytes = (size_t)(r->at - records);
	d->held = memcpy(copy, records, d->held_bytes);
	d->held_at = at;
	d->nheld = n;
	return 1;
}

/* ---- hosts ----------------------------------------------------------------------------------- */

void tt_directory_hosts(const struct tt_directory *d, uint64_t *ret_host)
{
	struct tt_reader r = { 0 };
	struct tt_business_card record;
	size_t run = 0;

	for (int rank = 0; rank < d->n; rank++) {
		if (d->firsts.group) {
			run += tt_counted_bits_has(&d->firsts, rank);
			ret_host[rank] = d->host ? d->host[run - 1] : run;
			continue;
		}
		if (d->table && rank % TT_GROUP == 0)
			r = group_of(d, rank);
		if (d->table)
			unpack(&r, rank, &record);
		else
			tt_directory_get(d, rank, &record);
		ret_host[rank] = record.host;
	}
}

static int compare_hosts(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Does a host begin twice? */
static bool is_repeated(const uint64_t *host, size_t nruns, uint64_t *ret_sorted)
{
	bool repeated = false;

	memcpy(ret_sorted, host, nruns * sizeof(*host));
	qsort(ret_sorted, nruns, sizeof(*ret_sorted), compare_hosts);
	for (size_t i = 1; i < nruns; i++)
		repeated |= ret_sorted[i] == ret_sorted[i - 1];
	return repeated;
}

bool tt_directory_put_hosts(const struct tt_directory *d, struct tt_writer *w)
{
	uint64_t *host = malloc((size_t)d->n * sizeof(*host)),
		 *sorted = malloc((size_t)d->n * sizeof(*sorted));
	uint8_t *begins = tt_set_make(d->n);
	bool made = host && sorted && begins, repeated;
	size_t nruns = 0;

	if (made)
		tt_directory_hosts(d, host);
	for (int rank = 0; made && rank < d->n; rank++) {
		if (rank && host[rank] == host[nruns - 1])
			continue;
		tt_set_add(begins, rank);
		host[nruns++] = host[rank];
	}
	if (made) {
		repeated = is_repeated(host, nruns, sorted);
		tt_put_bytes(w, begins, TT_SET_BYTES(d->n));
		tt_put(w, repeated, 1);
		for (size_t i = 0; repeated && i < nruns; i++)
			tt_put(w, host[i], 8);
	}
	free(host);
	free(sorted);
	free(begins);
	return made;
}

/* 1 | 0: malformed | TT_SYSTEM; *ret_firsts and *ret_host are to be freed in any case */
static int get_hosts(int n, struct tt_reader *r, struct tt_counted_bits *ret_firsts,
		     uint64_t **ret_host)
{
	size_t nruns;
	const uint8_t *begins = tt_get_bytes(r, TT_SET_BYTES(n));
	bool repeated = tt_get_upto(r, 1, 1);

	if (r->failed || !tt_set_has(begins, 0))
		return 0;
	if (!tt_counted_bits_make(ret_firsts, n + 1))
		return TT_SYSTEM;
	tt_counted_bits_copy(ret_firsts, 0, begins, n);
	tt_counted_bits_count(ret_firsts);
	nruns = (size_t)tt_counted_bits_before(ret_firsts, n);
	if (repeated && r->left < 8 * nruns)
		return 0;
	if (repeated && !(*ret_host = malloc(nruns * sizeof(**ret_host))))
		return TT_SYSTEM;
	for (size_t i = 0; repeated && i < nruns; i++)
		(*ret_host)[i] = tt_get(r, 8);
	return 1;
}

int tt_directory_get_hosts(struct tt_directory *d, struct tt_reader *r)
{
	struct tt_counted_bits firsts = { 0 };
	uint64_t *host = NULL;
	int rc = get_hosts(d->n, r, &firsts, &host);

	if (rc > 0) {
		d->firsts = firsts;
		d->host = host;
		return rc;
	}
	tt_counted_bits_free(&firsts);
	free(host);
	return rc;
}

size_t tt_directory_memory(const struct tt_directory *d)
{
	size_t bytes = d->table ? d->bytes +
					  ((size_t)d->n + TT_GROUP - 1) / TT_GROUP * sizeof(*d->at)
				: tt_sparse_memory(&d->record);

	bytes += tt_counted_bits_memory(&d->firsts);
	bytes += d->held ? d->nheld * sizeof(*d->held_at) + d->held_bytes : 0;
	for (int r = tt_sparse_next(&d->record, 0); r < d->n && !d->table;
	     r = tt_sparse_next(&d->record, r + 1)) {
		const struct single_record *record = tt_sparse_get(&d->record, r);

		bytes += sizeof(*record) + record->bytes;
	}
	return bytes;
}

/*
 * directory.c - the business cards of all ranks of an endpoint
 *
 * Called by bootstrap (put, read) and by everything that connects or names a rank (get).
 */
#include <stdlib.h>
#include <string.h>

#include "control/directory.h"

#define GROUP 16 /* ranks of the table from one known offset to the next */

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
	bool like = c->rank % GROUP && are_together(before, c), one = c->host == c->netns;

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
		r->failed |= rank % GROUP == 0;
}

void tt_directory_pack(const struct tt_directory *d, struct tt_writer *w)
{
	struct tt_business_card record = { 0 }, before;

	for (int rank = 0; rank < d->n; rank++) {
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
static bool find_groups(const uint8_t *table, size_t bytes, int n, uint32_t *ret_at)
{
	struct tt_reader r = { .at = table, .left = bytes };
	struct tt_business_card record = { 0 };

	for (int rank = 0; rank < n; rank++) {
		if (rank % GROUP == 0)
			ret_at[rank / GROUP] = (uint32_t)(r.at - table);
		unpack(&r, rank, &record);
		if (r.failed || !record.port)
			return false;
	}
	return tt_get_end(&r);
}

int tt_directory_read(struct tt_directory *d, const uint8_t *table, size_t bytes)
{
	uint32_t *at = malloc(((size_t)d->n + GROUP - 1) / GROUP * sizeof(*at));
	uint8_t *copy = malloc(bytes + 1);
	int rc = at && copy ? find_groups(table, bytes, d->n, at) : TT_SYSTEM;

	if (rc <= 0) {
		free(at);
		free(copy);
		return rc;
	}
	memcpy(copy, table, bytes);
	tt_directory_free(d);
	*d = (struct tt_directory){ .n = d->n, .table = copy, .bytes = bytes, .at = at };
	return 1;
}

static struct tt_reader group_of(const struct tt_directory *d, int rank)
{
	size_t at = d->at[rank / GROUP];

	return (struct tt_reader){ .at = d->table + at, .left = d->bytes - at };
}

void tt_directory_get(const struct tt_directory *d, int rank, struct tt_business_card *ret_record)
{
	const struct single_record *record = d->table ? NULL : tt_sparse_get(&d->record, rank);
	struct tt_reader r;

	*ret_record = (struct tt_business_card){ .rank = rank };
	if (record) {
		r = (struct tt_reader){ .at = record->data, .left = record->bytes };
		tt_get_business_card(&r, ret_record);
	} else if (d->table) {
		r = group_of(d, rank);
		for (int i = rank - rank % GROUP; i <= rank; i++)
			unpack(&r, i, ret_record);
	}
}

void tt_directory_hosts(const struct tt_directory *d, uint64_t *ret_host)
{
	struct tt_reader r = { .at = d->table, .left = d->bytes };
	struct tt_business_card record;

	for (int rank = 0; rank < d->n; rank++) {
		if (d->table)
			unpack(&r, rank, &record);
		else
			tt_directory_get(d, rank, &record);
		ret_host[rank] = record.host;
	}
}

size_t tt_directory_memory(const struct tt_directory *d)
{
	size_t bytes = d->table ? d->bytes + ((size_t)d->n + GROUP - 1) / GROUP * sizeof(*d->at)
				: tt_sparse_memory(&d->record);

	for (int r = 0; r < d->n && !d->table; r++) {
		const struct single_record *record = tt_sparse_get(&d->record, r);

		bytes += record ? sizeof(*record) + record->bytes : 0;
	}
	return bytes;
}

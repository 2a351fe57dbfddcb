/*
 * directory.c - the business cards of all ranks of an endpoint
 *
 * Called by bootstrap (put, read) and by everything that connects or names a rank (get).
 */
#include <stdlib.h>
#include <string.h>

#include "control/directory.h"

#define HOST_AT 18 /* in a record: after rank, port, process and network namespace */
#define EVERY 16   /* ranks of the table from one known offset to the next */

struct record {
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
	struct record *kept = NULL, *before = tt_sparse_get(&d->record, record->rank);

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

/* Fill at with the places of the records. false: the table is malformed */
static bool find_records(const uint8_t *table, size_t bytes, int n, uint32_t *ret_at)
{
	struct tt_reader r = { .at = table, .left = bytes };
	struct tt_business_card record;

	for (int rank = 0; rank < n; rank++) {
		if (rank % EVERY == 0)
			ret_at[rank / EVERY] = (uint32_t)(r.at - table);
		tt_get_business_card(&r, &record);
		if (r.failed || record.rank != rank || !record.port)
			return false;
	}
	return tt_get_end(&r);
}

int tt_directory_read(struct tt_directory *d, const uint8_t *table, size_t bytes)
{
	uint32_t *at = malloc(((size_t)d->n + EVERY - 1) / EVERY * sizeof(*at));
	uint8_t *copy = malloc(bytes + 1);
	int rc = at && copy ? find_records(table, bytes, d->n, at) : TT_SYSTEM;

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

/* The bytes from the record of a rank on; none: the record is not known */
static struct tt_reader record_of(const struct tt_directory *d, int rank)
{
	const struct record *record = d->table ? NULL : tt_sparse_get(&d->record, rank);
	struct tt_business_card before;
	struct tt_reader r;

	if (!d->table)
		return (struct tt_reader){ .at = record ? record->data : NULL,
					   .left = record ? record->bytes : 0 };
	r = (struct tt_reader){ .at = d->table, .left = d->bytes };
	tt_get_bytes(&r, d->at[rank / EVERY]);
	for (int i = 0; i < rank % EVERY; i++)
		tt_get_business_card(&r, &before);
	return r;
}

void tt_directory_get(const struct tt_directory *d, int rank, struct tt_business_card *ret_record)
{
	struct tt_reader r = record_of(d, rank);

	*ret_record = (struct tt_business_card){ .rank = rank };
	if (r.left)
		tt_get_business_card(&r, ret_record);
}

uint64_t tt_directory_host(const struct tt_directory *d, int rank)
{
	struct tt_reader r = record_of(d, rank);

	if (!r.left)
		return 0;
	tt_get_bytes(&r, HOST_AT);
	return tt_get(&r, 8);
}

size_t tt_directory_memory(const struct tt_directory *d)
{
	size_t bytes = d->table ? d->bytes + ((size_t)d->n + EVERY - 1) / EVERY * sizeof(*d->at)
				: tt_sparse_memory(&d->record);

	for (int r = 0; r < d->n && !d->table; r++) {
		const struct record *record = tt_sparse_get(&d->record, r);

		bytes += record ? sizeof(*record) + record->bytes : 0;
	}
	return bytes;
}

/*
 * directory.c - the business cards of all ranks of an endpoint
 *
 * Called by bootstrap (put, read) and by everything that connects or names a rank (get).
 */
#include <stdlib.h>
#include <string.h>

#include "control/directory.h"

#define HOST_AT 18 /* in a record: after rank, port, process and network namespace */

bool tt_directory_make(struct tt_directory *d, int n)
{
	*d = (struct tt_directory){ .n = n, .at = calloc((size_t)n, sizeof(*d->at)) };
	return d->at != NULL;
}

void tt_directory_free(struct tt_directory *d)
{
	free(d->records.data);
	free(d->at);
}

bool tt_directory_put(struct tt_directory *d, const struct tt_business_card *record)
{
	size_t before = d->records.have;

	tt_put_business_card(&d->records, record);
	if (d->records.failed) {
		d->records.have = before;
		d->records.failed = false;
		return false;
	}
	d->at[record->rank] = (uint32_t)before + 1;
	return true;
}

/* Fill at with the places of the records. false: the table is malformed */
static bool find_records(const uint8_t *table, size_t bytes, int n, uint32_t *ret_at)
{
	struct tt_reader r = { .at = table, .left = bytes };
	struct tt_business_card record;

	for (int rank = 0; rank < n; rank++) {
		ret_at[rank] = (uint32_t)(r.at - table) + 1;
		tt_get_business_card(&r, &record);
		if (r.failed || record.rank != rank || !record.port)
			return false;
	}
	return tt_get_end(&r);
}

int tt_directory_read(struct tt_directory *d, const uint8_t *table, size_t bytes)
{
	uint32_t *at = malloc((size_t)d->n * sizeof(*at));
	struct tt_writer records = { .data = malloc(bytes + 1), .room = bytes + 1 };
	int rc = at && records.data ? find_records(table, bytes, d->n, at) : TT_SYSTEM;

	if (rc <= 0) {
		free(at);
		free(records.data);
		return rc;
	}
	tt_put_bytes(&records, table, bytes);
	tt_directory_free(d);
	d->records = records;
	d->at = at;
	return 1;
}

void tt_directory_get(const struct tt_directory *d, int rank, struct tt_business_card *ret_record)
{
	struct tt_reader r = { .at = d->records.data, .left = d->records.have };

	*ret_record = (struct tt_business_card){ .rank = rank };
	if (!d->at[rank])
		return;
	tt_get_bytes(&r, d->at[rank] - 1);
	tt_get_business_card(&r, ret_record);
}

uint64_t tt_directory_host(const struct tt_directory *d, int rank)
{
	struct tt_reader r = { .at = d->records.data, .left = d->records.have };

	if (!d->at[rank])
		return 0;
	tt_get_bytes(&r, d->at[rank] - 1 + HOST_AT);
	return tt_get(&r, 8);
}

size_t tt_directory_memory(const struct tt_directory *d)
{
	return d->records.room + (size_t)d->n * sizeof(*d->at);
}

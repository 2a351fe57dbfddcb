/*
 * directory.h - the business cards of all ranks of an endpoint, as the bytes that rank 0 has signed
 *
 * A record has a hundred bytes, its struct three hundred, and a rank reads few of them: those of
 * its neighbors, and of ranks to which it connects later. Not thread-safe: the endpoint's lock, or
 * no change after the join.
 */
#ifndef TT_DIRECTORY_H
#define TT_DIRECTORY_H

#include "base/sparse.h"
#include "control/frame.h"

struct tt_directory {
	int n;
	struct tt_sparse record; /* before there is a table */
	uint8_t *table;          /* the records of all ranks, or NULL */
	size_t bytes;
	uint32_t *at; /* offset of every 16th record of the table */
};

/* false: no memory; free it in any case */
bool tt_directory_make(struct tt_directory *d, int n);
void tt_directory_free(struct tt_directory *d);
/* Add the record of rank record->rank, below n, after another one of it. false: no memory */
bool tt_directory_put(struct tt_directory *d, const struct tt_business_card *record);
/* Append the table of the records of all ranks. */
void tt_directory_pack(const struct tt_directory *d, struct tt_writer *w);
/* The record of rank 0 in a table. false: it is malformed */
bool tt_directory_first(struct tt_reader table, struct tt_business_card *ret_record);
/* Replace all records by a table of them. 1 | 0: it is malformed, and
 * nothing has changed | TT_SYSTEM: no memory */
int tt_directory_read(struct tt_directory *d, const uint8_t *table, size_t bytes);
/* The record of a rank; zeros besides the rank: none is known */
void tt_directory_get(const struct tt_directory *d, int rank, struct tt_business_card *ret_record);
/* The hosts of all ranks: ret_host[n] */
void tt_directory_hosts(const struct tt_directory *d, uint64_t *ret_host);
size_t tt_directory_memory(const struct tt_directory *d);

#endif

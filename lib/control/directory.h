/*
 * directory.h - the business cards of all ranks of an endpoint, as the bytes that rank 0 has signed
 *
 * A record has a hundred bytes, its struct three hundred, and a rank reads few of them: those of
 * its neighbors, and of ranks to which it connects later. In a large job only some ranks, the holders,
 * have the table; the others know all hosts, and ask a holder for the record of a rank
 * (control_holders.c). The endpoint's lock guards all changes; after the join single records are
 * added, and nothing else changes, so that readers need no lock.
 */
#ifndef TT_DIRECTORY_H
#define TT_DIRECTORY_H

#include "base/counted_bits.h"
#include "base/sparse.h"
#include "control/frame.h"

#define TT_GROUP 16 /* ranks of the table from one known offset to the next */

/* Holders of the table are the ranks below `first` and the multiples of `every`. 0, 0: a small job, in which each
 * rank has the table */
struct tt_holders {
	int first, every;
};

struct tt_directory {
	int n;
	struct tt_sparse record; /* of single ranks, where there is no table */
	uint8_t *table;          /* the records of all ranks, or NULL */
	size_t bytes;
	uint32_t *at;              /* offset of every group of the table */
	struct tt_holders holders; /* each group of their table has a signature behind it */
	uint8_t *held;     /* the holders' records, of other ranks of a large job, or NULL */
	uint32_t *held_at; /* offset of each; their number and bytes: */
	size_t nheld, held_bytes;
	/* ranks on another host than the rank before; word NULL: not known; with the host from each of
	 * them on, NULL: each is another one */
	struct tt_counted_bits firsts;
	uint64_t *host;
};

/* false: no memory; free it in any case */
bool tt_directory_make(struct tt_directory *d, int n);
void tt_directory_free(struct tt_directory *d);
/* Add the record of rank record->rank, below n, after another one of it. false: no memory */
bool tt_directory_put(struct tt_directory *d, const struct tt_business_card *record);
/* Append the records of the ranks from, ..., to - 1 to a table; from begins a group. */
void tt_directory_pack(const struct tt_directory *d, int from, int to, struct tt_writer *w);
/* The record of rank 0 in a table. false: it is malformed */
bool tt_directory_first(struct tt_reader table, struct tt_business_card *ret_record);
/* Replace all records by a table of them. 1 | 0: it is malformed, and
 * nothing has changed | TT_SYSTEM: no memory */
int tt_directory_read(struct tt_directory *d, const uint8_t *table, size_t bytes);
/* The record of a rank; zeros besides the rank: none is known */
void tt_directory_get(const struct tt_directory *d, int rank, struct tt_business_card *ret_record);
/* The group of a rank in a holder's table, with its signature; NULL: there is no such table. The record of
 * a rank in the records of a group; false: they are malformed */
const uint8_t *tt_directory_group(const struct tt_directory *d, int rank, size_t *ret_bytes);
bool tt_directory_of_group(struct tt_reader records, int rank, struct tt_business_card *ret_record);
/* Keep the records of all holders, which follow each other. 1 | 0: malformed | TT_SYSTEM */
int tt_directory_get_holders(struct tt_directory *d, struct tt_reader *r);
/* The hosts of all ranks, a bit for each where the ranks of a host follow each other: append them (false: no
 * memory), read them (1 | 0: malformed | TT_SYSTEM). */
bool tt_directory_put_hosts(const struct tt_directory *d, struct tt_writer *w);
int tt_directory_get_hosts(struct tt_directory *d, struct tt_reader *r);
/* The hosts of all ranks: ret_host[n] */
void tt_directory_hosts(const struct tt_directory *d, uint64_t *ret_host);
size_t tt_directory_memory(const struct tt_directory *d);

static inline bool tt_is_holder(struct tt_holders h, int rank)
{
	return rank < h.first || (h.every && rank % h.every == 0);
}
static inline int tt_next_holder(struct tt_holders h, int rank)
{
	return rank + 1 < h.first ? rank + 1 : (rank / h.every + 1) * h.every;
}
/* The number of holders below a rank */
static inline int tt_holders_below(struct tt_holders h, int rank)
{
	return rank <= h.first ? rank : h.first + (rank - 1) / h.every - (h.first - 1) / h.every;
}

#endif

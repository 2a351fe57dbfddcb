/*
 * sent_set.h - a set of ranks in a message: a byte for each 512 ranks, of which all, none or some are in it,
 * and their bits behind it where some are
 *
 * Called by shrink: its members are mostly all ranks but a few, or the ranks of a part of the job.
 */
#ifndef TT_SENT_SET_H
#define TT_SENT_SET_H

#include "base/counted_bits.h"

struct tt_reader;
struct tt_writer;

/* The most bytes that a set of n ranks takes */
#define TT_SENT_SET_MOST(n) (((size_t)(n) / TT_BITS_GROUP + 1) * (1 + TT_BITS_GROUP / 8))

/* A set in the message that brought it */
struct tt_sent_set {
	const uint8_t *at;
	int n; /* ranks that may be in it */
};

void tt_put_set(struct tt_writer *w, const struct tt_counted_bits *set);
void tt_put_no_set(struct tt_writer *w, int n); /* the empty one */
/* Of n ranks. The set is valid unless the reader has failed. */
struct tt_sent_set tt_get_set(struct tt_reader *r, int n);
bool tt_sent_set_has(const struct tt_sent_set *s, int rank);
/* The lowest rank from `from` on that is in the set; n: none */
int tt_sent_set_next(const struct tt_sent_set *s, int from);
/* The set as counted bits. false: no memory; free them in any case */
bool tt_sent_set_read(const struct tt_sent_set *s, struct tt_counted_bits *ret_bits);

#endif

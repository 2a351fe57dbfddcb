/*
 * fold.h - any number of ranks for algorithms that need a power of two
 *
 * p2 is the largest power of two not above n. Of the first 2 (n - p2) ranks, the even ones are
 * folded: each sends its values to its odd neighbor and is idle until the end. The other ranks are
 * members 0 .. p2-1, in rank order.
 */
#ifndef TT_FOLD_H
#define TT_FOLD_H

#include <stdbool.h>

struct tt_fold {
	int p2, extra; /* extra: n - p2 pairs */
	int me;        /* member of this rank, -1: folded into rank + 1 */
	bool paired;   /* rank - 1 is folded into this rank */
};

static inline struct tt_fold tt_fold_of(int n, int rank)
{
	struct tt_fold f = { .p2 = 1 };

	while (2 * f.p2 <= n)
		f.p2 *= 2;
	f.extra = n - f.p2;
	if (rank >= 2 * f.extra)
		f.me = rank - f.extra;
	else
		f.me = rank % 2 ? rank / 2 : -1;
	f.paired = rank < 2 * f.extra && rank % 2;
	return f;
}

/* Rank of a member. */
static inline int tt_fold_rank(const struct tt_fold *f, int member)
{
	return member < f->extra ? 2 * member + 1 : member + f->extra;
}

/* Lowest rank that a member stands for (itself, or the rank folded into it); of member p2: n. */
static inline int tt_fold_first(const struct tt_fold *f, int member)
{
	return member < f->extra ? 2 * member : member + f->extra;
}

#endif

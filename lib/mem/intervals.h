/*
 * intervals.h - a set of address ranges, which may overlap, asked:
 * which of you holds all of this one?
 *
 * Used for memory of which somebody will tell us when it goes (registered.h), and for what cards have
 * registered. Ranges are embedded in what they belong to, so nothing is allocated. Adding, removing
 * and asking take O(log n). Thread: the caller's lock.
 */
#ifndef TT_INTERVALS_H
#define TT_INTERVALS_H

#include "base/base.h"

struct tt_interval {
	uintptr_t start, end;            /* the caller's; not changed while it is in a set */
	struct tt_interval *left, *right;
	struct tt_interval *farthest;    /* of it and those below, the one that ends last */
	uint64_t priority;
};

/* *root is NULL for the empty set. */
void tt_intervals_add(struct tt_interval **root, struct tt_interval *i);
void tt_intervals_remove(struct tt_interval **root, struct tt_interval *i);

/* One that holds [start, end), or NULL. */
struct tt_interval *tt_intervals_holding(struct tt_interval *root, uintptr_t start, uintptr_t end);

#endif

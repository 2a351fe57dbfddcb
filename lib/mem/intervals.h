/*
 * intervals.h - interval set: address ranges that may overlap, searched for one that contains a
 * given range
 *
 * Called by registered.c and by the registration cache of verbs. Ranges are embedded in their
 * owners, so nothing is allocated. Add, remove and search take O(log n). Thread: the caller's lock.
 */
#ifndef TT_INTERVALS_H
#define TT_INTERVALS_H

#include "base/base.h"

struct tt_interval {
	uintptr_t start, end; /* set by the caller; constant while in a set */
	struct tt_interval *left, *right;
	struct tt_interval *farthest; /* range with the largest end in this subtree */
	uint64_t priority;
};

/* Add or remove a range. *root is NULL for the empty set. */
void tt_intervals_add(struct tt_interval **root, struct tt_interval *i);
void tt_intervals_remove(struct tt_interval **root, struct tt_interval *i);

/* A range that contains [start, end), or NULL. */
struct tt_interval *tt_intervals_holding(struct tt_interval *root, uintptr_t start, uintptr_t end);

#endif

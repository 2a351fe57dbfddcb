/*
 * gradient_sum.h - gradients of all workers become one
 *
 * What a worker has is a few nodes (leaves.h), one after the other in t->wire. They travel as they
 * are, and are added up as --canonical says wherever they meet; `off` adds up in rank order. Called
 * by strategies.
 */
#ifndef TT_TRAINER_TOTAL_H
#define TT_TRAINER_TOTAL_H

#include "trainer/trainer.h"

/* Every worker's first node of wire becomes the total: each adds up its part of the array, then all
 * hand their parts out; fixed64 is one allreduce. */
int tt_total(struct tt_trainer *t);

/* ---- in pieces ------------------------------------------------------------------------------- */

/* Nodes on their way: floats from..from+count-1 of each, in memory of t->wire_on. */
struct tt_pile {
	struct tt_device *on;
	struct tt_node *node;
	void **at;
	size_t n, most; /* nodes; that there is room for */
	size_t from, count;
	char *room;     /* what was received, node after node */
	size_t used;    /* nodes in it */
};

/* Room for what all workers have of `count` floats. Returns 0 | TT_TRAIN_FAILED. */
int tt_pile_open(struct tt_trainer *t, struct tt_pile *pile, size_t count);
void tt_pile_close(struct tt_pile *pile);

/* In each step before the first pile: makes wire fit to travel. */
int tt_pile_begin(struct tt_trainer *t);

/* Worker `root` gets what workers first..last-1 have, added up as far as it goes;
 * the others of them give theirs. root is one of them. */
int tt_pile_gather(struct tt_trainer *t, struct tt_pile *pile, int root, int first, int last);

/* Worker `from`, whose pile holds what workers first..last-1 have, gives it to worker `to`,
 * who adds it to its own, which follows (before) or precedes. */
struct tt_passing {
	int from, to, first, last;
	bool before;
};
int tt_pile_pass(struct tt_trainer *t, struct tt_pile *pile, struct tt_passing p);

/* As tt_total, of `count` floats from `first` on, a multiple of the
 * workers within sum.stride; the pile was opened for a worker's part
 * of them. Not for fixed64, whose exponents are of all leaves. */
int tt_total_part(struct tt_trainer *t, struct tt_pile *pile, size_t first, size_t count);

/* The pile's one node becomes floats in wire's first node, for the library's calls. Returns 0 |
 * TT_TRAIN_FAILED. */
int tt_pile_store(struct tt_trainer *t, struct tt_pile *pile);

#endif

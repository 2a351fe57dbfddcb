/*
 * gradient_sum.h - gradients of all workers become one
 *
 * What a worker has is a few nodes (leaves.h), one after the other in t->wire. They travel as they
 * are, and are added up as --canonical says wherever they meet; `off` adds up in rank order. Called
 * by strategies.
 */
#ifndef TRAIN_TOTAL_H
#define TRAIN_TOTAL_H

#include "trainer/trainer.h"

/* Every worker's first node of wire becomes the total: each adds up its part of the array, then all
 * hand their parts out; fixed64 is one allreduce. */
int train_gradient_total(struct train_rank *t);

/* ---- in pieces ------------------------------------------------------------------------------- */

/* Nodes on their way: floats from..from+count-1 of each, in memory of t->wire_on. */
struct train_pile {
	struct train_device *on;
	struct train_node *node;
	void **at;
	size_t n, most; /* nodes; that there is room for */
	size_t from, count;
	char *room;     /* what was received, node after node */
	size_t used;    /* nodes in it */
};

/* Room for what all workers have of `count` floats. Returns 0 | TRAIN_FAILED. */
int train_pile_open(struct train_rank *t, struct train_pile *pile, size_t count);
void train_pile_close(struct train_pile *pile);

/* In each step before the first pile: makes wire fit to travel. */
int train_pile_begin(struct train_rank *t);

/* Worker `root` gets what workers first..last-1 have, added up as far as it goes;
 * the others of them give theirs. root is one of them. */
int train_pile_gather(struct train_rank *t, struct train_pile *pile, int root, int first, int last);

/* Worker `from`, whose pile holds what workers first..last-1 have, gives it to worker `to`,
 * who adds it to its own, which follows (before) or precedes. */
struct train_passing {
	int from, to, first, last;
	bool before;
};
int train_pile_pass(struct train_rank *t, struct train_pile *pile, struct train_passing p);

/* As train_gradient_total, of `count` floats from `first` on, a multiple of the
 * workers within sum.stride; the pile was opened for a worker's part
 * of them. Not for fixed64, whose exponents are of all leaves. */
int train_gradient_total_part(struct train_rank *t, struct train_pile *pile, size_t first, size_t count);

/* The pile's one node becomes floats in wire's first node, for the library's calls. Returns 0 |
 * TRAIN_FAILED. */
int train_pile_store(struct train_rank *t, struct train_pile *pile);

#endif

/*
 * gradient_sum.h - sum the gradients of all workers in a fixed order
 *
 * A worker's gradients are a few nodes (leaves.h), one after the other in t->comm_buffer. Nodes are
 * sent unchanged, and the receiver adds them in the order of --canonical; `off` adds in rank order.
 * Called by strategies and bucket_sums.c; calls leaves.c, fixed64.c and the library.
 */
#ifndef TRAIN_GRADIENT_SUM_H
#define TRAIN_GRADIENT_SUM_H

#include "trainer/rank/rank.h"

/* Every worker's first node of comm_buffer = the sum over all workers: a reduce-scatter by send and
 * receive, then an allgather; fixed64 is one allreduce. Returns 0 | TRAIN_FAILED. */
int train_sum_gradients(struct train_rank *t);

/* ---- in parts -------------------------------------------------------------------------------- */

/* Partial sums: floats from..from+count-1 of several nodes, in memory of t->comm_device. */
struct train_partials {
	struct train_device *on;
	struct train_node *node;
	void **at;
	size_t n, capacity; /* nodes */
	size_t from, count;
	char *received; /* memory for received nodes, one after the other */
	size_t used;    /* nodes in received */
};

/* Allocates for `count` floats of every worker's nodes. Returns 0 | TRAIN_FAILED. */
int train_partials_open(struct train_rank *t, struct train_partials *p, size_t count);
void train_partials_close(struct train_partials *p);

/* Call in each step before the first gather: converts comm_buffer to the type that is sent.
 * Returns 0 | TRAIN_FAILED. */
int train_partials_begin(struct train_rank *t);

/* Worker `root`, one of workers first..last-1, receives their nodes and folds them; the others
 * of them send. Returns 0 | TRAIN_FAILED. */
int train_partials_gather(struct train_rank *t, struct train_partials *p, int root, int first,
			  int last);

/* Worker `from` sends its partial sums, those of workers first..last-1, to worker `to`, which
 * folds them with its own. before: they precede worker to's in the order of summation. */
struct train_partials_move {
	int from, to, first, last;
	bool before;
};
int train_partials_send(struct train_rank *t, struct train_partials *p,
			struct train_partials_move m);

/* Like train_sum_gradients for `count` floats from `first` on; count is a multiple of the number
 * of workers and stays within sum.stride. p was opened for a worker's part of them. Not for
 * fixed64, whose exponents need all leaves. */
int train_sum_bucket(struct train_rank *t, struct train_partials *p, size_t first, size_t count);

/* The reduce-scatter of it: this worker's part alone becomes the sum, in comm_buffer's first node. */
int train_sum_part(struct train_rank *t, struct train_partials *p, size_t first, size_t count);

/* Converts the one node of p to floats in comm_buffer's first node, for the library's calls.
 * Returns 0 | TRAIN_FAILED. */
int train_partials_store(struct train_rank *t, struct train_partials *p);

#endif

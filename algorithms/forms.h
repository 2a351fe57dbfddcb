/*
 * forms.h - the halves that algorithms are made of
 *
 * Each speaks for the builder's current group. reduce_scatter: afterwards rank r has the result of
 * part r (as many parts as ranks). allgather: the reverse. reduce: the group's root has the result
 * of all parts. broadcast: the reverse. ring.c, halving_doubling.c, linear.c and binomial.c define
 * them; the allreduce algorithms and hierarchical.c join them.
 */
#ifndef TT_FORMS_H
#define TT_FORMS_H

#include "algorithms/algorithm.h"

void tt_ring_reduce_scatter(struct tt_builder *b);
void tt_ring_allgather(struct tt_builder *b);
void tt_halving_reduce_scatter(struct tt_builder *b);
void tt_doubling_allgather(struct tt_builder *b);
void tt_linear_reduce_scatter(struct tt_builder *b);
void tt_linear_allgather(struct tt_builder *b);

void tt_binomial_reduce(struct tt_builder *b);
void tt_binomial_broadcast(struct tt_builder *b);
void tt_linear_reduce(struct tt_builder *b);
void tt_linear_broadcast(struct tt_builder *b);

/* A buffer cut into one block a rank. */
static inline struct tt_cut tt_cut_by_ranks(const struct tt_shape *shape, const char *argument)
{
	(void)argument;
	return (struct tt_cut){ (uint32_t)shape->nranks, 1 };
}

#endif

/*
 * forms.h - building blocks of algorithms: one collective of the builder's current group
 *
 * reduce_scatter: rank r ends with the result of part r (as many parts as ranks). allgather: the
 * reverse. reduce: the group's root ends with the result of all parts. broadcast: the reverse.
 * Defined by ring.c, halving_doubling.c, linear.c and binomial.c; called by the allreduce
 * algorithms and hierarchical.c.
 */
#ifndef TT_FORMS_H
#define TT_FORMS_H

#include "plan/algorithm.h"

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

/* Cut of a buffer into one block per rank. */
static inline struct tt_cut tt_cut_by_ranks(const struct tt_shape *shape, const char *argument)
{
	(void)argument;
	return (struct tt_cut){ (uint32_t)shape->nranks, 1 };
}

#endif

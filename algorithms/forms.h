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

/* One step for the `count` parts from `first` on, modulo n: tt_step_send or tt_step_recv. Parts that wrap around the
 * end of the buffer are two messages. */
static inline void tt_step_around(struct tt_builder *b,
				  void (*step)(struct tt_builder *b, int peer, struct tt_span s),
				  int peer, int first, int count)
{
	int before_end = first + count <= b->n ? count : b->n - first;

	step(b, peer, tt_parts(b, (uint32_t)first, (uint32_t)before_end));
	step(b, peer, tt_parts(b, 0, (uint32_t)(count - before_end)));
}

/* Cut of a buffer into one block per rank. */
static inline struct tt_cut tt_cut_by_ranks(const struct tt_shape *shape, const char *argument)
{
	(void)argument;
	return (struct tt_cut){ (uint32_t)shape->nranks, 1 };
}

/* Symmetries of algorithms: every rank rotates; the same, but sums are in rank order, and more than
 * eight operands are summed in several steps. */
static inline struct tt_symmetry tt_rotates(const struct tt_shape *shape, const char *argument)
{
	(void)shape;
	(void)argument;
	return (struct tt_symmetry){ .kind = TT_ROTATION };
}

static inline struct tt_symmetry tt_rotates_in_rank_order(const struct tt_shape *shape,
							  const char *argument)
{
	(void)argument;
	return (struct tt_symmetry){ .kind = TT_ROTATION, .nearly = shape->nranks > 8 };
}

/* Pairs of a hypercube; ranks beyond a power of two have other steps. */
static inline struct tt_symmetry tt_exchanges(const struct tt_shape *shape, const char *argument)
{
	bool power = !(shape->nranks & (shape->nranks - 1));

	(void)argument;
	return (struct tt_symmetry){ .kind = power ? TT_EXCHANGE : TT_ASYMMETRIC };
}

#endif

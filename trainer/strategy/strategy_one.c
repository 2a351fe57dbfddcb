/*
 * strategy_one.c - one rank without communication: the reference of all other strategies
 *
 *	gradients = gradient(parameters, batch)
 *	parameters = descend(parameters, gradients)
 *
 * Row of the table in strategy.c.
 */
#include "trainer/strategy/gradient_sum.h"
#include "trainer/strategy/strategy.h"

static int one_open(struct train_rank *t)
{
	if (t->nranks == 1)
		return TRAIN_OK;
	return train_fail(TRAIN_USAGE,
			  "--strategy one: trains on one rank, not on %d; use --np 1, or "
			  "--strategy mirrored",
			  t->nranks);
}

static int one_step(struct train_rank *t, const struct train_batch *batch)
{
	int rc = train_gradient(t, batch, NULL);

	if (!rc && t->leaves.kind == TRAIN_CANONICAL_FIXED64) /* leaves are not summed yet */
		rc = train_sum_gradients(t);
	if (!rc)
		train_descend(t, t->leaves.batch);
	return rc;
}

const struct train_strategy_ops train_strategy_one = {
	.name = "one",
	.help = "a single rank, without communication",
	.leaves = true,
	.collectives_only = true,
	.no_shrink = "one has a single rank, and no rank survives its death; use --save-every",
	.touched_rows = true,
	.open = one_open,
	.step = one_step,
};

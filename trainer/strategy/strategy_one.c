/*
 * strategy_one.c - one rank, nothing communicated: what all other strategies are held against
 *
 *	gradients = gradient(parameters, batch)
 *	parameters = descend(parameters, gradients)
 *
 * Row of the table in strategy.c.
 */
#include "trainer/strategy/strategy.h"
#include "trainer/strategy/gradient_sum.h"

static int one_open(struct tt_trainer *t)
{
	if (t->nranks == 1)
		return TT_TRAIN_OK;
	return tt_train_fail(TT_TRAIN_USAGE,
			     "--strategy one: trains on one rank, not on %d; use --np 1, or "
			     "--strategy mirrored",
			     t->nranks);
}

static int one_step(struct tt_trainer *t, const struct tt_batch *batch)
{
	int rc = tt_gradient(t, batch, NULL);

	if (!rc && t->leaves.kind == TT_CANONICAL_FIXED64) /* leaves that are not added up yet */
		rc = tt_total(t);
	if (!rc)
		tt_descend(t, t->leaves.batch);
	return rc;
}

const struct tt_strategy_ops tt_strategy_one = {
	.name = "one",
	.help = "a single rank, nothing is communicated",
	.leaves = true,
	.by_calls = true,
	.no_shrink = "one is a single rank, and none is left when it dies; use --save-every",
	.open = one_open,
	.step = one_step,
};

/*
 * strategy_reduce_to_one.c - gradients are added up on one rank, and copied back
 *
 *	each step:
 *		gradients = gradient(parameters, my share of the batch)
 *		for each pack of them:
 *			root = pack % ranks
 *			root: total = ((g0 + g1) + g2) + ...		(or --canonical's
 *expression) broadcast(total) parameters = descend(parameters, total / global batch)
 *
 * A pack is --bucket-kb; the root moves on, so that no rank's link carries everything. Row of the
 * table in strategy.c.
 *
 * Source: TensorFlow's ReductionToOneDevice.
 */
#include "trainer/strategy/strategy.h"
#include "trainer/strategy/gradient_sum.h"

#include <stdlib.h>

static int rto_open(struct train_rank *t)
{
	size_t most = (size_t)t->config->bucket_kb * 1024 / sizeof(float);
	struct train_pile *pile = calloc(1, sizeof(*pile));
	int rc;

	if (!pile)
		return train_fail(TRAIN_FAILED, "no memory for a strategy");
	t->strategy_state = pile;
	rc = train_pile_open(t, pile, most < t->floats ? most : t->floats);
	return rc ? rc : train_parameters_share(t);
}

static void rto_close(struct train_rank *t)
{
	train_pile_close(t->strategy_state);
	free(t->strategy_state);
}

static int one_pack(struct train_rank *t, struct train_pile *pile, int root)
{
	int rc = train_pile_gather(t, pile, root, 0, t->nranks);

	if (!rc && t->rank == root)
		rc = train_pile_store(t, pile);
	if (rc)
		return rc;
	return train_library(tuttiBcast(t->wire + pile->from, pile->count, tuttiFloat32, root, t->comm,
				     NULL),
			  t->comm);
}

static int rto_step(struct train_rank *t, const struct train_batch *batch)
{
	struct train_pile *pile = t->strategy_state;
	size_t most = (size_t)t->config->bucket_kb * 1024 / sizeof(float);
	int rc = train_gradient(t, batch, NULL);
	uint64_t waits = train_time_ns();

	if (!rc)
		rc = train_pile_begin(t);
	for (size_t pack = 0; pack * most < t->floats && !rc; pack++) {
		pile->from = pack * most;
		pile->count = t->floats - pile->from < most ? t->floats - pile->from : most;
		rc = one_pack(t, pile, (int)(pack % (size_t)t->nranks));
	}
	train_exposed(t, waits);
	if (!rc)
		train_descend(t, t->leaves.batch);
	return rc;
}

const struct train_strategy_ops train_strategy_reduce_to_one = {
	.name = "reduce-to-one",
	.help = "one rank adds up, in rank order, and hands the sum out",
	.leaves = true,
	.by_calls = true,
	.open = rto_open,
	.close = rto_close,
	.step = rto_step,
};

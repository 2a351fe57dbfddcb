/*
 * strategy_reduce_to_one.c - gradients are reduced to one rank, and broadcast
 *
 *	each step:
 *		gradients = gradient(parameters, my share of the batch)
 *		for each gradient bucket:
 *			root = bucket % ranks
 *			root: total = ((g0 + g1) + g2) + ...	(or --canonical's expression)
 *			broadcast(total)
 *		parameters = descend(parameters, total / global batch)
 *
 * A bucket has --bucket-kb; the root rotates, so that no rank's link carries all traffic. Row of
 * the table in strategy.c.
 *
 * Source: TensorFlow's ReductionToOneDevice.
 */
#include "trainer/strategy/gradient_sum.h"
#include "trainer/strategy/strategy.h"

#include <stdlib.h>

static int rto_open(struct train_rank *t)
{
	size_t most = (size_t)t->config->bucket_kb * 1024 / sizeof(float);
	struct train_partials *partials = calloc(1, sizeof(*partials));
	int rc;

	if (!partials)
		return train_fail(TRAIN_FAILED, "no memory for a strategy");
	t->strategy_state = partials;
	rc = train_partials_open(t, partials, most < t->floats ? most : t->floats);
	return rc ? rc : train_parameters_bcast(t);
}

static void rto_close(struct train_rank *t)
{
	train_partials_close(t->strategy_state);
	free(t->strategy_state);
}

static int one_bucket(struct train_rank *t, struct train_partials *partials, int root)
{
	int rc = train_partials_gather(t, partials, root, 0, t->nranks);

	if (!rc && t->rank == root)
		rc = train_partials_store(t, partials);
	if (rc)
		return rc;
	return train_check(tuttiBcast(t->comm_buffer + partials->from, partials->count,
				      tuttiFloat32, root, t->comm, NULL),
			   t->comm);
}

static int rto_step(struct train_rank *t, const struct train_batch *batch)
{
	struct train_partials *partials = t->strategy_state;
	size_t most = (size_t)t->config->bucket_kb * 1024 / sizeof(float);
	int rc = train_gradient(t, batch, NULL);
	uint64_t wait_begin = train_time_ns();

	if (!rc)
		rc = train_partials_begin(t);
	for (size_t bucket = 0; bucket * most < t->floats && !rc; bucket++) {
		partials->from = bucket * most;
		partials->count = t->floats - partials->from < most ? t->floats - partials->from
								    : most;
		rc = one_bucket(t, partials, (int)(bucket % (size_t)t->nranks));
	}
	train_add_exposed(t, wait_begin);
	if (!rc)
		train_descend(t, t->leaves.batch);
	return rc;
}

const struct train_strategy_ops train_strategy_reduce_to_one = {
	.name = "reduce-to-one",
	.help = "one rank sums in rank order and broadcasts the sum",
	.leaves = true,
	.collectives_only = true,
	.open = rto_open,
	.close = rto_close,
	.step = rto_step,
};

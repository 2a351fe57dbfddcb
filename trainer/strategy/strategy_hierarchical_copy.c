/*
 * strategy_hierarchical_copy.c - two groups of ranks, each with a main rank that rotates per
 * bucket
 *
 *	each step:
 *		gradients = gradient(parameters, my share of the batch)
 *		for each gradient bucket:
 *			main0 = bucket % ranks, main1 = (main0 + ranks / 2) % ranks
 *			each main sums the gradients of its group
 *			main1 sends its sum to main0, which adds both and returns the total
 *			each main copies the total to its group
 *		parameters = descend(parameters, total / global batch)
 *
 * With an odd number of ranks the second group has one more. Only two sums cross between the
 * groups, which pays off where the link between them is slow. Row of the table in strategy.c.
 *
 * Source: TensorFlow's HierarchicalCopyAllReduce, written for two groups of four GPUs.
 */
#include "trainer/strategy/gradient_sum.h"
#include "trainer/strategy/strategy.h"

#include <stdlib.h>

struct rank_group {
	int first, last, main;
};

static int hc_open(struct train_rank *t)
{
	size_t most = (size_t)t->config->bucket_kb * 1024 / sizeof(float);
	struct train_partials *partials;
	int rc;

	if (t->nranks < 2)
		return train_fail(TRAIN_USAGE,
				  "--strategy hierarchical-copy: needs two groups of ranks, not "
				  "one rank; use --np 2 or more");
	partials = calloc(1, sizeof(*partials));
	if (!partials)
		return train_fail(TRAIN_FAILED, "no memory for a strategy");
	t->strategy_state = partials;
	rc = train_partials_open(t, partials, most < t->floats ? most : t->floats);
	return rc ? rc : train_parameters_bcast(t);
}

static void hc_close(struct train_rank *t)
{
	train_partials_close(t->strategy_state);
	free(t->strategy_state);
}

static int copy(struct train_rank *t, const struct train_partials *partials, int from, int to)
{
	float *at = t->comm_buffer + partials->from;
	tuttiResult_t result = tuttiSuccess;

	if (t->rank == from)
		result = tuttiSend(at, partials->count, tuttiFloat32, to, t->comm, NULL);
	else if (t->rank == to)
		result = tuttiRecv(at, partials->count, tuttiFloat32, from, t->comm, NULL);
	return train_check(result, t->comm);
}

static int copy_to_group(struct train_rank *t, const struct train_partials *partials,
			 struct rank_group g)
{
	int rc = TRAIN_OK;
	tuttiResult_t result;

	tuttiGroupStart();
	for (int member = g.first; member < g.last && !rc; member++)
		if (member != g.main)
			rc = copy(t, partials, g.main, member);
	result = tuttiGroupEnd();
	return rc ? rc : train_check(result, t->comm);
}

static int one_bucket(struct train_rank *t, struct train_partials *partials, struct rank_group main,
		      struct rank_group other)
{
	bool in_main = t->rank >= main.first && t->rank < main.last;
	struct rank_group mine = in_main ? main : other;
	struct train_partials_move move = { other.main, main.main, other.first, other.last,
					    other.first < main.first };
	int rc = train_partials_gather(t, partials, mine.main, mine.first, mine.last);

	if (!rc)
		rc = train_partials_send(t, partials, move);
	if (!rc && t->rank == main.main)
		rc = train_partials_store(t, partials);
	if (!rc)
		rc = copy(t, partials, main.main, other.main);
	return rc ? rc : copy_to_group(t, partials, mine);
}

static int all_buckets(struct train_rank *t, struct train_partials *partials)
{
	size_t most = (size_t)t->config->bucket_kb * 1024 / sizeof(float);
	int rc = train_partials_begin(t), half = t->nranks / 2;

	for (size_t bucket = 0; bucket * most < t->floats && !rc; bucket++) {
		int main0 = (int)(bucket % (size_t)t->nranks), main1 = (main0 + half) % t->nranks;
		bool low = main0 < half;
		struct rank_group lower = { 0, half, low ? main0 : main1 % half },
				  upper = { half, t->nranks, low ? main1 : main0 };

		partials->from = bucket * most;
		partials->count = t->floats - partials->from < most ? t->floats - partials->from
								    : most;
		rc = low ? one_bucket(t, partials, lower, upper)
			 : one_bucket(t, partials, upper, lower);
	}
	return rc;
}

static int hc_step(struct train_rank *t, const struct train_batch *batch)
{
	int rc = train_gradient(t, batch, NULL);
	uint64_t wait_begin = train_time_ns();

	if (!rc) /* one rank: the others have died */
		rc = t->nranks == 1 ? train_sum_gradients(t) : all_buckets(t, t->strategy_state);
	train_add_exposed(t, wait_begin);
	if (!rc)
		train_descend(t, t->leaves.batch);
	return rc;
}

const struct train_strategy_ops train_strategy_hierarchical_copy = {
	.name = "hierarchical-copy",
	.help = "two groups sum on a main rank each, the mains exchange sums",
	.leaves = true,
	.collectives_only = true,
	.open = hc_open,
	.close = hc_close,
	.step = hc_step,
};

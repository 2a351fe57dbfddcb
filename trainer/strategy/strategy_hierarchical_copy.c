/*
 * strategy_hierarchical_copy.c - two groups of ranks, with a main rank in each that moves on
 *
 *	each step:
 *		gradients = gradient(parameters, my share of the batch)
 *		for each pack of them:
 *			main0 = pack % ranks, main1 = (main0 + ranks / 2) % ranks
 *			each main adds up what its group has
 *			main1 passes its sum to main0, who adds both and passes the total back
 *			each main copies the total to its group
 *		parameters = descend(parameters, total / global batch)
 *
 * With an odd number of ranks the second group has one more. Between the groups only two sums move:
 * that is the point where the link between them is slow. Row of the table in strategy.c.
 *
 * Source: TensorFlow's HierarchicalCopyAllReduce, written for two groups of four GPUs.
 */
#include "trainer/strategy/strategy.h"
#include "trainer/strategy/gradient_sum.h"

#include <stdlib.h>

struct group {
	int first, last, main;
};

static int hc_open(struct train_rank *t)
{
	size_t most = (size_t)t->config->bucket_kb * 1024 / sizeof(float);
	struct train_pile *pile;
	int rc;

	if (t->nranks < 2)
		return train_fail(TRAIN_USAGE,
				     "--strategy hierarchical-copy: wants two groups of ranks, and "
				     "there is one rank; use --np 2 or more");
	pile = calloc(1, sizeof(*pile));
	if (!pile)
		return train_fail(TRAIN_FAILED, "no memory for a strategy");
	t->strategy_state = pile;
	rc = train_pile_open(t, pile, most < t->floats ? most : t->floats);
	return rc ? rc : train_parameters_share(t);
}

static void hc_close(struct train_rank *t)
{
	train_pile_close(t->strategy_state);
	free(t->strategy_state);
}

static int copy(struct train_rank *t, const struct train_pile *pile, int from, int to)
{
	float *at = t->wire + pile->from;
	tuttiResult_t result = tuttiSuccess;

	if (t->rank == from)
		result = tuttiSend(at, pile->count, tuttiFloat32, to, t->comm, NULL);
	else if (t->rank == to)
		result = tuttiRecv(at, pile->count, tuttiFloat32, from, t->comm, NULL);
	return train_library(result, t->comm);
}

static int copy_to_group(struct train_rank *t, const struct train_pile *pile, struct group g)
{
	int rc = TRAIN_OK;
	tuttiResult_t result;

	tuttiGroupStart();
	for (int member = g.first; member < g.last && !rc; member++)
		if (member != g.main)
			rc = copy(t, pile, g.main, member);
	result = tuttiGroupEnd();
	return rc ? rc : train_library(result, t->comm);
}

static int one_pack(struct train_rank *t, struct train_pile *pile, struct group main,
		    struct group other)
{
	bool in_main = t->rank >= main.first && t->rank < main.last;
	struct group mine = in_main ? main : other;
	struct train_passing pass = { other.main, main.main, other.first, other.last,
				   other.first < main.first };
	int rc = train_pile_gather(t, pile, mine.main, mine.first, mine.last);

	if (!rc)
		rc = train_pile_pass(t, pile, pass);
	if (!rc && t->rank == main.main)
		rc = train_pile_store(t, pile);
	if (!rc)
		rc = copy(t, pile, main.main, other.main);
	return rc ? rc : copy_to_group(t, pile, mine);
}

static int all_packs(struct train_rank *t, struct train_pile *pile)
{
	size_t most = (size_t)t->config->bucket_kb * 1024 / sizeof(float);
	int rc = train_pile_begin(t), half = t->nranks / 2;

	for (size_t pack = 0; pack * most < t->floats && !rc; pack++) {
		int main0 = (int)(pack % (size_t)t->nranks), main1 = (main0 + half) % t->nranks;
		bool low = main0 < half;
		struct group lower = { 0, half, low ? main0 : main1 % half },
			     upper = { half, t->nranks, low ? main1 : main0 };

		pile->from = pack * most;
		pile->count = t->floats - pile->from < most ? t->floats - pile->from : most;
		rc = low ? one_pack(t, pile, lower, upper) : one_pack(t, pile, upper, lower);
	}
	return rc;
}

static int hc_step(struct train_rank *t, const struct train_batch *batch)
{
	int rc = train_gradient(t, batch, NULL);
	uint64_t waits = train_time_ns();

	if (!rc) /* one: the others have died */
		rc = t->nranks == 1 ? train_gradient_total(t) : all_packs(t, t->strategy_state);
	train_exposed(t, waits);
	if (!rc)
		train_descend(t, t->leaves.batch);
	return rc;
}

const struct train_strategy_ops train_strategy_hierarchical_copy = {
	.name = "hierarchical-copy",
	.help = "two groups add up on a main rank each, the mains exchange",
	.leaves = true,
	.by_calls = true,
	.open = hc_open,
	.close = hc_close,
	.step = hc_step,
};

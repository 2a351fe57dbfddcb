/*
 * strategy_ps_sync.c - synchronous parameter servers
 *
 *	server, for its shard, in each step:
 *		wait for the gradients of all workers, in any order of arrival
 *		total = their sum in rank order			(or --canonical's expression)
 *		parameters = descend(parameters, total / global batch)
 *		send the parameters to all workers
 *	worker, in each step:
 *		push(gradient(parameters, my share of the batch))
 *		parameters = those after the step	(of a sparse table: pull the rows that a
 *							batch touches before its gradient)
 *
 * The sums are those of reduce-to-one in the same order, so the bits are equal. A step is as
 * slow as the slowest worker, and a server receives workers * shard bytes in each. Row of the
 * table in strategy.c; calls ps_worker.c.
 *
 * Sources: Smola and Narayanamurthy 2010, An architecture for parallel topic models; Li et al.
 * 2014, Scaling distributed machine learning with the parameter server.
 */
#include "trainer/strategy/ps.h"
#include "trainer/strategy/strategy.h"

#include <stdlib.h>

static int sync_open(struct train_rank *t)
{
	struct train_ps *ps;

	if (t->leaves.kind == TRAIN_CANONICAL_FIXED64)
		return train_fail(TRAIN_USAGE,
				  "--canonical fixed64: ps-sync sums floats; use tree or chain");
	ps = calloc(1, sizeof(*ps));
	if (!ps)
		return train_fail(TRAIN_FAILED, "no memory for a strategy");
	t->strategy_state = ps;
	return train_ps_open(t, ps, (struct train_ps_rule){ .sync = true });
}

static void sync_close(struct train_rank *t)
{
	train_ps_close(t, t->strategy_state);
	free(t->strategy_state);
}

static int sync_step(struct train_rank *t, const struct train_batch *batch)
{
	struct train_ps *ps = t->strategy_state;
	int rc = TRAIN_OK;

	train_ps_touch(t, ps, batch);
	if (ps->sparse)
		rc = train_ps_pull(t, ps);
	if (!rc)
		rc = train_gradient(t, batch, NULL);
	if (!rc)
		rc = train_ps_push(t, ps, t->comm_buffer, t->sum.nodes, t->sum.stride);
	return rc ? rc : train_ps_finish(t, ps);
}

static int sync_settle(struct train_rank *t, enum train_settle why)
{
	struct train_ps *ps = t->strategy_state;
	bool last = why == TRAIN_SETTLE_END;

	return last || ps->sparse ? train_ps_settle(t, ps, last) : TRAIN_OK;
}

static int sync_serve(struct train_rank *t)
{
	return train_ps_server_run(t, t->strategy_state);
}
static void sync_report(const struct train_rank *t)
{
	train_ps_report(t->strategy_state);
}

static int sync_state(struct train_rank *t, float *host)
{
	return train_ps_state(t, t->strategy_state, host);
}

const struct train_strategy_ops train_strategy_ps_sync = {
	.name = "ps-sync",
	.help = "--ps servers wait for the gradients of all workers, sum, descend",
	.optimizer = TRAIN_OPTIMIZER_STORE,
	.leaves = true,
	.no_shrink =
		"ps-sync's servers wait for every worker; use mirrored, which gives the same bits "
		"under --canonical, or ps-async",
	.touched_rows = true,
	.open = sync_open,
	.close = sync_close,
	.step = sync_step,
	.settle = sync_settle,
	.serve = sync_serve,
	.state = sync_state,
	.report = sync_report,
};

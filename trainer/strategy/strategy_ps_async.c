/*
 * strategy_ps_async.c - asynchronous parameter servers
 *
 *	server, for its shard, on each push of gradients computed at version v:
 *		staleness = version - v
 *		unless staleness > --stale-drop:
 *			parameters = descend(parameters, gradients / global batch)
 *					--stale-scale: times 1 / (1 + staleness)
 *			version = version + 1
 *	server 0, on each ask:
 *		answer the next share of the next batch, until all steps are handed out
 *	worker, while there are shares:
 *		share = ask()
 *		parameters, v = pull()		--ssp N: delayed while this worker is more than N
 *						steps ahead of the slowest; of a sparse
 *						table the rows that the share touches
 *		push(gradient(parameters, share), v)
 *
 * The death of a worker does not stop the others. --record and --replay repeat a training with
 * the same order of arrivals. Row of the table in strategy.c; calls ps_worker.c.
 *
 * Sources: Dean et al. 2012, Large scale distributed deep networks; Ho et al. 2013, More
 * effective distributed ML via a stale synchronous parallel parameter server; Zhang et al. 2016,
 * Staleness-aware async-SGD.
 */
#include "trainer/strategy/ps.h"
#include "trainer/strategy/strategy.h"

#include <stdlib.h>

static int async_open(struct train_rank *t)
{
	struct train_ps *ps = calloc(1, sizeof(*ps));

	if (!ps)
		return train_fail(TRAIN_FAILED, "no memory for a strategy");
	t->strategy_state = ps;
	return train_ps_open(t, ps,
			     (struct train_ps_rule){ .ssp = true, .drop = true, .log = true });
}

static void async_close(struct train_rank *t)
{
	train_ps_close(t, t->strategy_state);
	free(t->strategy_state);
}

static int async_step(struct train_rank *t, const struct train_batch *batch)
{
	struct train_ps *ps = t->strategy_state;
	int rc;

	train_ps_touch(t, ps, batch);
	rc = train_ps_pull(t, ps);
	if (!rc)
		rc = train_gradient(t, batch, NULL);
	if (!rc)
		rc = train_ps_push(t, ps, t->comm_buffer, 1, 0);
	return rc;
}

static int async_ask(struct train_rank *t, bool stop, struct train_handout *ret_handout)
{
	return train_ps_ask(t, t->first_server, stop, ret_handout);
}

static int async_settle(struct train_rank *t, enum train_settle why)
{
	return train_ps_settle(t, t->strategy_state, why == TRAIN_SETTLE_END);
}

static int async_serve(struct train_rank *t)
{
	return train_ps_server_run(t, t->strategy_state);
}
static void async_report(const struct train_rank *t)
{
	train_ps_report(t->strategy_state);
}

static int async_state(struct train_rank *t, float *host)
{
	return train_ps_state(t, t->strategy_state, host);
}

const struct train_strategy_ops train_strategy_ps_async = {
	.name = "ps-async",
	.help = "--ps servers apply each gradient on arrival, stale ones too",
	.optimizer = TRAIN_OPTIMIZER_STORE,
	.local_replicas = true,
	.fault_tolerant = true,
	.no_shrink = "ps-async always continues without dead workers, and never without servers; "
		     "omit the option",
	.touched_rows = true,
	.open = async_open,
	.close = async_close,
	.step = async_step,
	.ask = async_ask,
	.settle = async_settle,
	.serve = async_serve,
	.state = async_state,
	.report = async_report,
};

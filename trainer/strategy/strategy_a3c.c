/*
 * strategy_a3c.c - asynchronous advantage actor-critic: workers of one host share parameters
 *
 *	worker, while there are shares of a batch:
 *		parameters = shared parameters
 *		play the share's frames						(rollout.h)
 *		gradients = gradient(parameters, frames)
 *		shared parameters = RMSProp(shared parameters, gradients / frames)
 *				whose mean squares are shared, too, and no worker has a lock
 *
 * Shares of a step are as many as workers; a fast worker computes more of them than a slow one. One
 * worker alone has the bits of a2c. Row of the table in strategy.c; calls shared_parameters.c.
 *
 * Sources: Mnih et al. 2016, Asynchronous methods for deep reinforcement learning; Niu et al. 2011,
 * Hogwild: a lock-free approach to parallelizing stochastic gradient descent.
 */
#include "trainer/rank/due_steps.h"
#include "trainer/strategy/shared_parameters.h"
#include "trainer/strategy/strategy.h"

#include <stdlib.h>

struct a3c_state {
	struct train_shared shared;
	uint64_t pause; /* the step after which workers settle */
};

static int a3c_open(struct train_rank *t)
{
	struct a3c_state *a = calloc(1, sizeof(*a));

	if (!a)
		return train_fail(TRAIN_FAILED, "no memory for a strategy");
	t->strategy_state = a;
	a->pause = train_next_due(t, t->first_step);
	return train_shared_open(&a->shared, t);
}

static void a3c_close(struct train_rank *t)
{
	struct a3c_state *a = t->strategy_state;

	train_shared_close(&a->shared);
	free(a);
}

static int a3c_step(struct train_rank *t, const struct train_batch *batch)
{
	struct a3c_state *a = t->strategy_state;
	int rc;

	train_shared_read(&a->shared, t->parameters, NULL);
	rc = train_gradient(t, batch, NULL);
	if (!rc && batch->rows)
		train_shared_descend(&a->shared, t->gradients, train_mean_scale(t, batch->rows),
				     t->rate);
	return rc;
}

/* No share is left before the pause: once all workers know, none takes another one. */
static int pause_work(struct train_rank *t, struct train_handout *handout)
{
	struct a3c_state *a = t->strategy_state;
	uint64_t wait_begin = train_time_ns(), next, n = (uint64_t)t->nranks;
	int rc = train_check(tuttiBarrier(t->comm, NULL), t->comm);

	train_add_exposed(t, wait_begin);
	next = a->shared.memory->next;
	handout->handed = next - t->first_step * n;
	handout->step = (next + n - 1) / n;
	handout->kind = next < a->pause * n || a->pause == train_steps(t) ? TRAIN_HANDOUT_END
									  : TRAIN_HANDOUT_PAUSE;
	a->pause = train_next_due(t, a->pause);
	return rc;
}

static int a3c_ask(struct train_rank *t, bool stop, struct train_handout *ret_handout)
{
	struct a3c_state *a = t->strategy_state;
	struct train_handout h = { .kind = TRAIN_HANDOUT_SHARE, .shares = (uint64_t)t->nranks };
	uint64_t share;
	int rc = TRAIN_OK;

	if (stop)
		a->shared.memory->stop = true;
	if (!a->shared.memory->stop && train_shared_take(&a->shared, a->pause * h.shares, &share)) {
		h.step = share / h.shares + 1;
		h.share = share % h.shares;
		h.handed = share + 1 - t->first_step * h.shares;
	} else {
		rc = pause_work(t, &h);
	}
	*ret_handout = h;
	return rc;
}

/* The workers have paused: none changes the shared parameters before all have read them. */
static int a3c_settle(struct train_rank *t, enum train_settle why)
{
	struct a3c_state *a = t->strategy_state;

	(void)why;
	train_shared_read(&a->shared, t->parameters, t->state);
	return train_check(tuttiBarrier(t->comm, NULL), t->comm);
}

const struct train_strategy_ops train_strategy_a3c = {
	.name = "a3c",
	.help = "workers of a host play, and share parameters without locks",
	.plays = true,
	.local_replicas = true,
	.no_shrink =
		"a worker of a3c may die within an update of the shared parameters; use --save-every",
	.open = a3c_open,
	.close = a3c_close,
	.step = a3c_step,
	.ask = a3c_ask,
	.settle = a3c_settle,
};

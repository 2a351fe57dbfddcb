/*
 * strategy_central.c - one host keeps the parameters and the optimizer; every device only computes
 *
 * 	each step:
 * 		gradients = gradient(parameters, my share of the batch)
 * 		rank 0: total = all gradients, in rank order		(or --canonical's
 * expression) rank 0: parameters = descend(parameters, total / global batch), on the host, once
 * 		every device copies the parameters from the host
 *
 * Devices hold no optimizer. Under --on-failure shrink only rank 0's death ends it.
 * Row of the table in strategy.c.
 *
 * Source: TensorFlow's CentralStorageStrategy.
 */
#include "trainer/strategy/ps_store.h"
#include "trainer/strategy/strategy.h"
#include "trainer/strategy/survive.h"
#include "trainer/strategy/gradient_sum.h"

#include <stdlib.h>
#include <string.h>

struct central {
	struct train_ps_store store; /* rank 0 */
	uint64_t steps;        /* that it has seen */
	struct train_pile pile;
	float *total;          /* rank 0, where the host cannot touch wire */
};

static int central_open(struct train_rank *t)
{
	struct central *c = calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return train_fail(TRAIN_FAILED, "no memory for a strategy");
	t->strategy_state = c;
	c->steps = t->first_step;
	rc = train_pile_open(t, &c->pile, t->floats);
	if (!rc && t->rank == 0)
		rc = train_ps_store_open(&c->store, t->model.parameters, (float)t->config->momentum,
				   false);
	if (!rc && t->rank == 0 && train_wire_apart(t) &&
	    !(c->total = malloc(t->model.parameters * sizeof(float))))
		rc = train_fail(TRAIN_FAILED, "no memory for a total");
	if (!rc && t->rank == 0)
		memcpy(c->store.parameters, train_parameters_out(t),
		       t->model.parameters * sizeof(float));
	if (!rc && t->resumed)
		memcpy(c->store.state, t->resumed, t->model.parameters * sizeof(float));
	return rc ? rc : train_parameters_share(t);
}

static void central_close(struct train_rank *t)
{
	struct central *c = t->strategy_state;

	train_pile_close(&c->pile);
	train_ps_store_close(&c->store);
	free(c->total);
	free(c);
}

/* On rank 0: what the host keeps goes to wire, for the library's calls. */
static int show(struct train_rank *t, const struct central *c)
{
	t->wire_on->ops->put(t->wire_on, t->wire, c->store.parameters,
			     c->store.count * sizeof(float));
	return train_device_settle(t->wire_on);
}

/* On rank 0: a step by the total in wire, which then holds the new parameters. */
static int descend_here(struct train_rank *t, struct central *c)
{
	const float *total = t->wire;
	int rc = train_pile_store(t, &c->pile);

	if (c->total) {
		t->wire_on->ops->get(t->wire_on, c->total, t->wire,
				     c->store.count * sizeof(float));
		total = c->total;
	}
	train_ps_store_descend(&c->store, total, 1.0f / (float)t->leaves.batch, t->rate);
	c->steps = t->step;
	return rc ? rc : show(t, c);
}

static int central_step(struct train_rank *t, const struct train_batch *batch)
{
	struct central *c = t->strategy_state;
	int rc = train_gradient(t, batch, NULL);
	uint64_t waits = train_time_ns();

	c->pile.from = 0;
	c->pile.count = t->floats;
	if (!rc)
		rc = train_pile_begin(t);
	if (!rc)
		rc = train_pile_gather(t, &c->pile, 0, 0, t->nranks);
	if (!rc && t->rank == 0)
		rc = descend_here(t, c);
	if (!rc)
		rc = train_library(tuttiBcast(t->wire, t->floats, tuttiFloat32, 0, t->comm, NULL),
				t->comm);
	train_exposed(t, waits);
	if (!rc)
		train_parameters_take(t, t->wire);
	return rc;
}

/* Whatever the others have seen: what counts is rank 0's, if it is still there. */
static int central_rejoin(struct train_rank *t, uint64_t done, uint64_t *ret_done)
{
	struct central *c = t->strategy_state;
	int rc = train_regroup(t);

	(void)done;
	*ret_done = c->store.parameters ? c->steps : UINT64_MAX;
	if (!rc && c->store.parameters)
		rc = show(t, c);
	if (!rc)
		rc = train_library(tuttiBcast(ret_done, 1, tuttiUint64, 0, t->comm, NULL), t->comm);
	if (!rc && *ret_done == UINT64_MAX)
		rc = train_fail(TRAIN_FAILED,
			"rank 0, whose host kept the parameters, died; go on from the last "
			"checkpoint by --resume");
	if (!rc)
		rc = train_library(tuttiBcast(t->wire, t->floats, tuttiFloat32, 0, t->comm, NULL),
				t->comm);
	if (!rc)
		train_parameters_take(t, t->wire);
	return rc;
}

static int central_state(struct train_rank *t, float *host)
{
	struct central *c = t->strategy_state;

	memcpy(host, c->store.state, c->store.count * sizeof(float));
	return TRAIN_OK;
}

const struct train_strategy_ops train_strategy_central = {
	.name = "central",
	.help = "rank 0's host keeps parameters and optimizer, devices compute",
	.optimizer = TRAIN_OPTIMIZER_ELSEWHERE,
	.leaves = true,
	.by_calls = true,
	.open = central_open,
	.close = central_close,
	.step = central_step,
	.rejoin = central_rejoin,
	.state = central_state,
};

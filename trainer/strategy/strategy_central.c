/*
 * strategy_central.c - central storage: one host has the parameters and the optimizer, devices
 * compute
 *
 *	each step:
 *		gradients = gradient(parameters, my share of the batch)
 *		rank 0: total = sum of all gradients, in rank order	(or --canonical's expression)
 *		rank 0: parameters = descend(parameters, total / global batch), on the host, once
 *		every device copies the parameters from the host
 *
 * Devices have no optimizer. Under --on-failure shrink only rank 0's death ends the training.
 * Row of the table in strategy.c.
 *
 * Source: TensorFlow's CentralStorageStrategy.
 */
#include "trainer/strategy/gradient_sum.h"
#include "trainer/strategy/ps_store.h"
#include "trainer/strategy/strategy.h"
#include "trainer/strategy/survive.h"

#include <stdlib.h>
#include <string.h>

struct central_state {
	struct train_ps_store store; /* rank 0 */
	uint64_t steps;              /* that the store includes */
	struct train_partials partials;
	float *total; /* rank 0, if the host cannot access comm_buffer */
};

static int central_open(struct train_rank *t)
{
	struct central_state *c = calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return train_fail(TRAIN_FAILED, "no memory for a strategy");
	t->strategy_state = c;
	c->steps = t->first_step;
	rc = train_partials_open(t, &c->partials, t->floats);
	if (!rc && t->rank == 0)
		rc = train_ps_store_open(&c->store, t->model.parameters, (float)t->config->momentum,
					 false);
	if (!rc && t->rank == 0 && train_comm_on_device(t) &&
	    !(c->total = malloc(t->model.parameters * sizeof(float))))
		rc = train_fail(TRAIN_FAILED, "no memory for a total");
	if (!rc && t->rank == 0)
		memcpy(c->store.parameters, train_parameters_download(t),
		       t->model.parameters * sizeof(float));
	if (!rc && t->resumed_state)
		memcpy(c->store.state, t->resumed_state, t->model.parameters * sizeof(float));
	return rc ? rc : train_parameters_bcast(t);
}

static void central_close(struct train_rank *t)
{
	struct central_state *c = t->strategy_state;

	train_partials_close(&c->partials);
	train_ps_store_close(&c->store);
	free(c->total);
	free(c);
}

/* On rank 0: copies the store's parameters to comm_buffer, for the library's calls. */
static int publish(struct train_rank *t, const struct central_state *c)
{
	t->comm_device->ops->put(t->comm_device, t->comm_buffer, c->store.parameters,
				 c->store.count * sizeof(float));
	return train_device_sync(t->comm_device);
}

/* On rank 0: one step by the total in comm_buffer, which then holds the new parameters. */
static int descend_on_host(struct train_rank *t, struct central_state *c)
{
	const float *total = t->comm_buffer;
	int rc = train_partials_store(t, &c->partials);

	if (c->total) {
		t->comm_device->ops->get(t->comm_device, c->total, t->comm_buffer,
					 c->store.count * sizeof(float));
		total = c->total;
	}
	train_ps_store_descend(&c->store, 0, c->store.count, total,
			       train_mean_scale(t, t->leaves.batch), t->rate);
	c->steps = t->step;
	return rc ? rc : publish(t, c);
}

static int central_step(struct train_rank *t, const struct train_batch *batch)
{
	struct central_state *c = t->strategy_state;
	int rc = train_gradient(t, batch, NULL);
	uint64_t wait_begin = train_time_ns();

	c->partials.from = 0;
	c->partials.count = t->floats;
	if (!rc)
		rc = train_partials_begin(t);
	if (!rc)
		rc = train_partials_gather(t, &c->partials, 0, 0, t->nranks);
	if (!rc && t->rank == 0)
		rc = descend_on_host(t, c);
	if (!rc)
		rc = train_check(tuttiBcast(t->comm_buffer, t->floats, tuttiFloat32, 0, t->comm,
					    NULL),
				 t->comm);
	train_add_exposed(t, wait_begin);
	if (!rc)
		train_parameters_set(t, t->comm_buffer);
	return rc;
}

/* All ranks continue from rank 0's state, if rank 0 survived. */
static int central_rejoin(struct train_rank *t, uint64_t done, uint64_t *ret_done)
{
	struct central_state *c = t->strategy_state;
	int rc = train_regroup(t);

	(void)done;
	*ret_done = c->store.parameters ? c->steps : UINT64_MAX;
	if (!rc && c->store.parameters)
		rc = publish(t, c);
	if (!rc)
		rc = train_check(tuttiBcast(ret_done, 1, tuttiUint64, 0, t->comm, NULL), t->comm);
	if (!rc && *ret_done == UINT64_MAX)
		rc = train_fail(
			TRAIN_FAILED,
			"rank 0, whose host kept the parameters, died; continue from the last "
			"checkpoint with --resume");
	if (!rc)
		rc = train_check(tuttiBcast(t->comm_buffer, t->floats, tuttiFloat32, 0, t->comm,
					    NULL),
				 t->comm);
	if (!rc)
		train_parameters_set(t, t->comm_buffer);
	return rc;
}

static int central_state(struct train_rank *t, float *host)
{
	struct central_state *c = t->strategy_state;

	memcpy(host, c->store.state, c->store.count * sizeof(float));
	return TRAIN_OK;
}

const struct train_strategy_ops train_strategy_central = {
	.name = "central",
	.help = "rank 0's host has parameters and optimizer, devices compute",
	.optimizer = TRAIN_OPTIMIZER_STORE,
	.leaves = true,
	.collectives_only = true,
	.open = central_open,
	.close = central_close,
	.step = central_step,
	.rejoin = central_rejoin,
	.state = central_state,
};

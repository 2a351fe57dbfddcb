/*
 * strategy_zero.c - mirrored with --zero 1: each rank has the optimizer state of its part of the
 * parameters
 *
 *	parameters = broadcast(rank 0's parameters)
 *	each step:
 *		gradients = gradient(parameters, my share of the batch)
 *		my part of the gradients = reduce-scatter(gradients)	(or --canonical's expression)
 *		my part of the parameters = descend(my part, its gradients / global batch)
 *		parameters = allgather(parts)
 *
 * A rank has 1/P of the optimizer state and sends the bytes of mirrored, since an allreduce is a
 * reduce-scatter and an allgather. Parts include the tail, whose sums travel with the parameters.
 * Before a checkpoint rank 0 gathers the optimizer state. Chosen by strategy.c.
 *
 * Source: Rajbhandari et al. 2020, ZeRO: memory optimizations toward training trillion parameter
 * models; stage 1.
 */
#include "trainer/rank/optimizer.h"
#include "trainer/strategy/gradient_sum.h"
#include "trainer/strategy/strategy.h"
#include "trainer/strategy/zero_parts.h"

#include <stdlib.h>
#include <string.h>

struct zero_state {
	size_t part, from, count; /* floats of a part; this rank's: offset, parameters in it */
	size_t arrays;            /* of the optimizer's state */
	float *state;             /* [arrays][part], memory of comm_device */
	struct train_partials partials;
	float *gathered; /* rank 0 before a checkpoint: the parts of all ranks */
};

/* Rank 0 hands out the optimizer state of a checkpoint. */
static int scatter_state(struct train_rank *t, struct zero_state *z)
{
	float *all = t->rank ? NULL : calloc(t->sum.stride, sizeof(*all));
	float *own = malloc(z->part * sizeof(*own));
	size_t n = t->model.parameters;
	int rc = TRAIN_OK;

	if (!own || (!t->rank && !all)) {
		free(all);
		free(own);
		return train_fail(TRAIN_FAILED, "no memory for the optimizer state of rank %d",
				  t->rank);
	}
	for (size_t i = 0; i < z->arrays && !rc; i++) {
		if (all)
			memcpy(all, t->resumed_state + i * n, n * sizeof(*all));
		rc = train_check(tuttiScatter(all, own, z->part, tuttiFloat32, 0, t->comm, NULL),
				 t->comm);
		t->comm_device->ops->put(t->comm_device, z->state + i * z->part, own,
					 z->part * sizeof(*own));
	}
	free(all);
	free(own);
	return rc;
}

static int zero_open(struct train_rank *t)
{
	struct zero_state *z = calloc(1, sizeof(*z));
	size_t parameters = t->model.parameters;
	int rc;

	if (!z)
		return train_fail(TRAIN_FAILED, "no memory for a strategy");
	t->strategy_state = z;
	z->part = t->sum.stride / (size_t)t->nranks;
	z->from = z->part * (size_t)t->rank;
	if (z->from < parameters)
		z->count = parameters - z->from < z->part ? parameters - z->from : z->part;
	z->arrays = train_optimizer_arrays(t->config);
	z->state = t->comm_device->ops->alloc(t->comm_device, z->arrays * z->part * sizeof(float));
	if (!z->state)
		return train_fail(TRAIN_FAILED, "no memory for the optimizer of %zu parameters",
				  z->part);
	rc = train_partials_open(t, &z->partials, z->part);
	if (!rc && t->first_step)
		rc = scatter_state(t, z);
	return rc ? rc : train_parameters_bcast(t);
}

static void zero_close(struct train_rank *t)
{
	struct zero_state *z = t->strategy_state;

	train_partials_close(&z->partials);
	if (z->state)
		t->comm_device->ops->free(t->comm_device, z->state);
	free(z->gathered);
	free(z);
}

/* This rank's part of comm_buffer = the sums over all ranks. */
static int sum_part(struct train_rank *t, struct zero_state *z)
{
	if (t->leaves.kind == TRAIN_CANONICAL_FIXED64)
		return train_sum_gradients(t);
	if (t->leaves.kind != TRAIN_CANONICAL_OFF)
		return train_sum_part(t, &z->partials, 0, t->sum.stride);
	return train_check(tuttiReduceScatter(t->comm_buffer, t->comm_buffer + z->from, z->part,
					      tuttiFloat32, tuttiSum, t->comm, NULL),
			   t->comm);
}

/* This rank's part of comm_buffer = its new parameters. */
static int descend_part(struct train_rank *t, struct zero_state *z)
{
	const struct train_device_ops *d = t->comm_device->ops;
	float *part = t->comm_buffer + z->from, *parameters = train_parameters_map(t) + z->from;

	if (z->count) {
		train_optimizer_update(t, &(struct train_update){
						  .on = t->comm_device,
						  .count = z->count,
						  .scale = train_mean_scale(t, t->leaves.batch),
						  .gradient = part,
						  .state = z->state,
						  .stride = z->part,
						  .weight = parameters,
					  });
		d->copy(t->comm_device, part, parameters, z->count * sizeof(*part));
	}
	return train_device_sync(t->comm_device);
}

static int zero_step(struct train_rank *t, const struct train_batch *batch)
{
	struct zero_state *z = t->strategy_state;
	int rc = train_gradient(t, batch, NULL);
	uint64_t wait_begin = train_time_ns();

	if (!rc)
		rc = sum_part(t, z);
	if (!rc)
		rc = descend_part(t, z);
	if (!rc)
		rc = train_check(tuttiAllGather(t->comm_buffer + z->from, t->comm_buffer, z->part,
						tuttiFloat32, t->comm, NULL),
				 t->comm);
	train_add_exposed(t, wait_begin);
	if (!rc)
		train_parameters_set(t, t->comm_buffer);
	return rc;
}

/* Parameters are always equal; a checkpoint needs the optimizer state on rank 0. */
static int zero_settle(struct train_rank *t, enum train_settle why)
{
	struct zero_state *z = t->strategy_state;
	float *own;
	int rc = TRAIN_OK;

	if (why == TRAIN_SETTLE_EVALUATE || !t->config->save)
		return TRAIN_OK;
	own = malloc(z->part * sizeof(*own));
	if (t->rank == 0 && !z->gathered)
		z->gathered = malloc(z->arrays * t->sum.stride * sizeof(*z->gathered));
	if (!own || (t->rank == 0 && !z->gathered)) {
		free(own);
		return train_fail(TRAIN_FAILED, "--save: no memory for the optimizer state");
	}
	for (size_t i = 0; i < z->arrays && !rc; i++) {
		float *all = t->rank ? NULL : z->gathered + i * t->sum.stride;

		t->comm_device->ops->get(t->comm_device, own, z->state + i * z->part,
					 z->part * sizeof(*own));
		rc = train_check(tuttiGather(own, all, z->part, tuttiFloat32, 0, t->comm, NULL),
				 t->comm);
	}
	free(own);
	return rc;
}

static int zero_state_of(struct train_rank *t, float *host)
{
	const struct zero_state *z = t->strategy_state;

	size_t n = t->model.parameters;

	for (size_t i = 0; i < z->arrays; i++)
		memcpy(host + i * n, z->gathered + i * t->sum.stride, n * sizeof(*host));
	return TRAIN_OK;
}

static size_t gradient_floats(const struct train_rank *t)
{
	return (t->sum.nodes ? t->sum.nodes : 1) * t->sum.stride;
}

static size_t zero_kept(const struct train_rank *t)
{
	const struct zero_state *z = t->strategy_state;

	return t->model.parameters + gradient_floats(t) + z->arrays * z->part;
}

static void zero_report(const struct train_rank *t)
{
	const struct zero_state *z = t->strategy_state;

	train_zero_report(t, t->model.parameters, gradient_floats(t), z->arrays * z->part);
}

const struct train_strategy_ops train_strategy_zero = {
	.name = "mirrored",
	.help = "mirrored with --zero 1",
	.optimizer = TRAIN_OPTIMIZER_STORE,
	.leaves = true,
	.collectives_only = true,
	.no_shrink = TRAIN_ZERO_NO_SHRINK,
	.open = zero_open,
	.close = zero_close,
	.step = zero_step,
	.settle = zero_settle,
	.state = zero_state_of,
	.kept = zero_kept,
	.report = zero_report,
};

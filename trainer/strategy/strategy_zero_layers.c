/*
 * strategy_zero_layers.c - mirrored with --zero 2 or 3: each rank has a part of every layer's
 * optimizer state, with 3 of its parameters too, and gradients of one layer at a time
 *
 *	each step:
 *		for each layer, first to last:
 *			3: parameters of the layer = allgather(parts)
 *			outputs = forward(layer)
 *		for each layer, last to first:
 *			3: parameters of the layer = allgather(parts)
 *			gradients of the layer = backward(layer, my share of the batch)
 *			my part of them = reduce-scatter(gradients)	(or --canonical's expression)
 *			my part of the parameters = descend(my part, its gradients / global batch)
 *			2: parameters of the layer = allgather(parts)
 *
 * With 2 a rank sends the bytes of mirrored, with 3 half as many again. With 3 an evaluation, a check
 * and a checkpoint gather all parameters until they are done. Chosen by strategy.c; calls
 * zero_parts.h and gradient_sum.h.
 *
 * Source: Rajbhandari et al. 2020, ZeRO: memory optimizations toward training trillion parameter
 * models; stages 2 and 3.
 */
#include "trainer/rank/optimizer.h"
#include "trainer/strategy/strategy.h"
#include "trainer/strategy/zero_parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- a layer of a pass -------------------------------------------------------------------------- */

static const float *parameters_of(void *arg, size_t layer)
{
	struct train_rank *t = arg;
	struct zero_layers *z = t->strategy_state;

	if (t->parameters)
		return t->parameters + z->layer[layer].at;
	if (train_zero_gather_layer(t, layer))
		t->model.failed = true;
	return z->gathered;
}

/* This rank's part of the gradients of `padded` floats = the sums over all ranks. */
static int sum_part(struct train_rank *t, size_t padded)
{
	struct zero_layers *z = t->strategy_state;
	size_t part = padded / (size_t)t->nranks;

	if (t->leaves.kind != TRAIN_CANONICAL_OFF)
		return train_sum_part(t, &z->partials, 0, padded);
	return train_check(tuttiReduceScatter(t->comm_buffer,
					      t->comm_buffer + part * (size_t)t->rank, part,
					      tuttiFloat32, tuttiSum, t->comm, NULL),
			   t->comm);
}

/* The gradients of a layer are complete on this rank: sums them, descends. */
static int descend_layer(void *arg, size_t layer)
{
	struct train_rank *t = arg;
	struct zero_layers *z = t->strategy_state;
	const struct zero_layer *l = &z->layer[layer];
	size_t from = l->part * (size_t)t->rank, count = train_zero_own_floats(t, l);
	float *part = t->comm_buffer + from;
	float *weight = train_zero_cuts_parameters(t) ? z->weights + l->own
						      : t->parameters + l->at + from;
	uint64_t begin = train_time_ns();
	int rc = sum_part(t, l->part * (size_t)t->nranks);

	if (!rc && count)
		train_optimizer_update(t, &(struct train_update){
						  .on = &t->device,
						  .count = count,
						  .scale = train_mean_scale(t, t->leaves.batch),
						  .gradient = part,
						  .state = z->state + l->own,
						  .stride = z->floats,
						  .weight = weight });
	if (!rc && !train_zero_cuts_parameters(t)) {
		memcpy(part, weight, count * sizeof(*part));
		rc = train_check(tuttiAllGather(part, t->comm_buffer, l->part, tuttiFloat32,
						t->comm, NULL),
				 t->comm);
		memcpy(t->parameters + l->at, t->comm_buffer, l->count * sizeof(*part));
	}
	train_add_exposed(t, begin);
	return rc;
}

static int zero_step(struct train_rank *t, const struct train_batch *batch)
{
	struct zero_layers *z = t->strategy_state;
	size_t tails = t->sum.stride - t->tail_at;
	float *tail = t->comm_buffer + t->tail_at;
	int rc = train_gradient(t, batch, NULL);

	if (!rc && t->leaves.kind != TRAIN_CANONICAL_OFF)
		return train_sum_bucket(t, &z->partials, t->tail_at, tails);
	return rc ? rc
		  : train_check(tuttiAllReduce(tail, tail, TRAIN_TAIL, tuttiFloat32, tuttiSum,
					       t->comm, NULL),
				t->comm);
}

/* ---- open and close ----------------------------------------------------------------------------- */

static int check_options(const struct train_rank *t)
{
	const struct train_config *c = t->config;

	if (c->mesh)
		return train_fail(TRAIN_USAGE,
				  "--zero %d: its layers are not those of a stage; use --zero 1 "
				  "with --mesh",
				  (int)c->zero);
	if (t->device.ops->separate_memory)
		return train_fail(TRAIN_USAGE,
				  "--zero %d: --device %s has memory of its own; use --device cpu",
				  (int)c->zero, c->device);
	if (c->canonical == TRAIN_CANONICAL_FIXED64)
		return train_fail(
			TRAIN_USAGE,
			"--zero %d: --canonical fixed64 needs the gradients of all layers "
			"at once; use tree or chain",
			(int)c->zero);
	if (c->zero == 3 && c->hashes)
		return train_fail(
			TRAIN_USAGE,
			"--hashes: with --zero 3 no rank has all parameters after a step; "
			"use --zero 2");
	return TRAIN_OK;
}

static int zero_open(struct train_rank *t)
{
	struct zero_layers *z;
	int rc = check_options(t);

	if (rc)
		return rc;
	z = calloc(1, sizeof(*z));
	if (!z)
		return train_fail(TRAIN_FAILED, "no memory for a strategy");
	t->strategy_state = z;
	rc = train_zero_parts_open(t);
	for (size_t i = 0; i < z->arrays && t->first_step && !rc; i++)
		rc = train_zero_exchange(t, z->state + i * z->floats,
					 t->rank ? NULL
						 : t->resumed_state + i * t->model.parameters,
					 true);
	if (!rc)
		rc = train_parameters_bcast(t);
	if (rc)
		return rc;
	for (size_t i = 0; i < t->model.layers && train_zero_cuts_parameters(t); i++) {
		const struct zero_layer *l = &z->layer[i];

		memcpy(z->weights + l->own, t->parameters + l->at + l->part * (size_t)t->rank,
		       train_zero_own_floats(t, l) * sizeof(float));
	}
	if (train_zero_cuts_parameters(t))
		train_zero_drop_parameters(t);
	t->model.hooks = (struct train_layer_hooks){ parameters_of, descend_layer, t };
	return TRAIN_OK;
}

static void zero_close(struct train_rank *t)
{
	train_zero_parts_close(t);
}

/* ---- between steps ------------------------------------------------------------------------------ */

static int zero_settle(struct train_rank *t, enum train_settle why)
{
	int rc = train_zero_cuts_parameters(t) ? train_zero_gather_parameters(t) : TRAIN_OK;

	if (!rc && why != TRAIN_SETTLE_EVALUATE && t->config->save)
		rc = train_zero_gather_state(t);
	return rc;
}

static void zero_unsettle(struct train_rank *t, enum train_settle why)
{
	(void)why;
	if (train_zero_cuts_parameters(t))
		train_zero_drop_parameters(t);
}

static int zero_state_of(struct train_rank *t, float *host)
{
	const struct zero_layers *z = t->strategy_state;

	memcpy(host, z->saved, z->arrays * t->model.parameters * sizeof(*host));
	return TRAIN_OK;
}

static size_t parameter_floats(const struct train_rank *t)
{
	const struct zero_layers *z = t->strategy_state;

	return train_zero_cuts_parameters(t) ? z->floats + z->largest : t->model.parameters;
}

static size_t gradient_floats(const struct train_rank *t)
{
	return (t->sum.nodes ? t->sum.nodes : 1) * t->sum.stride;
}

static size_t zero_kept(const struct train_rank *t)
{
	const struct zero_layers *z = t->strategy_state;

	return parameter_floats(t) + gradient_floats(t) + z->arrays * z->floats;
}

static void zero_report(const struct train_rank *t)
{
	const struct zero_layers *z = t->strategy_state;

	train_zero_report(t, parameter_floats(t), gradient_floats(t), z->arrays * z->floats);
}

const struct train_strategy_ops train_strategy_zero_layers = {
	.name = "mirrored",
	.help = "mirrored with --zero 2 or 3",
	.optimizer = TRAIN_OPTIMIZER_STORE,
	.leaves = true,
	.collectives_only = true,
	.no_shrink = TRAIN_ZERO_NO_SHRINK,
	.open = zero_open,
	.close = zero_close,
	.step = zero_step,
	.settle = zero_settle,
	.unsettle = zero_unsettle,
	.state = zero_state_of,
	.kept = zero_kept,
	.report = zero_report,
};

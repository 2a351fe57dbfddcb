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
 * gradient_sum.h.
 *
 * Source: Rajbhandari et al. 2020, ZeRO: memory optimizations toward training trillion parameter
 * models; stages 2 and 3.
 */
#include "trainer/rank/optimizer.h"
#include "trainer/strategy/gradient_sum.h"
#include "trainer/strategy/strategy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A layer's parameters, in equal parts for all ranks. */
struct zero_layer {
	size_t at, count; /* in the model's array */
	size_t part;      /* floats of a part, the last padded */
	size_t own;       /* offset of this rank's part in its arrays */
};

struct zero_layers {
	struct zero_layer *layer;
	size_t floats, arrays; /* of this rank's parts; arrays of the optimizer's state */
	float *state;          /* [arrays][floats] */
	float *weights;        /* 3: [floats] */
	float *gathered;       /* 3: the parameters of a layer, padded */
	size_t largest;        /* floats of gathered */
	struct train_partials partials;
	float *saved; /* rank 0 before a checkpoint: the state, [arrays][parameters] */
};

static bool cuts_parameters(const struct train_rank *t)
{
	return t->config->zero == 3;
}

/* The floats of a layer that this rank has, without padding. */
static size_t own_floats(const struct train_rank *t, const struct zero_layer *l)
{
	size_t from = l->part * (size_t)t->rank;

	return from < l->count ? (l->count - from < l->part ? l->count - from : l->part) : 0;
}

/* ---- whole arrays ------------------------------------------------------------------------------- */

/* Every rank's parts <-> an array of the model's size on rank 0. padded: of the largest layer. */
static int exchange_array(struct train_rank *t, float *parts, float *whole, bool scatter)
{
	struct zero_layers *z = t->strategy_state;
	float *padded = calloc(z->largest, sizeof(*padded));
	int rc = TRAIN_OK;

	if (!padded)
		return train_fail(TRAIN_FAILED, "no memory for %zu floats", z->largest);
	for (size_t i = 0; i < t->model.layers && !rc; i++) {
		const struct zero_layer *l = &z->layer[i];

		if (scatter && t->rank == 0)
			memcpy(padded, whole + l->at, l->count * sizeof(*whole));
		rc = train_check(scatter ? tuttiScatter(padded, parts + l->own, l->part,
							tuttiFloat32, 0, t->comm, NULL)
					 : tuttiGather(parts + l->own, padded, l->part,
						       tuttiFloat32, 0, t->comm, NULL),
				 t->comm);
		if (!scatter && t->rank == 0)
			memcpy(whole + l->at, padded, l->count * sizeof(*whole));
	}
	free(padded);
	return rc;
}

/* z->gathered = the parameters of a layer. */
static int gather_layer(struct train_rank *t, size_t layer)
{
	struct zero_layers *z = t->strategy_state;
	const struct zero_layer *l = &z->layer[layer];
	uint64_t begin = train_time_ns();
	int rc = train_check(tuttiAllGather(z->weights + l->own, z->gathered, l->part, tuttiFloat32,
					    t->comm, NULL),
			     t->comm);

	train_add_exposed(t, begin);
	return rc;
}

/* ---- a layer of a pass -------------------------------------------------------------------------- */

static const float *parameters_of(void *arg, size_t layer)
{
	struct train_rank *t = arg;
	struct zero_layers *z = t->strategy_state;

	if (t->parameters)
		return t->parameters + z->layer[layer].at;
	if (gather_layer(t, layer))
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
	size_t from = l->part * (size_t)t->rank, count = own_floats(t, l);
	float *part = t->comm_buffer + from;
	float *weight = cuts_parameters(t) ? z->weights + l->own : t->parameters + l->at + from;
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
	if (!rc && !cuts_parameters(t)) {
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

/* Divides the layers. */
static int open_layers(struct train_rank *t, struct zero_layers *z)
{
	size_t ranks = (size_t)t->nranks;

	z->layer = calloc(t->model.layers, sizeof(*z->layer));
	for (size_t i = 0; z->layer && i < t->model.layers; i++) {
		size_t count = t->model.layer[i].parameters, part = (count + ranks - 1) / ranks;

		z->layer[i] = (struct zero_layer){ t->model.layer[i].at, count, part, z->floats };
		z->floats += part;
		z->largest = part * ranks > z->largest ? part * ranks : z->largest;
	}
	z->arrays = train_optimizer_arrays(t->config);
	z->state = t->device.ops->alloc(&t->device, z->arrays * z->floats * sizeof(float));
	if (cuts_parameters(t)) {
		z->weights = t->device.ops->alloc(&t->device, z->floats * sizeof(float));
		z->gathered = t->device.ops->alloc(&t->device, z->largest * sizeof(float));
	}
	if (!z->layer || !z->state || (cuts_parameters(t) && (!z->weights || !z->gathered)))
		return train_fail(TRAIN_FAILED, "no memory for parts of %zu parameters", z->floats);
	return train_partials_open(t, &z->partials, t->sum.stride / ranks);
}

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

/* The rank keeps its parts of the parameters alone. */
static void drop_parameters(struct train_rank *t)
{
	t->device.ops->free(&t->device, t->parameters);
	t->parameters = NULL;
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
	rc = open_layers(t, z);
	for (size_t i = 0; i < z->arrays && t->first_step && !rc; i++)
		rc = exchange_array(t, z->state + i * z->floats,
				    t->rank ? NULL : t->resumed_state + i * t->model.parameters,
				    true);
	if (!rc)
		rc = train_parameters_bcast(t);
	if (rc)
		return rc;
	for (size_t i = 0; i < t->model.layers && cuts_parameters(t); i++) {
		const struct zero_layer *l = &z->layer[i];

		memcpy(z->weights + l->own, t->parameters + l->at + l->part * (size_t)t->rank,
		       own_floats(t, l) * sizeof(float));
	}
	if (cuts_parameters(t))
		drop_parameters(t);
	t->model.hooks = (struct train_layer_hooks){ parameters_of, descend_layer, t };
	return TRAIN_OK;
}

static void zero_close(struct train_rank *t)
{
	struct zero_layers *z = t->strategy_state;

	train_partials_close(&z->partials);
	t->device.ops->free(&t->device, z->state);
	t->device.ops->free(&t->device, z->weights);
	t->device.ops->free(&t->device, z->gathered);
	free(z->layer);
	free(z->saved);
	free(z);
}

/* ---- between steps ------------------------------------------------------------------------------ */

static int gather_parameters(struct train_rank *t)
{
	struct zero_layers *z = t->strategy_state;
	float *all = t->device.ops->alloc(&t->device, t->model.parameters * sizeof(*all));
	int rc = TRAIN_OK;

	if (!all)
		return train_fail(TRAIN_FAILED, "no memory to evaluate %zu parameters",
				  t->model.parameters);
	for (size_t i = 0; i < t->model.layers && !rc; i++) {
		rc = gather_layer(t, i);
		memcpy(all + z->layer[i].at, z->gathered, z->layer[i].count * sizeof(*all));
	}
	t->parameters = all;
	return rc;
}

static int gather_state(struct train_rank *t)
{
	struct zero_layers *z = t->strategy_state;
	size_t n = t->model.parameters;
	int rc = TRAIN_OK;

	if (t->rank == 0 && !z->saved)
		z->saved = malloc(z->arrays * n * sizeof(*z->saved));
	if (t->rank == 0 && !z->saved)
		return train_fail(TRAIN_FAILED, "--save: no memory for the optimizer state");
	for (size_t i = 0; i < z->arrays && !rc; i++)
		rc = exchange_array(t, z->state + i * z->floats, t->rank ? NULL : z->saved + i * n,
				    false);
	return rc;
}

static int zero_settle(struct train_rank *t, enum train_settle why)
{
	int rc = cuts_parameters(t) ? gather_parameters(t) : TRAIN_OK;

	if (!rc && why != TRAIN_SETTLE_EVALUATE && t->config->save)
		rc = gather_state(t);
	return rc;
}

static void zero_unsettle(struct train_rank *t, enum train_settle why)
{
	(void)why;
	if (cuts_parameters(t))
		drop_parameters(t);
}

static int zero_state_of(struct train_rank *t, float *host)
{
	const struct zero_layers *z = t->strategy_state;

	memcpy(host, z->saved, z->arrays * t->model.parameters * sizeof(*host));
	return TRAIN_OK;
}

static void zero_report(const struct train_rank *t)
{
	const struct zero_layers *z = t->strategy_state;

	printf("\"zero\":%d,\"parameter_floats\":%zu,", (int)t->config->zero,
	       cuts_parameters(t) ? z->floats + z->largest : t->model.parameters);
	printf("\"gradient_floats\":%zu,\"optimizer_floats\":%zu,",
	       (t->sum.nodes ? t->sum.nodes : 1) * t->sum.stride, z->arrays * z->floats);
}

const struct train_strategy_ops train_strategy_zero_layers = {
	.name = "mirrored",
	.help = "mirrored with --zero 2 or 3",
	.optimizer = TRAIN_OPTIMIZER_STORE,
	.leaves = true,
	.collectives_only = true,
	.no_shrink = "with --zero a dead rank takes its part of the optimizer state with it; "
		     "use --save-every, or omit --zero",
	.open = zero_open,
	.close = zero_close,
	.step = zero_step,
	.settle = zero_settle,
	.unsettle = zero_unsettle,
	.state = zero_state_of,
	.report = zero_report,
};

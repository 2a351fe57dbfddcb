/* zero_parts.c - parts of layers (zero_parts.h) */
#include "trainer/strategy/zero_parts.h"

#include "trainer/rank/optimizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void train_zero_report(const struct train_rank *t, size_t parameters, size_t gradients,
		       size_t optimizer)
{
	printf("\"zero\":%d,\"parameter_floats\":%zu,\"gradient_floats\":%zu,\"optimizer_floats\":%zu,",
	       (int)t->config->zero, parameters, gradients, optimizer);
}

size_t train_zero_own_floats(const struct train_rank *t, const struct zero_layer *l)
{
	size_t from = l->part * (size_t)t->rank;

	return from < l->count ? (l->count - from < l->part ? l->count - from : l->part) : 0;
}

int train_zero_parts_open(struct train_rank *t)
{
	struct zero_layers *z = t->strategy_state;
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
	if (train_zero_cuts_parameters(t)) {
		z->weights = t->device.ops->alloc(&t->device, z->floats * sizeof(float));
		z->gathered = t->device.ops->alloc(&t->device, z->largest * sizeof(float));
	}
	if (!z->layer || !z->state ||
	    (train_zero_cuts_parameters(t) && (!z->weights || !z->gathered)))
		return train_fail(TRAIN_FAILED, "no memory for parts of %zu parameters", z->floats);
	return train_partials_open(t, &z->partials, t->sum.stride / ranks);
}

void train_zero_parts_close(struct train_rank *t)
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

/* ---- exchanges -------------------------------------------------------------------------------- */

int train_zero_exchange(struct train_rank *t, float *parts, float *whole, bool scatter)
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

int train_zero_gather_layer(struct train_rank *t, size_t layer)
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

void train_zero_drop_parameters(struct train_rank *t)
{
	t->device.ops->free(&t->device, t->parameters);
	t->parameters = NULL;
}

int train_zero_gather_parameters(struct train_rank *t)
{
	struct zero_layers *z = t->strategy_state;
	float *all = t->device.ops->alloc(&t->device, t->model.parameters * sizeof(*all));
	int rc = TRAIN_OK;

	if (!all)
		return train_fail(TRAIN_FAILED, "no memory to evaluate %zu parameters",
				  t->model.parameters);
	for (size_t i = 0; i < t->model.layers && !rc; i++) {
		rc = train_zero_gather_layer(t, i);
		memcpy(all + z->layer[i].at, z->gathered, z->layer[i].count * sizeof(*all));
	}
	t->parameters = all;
	return rc;
}

int train_zero_gather_state(struct train_rank *t)
{
	struct zero_layers *z = t->strategy_state;
	size_t n = t->model.parameters;
	int rc = TRAIN_OK;

	if (t->rank == 0 && !z->saved)
		z->saved = malloc(z->arrays * n * sizeof(*z->saved));
	if (t->rank == 0 && !z->saved)
		return train_fail(TRAIN_FAILED, "--save: no memory for the optimizer state");
	for (size_t i = 0; i < z->arrays && !rc; i++)
		rc = train_zero_exchange(t, z->state + i * z->floats,
					 t->rank ? NULL : z->saved + i * n, false);
	return rc;
}

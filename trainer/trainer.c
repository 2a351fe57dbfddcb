/* trainer.c - one rank that trains: opening, closing, and its memory (trainer.h) */
#include "trainer/trainer.h"

#include "trainer/settings_agree.h"
#include "trainer/checkpoint.h"
#include "trainer/fault.h"
#include "trainer/strategy/strategy.h"

#include <stdlib.h>
#include <string.h>

int train_library(tuttiResult_t result, tuttiComm_t comm)
{
	const char *text = result == tuttiSuccess ? "" : tuttiGetLastError(comm);

	if (result == tuttiSuccess)
		return TRAIN_OK;
	return train_fail(TRAIN_FAILED, "%s", *text ? text : tuttiGetErrorString(result));
}

/* ---- memory --------------------------------------------------------------------------------- */

static void free_share(struct train_rank *t)
{
	const struct train_device_ops *d = t->device.ops;

	if (t->wire != t->gradients)
		t->wire_on->ops->free(t->wire_on, t->wire);
	d->free(&t->device, t->gradients);
	d->free(&t->device, t->sum.scratch);
	free(t->sum.node);
	tuttiMemFree(t->whole);
	free(t->exponent);
	t->whole = NULL;
	t->exponent = NULL;
	t->gradients = t->wire = t->sum.scratch = NULL;
	t->sum.node = NULL;
}

int train_rank_share(struct train_rank *t)
{
	const struct train_config *c = t->config;
	const struct train_device_ops *d = t->device.ops;
	size_t ranks = (size_t)t->nranks, part, bytes, run;
	bool reached;

	free_share(t);
	t->leaves = train_leaves_of((enum train_canonical)c->canonical, (size_t)c->global_batch,
				 (size_t)c->leaf, t->nranks);
	t->floats = t->model.parameters + TRAIN_TAIL;
	part = (t->floats + ranks - 1) / ranks;
	t->sum = (struct train_gradient_sum){ .leaves = &t->leaves, .device = &t->device };
	if (!train_serves(t))
		t->sum.run = train_leaves_share(&t->leaves, t->rank, t->nranks);
	run = t->sum.run.last - t->sum.run.first;
	t->sum.node = calloc(run ? run : 1, sizeof(*t->sum.node));
	if (!t->sum.node)
		return train_fail(TRAIN_FAILED, "no memory for %zu leaves", run);
	t->sum.nodes = train_leaves_nodes(&t->leaves, t->sum.run, t->sum.node);
	t->sum.stride = part * ranks; /* so that every rank's part of the array is as long */
	t->sum.piece = t->model.piece;
	bytes = (t->sum.nodes ? t->sum.nodes : 1) * t->sum.stride * sizeof(float);
	t->gradients = d->alloc(&t->device, bytes);
	t->host = (struct train_device){ .ops = &train_device_cpu };
	reached = !d->apart || (d->reached && t->strategy->by_calls &&
				c->canonical != TRAIN_CANONICAL_FIXED64);
	t->wire_on = reached ? &t->device : &t->host;
	t->wire = reached ? t->gradients : t->host.ops->alloc(&t->host, bytes);
	if (c->canonical != TRAIN_CANONICAL_OFF)
		t->sum.scratch = d->alloc(&t->device,
					  TRAIN_SUM_LEVELS * t->sum.piece * sizeof(float));
	if (!t->gradients || !t->wire || (c->canonical != TRAIN_CANONICAL_OFF && !t->sum.scratch))
		return train_fail(TRAIN_FAILED, "no memory for %zu gradients of %zu floats",
				     t->sum.nodes, t->floats);
	return TRAIN_OK;
}

static int open_memory(struct train_rank *t)
{
	const struct train_device_ops *d = t->device.ops;
	size_t bytes = t->model.parameters * sizeof(float);
	bool apart = d->apart, moving = t->strategy->optimizer == TRAIN_OPTIMIZER_RANKS;

	t->parameters = d->alloc(&t->device, bytes);
	t->velocity = moving ? d->alloc(&t->device, bytes) : NULL;
	t->x = d->alloc(&t->device, t->model.max_rows * t->data->pixels * sizeof(float));
	t->labels = malloc(t->model.max_rows);
	if (apart && tuttiMemAlloc((void **)&t->host_parameters, bytes) != tuttiSuccess)
		t->host_parameters = NULL;
	if (!t->parameters || (moving && !t->velocity) || !t->x || !t->labels ||
	    (apart && !t->host_parameters))
		return train_fail(TRAIN_FAILED, "no memory to train %zu parameters",
				     t->model.parameters);
	if (t->rank == 0) {
		train_model_start(&t->model, (uint64_t)t->config->seed, train_parameters_out(t));
		train_parameters_in(t);
	}
	return TRAIN_OK;
}

/* ---- open and close ------------------------------------------------------------------------- */

/* The last ranks of world serve, the others train. */
static int part_ranks(struct train_rank *t)
{
	int all, rc = train_library(tuttiCommUserRank(t->world, &t->rank), t->world);

	if (!rc)
		rc = train_library(tuttiCommCount(t->world, &all), t->world);
	if (rc)
		return rc;
	t->world_rank = t->rank;
	t->servers = t->strategy->serve ? (int)t->config->servers : 0;
	t->nranks = t->first_server = all - t->servers;
	if (t->nranks < 1)
		return train_fail(TRAIN_USAGE,
			"--ps %d: of %d ranks in all none is left to train; start more", t->servers,
			all);
	t->comm = t->world;
	if (!t->servers)
		return TRAIN_OK;
	return train_library(tuttiCommSplit(t->world, train_serves(t), t->rank, &t->comm, NULL),
			  t->world);
}

static int open_model(struct train_rank *t)
{
	const struct train_config *c = t->config;
	size_t batch = (size_t)c->global_batch, leaf = (size_t)c->leaf;
	struct train_model_size size = { .inputs = t->data->pixels, .classes = t->data->classes };

	if (batch > t->data->train.samples)
		return train_fail(TRAIN_USAGE,
				     "--global-batch %zu: the training set has only %zu samples; "
				     "use at most that",
				     batch, t->data->train.samples);
	size.leaf = leaf < batch ? leaf : batch;
	/* what a rank has may grow: others may die */
	size.max_rows = batch;
	if (c->on_failure != TRAIN_FAILURE_SHRINK && t->nranks > 1)
		size.max_rows = batch / (size_t)t->nranks + size.leaf + 1;
	if (size.max_rows < TRAIN_EVALUATE_ROWS)
		size.max_rows = TRAIN_EVALUATE_ROWS;
	return train_model_open(&t->model, c->model, &t->device, &size);
}

int train_rank_open(struct train_rank *t, const struct train_config *config,
		    const struct train_data *data, tuttiComm_t world)
{
	int rc;

	*t = (struct train_rank){ .config = config, .data = data, .world = world };
	t->rate = (float)config->lr;
	t->timeline.on = config->timeline != NULL;
	rc = train_strategy_find(t);
	if (!rc)
		rc = part_ranks(t);
	if (!rc)
		rc = train_settings_agree(t);
	if (!rc)
		rc = train_fault_check_ranks(t);
	if (!rc)
		rc = train_device_open(&t->device, config->device,
				    config->canonical != TRAIN_CANONICAL_OFF);
	if (!rc)
		rc = open_model(t);
	if (!rc)
		rc = train_sampler_open(&t->sampler, (uint64_t)config->seed, data->train.samples,
				     (size_t)config->global_batch);
	if (!rc)
		rc = open_memory(t);
	if (!rc)
		rc = train_rank_share(t);
	if (!rc)
		rc = train_checkpoint_resume(t);
	if (!rc)
		rc = train_fault_check_steps(t);
	return rc ? rc : t->strategy->open(t);
}

void train_rank_close(struct train_rank *t)
{
	if (t->strategy && t->strategy_state)
		t->strategy->close(t);
	if (t->device.ops) {
		free_share(t);
		t->device.ops->free(&t->device, t->parameters);
		t->device.ops->free(&t->device, t->velocity);
		t->device.ops->free(&t->device, t->x);
		tuttiMemFree(t->host_parameters);
	}
	free(t->labels);
	free(t->resumed);
	train_timeline_close(&t->timeline);
	train_sampler_close(&t->sampler);
	train_model_close(&t->model);
	train_device_close(&t->device);
	if (t->comm && t->comm != t->world)
		tuttiCommDestroy(t->comm);
	tuttiCommDestroy(t->world);
}

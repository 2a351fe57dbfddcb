/* trainer.c - open and close one rank of a training (trainer.h) */
#include "trainer/trainer.h"

#include "tools/plural.h"
#include "trainer/checkpoint.h"
#include "trainer/rank/fault.h"
#include "trainer/rank/optimizer.h"
#include "trainer/rank/pipeline.h"
#include "trainer/rank/tensor_sum.h"
#include "trainer/rank/user_model.h"
#include "trainer/settings_match.h"
#include "trainer/strategy/sparse_rows.h"
#include "trainer/strategy/strategy.h"

#include <stdlib.h>

static int open_memory(struct train_rank *t)
{
	const struct train_device_ops *d = t->device.ops;
	size_t bytes = t->model.parameters * sizeof(float);
	bool separate_memory = d->separate_memory,
	     moving = t->strategy->optimizer == TRAIN_OPTIMIZER_RANKS;

	t->parameters = d->alloc(&t->device, bytes);
	if ((t->config->optimizer == TRAIN_ADAMW && !d->adam) ||
	    (t->config->optimizer == TRAIN_RMSPROP && !d->rmsprop))
		return train_fail(TRAIN_USAGE,
				  "--optimizer: --device %s has sgd only; use --device cpu",
				  t->config->device);
	t->state = moving ? d->alloc(&t->device, train_optimizer_arrays(t->config) * bytes) : NULL;
	t->x = d->alloc(&t->device, t->model.max_rows * t->data->pixels * sizeof(float));
	t->labels = malloc(t->model.max_rows * t->data->positions);
	if (separate_memory && tuttiMemAlloc((void **)&t->host_parameters, bytes) != tuttiSuccess)
		t->host_parameters = NULL;
	if (!t->parameters || (moving && !t->state) || !t->x || !t->labels ||
	    (separate_memory && !t->host_parameters))
		return train_fail(TRAIN_FAILED, "no memory to train %zu parameters",
				  t->model.parameters);
	if (t->rank == 0) {
		if (t->config->user)
			train_user_init(t, train_parameters_download(t));
		else
			train_model_init(&t->model, (uint64_t)t->config->seed,
					 train_parameters_download(t));
		train_parameters_upload(t);
	}
	return TRAIN_OK;
}

/* ---- open and close ------------------------------------------------------------------------- */

/* Splits world into workers and, as its last ranks, servers; all ranks have the same options. */
static int split_ranks(struct train_rank *t)
{
	int all, rc = train_check(tuttiCommUserRank(t->world, &t->rank), t->world);

	if (!rc)
		rc = train_check(tuttiCommCount(t->world, &all), t->world);
	t->world_rank = t->rank;
	t->servers = t->strategy->serve ? (int)t->config->servers : 0;
	if (!rc)
		rc = train_settings_match(t);
	if (!rc)
		rc = train_mesh_parse(t->config, &t->mesh);
	if (rc || t->config->mesh)
		return rc ? rc : train_mesh_split(t);
	t->nranks = t->first_server = all - t->servers;
	if (t->nranks < 1)
		return train_fail(TRAIN_USAGE,
				  "--ps %d: no worker is left of %d rank%s; start more ranks",
				  t->servers, all, tool_s(all));
	t->comm = t->world;
	if (!t->servers)
		return TRAIN_OK;
	return train_check(tuttiCommSplit(t->world, train_is_server(t), t->rank, &t->comm, NULL),
			   t->world);
}

static int open_model(struct train_rank *t)
{
	const struct train_config *c = t->config;
	size_t batch = (size_t)c->global_batch, leaf = (size_t)c->leaf;
	struct train_model_size size = {
		.inputs = t->data->pixels,
		.classes = t->data->classes,
		.positions = t->data->positions,
		.text = t->data->text,
		.axis = { .shards = (size_t)c->shards,
			  .ranks = (size_t)t->mesh.tensor,
			  .rank = (size_t)t->mesh.tensor_rank,
			  .sum = train_tensor_sum,
			  .arg = t },
	};
	int rc;

	if (batch > t->data->train.samples)
		return train_fail(TRAIN_USAGE,
				  "--global-batch %zu: the training set has only %zu sample%s; "
				  "use at most that",
				  batch, t->data->train.samples,
				  tool_s((long long)t->data->train.samples));
	size.leaf = leaf < batch ? leaf : batch;
	size.stages = t->mesh.stages;
	size.stage = t->mesh.stage;
	rc = train_pipeline_chunks(t, &size.chunks);
	if (rc)
		return rc;
	/* the share of a rank grows if others die */
	size.max_rows = batch;
	if (c->on_failure != TRAIN_FAILURE_SHRINK && t->nranks > 1)
		size.max_rows = batch / (size_t)t->nranks + size.leaf + 1;
	if (size.max_rows < train_evaluate_rows(t))
		size.max_rows = train_evaluate_rows(t);
	if (c->user)
		return train_user_open(t, size.max_rows);
	return train_model_open(&t->model, c->model, &t->device, &size);
}

/* Where the strategy allows, gradients have only the rows of a sparse table that a batch touches. */
static int open_touched(struct train_rank *t)
{
	size_t rows = train_sparse_rows(t), most = t->leaves.batch * t->data->positions;
	bool has = t->strategy->touched_rows && !t->pipeline && !t->device.ops->separate_memory &&
		   rows &&
		   !t->model.layer[0].embedding.places; /* whose rows lie behind the table */

	/* what follows the table in a sum over equal parts begins behind them (bucket_sums.c) */
	if (!has || rows < most + (size_t)t->nranks || train_is_server(t))
		return TRAIN_OK;
	t->model.touched = malloc(most * sizeof(*t->model.touched));
	return t->model.touched
		       ? TRAIN_OK
		       : train_fail(TRAIN_FAILED, "no memory for the rows of %zu characters", most);
}

/* Floats of a node of the gradient that the table's untouched rows do not have. */
static size_t untouched(const struct train_rank *t)
{
	const struct train_tensor *table = t->model.tensors;

	return t->model.touched
		       ? table->count - t->leaves.batch * t->data->positions * table->columns
		       : 0;
}

/* Checks --mem-cap. */
static int check_memory(struct train_rank *t)
{
	size_t arrays = t->state ? train_optimizer_arrays(t->config) : 0;
	size_t nodes = t->sum.nodes ? t->sum.nodes : 1;
	tuttiComm_t comm = t->servers ? t->comm : t->world;
	double mib;
	int rc;

	if (train_is_server(t)) /* serves the workers from now on */
		return TRAIN_OK;
	t->bytes = t->strategy->kept ? t->strategy->kept(t)
				     : (1 + arrays) * t->model.parameters +
					       nodes * (t->sum.stride - untouched(t));
	t->bytes *= sizeof(float);
	rc = train_check(tuttiAllReduce(&t->bytes, &t->bytes, 1, tuttiUint64, tuttiMax, comm, NULL),
			 comm);
	mib = (double)t->bytes / 1048576.0;
	if (rc || t->config->mem_cap <= 0 || mib <= t->config->mem_cap)
		return rc;
	return train_fail(TRAIN_USAGE,
			  "--mem-cap %g: parameters, gradients and optimizer need %.3f MiB on a "
			  "rank; use more tensor ranks or stages in --mesh, or --zero 3",
			  t->config->mem_cap, mib);
}

int train_rank_open(struct train_rank *t, const struct train_config *config,
		    const struct train_data *data, tuttiComm_t world)
{
	int rc;

	*t = (struct train_rank){ .config = config, .data = data, .world = world };
	t->rate = (float)config->lr;
	t->momentum = (float)config->momentum;
	t->timeline.on = config->timeline != NULL;
	rc = train_strategy_find(t);
	if (!rc)
		rc = split_ranks(t);
	if (!rc && data->plays != t->strategy->plays)
		rc = train_fail(TRAIN_USAGE,
				"--data %s: --strategy %s learns from %s; use --data %s",
				data->name, t->strategy->name,
				t->strategy->plays ? "an environment" : "images or text",
				t->strategy->plays ? "cartpole" : "synth");
	if (!rc && data->sharded && t->strategy->ask)
		rc = train_fail(TRAIN_USAGE,
				"--shard-data: --strategy %s hands out samples while it trains, so "
				"that a worker may need any; omit the option",
				t->strategy->name);
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
	if (!rc && data->plays)
		rc = train_rollout_open(t);
	if (!rc)
		rc = train_rank_partition(t);
	if (!rc && config->mesh)
		rc = train_pipeline_open(t);
	if (!rc)
		rc = open_touched(t);
	if (!rc)
		rc = train_checkpoint_resume(t);
	if (!rc)
		rc = train_fault_check_steps(t);
	if (!rc)
		rc = t->strategy->open(t);
	if (!rc)
		rc = check_memory(t);
	return rc ? rc : train_checkpoint_restore_own(t);
}

void train_rank_close(struct train_rank *t)
{
	if (t->strategy && t->strategy_state)
		t->strategy->close(t);
	train_pipeline_close(t);
	if (t->device.ops) {
		train_rank_partition_free(t);
		t->device.ops->free(&t->device, t->parameters);
		t->device.ops->free(&t->device, t->state);
		t->device.ops->free(&t->device, t->x);
		tuttiMemFree(t->host_parameters);
	}
	train_rollout_close(t);
	free(t->labels);
	free(t->model.touched);
	free(t->resumed_state);
	free(t->resumed_own);
	train_timeline_close(&t->timeline);
	train_sampler_close(&t->sampler);
	train_shard_close(&t->shard);
	train_model_close(&t->model);
	train_device_close(&t->device);
	if (t->comm && t->comm != t->world)
		tuttiCommDestroy(t->comm);
	train_mesh_close(t);
	tuttiCommDestroy(t->world);
}

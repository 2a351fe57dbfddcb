/* checkpoint.c - write and read checkpoints (checkpoint.h) */
#include "trainer/checkpoint.h"

#include "trainer/rank/optimizer.h"
#include "trainer/replicas.h"
#include "trainer/strategy/strategy.h"
#include "trainer/whole_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { RANKS_MAX = 1 << 20, ARRAYS_MAX = 16 }; /* of an undamaged header */
enum { ABSENT = 1 };                           /* no checkpoint, and none is needed */

static const char magic[8] = "TUTTICK2";

/* Adagrad is that of a store. */
enum checkpoint_optimizer {
	CHECKPOINT_SGD,
	CHECKPOINT_ADAGRAD,
	CHECKPOINT_ADAMW,
	CHECKPOINT_RMSPROP
};

/* The settings that the values of the file belong to. */
struct checkpoint_header {
	char magic[8];
	uint64_t step, parameters, seed, batch, leaf;
	uint64_t canonical, optimizer; /* enum checkpoint_optimizer */
	/* ranks with state of their own, or 0; arrays of each; enum of --average */
	uint64_t ranks, arrays, average;
	char model[64], data[16];
	uint64_t hash; /* of the header with hash = 0, and of the values */
};

static struct checkpoint_header make_header(const struct train_rank *t, uint64_t step)
{
	const struct train_config *c = t->config;
	struct checkpoint_header h = {
		.step = step,
		.parameters = t->model.whole_parameters,
		.seed = (uint64_t)c->seed,
		.batch = (uint64_t)c->global_batch,
		.leaf = (uint64_t)c->leaf,
		.canonical = (uint64_t)c->canonical,
		.optimizer = c->optimizer == TRAIN_ADAMW     ? CHECKPOINT_ADAMW
			     : c->optimizer == TRAIN_RMSPROP ? CHECKPOINT_RMSPROP
			     : c->adagrad                    ? CHECKPOINT_ADAGRAD
							     : CHECKPOINT_SGD,
	};

	if (t->strategy->own_arrays) {
		h.ranks = (uint64_t)t->nranks;
		h.arrays = t->strategy->own_arrays(t);
		h.average = (uint64_t)c->average;
	}

	memcpy(h.magic, magic, sizeof(magic));
	if (c->shards > 1)
		snprintf(h.model, sizeof(h.model), "%s --shards %d", c->model, (int)c->shards);
	else
		snprintf(h.model, sizeof(h.model), "%s", c->model);
	snprintf(h.data, sizeof(h.data), "%s", t->data->name);
	return h;
}

/* Arrays of the optimizer's state. */
static uint64_t states_of(const struct checkpoint_header *h)
{
	return h->optimizer == CHECKPOINT_ADAMW ? 2 : 1;
}

/* The number of values: parameters, optimizer state, each rank's own arrays */
static uint64_t values_of(const struct checkpoint_header *h)
{
	return (1 + states_of(h) + h->ranks * h->arrays) * h->parameters;
}

static uint64_t hash_of(struct checkpoint_header h, const float *values)
{
	h.hash = 0;
	return train_hash(&h, sizeof(h)) ^ train_hash(values, values_of(&h) * sizeof(*values));
}

/* ---- writing --------------------------------------------------------------------------------- */

struct checkpoint_file {
	const struct checkpoint_header *header;
	const float *values;
};

static bool write_checkpoint(FILE *f, void *arg)
{
	const struct checkpoint_file *c = arg;
	size_t values = values_of(c->header);

	return fwrite(c->header, sizeof(*c->header), 1, f) == 1 &&
	       fwrite(c->values, sizeof(*c->values), values, f) == values;
}

static int gather_values(struct train_rank *t, float *values)
{
	size_t n = t->model.parameters;

	memcpy(values, train_parameters_download(t), n * sizeof(*values));
	if (t->strategy->own_state)
		return TRAIN_OK;
	if (t->strategy->state)
		return t->strategy->state(t, values + n);
	t->device.ops->get(&t->device, values + n, t->state,
			   train_optimizer_arrays(t->config) * n * sizeof(*values));
	return TRAIN_OK;
}

/* Rank 0: values = every rank's own arrays, after the common values; the optimizer state is the
 * mean of the first arrays. Call by all workers. */
static int gather_own(struct train_rank *t, const struct checkpoint_header *h, float *values)
{
	size_t n = h->parameters, each = h->arrays * n;
	float *own = malloc(each * sizeof(*own)), *state = t->rank ? NULL : values + n;
	int rc;

	if (!own)
		return train_fail(TRAIN_FAILED, "--save: no memory for %zu values of rank %d", each,
				  t->rank);
	t->strategy->own_state(t, own);
	rc = train_check(tuttiGather(own, t->rank ? NULL : values + 2 * n, each, tuttiFloat32, 0,
				     t->comm, NULL),
			 t->comm);
	free(own);
	if (rc || t->rank)
		return rc;
	memset(state, 0, n * sizeof(*state));
	for (size_t r = 0; r < h->ranks; r++)
		for (size_t i = 0; i < n; i++)
			state[i] += values[2 * n + r * each + i] / (float)h->ranks;
	return TRAIN_OK;
}

/* values = parameters and optimizer state of all stages, on the first one. Call by the stages of
 * replica 0. */
static int gather_stages(struct train_rank *t, float *values)
{
	size_t n = t->model.parameters, arrays = 1 + train_optimizer_arrays(t->config);
	float *own = malloc(arrays * n * sizeof(*own));
	int rc;

	if (!own)
		return train_fail(TRAIN_FAILED, "--save: no memory for %zu values of stage %d",
				  arrays * n, t->mesh.stage);
	rc = gather_values(t, own);
	for (size_t i = 0; i < arrays && !rc; i++)
		rc = train_mesh_gather(t, own + i * n,
				       values ? values + i * t->model.whole_parameters : NULL);
	free(own);
	return rc;
}

int train_checkpoint_save(struct train_rank *t, const char *path, uint64_t step)
{
	struct checkpoint_header h = make_header(t, step);
	float *values;
	int rc = TRAIN_OK;

	if (t->rank)
		return t->strategy->own_state ? gather_own(t, &h, NULL) : TRAIN_OK;
	if (!train_is_lead(t))
		return gather_stages(t, NULL);
	values = malloc(values_of(&h) * sizeof(*values));
	if (!values)
		return train_fail(TRAIN_FAILED,
				  "--save %s: no memory for a checkpoint of %" PRIu64
				  " parameters; the previous file is intact",
				  path, h.parameters);
	rc = t->pipeline ? gather_stages(t, values) : gather_values(t, values);
	if (!rc && t->strategy->own_state)
		rc = gather_own(t, &h, values);
	h.hash = hash_of(h, values);
	if (!rc && train_whole_file_replace("save", path, write_checkpoint,
					    &(struct checkpoint_file){ &h, values }))
		rc = TRAIN_UNWRITTEN;
	free(values);
	return rc;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* text = the first option that differs, with the file's value. Returns false if none differs. */
static bool find_difference(const struct checkpoint_header *got,
			    const struct checkpoint_header *want, char text[128])
{
	static const char *const canonical[] = { "off", "tree", "chain", "fixed64" };
	static const char *const optimizer[] = { "--optimizer sgd and no --adagrad", "--adagrad",
						 "--optimizer adamw", "--optimizer rmsprop" };
	bool leaves = got->canonical != TRAIN_CANONICAL_OFF;

	if (strncmp(got->model, want->model, sizeof(got->model)) ||
	    got->parameters != want->parameters)
		snprintf(text, 128, "--model %.63s", got->model);
	else if (strncmp(got->data, want->data, sizeof(got->data)))
		snprintf(text, 128, "--data %.15s", got->data);
	else if (got->seed != want->seed)
		snprintf(text, 128, "--seed %" PRIu64, got->seed);
	else if (got->batch != want->batch)
		snprintf(text, 128, "--global-batch %" PRIu64, got->batch);
	else if (got->canonical != want->canonical)
		snprintf(text, 128, "--canonical %s", canonical[got->canonical % 4]);
	else if (leaves && got->leaf != want->leaf)
		snprintf(text, 128, "--leaf %" PRIu64, got->leaf);
	else if (got->optimizer != want->optimizer)
		snprintf(text, 128, "%s", optimizer[got->optimizer % 4]);
	else
		return false;
	return true;
}

/* The header, of a training with the options of `want`. */
static int read_header(const char *path, FILE *f, const struct checkpoint_header *want,
		       struct checkpoint_header *ret_h)
{
	char option[128];

	size_t got = fread(ret_h, 1, sizeof(*ret_h), f);

	if (got < sizeof(magic) || memcmp(ret_h->magic, magic, sizeof(magic)))
		return train_fail(
			TRAIN_USAGE,
			"--resume %s: no checkpoint of tutti-train; give a file of --save", path);
	if (got < sizeof(*ret_h))
		return train_fail(
			TRAIN_USAGE,
			"--resume %s: ends after %zu bytes; the file is truncated, use an "
			"older checkpoint",
			path, got);
	if (find_difference(ret_h, want, option))
		return train_fail(
			TRAIN_USAGE,
			"--resume %s: the checkpoint was written with %s; use the same value", path,
			option);
	return TRAIN_OK;
}

/* A damaged header must not become the size of an allocation. */
static bool has_size(FILE *f, const struct checkpoint_header *h)
{
	struct stat st;

	return h->ranks <= RANKS_MAX && h->arrays <= ARRAYS_MAX && !fstat(fileno(f), &st) &&
	       (uint64_t)st.st_size == sizeof(*h) + values_of(h) * sizeof(float);
}

/* values: [values_of(h)], freed by the caller */
static int read_values(const char *path, FILE *f, const struct checkpoint_header *h,
		       float **ret_values)
{
	bool whole = has_size(f, h);
	float *values = whole ? malloc(values_of(h) * sizeof(*values)) : NULL;

	*ret_values = values;
	if (whole && !values)
		return train_fail(TRAIN_FAILED,
				  "no memory for a checkpoint of %" PRIu64 " parameters",
				  h->parameters);
	if (!whole || fread(values, sizeof(*values), values_of(h), f) != values_of(h) ||
	    h->hash != hash_of(*h, values))
		return train_fail(TRAIN_USAGE,
				  "--resume %s: the file is damaged; use an older checkpoint",
				  path);
	return TRAIN_OK;
}

/* Allocates the optimizer state. */
static int take_common(struct train_rank *t, const float *values)
{
	size_t n = t->model.parameters, count = train_optimizer_arrays(t->config) * n;

	t->resumed_state = malloc(count * sizeof(*t->resumed_state));
	if (!t->resumed_state)
		return train_fail(TRAIN_FAILED, "no memory for a checkpoint of %zu parameters", n);
	train_parameters_set_host(t, values);
	memcpy(t->resumed_state, values + n, count * sizeof(*values));
	if (t->state)
		t->device.ops->put(&t->device, t->state, t->resumed_state, count * sizeof(float));
	return TRAIN_OK;
}

/* The stages of replica 0 take their part of values, which the first one has. */
static int take_stages(struct train_rank *t, float *values)
{
	size_t n = t->model.parameters, arrays = 1 + train_optimizer_arrays(t->config);
	float *own = malloc(arrays * n * sizeof(*own));
	int rc = TRAIN_OK;

	if (!own)
		return train_fail(TRAIN_FAILED, "--resume: no memory for %zu values of stage %d",
				  arrays * n, t->mesh.stage);
	for (size_t i = 0; i < arrays && !rc; i++)
		rc = train_mesh_scatter(t, values ? values + i * t->model.whole_parameters : NULL,
					own + i * n);
	if (!rc)
		rc = take_common(t, own);
	free(own);
	return rc;
}

/* Rank 0 takes the common values, and keeps those of the ranks for train_checkpoint_restore_own. */
static int take_values(struct train_rank *t, const struct checkpoint_header *h,
		       const struct checkpoint_header *want, const float *values)
{
	size_t n = h->parameters, own = h->ranks * h->arrays * n;

	if (own && h->ranks == want->ranks && h->average == want->average) {
		t->resumed_own = malloc(own * sizeof(*t->resumed_own));
		if (!t->resumed_own)
			return train_fail(TRAIN_FAILED,
					  "no memory for a checkpoint of %zu parameters", n);
		memcpy(t->resumed_own, values + 2 * n, own * sizeof(*values));
	}
	return take_common(t, values);
}

/* Returns ABSENT, too. *ret_values: of all stages, if the model is cut; freed by the caller */
static int read_checkpoint(struct train_rank *t, uint64_t *ret_step, float **ret_values)
{
	struct checkpoint_header want = make_header(t, 0), h;
	const char *path = t->config->resume;
	float *values = NULL;
	FILE *f = fopen(path, "re");
	int rc;

	if (!f && errno == ENOENT && t->config->restarts)
		return ABSENT;
	if (!f)
		return train_fail(TRAIN_USAGE, "--resume %s: %m; give a file of --save", path);
	rc = read_header(path, f, &want, &h);
	if (!rc)
		rc = read_values(path, f, &h, &values);
	if (!rc && !t->pipeline)
		rc = take_values(t, &h, &want, values);
	if (!rc)
		*ret_step = h.step;
	fclose(f);
	if (!rc && t->pipeline)
		*ret_values = values;
	else
		free(values);
	return rc;
}

int train_checkpoint_resume(struct train_rank *t)
{
	int64_t result[3] = { 0 }; /* result, step, ranks have state of their own */
	uint64_t step = 0;
	float *values = NULL;
	int rc = TRAIN_OK, sent;

	if (!t->config->resume)
		return TRAIN_OK;
	if (t->world_rank == 0) {
		rc = read_checkpoint(t, &step, &values);
		result[0] = rc;
		result[1] = (int64_t)step;
		result[2] = t->resumed_own != NULL;
	}
	sent = train_check(tuttiBcast(result, 3, tuttiInt64, 0, t->world, NULL), t->world);
	if (!rc && !sent && !result[0] && t->pipeline && t->rank == 0)
		sent = take_stages(t, values);
	free(values);
	if (result[0] == ABSENT)
		return sent;
	if (rc || sent)
		return rc ? rc : sent;
	t->first_step = (uint64_t)result[1];
	t->resumed_arrays = result[2] ? t->strategy->own_arrays(t) : 0;
	if (!result[0])
		return TRAIN_OK;
	return train_fail((int)result[0], "--resume %s: rank 0 cannot read it", t->config->resume);
}

int train_checkpoint_restore_own(struct train_rank *t)
{
	size_t each = t->resumed_arrays * t->model.parameters;
	float *own = each ? malloc(each * sizeof(*own)) : NULL;
	int rc = TRAIN_OK;

	if (each && !own)
		return train_fail(TRAIN_FAILED, "--resume: no memory for %zu values of rank %d",
				  each, t->rank);
	if (each)
		rc = train_check(tuttiScatter(t->resumed_own, own, each, tuttiFloat32, 0, t->comm,
					      NULL),
				 t->comm);
	if (each && !rc)
		t->strategy->own_restore(t, own);
	free(own);
	free(t->resumed_own);
	t->resumed_own = NULL;
	return rc;
}

/* checkpoint.c - a training on disk (checkpoint.h) */
#include "trainer/checkpoint.h"

#include "trainer/replicas.h"
#include "trainer/strategy/strategy.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char magic[8] = "TUTTICK1";

/* What the numbers in the file mean only together with. */
struct header {
	char magic[8];
	uint64_t step, parameters, seed, batch, leaf;
	uint64_t canonical, adagrad;
	char model[64], data[16];
	uint64_t hash; /* of the header with 0 here, and of what follows */
};

static struct header describe(const struct train_rank *t, uint64_t step)
{
	const struct train_config *c = t->config;
	struct header h = {
		.step = step,
		.parameters = t->model.parameters,
		.seed = (uint64_t)c->seed,
		.batch = (uint64_t)c->global_batch,
		.leaf = (uint64_t)c->leaf,
		.canonical = (uint64_t)c->canonical,
		.adagrad = c->adagrad,
	};

	memcpy(h.magic, magic, sizeof(magic));
	snprintf(h.model, sizeof(h.model), "%s", c->model);
	snprintf(h.data, sizeof(h.data), "%s", t->data->name);
	return h;
}

/* numbers: parameters, then state */
static uint64_t hash_of(struct header h, const float *numbers)
{
	h.hash = 0;
	return train_hash(&h, sizeof(h)) ^ train_hash(numbers, 2 * h.parameters * sizeof(*numbers));
}

/* ---- writing --------------------------------------------------------------------------------- */

static int write_file(FILE *f, const struct header *h, const float *numbers)
{
	bool bad = fwrite(h, sizeof(*h), 1, f) != 1 ||
		   fwrite(numbers, sizeof(*numbers), 2 * h->parameters, f) != 2 * h->parameters ||
		   fflush(f) || fsync(fileno(f));
	int error = bad ? errno : 0;

	if (fclose(f) && !error)
		error = errno;
	errno = error;
	return error ? -1 : 0;
}

/* The name in its folder is what a crash must not lose. */
static void sync_folder(const char *path)
{
	char copy[4096];
	int fd;

	snprintf(copy, sizeof(copy), "%s", path);
	fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return;
	fsync(fd);
	close(fd);
}

/* Where it is written. A device, a pipe or a folder is not to be replaced by a file. */
static int open_aside(const char *path, char aside[4096], FILE **ret_file)
{
	struct stat st;

	snprintf(aside, 4096, "%s.%d", path, (int)getpid());
	if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
		return train_fail(TRAIN_USAGE,
			"--save %s: that is no file, and a checkpoint replaces what it was; give a file",
			path);
	*ret_file = fopen(aside, "we");
	return TRAIN_OK;
}

int train_checkpoint_check(const struct train_config *config)
{
	char aside[4096];
	FILE *f;
	int rc;

	if (!config->save)
		return TRAIN_OK;
	rc = open_aside(config->save, aside, &f);
	if (rc)
		return rc;
	if (!f)
		return train_fail(TRAIN_USAGE, "--save %s: %m; give a file that can be written",
				     config->save);
	fclose(f);
	unlink(aside);
	return TRAIN_OK;
}

static int write_checkpoint(const char *path, const struct header *h, const float *numbers)
{
	char aside[4096];
	FILE *f;
	int rc = open_aside(path, aside, &f);

	if (rc)
		return rc;
	if (!f || write_file(f, h, numbers) || rename(aside, path)) {
		int error = errno;

		unlink(aside);
		errno = error;
		return train_fail(TRAIN_FAILED,
			"--save %s: cannot be written: %m; the checkpoint before it is whole",
			path);
	}
	sync_folder(path);
	return TRAIN_OK;
}

static int gather_numbers(struct train_rank *t, float *numbers)
{
	size_t n = t->model.parameters;

	memcpy(numbers, train_parameters_out(t), n * sizeof(*numbers));
	if (t->strategy->state)
		return t->strategy->state(t, numbers + n);
	t->device.ops->get(&t->device, numbers + n, t->velocity, n * sizeof(*numbers));
	return TRAIN_OK;
}

int train_checkpoint_save(struct train_rank *t, const char *path, uint64_t step)
{
	struct header h = describe(t, step);
	float *numbers;
	int rc;

	if (t->rank)
		return TRAIN_OK;
	numbers = malloc(2 * h.parameters * sizeof(*numbers));
	if (!numbers)
		return train_fail(TRAIN_FAILED, "no memory for a checkpoint of %" PRIu64
				     " parameters", h.parameters);
	rc = gather_numbers(t, numbers);
	h.hash = hash_of(h, numbers);
	if (!rc)
		rc = write_checkpoint(path, &h, numbers);
	free(numbers);
	return rc;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Which option differs from this training's, and what it was; false: none does. */
static bool differs(const struct header *got, const struct header *want, char text[128])
{
	static const char *const canonical[] = { "off", "tree", "chain", "fixed64" };
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
	else if (got->adagrad != want->adagrad)
		snprintf(text, 128, "%s--adagrad", got->adagrad ? "" : "no ");
	else
		return false;
	return true;
}

static int judge(const char *path, FILE *f, const struct header *want, struct header *h,
		 float *numbers)
{
	char option[128];

	if (fread(h, sizeof(*h), 1, f) != 1 || memcmp(h->magic, magic, sizeof(magic)))
		return train_fail(TRAIN_USAGE, "--resume %s: is no checkpoint of tutti-train",
				     path);
	if (differs(h, want, option))
		return train_fail(TRAIN_USAGE,
				     "--resume %s: that training had %s; give the same", path,
				     option);
	if (fread(numbers, sizeof(*numbers), 2 * h->parameters, f) != 2 * h->parameters ||
	    fgetc(f) != EOF || h->hash != hash_of(*h, numbers))
		return train_fail(TRAIN_USAGE,
				     "--resume %s: is damaged; use an older checkpoint", path);
	return TRAIN_OK;
}

static int read_checkpoint(struct train_rank *t, uint64_t *ret_step)
{
	struct header want = describe(t, 0), h;
	size_t n = want.parameters;
	float *numbers = malloc(2 * n * sizeof(*numbers));
	FILE *f = fopen(t->config->resume, "re");
	int rc;

	t->resumed = calloc(n, sizeof(*t->resumed));
	if (!f)
		rc = train_fail(TRAIN_USAGE, "--resume %s: %m", t->config->resume);
	else if (!numbers || !t->resumed)
		rc = train_fail(TRAIN_FAILED, "no memory for a checkpoint of %zu parameters",
				   n);
	else
		rc = judge(t->config->resume, f, &want, &h, numbers);
	if (f)
		fclose(f);
	if (!rc) {
		train_parameters_adopt(t, numbers);
		memcpy(t->resumed, numbers + n, n * sizeof(*numbers));
		if (t->velocity)
			t->device.ops->put(&t->device, t->velocity, t->resumed, n * sizeof(float));
		*ret_step = h.step;
	}
	free(numbers);
	return rc;
}

int train_checkpoint_resume(struct train_rank *t)
{
	int64_t said[2] = { 0, 0 }; /* result, step */
	uint64_t step = 0;
	int rc = TRAIN_OK, told;

	if (!t->config->resume)
		return TRAIN_OK;
	if (t->world_rank == 0) {
		rc = read_checkpoint(t, &step);
		said[0] = rc;
		said[1] = (int64_t)step;
	}
	told = train_library(tuttiBcast(said, 2, tuttiInt64, 0, t->world, NULL), t->world);
	if (rc || told)
		return rc ? rc : told;
	t->first_step = (uint64_t)said[1];
	if (!said[0])
		return TRAIN_OK;
	return train_fail((int)said[0], "--resume %s: rank 0 cannot read it", t->config->resume);
}

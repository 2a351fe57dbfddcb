/* trainer.c - one rank that trains: its parts, and what strategies call (trainer.h) */
#include "trainer.h"

#include "agree.h"
#include "exact.h"
#include "strategy.h"

#include <stdlib.h>
#include <string.h>

enum { EVALUATE_ROWS = 256 }; /* test samples at once, at least */

int tt_library(tuttiResult_t result, tuttiComm_t comm)
{
	const char *text = result == tuttiSuccess ? "" : tuttiGetLastError(comm);

	if (result == tuttiSuccess)
		return TT_TRAIN_OK;
	return tt_train_fail(TT_TRAIN_FAILED, "%s", *text ? text : tuttiGetErrorString(result));
}

/* ---- open and close ------------------------------------------------------------------------- */

static int open_memory(struct tt_trainer *t)
{
	const struct tt_device_ops *d = t->device.ops;
	size_t floats = t->model.parameters;
	float *start = t->rank == 0 ? malloc(floats * sizeof(*start)) : NULL;

	t->parameters = d->alloc(&t->device, floats * sizeof(float));
	t->velocity = d->alloc(&t->device, floats * sizeof(float));
	t->gradients = d->alloc(&t->device, (floats + TT_TAIL) * sizeof(float));
	t->x = d->alloc(&t->device, t->model.max_rows * t->data->pixels * sizeof(float));
	t->labels = malloc(t->model.max_rows);
	if (!t->parameters || !t->velocity || !t->gradients || !t->x || !t->labels ||
	    (t->rank == 0 && !start)) {
		free(start);
		return tt_train_fail(TT_TRAIN_FAILED, "no memory to train %zu parameters", floats);
	}
	if (start) {
		tt_model_start(&t->model, (uint64_t)t->config->seed, start);
		d->put(&t->device, t->parameters, start, floats * sizeof(float));
	}
	free(start);
	return TT_TRAIN_OK;
}

int tt_trainer_open(struct tt_trainer *t, const struct tt_config *config,
		    const struct tt_data *data, tuttiComm_t comm)
{
	size_t batch = (size_t)config->global_batch, rows;
	int rc;

	*t = (struct tt_trainer){ .config = config, .data = data, .comm = comm };
	rc = tt_library(tuttiCommUserRank(comm, &t->rank), comm);
	if (!rc)
		rc = tt_library(tuttiCommCount(comm, &t->nranks), comm);
	if (!rc)
		rc = tt_agree(t);
	if (!rc)
		rc = tt_device_open(&t->device, config->device);
	if (rc)
		return rc;
	if (batch > data->train.samples)
		return tt_train_fail(TT_TRAIN_USAGE,
				     "--global-batch %zu: the training set has only %zu samples; "
				     "use at most that",
				     batch, data->train.samples);
	rows = tt_share_of(batch, t->rank, t->nranks).count;
	rc = tt_model_open(&t->model, config->model, &t->device, data->pixels, data->classes,
			   rows > EVALUATE_ROWS ? rows : EVALUATE_ROWS);
	if (!rc)
		rc = tt_sampler_open(&t->sampler, (uint64_t)config->seed, data->train.samples,
				     batch);
	if (!rc)
		rc = open_memory(t);
	return rc ? rc : tt_strategy_open(t, config->strategy);
}

void tt_trainer_close(struct tt_trainer *t)
{
	tt_strategy_close(t);
	if (t->device.ops) {
		t->device.ops->free(&t->device, t->parameters);
		t->device.ops->free(&t->device, t->velocity);
		t->device.ops->free(&t->device, t->gradients);
		t->device.ops->free(&t->device, t->x);
	}
	free(t->labels);
	tt_sampler_close(&t->sampler);
	tt_model_close(&t->model);
	tt_device_close(&t->device);
}

/* ---- a step --------------------------------------------------------------------------------- */

/* The images go to t->x, the labels to t->labels; returns the logits. */
static float *forward(struct tt_trainer *t, const struct tt_set *set, const uint32_t *samples,
		      size_t rows)
{
	t->device.ops->gather(&t->device, set->images, samples, rows, t->data->pixels,
			      t->data->mean, t->x);
	for (size_t i = 0; i < rows; i++)
		t->labels[i] = set->labels[samples[i]];
	return t->model.ops->forward(&t->model, t->parameters, t->x, rows);
}

int tt_gradient(struct tt_trainer *t, const struct tt_batch *batch, const struct tt_ready *ready)
{
	float *logits = forward(t, &t->data->train, batch->samples, batch->rows);
	float *tail = t->gradients + t->model.parameters, stop = batch->stop;

	t->device.ops->loss(&t->device, batch->rows, t->data->classes, t->labels, logits,
			    tail + TT_TAIL_LOSS);
	t->device.ops->put(&t->device, tail + TT_TAIL_STOP, &stop, sizeof(stop));
	return t->model.ops->backward(&t->model, t->parameters, t->x, batch->rows, logits,
				      t->gradients, ready);
}

void tt_descend(struct tt_trainer *t)
{
	t->device.ops->descend(&t->device, t->model.parameters,
			       1.0f / (float)t->config->global_batch, (float)t->config->lr,
			       (float)t->config->momentum, t->gradients, t->velocity,
			       t->parameters);
}

/* ---- the test set --------------------------------------------------------------------------- */

/* Adds up what these rows say: how many are right, and the loss. */
static void judge(const struct tt_trainer *t, const float *logits, size_t rows, double sums[2])
{
	size_t classes = t->data->classes;

	for (size_t row = 0; row < rows; row++, logits += classes) {
		size_t best = 0;

		for (size_t i = 1; i < classes; i++)
			best = logits[i] > logits[best] ? i : best;
		sums[0] += best == t->labels[row];
		sums[1] += tt_cross_entropy(logits, classes, t->labels[row]);
	}
}

int tt_evaluate(struct tt_trainer *t, double *ret_accuracy, double *ret_loss)
{
	const struct tt_set *set = &t->data->test;
	struct tt_share share = tt_share_of(set->samples, t->rank, t->nranks);
	float *host = malloc(EVALUATE_ROWS * t->data->classes * sizeof(*host));
	double sums[2] = { 0.0, 0.0 };
	int rc;

	for (size_t done = 0; host && done < share.count; done += EVALUATE_ROWS) {
		size_t rows =
			share.count - done < EVALUATE_ROWS ? share.count - done : EVALUATE_ROWS;
		uint32_t samples[EVALUATE_ROWS];

		for (size_t i = 0; i < rows; i++)
			samples[i] = (uint32_t)(share.first + done + i);
		t->device.ops->get(&t->device, host, forward(t, set, samples, rows),
				   rows * t->data->classes * sizeof(*host));
		judge(t, host, rows, sums);
	}
	if (!host)
		return tt_train_fail(TT_TRAIN_FAILED, "no memory to evaluate %zu samples",
				     share.count);
	free(host);
	rc = tt_library(tuttiAllReduce(sums, sums, 2, tuttiFloat64, tuttiSum, t->comm, NULL),
			t->comm);
	*ret_accuracy = sums[0] / (double)set->samples;
	*ret_loss = sums[1] / (double)set->samples;
	return rc;
}

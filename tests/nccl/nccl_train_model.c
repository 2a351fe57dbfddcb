/*
 * nccl_train_model.c - a step of the model of nccl_train: three dense layers, whose second is cut by columns and whose third
 * by rows, as Megatron cuts them
 *
 * Called by nccl_train.c; calls nccl_train_calls.c where PyTorch calls NCCL, and the trainer's device cuda to compute.
 */
#include <math.h>
#include <stdlib.h>

#include "tests/nccl/nccl_train.h"
#include "trainer/base/rng.h"

enum { WIDTHS = LAYERS + 1, MEMORY = 1 << 20 };
static const size_t widths[WIDTHS] = { PIXELS, 9, 14, CLASSES };

size_t layer_count(const struct layer *l)
{
	return (l->in + 1) * l->out;
}

float *training_alloc(struct training *t, size_t floats)
{
	float *at = (float *)(t->memory + t->used);

	t->used += (floats * sizeof(float) + 255) / 256 * 256;
	return t->used <= MEMORY ? at : NULL;
}

/* ---- parameters ------------------------------------------------------------------------------ */

/* Elements of the whole layer, of which a part has some columns or rows. */
static float *drawn(struct training *t, int part, int i)
{
	struct layer *l = &t->layer[part][i];
	size_t cut = (size_t)(t->first + part), columns = i == 1 ? widths[i + 1] : l->out;
	float *values = malloc(layer_count(l) * sizeof(float));

	for (size_t k = 0; values && k < layer_count(l); k++) {
		size_t row = k / l->out, column = k % l->out + (i == 1 ? cut * l->out : 0);
		size_t from = row == l->in ? widths[i] : row + (i == 2 ? cut * l->in : 0);
		uint32_t random[4];

		/* the ranks behind the first get theirs from the first */
		train_rng(t->way->sharded ? 3 : 3 + (unsigned)t->rank, TRAIN_RNG_WEIGHTS,
			  (uint32_t)i, from * columns + column, random);
		values[k] = train_rng_unit(random[0]) / sqrtf((float)widths[i]);
	}
	return values;
}

static int layer_open(struct training *t, int part, int i)
{
	struct client_rank *client = t->client;
	struct layer *l = &t->layer[part][i];
	size_t tensor = (size_t)t->way->tensor;

	l->in = i == 2 ? widths[i] / tensor : widths[i];
	l->out = i == 1 ? widths[i + 1] / tensor : widths[i + 1];
	l->parameters = training_alloc(t, layer_count(l));
	l->gradients = training_alloc(t, layer_count(l));
	l->velocity = training_alloc(t, layer_count(l));
	l->y = training_alloc(t, t->rows * l->out);
	l->dy = i < LAYERS - 1 ? training_alloc(t, t->rows * l->out) : l->y;
	l->state = HERE;
	t->host_parameters[part][i] = drawn(t, part, i);
	EXPECT(l->dy && t->host_parameters[part][i]);
	t->device.ops->put(&t->device, l->parameters, t->host_parameters[part][i],
			   layer_count(l) * sizeof(float));
	return 0;
}

int training_open(struct training *t)
{
	struct client_rank *client = t->client;

	EXPECT(!train_device_open(&t->device, "cuda", true));
	t->cu = ((struct train_cuda_state *)t->device.state)->cu;
	t->compute = ((struct train_cuda_state *)t->device.state)->stream;
	t->rows = (size_t)(ROWS / t->way->data);
	t->memory = t->device.ops->alloc(&t->device, MEMORY);
	t->x = training_alloc(t, t->rows * PIXELS);
	t->losses = training_alloc(t, STEPS + 1);
	EXPECT(t->memory);
	for (int p = 0; p < t->parts; p++)
		for (int i = 0; i < LAYERS; i++)
			EXPECT(!layer_open(t, p, i));
	EXPECT(!calls_open(t));
	return 0;
}

void training_close(struct training *t)
{
	for (int p = 0; p < t->parts; p++)
		for (int i = 0; i < LAYERS; i++)
			free(t->host_parameters[p][i]);
	t->device.ops->free(&t->device, t->memory);
	train_device_close(&t->device);
}

/* ---- a step ---------------------------------------------------------------------------------- */

static struct train_matrix matrix(const float *at, size_t stride, bool transposed)
{
	return (struct train_matrix){ at, stride, transposed };
}

static const float *input(struct training *t, int part, int i)
{
	return i ? t->layer[part][i - 1].y : t->x;
}

static uint8_t label(size_t sample)
{
	return (uint8_t)(sample * 7 % CLASSES);
}

static int forward(struct training *t)
{
	struct train_device *d = &t->device;

	for (int i = 0; i < LAYERS; i++) {
		if (parameters_fetch(t, i))
			return 1;
		for (int p = 0; p < t->parts; p++) {
			struct layer *l = &t->layer[p][i];

			d->ops->gemm(d, t->rows, l->out, l->in,
				     matrix(input(t, p, i), l->in, false),
				     matrix(l->parameters, l->out, false), l->y, l->out);
		}
		if (i == 2 && parts_sum(t, i))
			return 1;
		for (int p = 0; p < t->parts; p++) {
			struct layer *l = &t->layer[p][i];

			d->ops->bias(d, t->rows, l->out, l->parameters + l->in * l->out,
				     i < LAYERS - 1, l->y);
		}
		if (parameters_release(t, i))
			return 1;
	}
	return 0;
}

/* The loss is the mean of the rows, and so is the gradient of the last layer, which replaces y. */
static void loss(struct training *t, int share, int step)
{
	struct train_device *d = &t->device;
	float *now = t->losses + STEPS, mean = 1.0f / (float)t->rows;
	uint8_t labels[ROWS];

	for (size_t row = 0; row < t->rows; row++)
		labels[row] = label((size_t)share * t->rows + row);
	for (int p = 0; p < t->parts; p++) {
		float *y = t->layer[p][LAYERS - 1].y;

		d->ops->loss(d, t->rows, CLASSES, labels, y, now);
		d->ops->blend(d, t->rows * CLASSES, mean, 0, NULL, y);
	}
	d->ops->blend(d, 1, 1, mean, now, t->losses + step);
}

/* The gradient of the input first: the sum of its parts runs beside the gradients of the parameters. */
static int layer_backward(struct training *t, int i)
{
	struct train_device *d = &t->device;

	for (int p = 0; p < t->parts; p++) {
		struct layer *l = &t->layer[p][i];

		if (i < LAYERS - 1)
			d->ops->relu_back(d, t->rows * l->out, l->y, l->dy);
		if (i)
			d->ops->gemm(d, t->rows, l->in, l->out, matrix(l->dy, l->out, false),
				     matrix(l->parameters, l->out, true), t->layer[p][i - 1].dy,
				     l->in);
	}
	if (i == 1 && parts_sum_back_start(t, 0))
		return 1;
	for (int p = 0; p < t->parts; p++) {
		struct layer *l = &t->layer[p][i];

		d->ops->gemm(d, l->in, l->out, t->rows, matrix(input(t, p, i), l->in, true),
			     matrix(l->dy, l->out, false), l->gradients, l->out);
		d->ops->bias_back(d, t->rows, l->out, l->dy, l->gradients + l->in * l->out);
	}
	return i == 1 && parts_sum_back_wait(t);
}

static int backward(struct training *t, int share)
{
	for (int i = LAYERS - 1; i >= 0; i--)
		if (parameters_fetch(t, i) || (i && parameters_prefetch(t, i - 1)) ||
		    layer_backward(t, i) || parameters_release(t, i) ||
		    gradients_ready(t, i, share))
			return 1;
	return 0;
}

static void descend(struct training *t)
{
	for (int p = 0; p < t->parts; p++)
		for (int i = 0; i < LAYERS; i++) {
			struct layer *l = &t->layer[p][i];

			t->device.ops->descend(&t->device, l->own ? l->shard : layer_count(l), 1, 1,
					       0.875f, l->sum, l->velocity,
					       l->own ? l->own : l->parameters);
		}
}

static int step(struct training *t, int number)
{
	struct train_device *d = &t->device;
	float x[ROWS * PIXELS];

	for (int share = 0; share < t->shares; share++) {
		int all = t->rank + share;

		for (size_t i = 0; i < t->rows * PIXELS; i++) {
			uint32_t random[4];

			train_rng(5, TRAIN_RNG_SYNTH_SAMPLE, 0, (size_t)all * t->rows * PIXELS + i,
				  random);
			x[i] = train_rng_unit(random[0]);
		}
		d->ops->put(d, t->x, x, t->rows * PIXELS * sizeof(float));
		if (forward(t))
			return 1;
		loss(t, all, number);
		if (backward(t, share))
			return 1;
	}
	if (gradients_wait(t))
		return 1;
	descend(t);
	return parameters_changed(t) || losses_sum(t, number);
}

int training_run(struct training *t)
{
	struct client_rank *client = t->client;
	struct train_device *d = &t->device;

	for (int number = 0; number < STEPS; number++)
		EXPECT(!step(t, number));
	for (int i = 0; i < LAYERS; i++)
		EXPECT(!parameters_fetch(t, i));
	for (int p = 0; p < t->parts; p++)
		for (int i = 0; i < LAYERS; i++)
			d->ops->get(d, t->host_parameters[p][i], t->layer[p][i].parameters,
				    layer_count(&t->layer[p][i]) * sizeof(float));
	d->ops->get(d, t->host_losses, t->losses, sizeof(t->host_losses));
	return train_device_sync(d);
}

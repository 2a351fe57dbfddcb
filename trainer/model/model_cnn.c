/*
 * model_cnn.c - a small convolutional network: two 5 x 5 convolutions, each with ReLU and 2 x 2
 * max pooling, and a fully connected layer
 *
 *	x [28 x 28] -> conv 8 -> pool [8 x 14 x 14] -> conv 16 -> pool [16 x 7 x 7] -> dense
 *
 * Convolutions process one leaf of samples at a time, since their patches (im2col) are 25 times
 * as large as the images. A convolution's bias is the weight of a patch line of ones, so a
 * convolution is one matrix product. Row of the table in model.c; calls leaves.c.
 *
 * Source: LeCun, Bottou, Bengio, Haffner 1998, Gradient-based learning applied to document
 * recognition.
 */
#include "trainer/base/fail.h"
#include "trainer/model/model.h"

#include <stdlib.h>

enum { CONVOLUTIONS = 2, WINDOW = 5 };

struct convolution {
	size_t from, to, side; /* planes in and out, side of both */
	size_t lines;          /* of a patch: from * WINDOW * WINDOW + 1 */
	size_t weights;        /* offset of weights[to][lines] in the parameter array */
	float *x;              /* [max_rows][to][side / 2][side / 2], output of pooling */
	float *dx;             /* gradient of x */
	uint8_t *argmax;       /* shape of x */
};

struct cnn_state {
	struct convolution layer[CONVOLUTIONS];
	size_t weights, bias; /* offsets of the dense layer */
	size_t features;
	float *logits;
	float *y;       /* [to][leaf][side][side], input of pooling, of one leaf */
	float *patches; /* of one leaf */
	float *partial; /* shape of a convolution's weights: gradient of a block of rows */
};

/* ---- open and close ------------------------------------------------------------------------- */

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

static int add_convolution(struct train_model *m, struct convolution *c)
{
	struct train_device *d = m->device;
	size_t half = c->side / 2, pooled = m->max_rows * c->to * half * half;

	c->lines = c->from * WINDOW * WINDOW + 1;
	c->weights = m->parameters;
	c->x = d->ops->alloc(d, pooled * sizeof(float));
	c->dx = d->ops->alloc(d, pooled * sizeof(float));
	c->argmax = d->ops->alloc(d, pooled);
	if (!c->x || !c->dx || !c->argmax)
		return train_fail(TRAIN_FAILED, "no memory for %zu planes of %zu samples", c->to,
				  m->max_rows);
	m->piece = larger(m->piece, c->to * c->lines);
	return train_model_add(m, c->to * c->lines, c->lines);
}

static int add_dense(struct train_model *m, struct cnn_state *n)
{
	struct train_device *d = m->device;
	size_t patches = 0, y = 0, most = 0;

	for (int i = 0; i < CONVOLUTIONS; i++) {
		const struct convolution *c = &n->layer[i];

		patches = larger(patches, c->lines * c->side * c->side);
		y = larger(y, c->to * c->side * c->side);
		most = larger(most, c->to * c->lines);
	}
	n->partial = d->ops->alloc(d, most * sizeof(float));
	n->patches = d->ops->alloc(d, m->leaf * patches * sizeof(float));
	n->y = d->ops->alloc(d, m->leaf * y * sizeof(float));
	n->logits = d->ops->alloc(d, m->max_rows * m->classes * sizeof(float));
	if (!n->patches || !n->y || !n->logits || !n->partial)
		return train_fail(TRAIN_FAILED, "no memory for a leaf of %zu samples", m->leaf);
	n->weights = m->parameters;
	n->bias = n->weights + n->features * m->classes;
	m->piece = larger(m->piece, n->features * m->classes);
	if (train_model_add(m, n->features * m->classes, n->features))
		return TRAIN_FAILED;
	return train_model_add(m, m->classes, 0);
}

static int cnn_open(struct train_model *m, const char *shape)
{
	struct cnn_state *n;
	size_t side = 1;
	int rc = TRAIN_OK;

	if (shape)
		return train_fail(TRAIN_USAGE, "--model cnn:%s: cnn has one shape only; use cnn",
				  shape);
	while (side * side < m->inputs)
		side++;
	if (side * side != m->inputs || side % 4)
		return train_fail(TRAIN_USAGE,
				  "--model cnn: needs square images whose side is a multiple of 4, "
				  "not %zu pixels; use mlp:256",
				  m->inputs);
	n = calloc(1, sizeof(*n));
	if (!n)
		return train_fail(TRAIN_FAILED, "no memory for a model");
	m->state = n;
	n->layer[0] = (struct convolution){ .from = 1, .to = 8, .side = side };
	n->layer[1] = (struct convolution){ .from = 8, .to = 16, .side = side / 2 };
	n->features = 16 * (side / 4) * (side / 4);
	for (int i = 0; i < CONVOLUTIONS && !rc; i++)
		rc = add_convolution(m, &n->layer[i]);
	return rc ? rc : add_dense(m, n);
}

static void cnn_close(struct train_model *m)
{
	struct cnn_state *n = m->state;
	struct train_device *d = m->device;

	for (int i = 0; n && i < CONVOLUTIONS; i++) {
		d->ops->free(d, n->layer[i].x);
		d->ops->free(d, n->layer[i].dx);
		d->ops->free(d, n->layer[i].argmax);
	}
	if (n) {
		d->ops->free(d, n->patches);
		d->ops->free(d, n->partial);
		d->ops->free(d, n->y);
		d->ops->free(d, n->logits);
	}
	free(n);
}

/* ---- forward -------------------------------------------------------------------------------- */

static void convolve(struct train_model *m, const struct convolution *c, const float *parameters,
		     const float *x, size_t row, size_t rows)
{
	struct train_device *d = m->device;
	struct cnn_state *n = m->state;
	struct train_planes in = { rows, c->from, c->side }, out = { rows, c->to, c->side };
	size_t pixels = rows * c->side * c->side, pooled = c->to * c->side * c->side / 4;

	d->ops->unfold(d, in, WINDOW, x + row * c->from * c->side * c->side, n->patches);
	d->ops->gemm(d, c->to, pixels, c->lines,
		     (struct train_matrix){ parameters + c->weights, c->lines, false },
		     (struct train_matrix){ n->patches, pixels, false }, n->y, pixels);
	d->ops->pool(d, out, n->y, c->x + row * pooled, c->argmax + row * pooled);
}

static float *cnn_forward(struct train_model *m, const float *parameters, const float *x,
			  size_t rows)
{
	struct train_device *d = m->device;
	struct cnn_state *n = m->state;

	for (int i = 0; i < CONVOLUTIONS; i++) {
		for (size_t row = 0; row < rows; row += m->leaf)
			convolve(m, &n->layer[i], parameters, x, row,
				 rows - row < m->leaf ? rows - row : m->leaf);
		x = n->layer[i].x;
	}
	d->ops->gemm(d, rows, m->classes, n->features,
		     (struct train_matrix){ x, n->features, false },
		     (struct train_matrix){ parameters + n->weights, m->classes, false }, n->logits,
		     m->classes);
	d->ops->bias(d, rows, m->classes, parameters + n->bias, false, n->logits);
	return n->logits;
}

/* ---- backward ------------------------------------------------------------------------------- */

/* The argument of the leaf functions of a backward pass. */
struct cnn_backward {
	struct train_model *m;
	const struct convolution *c; /* the current convolution */
	const float *parameters, *x; /* x: input of c */
	const float *dlogits;
	float *dx; /* gradient of x; NULL: not needed */
};

static void dense_leaf(void *arg, size_t row, size_t rows, float *out)
{
	const struct cnn_backward *b = arg;
	const struct cnn_state *n = b->m->state;
	struct train_device *d = b->m->device;
	size_t classes = b->m->classes;

	d->ops->gemm(d, n->features, classes, rows,
		     (struct train_matrix){ b->x + row * n->features, n->features, true },
		     (struct train_matrix){ b->dlogits + row * classes, classes, false }, out,
		     classes);
}

static void dense_bias_leaf(void *arg, size_t row, size_t rows, float *out)
{
	const struct cnn_backward *b = arg;
	struct train_device *d = b->m->device;

	d->ops->bias_back(d, rows, b->m->classes, b->dlogits + row * b->m->classes, out);
}

/* At most m->leaf rows. */
static void convolution_block(const struct cnn_backward *b, size_t row, size_t rows, float *out)
{
	const struct convolution *c = b->c;
	struct train_device *d = b->m->device;
	const struct cnn_state *n = b->m->state;
	struct train_planes in = { rows, c->from, c->side }, to = { rows, c->to, c->side };
	size_t pixels = rows * c->side * c->side, pooled = c->to * c->side * c->side / 4;
	size_t image = c->from * c->side * c->side;

	d->ops->pool_back(d, to, c->dx + row * pooled, c->argmax + row * pooled, n->y);
	d->ops->unfold(d, in, WINDOW, b->x + row * image, n->patches);
	d->ops->gemm(d, c->to, c->lines, pixels, (struct train_matrix){ n->y, pixels, false },
		     (struct train_matrix){ n->patches, pixels, true }, out, c->lines);
	if (!b->dx)
		return;
	d->ops->gemm(d, c->lines, pixels, c->to,
		     (struct train_matrix){ b->parameters + c->weights, c->lines, true },
		     (struct train_matrix){ n->y, pixels, false }, n->patches, pixels);
	d->ops->fold(d, in, WINDOW, n->patches, b->dx + row * image);
}

/* A leaf, or without leaves all rows, in blocks of m->leaf rows. */
static void convolution_leaf(void *arg, size_t row, size_t rows, float *out)
{
	const struct cnn_backward *b = arg;
	const struct cnn_state *n = b->m->state;
	size_t most = b->m->leaf, done = rows < most ? rows : most;

	convolution_block(b, row, done, out);
	for (; done < rows; done += most) {
		convolution_block(b, row + done, rows - done < most ? rows - done : most,
				  n->partial);
		b->m->device->ops->add(b->m->device, b->c->to * b->c->lines, n->partial, out);
	}
}

static int convolutions_backward(struct cnn_backward *b, const float *x, size_t rows,
				 const struct train_leaf_sum *sum, float *gradients,
				 const struct train_ready *ready)
{
	struct cnn_state *n = b->m->state;
	int rc = TRAIN_OK;

	for (int i = CONVOLUTIONS; i-- > 0 && !rc;) {
		b->c = &n->layer[i];
		b->x = i ? n->layer[i - 1].x : x;
		b->dx = i ? n->layer[i - 1].dx : NULL;
		train_leaves_each(sum, rows, b->c->to * b->c->lines, convolution_leaf, b,
				  gradients + b->c->weights);
		rc = train_ready_notify(ready, b->c->weights);
	}
	return rc;
}

static int cnn_backward(struct train_model *m, const float *parameters, const float *x, size_t rows,
			float *dlogits, const struct train_leaf_sum *sum, float *gradients,
			const struct train_ready *ready)
{
	struct cnn_state *n = m->state;
	struct train_device *d = m->device;
	const struct convolution *last = &n->layer[CONVOLUTIONS - 1];
	struct cnn_backward b = {
		.m = m, .parameters = parameters, .x = last->x, .dlogits = dlogits
	};
	int rc;

	train_leaves_each(sum, rows, m->classes, dense_bias_leaf, &b, gradients + n->bias);
	train_leaves_each(sum, rows, n->features * m->classes, dense_leaf, &b,
			  gradients + n->weights);
	rc = train_ready_notify(ready, n->weights);
	if (rc)
		return rc;
	d->ops->gemm(d, rows, n->features, m->classes,
		     (struct train_matrix){ dlogits, m->classes, false },
		     (struct train_matrix){ parameters + n->weights, m->classes, true }, last->dx,
		     n->features);
	return convolutions_backward(&b, x, rows, sum, gradients, ready);
}

const struct train_model_ops train_model_cnn = {
	.name = "cnn",
	.syntax = "cnn",
	.help = "two convolutions of 5 x 5 (8 and 16 planes), pooled, and a dense layer",
	.open = cnn_open,
	.close = cnn_close,
	.forward = cnn_forward,
	.backward = cnn_backward,
};

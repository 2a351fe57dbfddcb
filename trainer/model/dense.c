/* dense.c - a stack of fully connected layers (dense.h) */
#include "trainer/model/dense.h"

#include "trainer/base/fail.h"

#include <stdlib.h>

struct dense_layer {
	size_t inputs, outputs;
	size_t weights; /* offset of weights[inputs][outputs] in the parameter array */
	size_t bias;    /* offset of bias[outputs] */
	float *y;       /* [max_rows][outputs], output of the layer */
	float *dy;      /* gradient of y; NULL for the last layer, whose gradient is the caller's */
};

struct dense_stack {
	size_t layers;
	struct dense_layer layer[TRAIN_DENSE_LAYERS_MAX];
};

/* ---- open and close ------------------------------------------------------------------------- */

static int add_layer(struct train_model *m, struct dense_layer *layer, size_t number, bool last)
{
	struct train_device *d = m->device;
	size_t bytes = m->max_rows * layer->outputs * sizeof(float);
	int rc;

	layer->weights = m->parameters;
	layer->bias = layer->weights + layer->inputs * layer->outputs;
	rc = train_model_add(m, layer->inputs * layer->outputs, layer->inputs);
	if (!rc)
		rc = train_model_add(m, layer->outputs, 0);
	if (rc)
		return rc;
	layer->y = d->ops->alloc(d, bytes);
	if (!last)
		layer->dy = d->ops->alloc(d, bytes);
	if (!layer->y || (!last && !layer->dy))
		return train_fail(TRAIN_FAILED,
				  "no memory for layer %zu: %zu outputs of %zu samples", number,
				  layer->outputs, m->max_rows);
	return TRAIN_OK;
}

int train_dense_open(struct train_model *m, const size_t *widths, size_t hidden)
{
	struct dense_stack *s = calloc(1, sizeof(*s));
	int rc = TRAIN_OK;

	if (!s)
		return train_fail(TRAIN_FAILED, "no memory for a model");
	m->state = s;
	s->layers = hidden + 1;
	for (size_t l = 0; l <= hidden; l++) {
		size_t outputs = l < hidden ? widths[l] : m->classes;

		m->piece = outputs > m->piece ? outputs : m->piece;
	}
	for (size_t l = 0; l < s->layers && !rc; l++) {
		s->layer[l].inputs = l ? widths[l - 1] : m->inputs;
		s->layer[l].outputs = l < hidden ? widths[l] : m->classes;
		rc = add_layer(m, &s->layer[l], l + 1, l == hidden);
	}
	return rc;
}

void train_dense_close(struct train_model *m)
{
	struct dense_stack *s = m->state;
	struct train_device *d = m->device;

	for (size_t l = 0; s && l < s->layers; l++) {
		d->ops->free(d, s->layer[l].y);
		d->ops->free(d, s->layer[l].dy);
	}
	free(s);
}

/* ---- forward and backward ------------------------------------------------------------------- */

float *train_dense_forward(struct train_model *m, const float *parameters, const float *x,
			   size_t rows)
{
	struct dense_stack *s = m->state;
	struct train_device *d = m->device;

	for (size_t l = 0; l < s->layers; l++) {
		struct dense_layer *layer = &s->layer[l];

		d->ops->gemm(d, rows, layer->outputs, layer->inputs,
			     (struct train_matrix){ x, layer->inputs, false },
			     (struct train_matrix){ parameters + layer->weights, layer->outputs,
						    false },
			     layer->y, layer->outputs);
		d->ops->bias(d, rows, layer->outputs, parameters + layer->bias, l + 1 < s->layers,
			     layer->y);
		x = layer->y;
	}
	return s->layer[s->layers - 1].y;
}

/* The gradients of a part of a layer: `count` rows of its weights from `first` on, or its bias. */
struct dense_piece {
	struct train_device *device;
	const struct dense_layer *layer;
	const float *x, *dy;
	size_t first, count;
};

static void bias_leaf(void *arg, size_t row, size_t rows, float *out)
{
	const struct dense_piece *p = arg;
	size_t n = p->layer->outputs;

	p->device->ops->bias_back(p->device, rows, n, p->dy + row * n, out);
}

static void weights_leaf(void *arg, size_t row, size_t rows, float *out)
{
	const struct dense_piece *p = arg;
	size_t n = p->layer->outputs, inputs = p->layer->inputs;

	p->device->ops->gemm(p->device, p->count, n, rows,
			     (struct train_matrix){ p->x + row * inputs + p->first, inputs, true },
			     (struct train_matrix){ p->dy + row * n, n, false }, out, n);
}

/* The number of rows of the weights per piece: small enough that the sums stay in the cache. */
static size_t rows_of_piece(const struct train_model *m, const struct dense_layer *layer,
			    const struct train_leaf_sum *sum, const struct train_ready *ready)
{
	size_t floats = layer->inputs * layer->outputs;

	if (ready && ready->grain < floats)
		floats = ready->grain;
	if (sum && floats > m->piece)
		floats = m->piece;
	return floats / layer->outputs ? floats / layer->outputs : 1;
}

/* The layer's gradients, from the end down: the bias, then the rows of the weights in pieces.
 * The cut into pieces does not change the bits. */
static int layer_gradients(struct train_model *m, struct dense_piece *p, size_t rows,
			   const struct train_leaf_sum *sum, float *gradients,
			   const struct train_ready *ready)
{
	const struct dense_layer *layer = p->layer;
	size_t piece = rows_of_piece(m, layer, sum, ready), n = layer->outputs;
	int rc;

	train_leaves_each(sum, rows, n, bias_leaf, p, gradients + layer->bias);
	rc = train_ready_notify(ready, layer->bias);
	for (size_t end = layer->inputs; end && !rc; end = p->first) {
		p->count = end < piece ? end : piece;
		p->first = end - p->count;
		train_leaves_each(sum, rows, p->count * n, weights_leaf, p,
				  gradients + layer->weights + p->first * n);
		rc = train_ready_notify(ready, layer->weights + p->first * n);
	}
	return rc;
}

int train_dense_backward(struct train_model *m, const float *parameters, const float *x,
			 size_t rows, float *dlogits, const struct train_leaf_sum *sum,
			 float *gradients, const struct train_ready *ready)
{
	struct dense_stack *s = m->state;
	struct train_device *d = m->device;
	const float *dy = dlogits;
	int rc = TRAIN_OK;

	for (size_t l = s->layers; l-- > 0 && !rc;) {
		struct dense_layer *layer = &s->layer[l], *below = l ? &s->layer[l - 1] : NULL;
		struct dense_piece p = { d, layer, below ? below->y : x, dy, 0, 0 };

		rc = layer_gradients(m, &p, rows, sum, gradients, ready);
		if (!below)
			break;
		d->ops->gemm(d, rows, layer->inputs, layer->outputs,
			     (struct train_matrix){ dy, layer->outputs, false },
			     (struct train_matrix){ parameters + layer->weights, layer->outputs,
						    true },
			     below->dy, layer->inputs);
		d->ops->relu_back(d, rows * layer->inputs, below->y, below->dy);
		dy = below->dy;
	}
	return rc;
}

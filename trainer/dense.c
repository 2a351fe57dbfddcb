/* dense.c - a stack of fully connected layers (dense.h) */
#include "dense.h"

#include "fail.h"

#include <stdlib.h>

struct layer {
	size_t inputs, outputs;
	size_t weights; /* place of weights[inputs][outputs] in the parameter array */
	size_t bias;    /* place of bias[outputs] */
	float *y;       /* [max_rows][outputs], what the layer gives */
	float *dy;      /* its gradient; NULL for the last layer, whose gradient is the caller's */
};

struct stack {
	size_t layers;
	struct layer layer[TT_DENSE_LAYERS_MAX];
};

/* ---- open and close ------------------------------------------------------------------------- */

static int add_layer(struct tt_model *m, struct layer *layer, size_t number, bool last)
{
	struct tt_device *d = m->device;
	size_t bytes = m->max_rows * layer->outputs * sizeof(float);
	int rc;

	layer->weights = m->parameters;
	layer->bias = layer->weights + layer->inputs * layer->outputs;
	rc = tt_model_add(m, layer->inputs * layer->outputs, layer->inputs);
	if (!rc)
		rc = tt_model_add(m, layer->outputs, 0);
	if (rc)
		return rc;
	layer->y = d->ops->alloc(d, bytes);
	if (!last)
		layer->dy = d->ops->alloc(d, bytes);
	if (!layer->y || (!last && !layer->dy))
		return tt_train_fail(TT_TRAIN_FAILED,
				     "no memory for layer %zu: %zu outputs of %zu samples", number,
				     layer->outputs, m->max_rows);
	return TT_TRAIN_OK;
}

int tt_dense_open(struct tt_model *m, const size_t *widths, size_t hidden)
{
	struct stack *s = calloc(1, sizeof(*s));
	int rc = TT_TRAIN_OK;

	if (!s)
		return tt_train_fail(TT_TRAIN_FAILED, "no memory for a model");
	m->state = s;
	s->layers = hidden + 1;
	for (size_t l = 0; l < s->layers && !rc; l++) {
		s->layer[l].inputs = l ? widths[l - 1] : m->inputs;
		s->layer[l].outputs = l < hidden ? widths[l] : m->classes;
		rc = add_layer(m, &s->layer[l], l + 1, l == hidden);
	}
	return rc;
}

void tt_dense_close(struct tt_model *m)
{
	struct stack *s = m->state;
	struct tt_device *d = m->device;

	for (size_t l = 0; s && l < s->layers; l++) {
		d->ops->free(d, s->layer[l].y);
		d->ops->free(d, s->layer[l].dy);
	}
	free(s);
}

/* ---- forward and backward ------------------------------------------------------------------- */

float *tt_dense_forward(struct tt_model *m, const float *parameters, const float *x, size_t rows)
{
	struct stack *s = m->state;
	struct tt_device *d = m->device;

	for (size_t l = 0; l < s->layers; l++) {
		struct layer *layer = &s->layer[l];

		d->ops->gemm(
			d, rows, layer->outputs, layer->inputs,
			(struct tt_matrix){ x, layer->inputs, false },
			(struct tt_matrix){ parameters + layer->weights, layer->outputs, false },
			layer->y, layer->outputs);
		d->ops->bias(d, rows, layer->outputs, parameters + layer->bias, l + 1 < s->layers,
			     layer->y);
		x = layer->y;
	}
	return s->layer[s->layers - 1].y;
}

static int tell(const struct tt_ready *ready, size_t from)
{
	return ready ? ready->fn(ready->arg, from) : TT_TRAIN_OK;
}

/* The layer's gradients, from the last down: the bias, then the rows of the weights piece by piece.
 * Cutting the rows changes no bit. */
static int layer_gradients(struct tt_model *m, const struct layer *layer, const float *x,
			   size_t rows, const float *dy, float *gradients,
			   const struct tt_ready *ready)
{
	struct tt_device *d = m->device;
	size_t piece = layer->inputs, n = layer->outputs;
	int rc;

	if (ready && ready->grain < layer->inputs * n)
		piece = ready->grain / n ? ready->grain / n : 1;
	d->ops->bias_back(d, rows, n, dy, gradients + layer->bias);
	rc = tell(ready, layer->bias);
	for (size_t end = layer->inputs; end && !rc;) {
		size_t first = end > piece ? end - piece : 0;

		d->ops->gemm(d, end - first, n, rows,
			     (struct tt_matrix){ x + first, layer->inputs, true },
			     (struct tt_matrix){ dy, n, false },
			     gradients + layer->weights + first * n, n);
		rc = tell(ready, layer->weights + first * n);
		end = first;
	}
	return rc;
}

int tt_dense_backward(struct tt_model *m, const float *parameters, const float *x, size_t rows,
		      float *dlogits, float *gradients, const struct tt_ready *ready)
{
	struct stack *s = m->state;
	struct tt_device *d = m->device;
	const float *dy = dlogits;
	int rc = TT_TRAIN_OK;

	for (size_t l = s->layers; l-- > 0 && !rc;) {
		struct layer *layer = &s->layer[l], *below = l ? &s->layer[l - 1] : NULL;

		rc = layer_gradients(m, layer, below ? below->y : x, rows, dy, gradients, ready);
		if (!below)
			break;
		d->ops->gemm(
			d, rows, layer->inputs, layer->outputs,
			(struct tt_matrix){ dy, layer->outputs, false },
			(struct tt_matrix){ parameters + layer->weights, layer->outputs, true },
			below->dy, layer->inputs);
		d->ops->relu_back(d, rows * layer->inputs, below->y, below->dy);
		dy = below->dy;
	}
	return rc;
}

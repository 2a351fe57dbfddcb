/* chunk.c - passes through a run of layers (model.h). Called by model.c and the rank that runs a
 * schedule; calls the layers. */
#include "trainer/model/model.h"

#include "trainer/base/fail.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory ------------------------------------------------------------------------------------ */

/* Memory of a layer. The last layer's dy is the caller's. */
static int open_pass(struct train_model *m, struct train_pass *p, size_t rows, bool last)
{
	const struct train_device_ops *d = m->device->ops;
	size_t bytes = rows * p->layer->outputs * sizeof(float);

	p->y = d->alloc(m->device, bytes);
	if (!last)
		p->dy = d->alloc(m->device, bytes);
	if (p->layer->kept)
		p->kept = d->alloc(m->device, rows * p->layer->kept);
	if (!p->y || (!last && !p->dy) || (p->layer->kept && !p->kept))
		return train_fail(TRAIN_FAILED,
				  "no memory for layer %td: %zu outputs of %zu samples",
				  p->layer - m->layer + 1, p->layer->outputs, rows);
	return TRAIN_OK;
}

int train_activations_open(struct train_model *m, size_t first, size_t last, size_t rows,
			   struct train_activations *ret_activations)
{
	struct train_activations *a = ret_activations;
	struct train_device *d = m->device;
	int rc = TRAIN_OK;

	*a = (struct train_activations){ .first = first, .last = last };
	a->pass = calloc(last - first, sizeof(*a->pass));
	for (size_t l = first; a->pass && l < last && !rc; l++) {
		a->pass[l - first] = (struct train_pass){ .model = m, .layer = &m->layer[l] };
		rc = open_pass(m, &a->pass[l - first], rows, l + 1 == last);
	}
	if (!rc && first > 0)
		a->dx = d->ops->alloc(d, rows * m->layer[first].inputs * sizeof(float));
	if (!rc && last < m->layers)
		a->dy = d->ops->alloc(d, rows * m->layer[last - 1].outputs * sizeof(float));
	if (rc || !a->pass || (first > 0 && !a->dx) || (last < m->layers && !a->dy))
		return rc ? rc
			  : train_fail(TRAIN_FAILED, "no memory for %zu samples of layer %zu", rows,
				       first + 1);
	for (size_t i = 0; i < last - first; i++)
		a->pass[i].dx = i ? a->pass[i - 1].dy : a->dx;
	return TRAIN_OK;
}

void train_activations_close(struct train_model *m, struct train_activations *a)
{
	struct train_device *d = m->device;

	for (size_t i = 0; a->pass && i < a->last - a->first; i++) {
		d->ops->free(d, a->pass[i].y);
		d->ops->free(d, a->pass[i].kept);
		if (i + 1 < a->last - a->first)
			d->ops->free(d, a->pass[i].dy);
	}
	if (a->pass) {
		d->ops->free(d, a->dx);
		d->ops->free(d, a->dy);
	}
	free(a->pass);
	memset(a, 0, sizeof(*a));
}

/* ---- hooks ------------------------------------------------------------------------------------- */

static const float *parameters_of(const struct train_pass *p, const float *parameters)
{
	const struct train_layer_hooks *h = &p->model->hooks;

	if (h->parameters)
		return h->parameters(h->arg, (size_t)(p->layer - p->model->layer));
	return parameters + p->layer->at;
}

/* ---- passes ------------------------------------------------------------------------------------ */

float *train_chunk_forward(struct train_activations *a, const float *parameters, const float *x,
			   size_t rows)
{
	struct train_pass *p = a->pass;

	for (; p < a->pass + (a->last - a->first); p++) {
		p->rows = rows;
		p->part = a->part;
		p->x = x;
		p->layer->ops->forward(p, parameters_of(p, parameters));
		x = p->y;
	}
	return p[-1].y;
}

/* The gradient of a ReLU: dy of the layer's outputs becomes that of its matrix product. */
static void backward_relu(const struct train_pass *p)
{
	struct train_device *d = p->model->device;

	if (p->layer->relu)
		d->ops->relu_back(d, p->rows * p->layer->outputs, p->y, p->dy);
}

void train_chunk_backward_input(struct train_activations *a, const float *parameters, float *dy)
{
	size_t n = a->last - a->first;

	a->pass[n - 1].dy = dy;
	for (struct train_pass *p = a->pass + n; p-- > a->pass;) {
		backward_relu(p);
		p->part = a->part;
		if (p->dx)
			p->layer->ops->backward_input(p, parameters_of(p, parameters));
	}
}

/* Gradients of a layer's weights. */
static int backward_weights(const struct train_pass *p, const struct train_leaf_sum *sum,
			    float *gradients, const struct train_ready *ready)
{
	const struct train_layer_hooks *h = &p->model->hooks;
	struct train_ready of_layer;
	int rc;

	if (ready) {
		of_layer = *ready;
		of_layer.base += p->layer->at;
	}
	rc = p->layer->ops->backward_weights(p, sum, h->done ? gradients : gradients + p->layer->at,
					     ready ? &of_layer : NULL);
	if (rc || !h->done)
		return rc;
	return h->done(h->arg, (size_t)(p->layer - p->model->layer));
}

int train_chunk_backward_weights(struct train_activations *a, const struct train_leaf_sum *sum,
				 float *gradients, const struct train_ready *ready)
{
	int rc = TRAIN_OK;

	for (struct train_pass *p = a->pass + (a->last - a->first); p-- > a->pass && !rc;)
		rc = backward_weights(p, sum, gradients, ready);
	return rc;
}

int train_chunk_backward(struct train_activations *a, const float *parameters, float *dy,
			 const struct train_leaf_sum *sum, float *gradients,
			 const struct train_ready *ready)
{
	size_t n = a->last - a->first;
	int rc = TRAIN_OK;

	a->pass[n - 1].dy = dy;
	for (struct train_pass *p = a->pass + n; p-- > a->pass && !rc;) {
		backward_relu(p);
		if (p->dx)
			p->layer->ops->backward_input(p, parameters_of(p, parameters));
		rc = backward_weights(p, sum, gradients, ready);
	}
	return rc;
}

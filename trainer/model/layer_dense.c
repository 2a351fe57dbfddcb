/*
 * layer_dense.c - a fully connected layer: y = x W + b, and with relu: y = max(y, 0)
 *
 * The gradient of a ReLU is applied to dy by model.c. Called by model.c (layer.h).
 */
#include "trainer/model/model.h"

static const float *weights_of(const struct train_layer *layer, const float *parameters)
{
	return parameters + layer->at;
}

/* Offset of the bias, which follows weights[inputs][outputs]. */
static size_t bias_at(const struct train_layer *layer)
{
	return layer->at + layer->inputs * layer->outputs;
}

static void dense_forward(const struct train_pass *p, const float *parameters)
{
	const struct train_layer *l = p->layer;
	struct train_device *d = p->model->device;

	d->ops->gemm(d, p->rows, l->outputs, l->inputs,
		     (struct train_matrix){ p->x, l->inputs, false },
		     (struct train_matrix){ weights_of(l, parameters), l->outputs, false }, p->y,
		     l->outputs);
	d->ops->bias(d, p->rows, l->outputs, parameters + bias_at(l), l->relu, p->y);
}

static void dense_backward_input(const struct train_pass *p, const float *parameters)
{
	const struct train_layer *l = p->layer;
	struct train_device *d = p->model->device;

	d->ops->gemm(d, p->rows, l->inputs, l->outputs,
		     (struct train_matrix){ p->dy, l->outputs, false },
		     (struct train_matrix){ weights_of(l, parameters), l->outputs, true }, p->dx,
		     l->inputs);
}

/* ---- gradients of weights ----------------------------------------------------------------------- */

/* `count` rows of the weights from `first` on. */
struct dense_piece {
	const struct train_pass *pass;
	size_t first, count;
};

static void bias_leaf(void *arg, size_t row, size_t rows, float *out)
{
	const struct train_pass *p = arg;
	struct train_device *d = p->model->device;
	size_t n = p->layer->outputs;

	d->ops->bias_back(d, rows, n, p->dy + row * n, out);
}

static void weights_leaf(void *arg, size_t row, size_t rows, float *out)
{
	const struct dense_piece *piece = arg;
	const struct train_pass *p = piece->pass;
	struct train_device *d = p->model->device;
	size_t n = p->layer->outputs, inputs = p->layer->inputs;

	d->ops->gemm(d, piece->count, n, rows,
		     (struct train_matrix){ p->x + row * inputs + piece->first, inputs, true },
		     (struct train_matrix){ p->dy + row * n, n, false }, out, n);
}

/* The number of rows of the weights per piece: small enough that the sums stay in the cache. */
static size_t rows_of_piece(const struct train_pass *p, const struct train_leaf_sum *sum,
			    const struct train_ready *ready)
{
	const struct train_layer *l = p->layer;
	size_t floats = l->inputs * l->outputs;

	if (ready && ready->grain < floats)
		floats = ready->grain;
	if (sum && floats > p->model->piece)
		floats = p->model->piece;
	return floats / l->outputs ? floats / l->outputs : 1;
}

/* From the end down: the bias, then the rows of the weights in pieces. The cut into pieces does not
 * change the bits. */
static int dense_backward_weights(const struct train_pass *p, const struct train_leaf_sum *sum,
				  float *gradients, const struct train_ready *ready)
{
	const struct train_layer *l = p->layer;
	size_t most = rows_of_piece(p, sum, ready), n = l->outputs;
	struct dense_piece piece = { p, 0, 0 };
	int rc;

	train_leaves_each(sum, p->rows, n, bias_leaf, (void *)p, gradients + bias_at(l));
	rc = train_ready_notify(ready, bias_at(l));
	for (size_t end = l->inputs; end && !rc; end = piece.first) {
		piece.count = end < most ? end : most;
		piece.first = end - piece.count;
		train_leaves_each(sum, p->rows, piece.count * n, weights_leaf, &piece,
				  gradients + l->at + piece.first * n);
		rc = train_ready_notify(ready, l->at + piece.first * n);
	}
	return rc;
}

int train_layer_add_dense(struct train_model *m, size_t outputs, bool relu)
{
	size_t inputs = train_model_outputs(m);
	struct train_layer layer = {
		.ops = &train_layer_dense,
		.inputs = inputs,
		.outputs = outputs,
		.at = m->parameters,
		.parameters = (inputs + 1) * outputs,
		.piece = outputs,
		.flops = 2.0 * (double)inputs * (double)outputs,
		.relu = relu,
	};
	int rc = train_model_add(m, inputs * outputs, inputs);

	if (!rc)
		rc = train_model_add(m, outputs, 0);
	return rc ? rc : train_model_add_layer(m, &layer);
}

const struct train_layer_ops train_layer_dense = {
	.name = "dense",
	.forward = dense_forward,
	.backward_input = dense_backward_input,
	.backward_weights = dense_backward_weights,
};

/* affine.c - y = x W + b (affine.h) */
#include "trainer/model/affine.h"

int train_affine_add(struct train_model *m, const char *name, size_t inputs, size_t outputs,
		     size_t vectors, struct train_affine *ret_affine, struct train_layer *layer)
{
	struct train_tensor weight = {
		.name = name, .kind = "weight", .rows = inputs, .columns = outputs, .inputs = inputs
	};
	struct train_tensor bias = { .name = name, .kind = "bias", .rows = 1, .columns = outputs };
	int rc;

	*ret_affine = (struct train_affine){ layer->parameters, inputs, outputs, vectors };
	layer->flops += 2.0 * (double)inputs * (double)outputs * (double)vectors;
	rc = train_model_add(m, &weight, layer);
	return rc ? rc : train_model_add(m, &bias, layer);
}

/* Offset of the bias. */
static size_t bias_at(const struct train_affine *l)
{
	return l->at + l->inputs * l->outputs;
}

void train_affine_forward(const struct train_affine_pass *p, const float *parameters, bool relu,
			  float *y)
{
	const struct train_affine *l = p->affine;
	struct train_device *d = p->model->device;
	size_t rows = p->rows * l->vectors;

	d->ops->gemm(d, rows, l->outputs, l->inputs,
		     (struct train_matrix){ p->x, l->inputs, false },
		     (struct train_matrix){ parameters + l->at, l->outputs, false }, y, l->outputs);
	d->ops->bias(d, rows, l->outputs, parameters + bias_at(l), relu, y);
}

void train_affine_backward_input(const struct train_affine_pass *p, const float *parameters,
				 float *dx)
{
	const struct train_affine *l = p->affine;
	struct train_device *d = p->model->device;

	d->ops->gemm(d, p->rows * l->vectors, l->inputs, l->outputs,
		     (struct train_matrix){ p->dy, l->outputs, false },
		     (struct train_matrix){ parameters + l->at, l->outputs, true }, dx, l->inputs);
}

/* ---- gradients of weights ----------------------------------------------------------------------- */

/* `count` rows of the weights from `first` on. */
struct affine_piece {
	const struct train_affine_pass *pass;
	size_t first, count;
};

static void bias_leaf(void *arg, size_t row, size_t rows, float *out)
{
	const struct train_affine_pass *p = arg;
	struct train_device *d = p->model->device;
	size_t n = p->affine->outputs, vectors = p->affine->vectors;

	d->ops->bias_back(d, rows * vectors, n, p->dy + row * vectors * n, out);
}

static void weights_leaf(void *arg, size_t row, size_t rows, float *out)
{
	const struct affine_piece *piece = arg;
	const struct train_affine_pass *p = piece->pass;
	struct train_device *d = p->model->device;
	size_t n = p->affine->outputs, inputs = p->affine->inputs, vectors = p->affine->vectors;

	d->ops->gemm(d, piece->count, n, rows * vectors,
		     (struct train_matrix){ p->x + row * vectors * inputs + piece->first, inputs,
					    true },
		     (struct train_matrix){ p->dy + row * vectors * n, n, false }, out, n);
}

/* The number of rows of the weights per piece: small enough that the sums stay in the cache. */
static size_t rows_of_piece(const struct train_affine_pass *p, const struct train_leaf_sum *sum,
			    const struct train_ready *ready)
{
	const struct train_affine *l = p->affine;
	size_t floats = l->inputs * l->outputs;

	if (ready && ready->grain < floats)
		floats = ready->grain;
	if (sum && floats > p->model->piece)
		floats = p->model->piece;
	return floats / l->outputs ? floats / l->outputs : 1;
}

/* From the end down: the bias, then the rows of the weights in pieces. The cut into pieces does not
 * change the bits. */
int train_affine_backward_weights(const struct train_affine_pass *p,
				  const struct train_leaf_sum *sum, float *gradients,
				  const struct train_ready *ready)
{
	const struct train_affine *l = p->affine;
	size_t most = rows_of_piece(p, sum, ready), n = l->outputs;
	struct affine_piece piece = { p, 0, 0 };
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

/*
 * layer_gru.c - a layer of GRU cells: y[t] = h[t], a function of x[0] .. x[t]
 *
 *	z, r, n of x = the parts of x[t] W + b;  z, r, n of h = the parts of h[t-1] U + c
 *	z = sigmoid(z of x + z of h)		r = sigmoid(r of x + r of h)
 *	n = tanh(n of x + r (n of h))		h[t] = (1 - z) n + z h[t-1]	h[-1] = 0
 *
 * The product with W needs no other position, so it is one for all. A pass may compute a part of the
 * positions, as one of LSTM cells (layer_lstm.c). Called by model.c (layer.h); calls affine.c.
 *
 * Source: Cho et al. 2014, Learning phrase representations using RNN encoder-decoder; r behind the
 * product as in cuDNN and PyTorch.
 */
#include "trainer/model/affine.h"

/* What a pass keeps; a vector for each position of each row unless stated otherwise. */
struct gru_memory {
	float *zeros;           /* one vector: h[-1] */
	float *before;          /* h[t-1] */
	float *zrn;             /* of x; then after their functions */
	float *un;              /* n of h */
	float *dx_zrn, *dh_zrn; /* gradients of the two products */
	float *zh;              /* [rows]: the product of a position */
	float *dh, *direct; /* [rows]: gradient of a position's h[t-1], through U and through z */
};

static struct gru_memory memory_of(const struct train_pass *p)
{
	const struct train_layer *l = p->layer;
	size_t width = l->width, vectors = p->rows * l->positions * width;
	struct gru_memory k = { .zeros = (float *)p->kept };

	k.before = k.zeros + width;
	k.un = k.before + vectors;
	k.zrn = k.un + vectors;
	k.dx_zrn = k.zrn + 3 * vectors;
	k.dh_zrn = k.dx_zrn + 3 * vectors;
	k.zh = k.dh_zrn + 3 * vectors;
	k.dh = k.zh + 3 * p->rows * width;
	k.direct = k.dh + p->rows * width;
	return k;
}

/* The cells of all rows at position t. */
static struct train_gru cells_at(const struct train_pass *p, const struct gru_memory *k, size_t t)
{
	size_t width = p->layer->width;

	return (struct train_gru){
		.rows = p->rows,
		.width = width,
		.stride = p->layer->positions,
		.zrn = k->zrn + t * 3 * width,
		.un = k->un + t * width,
		.before = k->before + t * width,
	};
}

static void gru_forward(const struct train_pass *p, const float *parameters)
{
	const struct train_layer *l = p->layer;
	const struct train_affine *u = &l->affine[1];
	struct train_device *d = p->model->device;
	struct gru_memory k = memory_of(p);
	struct train_node part = train_pass_positions(p);
	size_t width = l->width;

	for (size_t i = 0; i < train_pass_runs(p); i++) {
		struct train_affine_pass of_x = train_affine_of(p, 0, p->x, NULL);

		of_x.run = train_pass_run(p, i);
		train_affine_forward(&of_x, parameters, false, k.zrn);
	}
	for (size_t t = part.first; t < part.last; t++) {
		struct train_gru cells = cells_at(p, &k, t);

		for (size_t row = 0; row < p->rows; row++) {
			size_t at = row * l->positions + t;

			d->ops->copy(d, k.before + at * width,
				     t ? p->y + (at - 1) * width : k.zeros, width * sizeof(float));
		}
		d->ops->gemm(d, p->rows, u->outputs, width,
			     (struct train_matrix){ cells.before, l->positions * width, false },
			     (struct train_matrix){ parameters + u->at, u->outputs, false }, k.zh,
			     u->outputs);
		d->ops->bias(d, p->rows, u->outputs, parameters + u->at + width * u->outputs, false,
			     k.zh);
		d->ops->gru(d, &cells, k.zh, p->y + t * width);
	}
}

static void gru_backward_input(const struct train_pass *p, const float *parameters)
{
	const struct train_layer *l = p->layer;
	const struct train_affine *u = &l->affine[1];
	struct train_device *d = p->model->device;
	struct gru_memory k = memory_of(p);
	struct train_node part = train_pass_positions(p);

	for (size_t t = part.last; t-- > part.first;) {
		struct train_gru cells = cells_at(p, &k, t);
		float *dh_zrn = k.dh_zrn + t * u->outputs;

		d->ops->gru_back(d, &cells, p->dy + t * l->width,
				 t + 1 < l->positions ? k.dh : NULL, k.direct,
				 k.dx_zrn + t * u->outputs, dh_zrn);
		d->ops->gemm(d, p->rows, l->width, u->outputs,
			     (struct train_matrix){ dh_zrn, l->positions * u->outputs, false },
			     (struct train_matrix){ parameters + u->at, u->outputs, true }, k.dh,
			     l->width);
	}
	for (size_t i = 0; i < train_pass_runs(p); i++) {
		struct train_affine_pass of_x = train_affine_of(p, 0, p->x, k.dx_zrn);

		of_x.run = train_pass_run(p, i);
		train_affine_backward_input(&of_x, parameters, p->dx);
	}
}

static int gru_backward_weights(const struct train_pass *p, const struct train_leaf_sum *sum,
				float *gradients, const struct train_ready *ready)
{
	struct gru_memory k = memory_of(p);
	struct train_affine_pass of_x = train_affine_of(p, 0, p->x, k.dx_zrn),
				 of_h = train_affine_of(p, 1, k.before, k.dh_zrn);
	int rc = train_affine_backward_weights(&of_h, sum, gradients, ready);

	return rc ? rc : train_affine_backward_weights(&of_x, sum, gradients, ready);
}

int train_layer_add_gru(struct train_model *m, size_t width)
{
	const struct train_layer *before = &m->layer[m->layers - 1];
	size_t positions = before->positions, x = before->width;
	struct train_layer layer = {
		.ops = &train_layer_gru,
		.inputs = positions * x,
		.outputs = positions * width,
		.positions = positions,
		.width = width,
		.piece = 3 * width,
	};
	int rc = train_affine_add(m, "gru", x, 3 * width, positions, TRAIN_CUT_NONE,
				  &layer.affine[0], &layer);

	if (!rc)
		rc = train_affine_add(m, "gru", width, 3 * width, positions, TRAIN_CUT_NONE,
				      &layer.affine[1], &layer);
	layer.kept = (positions * 11 * width + width + 5 * width) * sizeof(float);
	return rc ? rc : train_model_add_layer(m, &layer);
}

const struct train_layer_ops train_layer_gru = {
	.name = "gru",
	.forward = gru_forward,
	.backward_input = gru_backward_input,
	.backward_weights = gru_backward_weights,
};

/*
 * layer_lstm.c - a layer of LSTM cells: y[t] = h[t], a function of x[0] .. x[t]
 *
 *	i, f, g, o = the parts of [x[t], h[t-1]] W + b
 *	c[t] = sigmoid(f + 1) c[t-1] + sigmoid(i) tanh(g)
 *	h[t] = sigmoid(o) tanh(c[t])			h[-1] = c[-1] = 0
 *
 * A pass may compute a part of the positions, behind the parts before it (backward: in front of the
 * parts behind it): h and c, and their gradients, stay in the memory of the pass. The gradients of W
 * and b are one product over all positions of a leaf, so they do not depend on the parts. Called by
 * model.c (layer.h); calls affine.c.
 *
 * Sources: Hochreiter and Schmidhuber 1997, Long short-term memory; Gers, Schmidhuber and Cummins
 * 2000, Learning to forget; Jozefowicz, Zaremba and Sutskever 2015 for f + 1.
 */
#include "trainer/model/affine.h"

/* What a pass keeps; a vector for each position of each row unless stated otherwise. */
struct lstm_memory {
	float *zeros;     /* one vector: h[-1] */
	float *u;         /* [x[t], h[t-1]] */
	float *ifgo, *dz; /* after their functions; gradients before them */
	float *c;
	float *z;  /* [rows]: the product of a position */
	float *du; /* [rows]: gradient of a position's u */
	float *dc; /* [rows]: gradient of a position's c */
};

static struct lstm_memory memory_of(const struct train_pass *p)
{
	const struct train_layer *l = p->layer;
	size_t vectors = p->rows * l->positions, width = l->width;
	struct lstm_memory k = { .zeros = (float *)p->kept };

	k.u = k.zeros + width;
	k.ifgo = k.u + vectors * l->affine[0].inputs;
	k.dz = k.ifgo + vectors * 4 * width;
	k.c = k.dz + vectors * 4 * width;
	k.z = k.c + vectors * width;
	k.du = k.z + p->rows * 4 * width;
	k.dc = k.du + p->rows * l->affine[0].inputs;
	return k;
}

/* The cells of all rows at position t. */
static struct train_lstm cells_at(const struct train_pass *p, const struct lstm_memory *k, size_t t)
{
	size_t width = p->layer->width;

	return (struct train_lstm){
		.rows = p->rows,
		.width = width,
		.stride = p->layer->positions,
		.ifgo = k->ifgo + t * 4 * width,
		.before = t ? k->c + (t - 1) * width : NULL,
		.c = k->c + t * width,
	};
}

/* u[t] of all rows. */
static void join_inputs(const struct train_pass *p, const struct lstm_memory *k, size_t t)
{
	const struct train_layer *l = p->layer;
	struct train_device *d = p->model->device;
	size_t x = l->inputs / l->positions, width = l->width;

	for (size_t row = 0; row < p->rows; row++) {
		size_t at = row * l->positions + t;
		float *u = k->u + at * (x + width);

		d->ops->copy(d, u, p->x + at * x, x * sizeof(*u));
		d->ops->copy(d, u + x, t ? p->y + (at - 1) * width : k->zeros, width * sizeof(*u));
	}
}

static void lstm_forward(const struct train_pass *p, const float *parameters)
{
	const struct train_layer *l = p->layer;
	const struct train_affine *w = &l->affine[0];
	struct train_device *d = p->model->device;
	struct lstm_memory k = memory_of(p);
	struct train_node part = train_pass_positions(p);

	for (size_t t = part.first; t < part.last; t++) {
		struct train_lstm cells = cells_at(p, &k, t);

		join_inputs(p, &k, t);
		d->ops->gemm(d, p->rows, w->outputs, w->inputs,
			     (struct train_matrix){ k.u + t * w->inputs, l->positions * w->inputs,
						    false },
			     (struct train_matrix){ parameters, w->outputs, false }, k.z,
			     w->outputs);
		d->ops->bias(d, p->rows, w->outputs, parameters + w->inputs * w->outputs, false,
			     k.z);
		d->ops->lstm(d, &cells, k.z, p->y + t * l->width);
	}
}

static void lstm_backward_input(const struct train_pass *p, const float *parameters)
{
	const struct train_layer *l = p->layer;
	const struct train_affine *w = &l->affine[0];
	struct train_device *d = p->model->device;
	struct lstm_memory k = memory_of(p);
	struct train_node part = train_pass_positions(p);
	size_t x = l->inputs / l->positions;

	for (size_t t = part.last; t-- > part.first;) {
		struct train_lstm cells = cells_at(p, &k, t);
		float *dz = k.dz + t * w->outputs;

		d->ops->lstm_back(d, &cells, p->dy + t * l->width,
				  t + 1 < l->positions ? k.du + x : NULL, w->inputs, k.dc, dz);
		d->ops->gemm(d, p->rows, w->inputs, w->outputs,
			     (struct train_matrix){ dz, l->positions * w->outputs, false },
			     (struct train_matrix){ parameters, w->outputs, true }, k.du,
			     w->inputs);
		for (size_t row = 0; row < p->rows; row++)
			d->ops->copy(d, p->dx + (row * l->positions + t) * x,
				     k.du + row * w->inputs, x * sizeof(float));
	}
}

static int lstm_backward_weights(const struct train_pass *p, const struct train_leaf_sum *sum,
				 float *gradients, const struct train_ready *ready)
{
	struct lstm_memory k = memory_of(p);

	struct train_affine_pass all = train_affine_of(p, 0, k.u, k.dz);

	return train_affine_backward_weights(&all, sum, gradients, ready);
}

int train_layer_add_lstm(struct train_model *m, size_t width)
{
	const struct train_layer *before = &m->layer[m->layers - 1];
	size_t positions = before->positions, x = before->width;
	struct train_layer layer = {
		.ops = &train_layer_lstm,
		.inputs = positions * x,
		.outputs = positions * width,
		.positions = positions,
		.width = width,
		.piece = 4 * width,
	};
	int rc = train_affine_add(m, "lstm", x + width, 4 * width, positions, TRAIN_CUT_NONE,
				  &layer.affine[0], &layer);

	layer.kept = (positions * (x + width + 9 * width) + width + 4 * width + x + width + width) *
		     sizeof(float);
	return rc ? rc : train_model_add_layer(m, &layer);
}

const struct train_layer_ops train_layer_lstm = {
	.name = "lstm",
	.forward = lstm_forward,
	.backward_input = lstm_backward_input,
	.backward_weights = lstm_backward_weights,
};

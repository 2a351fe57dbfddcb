/*
 * layer_dense.c - a fully connected layer: y = x W + b, and with relu: y = max(y, 0)
 *
 * The gradient of a ReLU is applied to dy by model.c. Called by model.c (layer.h); calls affine.c.
 */
#include "trainer/model/affine.h"

static struct train_affine_pass pass_of(const struct train_pass *p)
{
	return train_affine_of(p, 0, p->x, p->dy);
}

static void dense_forward(const struct train_pass *p, const float *parameters)
{
	struct train_affine_pass pass = pass_of(p);

	train_affine_forward(&pass, parameters, p->layer->relu, p->y);
}

static void dense_backward_input(const struct train_pass *p, const float *parameters)
{
	struct train_affine_pass pass = pass_of(p);

	train_affine_backward_input(&pass, parameters, p->dx);
}

static int dense_backward_weights(const struct train_pass *p, const struct train_leaf_sum *sum,
				  float *gradients, const struct train_ready *ready)
{
	struct train_affine_pass pass = pass_of(p);

	return train_affine_backward_weights(&pass, sum, gradients, ready);
}

static size_t dense_scratch(const struct train_model *m, const struct train_layer *l)
{
	return train_affine_scratch(m, &l->affine[0]);
}

/* A layer that is cut by rows follows one that is cut by columns. */
int train_layer_add_dense(struct train_model *m, size_t outputs, bool relu, enum train_cut cut)
{
	size_t inputs = cut == TRAIN_CUT_ROWS ? m->layer[m->layers - 1].affine[0].whole
					      : train_model_outputs(m);
	struct train_layer layer = { .ops = &train_layer_dense, .relu = relu };
	int rc = train_affine_add(m, "dense", inputs, outputs, 1, cut, &layer.affine[0], &layer);

	layer.inputs = layer.affine[0].inputs;
	layer.outputs = layer.piece = layer.affine[0].outputs;
	return rc ? rc : train_model_add_layer(m, &layer);
}

const struct train_layer_ops train_layer_dense = {
	.name = "dense",
	.scratch = dense_scratch,
	.forward = dense_forward,
	.backward_input = dense_backward_input,
	.backward_weights = dense_backward_weights,
};

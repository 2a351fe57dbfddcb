/*
 * layer_feedforward.c - the feed-forward half of a transformer's block: y = x + gelu(norm(x) W1 + b1)
 * W2 + b2, with a hidden vector of four times the width
 *
 * Called by model.c (layer.h); calls norm.c and affine.c.
 */
#include "trainer/model/affine.h"
#include "trainer/model/norm.h"
#include "trainer/model/tensor_axis.h"

enum { HIDDEN = 4 };

/* What a pass keeps: inputs of the products, and gradients of their outputs. */
struct feedforward_memory {
	float *normed, *dnormed;          /* norm(x) and its gradient */
	float *before, *hidden, *dbefore; /* W1's outputs, gelu's, gradient of W1's outputs */
	float *stats;
};

static struct feedforward_memory memory_of(const struct train_pass *p)
{
	const struct train_layer *l = p->layer;
	size_t n = p->rows * l->positions * l->width;
	size_t hidden = p->rows * l->positions * l->affine[0].outputs;
	struct feedforward_memory k = { .normed = (float *)p->kept };

	k.dnormed = k.normed + n;
	k.before = k.dnormed + n;
	k.hidden = k.before + hidden;
	k.dbefore = k.hidden + hidden;
	k.stats = k.dbefore + hidden;
	return k;
}

static struct train_affine_pass first_of(const struct train_pass *p)
{
	struct feedforward_memory k = memory_of(p);

	return train_affine_of(p, 0, k.normed, k.dbefore);
}

static struct train_affine_pass second_of(const struct train_pass *p)
{
	return train_affine_of(p, 1, memory_of(p).hidden, p->dy);
}

static size_t hidden_of(const struct train_pass *p)
{
	return p->rows * p->layer->positions * p->layer->affine[0].outputs;
}

static void feedforward_forward(const struct train_pass *p, const float *parameters)
{
	struct feedforward_memory k = memory_of(p);
	struct train_affine_pass first = first_of(p), second = second_of(p);
	struct train_device *d = p->model->device;

	train_norm_forward(p, parameters, k.stats, k.normed);
	train_affine_forward(&first, parameters, false, k.before);
	d->ops->gelu(d, hidden_of(p), k.before, k.hidden);
	train_affine_forward(&second, parameters, false, p->y);
	d->ops->add(d, p->rows * p->layer->inputs, p->x, p->y);
}

static void feedforward_backward_input(const struct train_pass *p, const float *parameters)
{
	struct feedforward_memory k = memory_of(p);
	struct train_affine_pass first = first_of(p), second = second_of(p);
	struct train_device *d = p->model->device;

	train_affine_backward_input(&second, parameters, k.dbefore);
	d->ops->gelu_back(d, hidden_of(p), k.before, k.dbefore);
	train_affine_backward_input(&first, parameters, k.dnormed);
	train_norm_backward_input(p, parameters, k.stats, k.dnormed, true);
}

static int feedforward_backward_weights(const struct train_pass *p,
					const struct train_leaf_sum *sum, float *gradients,
					const struct train_ready *ready)
{
	struct feedforward_memory k = memory_of(p);
	struct train_affine_pass first = first_of(p), second = second_of(p);
	int rc = train_affine_backward_weights(&second, sum, gradients, ready);

	if (!rc)
		rc = train_affine_backward_weights(&first, sum, gradients, ready);
	return rc ? rc : train_norm_backward_weights(p, k.stats, k.dnormed, sum, gradients, ready);
}

static size_t feedforward_scratch(const struct train_model *m, const struct train_layer *l)
{
	size_t first = train_affine_scratch(m, &l->affine[0]);
	size_t second = train_affine_scratch(m, &l->affine[1]);

	return first > second ? first : second;
}

int train_layer_add_feedforward(struct train_model *m)
{
	const struct train_layer *before = &m->layer[m->layers - 1];
	size_t positions = before->positions, width = before->width, hidden = HIDDEN * width;
	struct train_layer layer = {
		.ops = &train_layer_feedforward,
		.inputs = positions * width,
		.outputs = positions * width,
		.positions = positions,
		.width = width,
		.piece = hidden,
	};
	size_t own = train_shards_of(&m->axis, hidden);
	int rc = train_norm_add(m, &layer);

	layer.kept = positions * (2 * width + 3 * own + TRAIN_NORM_KEPT) * sizeof(float);

	if (!rc)
		rc = train_affine_add(m, "feedforward.in", width, hidden, positions,
				      TRAIN_CUT_COLUMNS, &layer.affine[0], &layer);
	if (!rc)
		rc = train_affine_add(m, "feedforward.out", hidden, width, positions,
				      TRAIN_CUT_ROWS, &layer.affine[1], &layer);
	return rc ? rc : train_model_add_layer(m, &layer);
}

const struct train_layer_ops train_layer_feedforward = {
	.name = "feedforward",
	.scratch = feedforward_scratch,
	.forward = feedforward_forward,
	.backward_input = feedforward_backward_input,
	.backward_weights = feedforward_backward_weights,
};

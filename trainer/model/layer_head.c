/*
 * layer_head.c - the last layer of a model of text: y = norm(x) W + b, the logits of each position
 *
 * Called by model.c (layer.h); calls norm.c and affine.c.
 */
#include "trainer/model/affine.h"
#include "trainer/model/norm.h"

/* What a pass keeps. */
struct head_memory {
	float *normed, *stats, *dnormed;
};

static struct head_memory memory_of(const struct train_pass *p)
{
	const struct train_layer *l = p->layer;
	size_t vectors = p->rows * l->positions;
	struct head_memory k = { .normed = (float *)p->kept };

	k.dnormed = k.normed + vectors * l->width;
	k.stats = k.dnormed + vectors * l->width;
	return k;
}

static struct train_affine_pass affine_of(const struct train_pass *p, struct train_node run)
{
	struct train_affine_pass pass = train_affine_of(p, 0, memory_of(p).normed, p->dy);

	pass.run = run;
	return pass;
}

static void head_forward(const struct train_pass *p, const float *parameters)
{
	struct head_memory k = memory_of(p);

	train_norm_forward(p, parameters, k.stats, k.normed);
	for (size_t i = 0; i < train_pass_runs(p); i++) {
		struct train_affine_pass run = affine_of(p, train_pass_run(p, i));

		train_affine_forward(&run, parameters, false, p->y);
	}
}

static void head_backward_input(const struct train_pass *p, const float *parameters)
{
	struct head_memory k = memory_of(p);

	for (size_t i = 0; i < train_pass_runs(p); i++) {
		struct train_affine_pass run = affine_of(p, train_pass_run(p, i));

		train_affine_backward_input(&run, parameters, k.dnormed);
	}
	train_norm_backward_input(p, parameters, k.stats, k.dnormed, false);
}

static int head_backward_weights(const struct train_pass *p, const struct train_leaf_sum *sum,
				 float *gradients, const struct train_ready *ready)
{
	struct head_memory k = memory_of(p);
	struct train_affine_pass all = affine_of(p, (struct train_node){ 0, 0 });
	int rc = train_affine_backward_weights(&all, sum, gradients, ready);

	return rc ? rc : train_norm_backward_weights(p, k.stats, k.dnormed, sum, gradients, ready);
}

int train_layer_add_head(struct train_model *m)
{
	const struct train_layer *before = &m->layer[m->layers - 1];
	size_t positions = before->positions, width = before->width;
	struct train_layer layer = {
		.ops = &train_layer_head,
		.inputs = positions * width,
		.outputs = positions * m->classes,
		.positions = positions,
		.width = width,
		.kept = positions * (2 * width + TRAIN_NORM_KEPT) * sizeof(float),
	};
	int rc = train_norm_add(m, &layer);

	if (!rc)
		rc = train_affine_add(m, "head", width, m->classes, positions, TRAIN_CUT_NONE,
				      &layer.affine[0], &layer);
	layer.piece = 2 * width > m->classes ? 2 * width : m->classes;
	return rc ? rc : train_model_add_layer(m, &layer);
}

const struct train_layer_ops train_layer_head = {
	.name = "head",
	.forward = head_forward,
	.backward_input = head_backward_input,
	.backward_weights = head_backward_weights,
};

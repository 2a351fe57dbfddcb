/*
 * layer_embed.c - a vector for each character: the row of a table that the character, or a hash of
 * the last ones, chooses, plus that of its position in a second table if the model has one
 *
 * The first layer of a model of text; its input has no gradient, and that of its table touches a row
 * for each character at most. Called by model.c (layer.h).
 */
#include "trainer/model/model.h"

static void embed_forward(const struct train_pass *p, const float *parameters)
{
	const struct train_layer *l = p->layer;
	struct train_device *d = p->model->device;

	for (size_t i = 0; i < train_pass_runs(p); i++) {
		struct train_node run = train_pass_run(p, i);

		d->ops->embed(d, &l->embedding, run.last - run.first, p->x + run.first, parameters,
			      p->y + run.first * l->width);
	}
}

static void weights_leaf(void *arg, size_t row, size_t rows, float *out)
{
	const struct train_pass *p = arg;
	const struct train_layer *l = p->layer;
	struct train_device *d = p->model->device;

	d->ops->embed_back(d, &l->embedding, rows * l->positions, p->x + row * l->inputs,
			   p->dy + row * l->outputs, out);
}

static int embed_backward_weights(const struct train_pass *p, const struct train_leaf_sum *sum,
				  float *gradients, const struct train_ready *ready)
{
	train_leaves_each(sum, p->rows, p->layer->parameters, weights_leaf, (void *)p, gradients);
	return train_ready_notify(ready, 0);
}

int train_layer_add_embed(struct train_model *m, const struct train_embedding *e)
{
	size_t width = e->width;
	struct train_layer layer = {
		.ops = &train_layer_embed,
		.inputs = m->inputs,
		.outputs = m->inputs * width,
		.positions = m->inputs,
		.width = width,
		.embedding = *e,
	};
	/* each of variance 1 / width, as if of `2 width` inputs */
	struct train_tensor table = { .name = "embed",
				      .kind = "table",
				      .sparse = true,
				      .rows = e->rows,
				      .columns = width,
				      .inputs = 2 * width };
	struct train_tensor second = { .name = "embed",
				       .kind = "positions",
				       .rows = m->inputs,
				       .columns = width,
				       .inputs = 2 * width };
	int rc = train_model_add(m, &table, &layer);

	if (!rc && e->places)
		rc = train_model_add(m, &second, &layer);
	layer.embedding.length = m->inputs;
	layer.piece = layer.parameters;
	layer.flops = (double)layer.outputs;
	return rc ? rc : train_model_add_layer(m, &layer);
}

const struct train_layer_ops train_layer_embed = {
	.name = "embed",
	.forward = embed_forward,
	.backward_weights = embed_backward_weights,
};

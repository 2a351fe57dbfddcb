/*
 * layer_embed.c - a vector for each character: the row of a table, plus that of its position
 * in a second table if the model has one
 *
 * The first layer of a model of text; its input has no gradient. Called by model.c (layer.h).
 */
#include "trainer/model/model.h"

/* Rows of the table of positions. */
static size_t places_of(const struct train_pass *p)
{
	return p->layer->parameters / p->layer->width - p->model->classes;
}

static void embed_forward(const struct train_pass *p, const float *parameters)
{
	const struct train_layer *l = p->layer;
	struct train_device *d = p->model->device;
	const float *places = parameters + p->model->classes * l->width;

	for (size_t i = 0; i < train_pass_runs(p); i++) {
		struct train_node run = train_pass_run(p, i);

		d->ops->embed(d, run.last - run.first, places_of(p), l->width, p->x + run.first,
			      parameters, places, p->y + run.first * l->width);
	}
}

static void weights_leaf(void *arg, size_t row, size_t rows, float *out)
{
	const struct train_pass *p = arg;
	const struct train_layer *l = p->layer;
	struct train_device *d = p->model->device;

	d->ops->embed_back(d, rows * l->positions, places_of(p), l->width, p->model->classes,
			   p->x + row * l->inputs, p->dy + row * l->outputs, out);
}

static int embed_backward_weights(const struct train_pass *p, const struct train_leaf_sum *sum,
				  float *gradients, const struct train_ready *ready)
{
	train_leaves_each(sum, p->rows, p->layer->parameters, weights_leaf, (void *)p, gradients);
	return train_ready_notify(ready, 0);
}

int train_layer_add_embed(struct train_model *m, size_t width, bool places)
{
	struct train_layer layer = {
		.ops = &train_layer_embed,
		.inputs = m->inputs,
		.outputs = m->inputs * width,
		.positions = m->inputs,
		.width = width,
	};
	/* each of variance 1 / width, as if of `2 width` inputs */
	struct train_tensor table = { .name = "embed",
				      .kind = "table",
				      .rows = m->classes,
				      .columns = width,
				      .inputs = 2 * width };
	struct train_tensor second = { .name = "embed",
				       .kind = "positions",
				       .rows = m->inputs,
				       .columns = width,
				       .inputs = 2 * width };
	int rc = train_model_add(m, &table, &layer);

	if (!rc && places)
		rc = train_model_add(m, &second, &layer);
	layer.piece = layer.parameters;
	layer.flops = (double)layer.outputs;
	return rc ? rc : train_model_add_layer(m, &layer);
}

const struct train_layer_ops train_layer_embed = {
	.name = "embed",
	.forward = embed_forward,
	.backward_weights = embed_backward_weights,
};

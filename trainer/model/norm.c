/* norm.c - normalization of the vectors of a sequence (norm.h) */
#include "trainer/model/norm.h"

int train_norm_add(struct train_model *m, struct train_layer *layer)
{
	struct train_tensor gain = {
		.name = "norm", .kind = "gain", .rows = 1, .columns = layer->width, .value = 1.0f
	};
	struct train_tensor bias = {
		.name = "norm", .kind = "bias", .rows = 1, .columns = layer->width
	};
	int rc = train_model_add(m, &gain, layer);

	return rc ? rc : train_model_add(m, &bias, layer);
}

void train_norm_forward(const struct train_pass *p, const float *parameters, float *stats, float *y)
{
	const struct train_layer *l = p->layer;
	struct train_device *d = p->model->device;

	for (size_t i = 0; i < train_pass_runs(p); i++) {
		struct train_node run = train_pass_run(p, i);
		size_t at = run.first * l->width;

		d->ops->norm(d, run.last - run.first, l->width, p->x + at, parameters,
			     stats + run.first * TRAIN_NORM_KEPT, y + at);
	}
}

void train_norm_backward_input(const struct train_pass *p, const float *parameters,
			       const float *stats, const float *dy, bool adds_input)
{
	const struct train_layer *l = p->layer;
	struct train_device *d = p->model->device;

	for (size_t i = 0; i < train_pass_runs(p); i++) {
		struct train_node run = train_pass_run(p, i);
		size_t at = run.first * l->width, count = run.last - run.first;

		d->ops->norm_back(d, count, l->width, p->x + at, parameters,
				  stats + run.first * TRAIN_NORM_KEPT, dy + at, p->dx + at);
		if (adds_input)
			d->ops->add(d, count * l->width, p->dy + at, p->dx + at);
	}
}

struct norm_pass {
	const struct train_pass *pass;
	const float *stats, *dy;
};

static void weights_leaf(void *arg, size_t row, size_t rows, float *out)
{
	const struct norm_pass *n = arg;
	const struct train_layer *l = n->pass->layer;
	struct train_device *d = n->pass->model->device;
	size_t first = row * l->positions;

	d->ops->norm_back_weights(d, rows * l->positions, l->width, n->pass->x + first * l->width,
				  n->stats + first * TRAIN_NORM_KEPT, n->dy + first * l->width,
				  out);
}

int train_norm_backward_weights(const struct train_pass *p, const float *stats, const float *dy,
				const struct train_leaf_sum *sum, float *gradients,
				const struct train_ready *ready)
{
	struct norm_pass n = { p, stats, dy };

	train_leaves_each(sum, p->rows, 2 * p->layer->width, weights_leaf, &n, gradients);
	return train_ready_notify(ready, 0);
}

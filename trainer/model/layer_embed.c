/*
 * layer_embed.c - a vector for each character: the row of a table that the character, or a hash of
 * the last ones, chooses, plus that of its position in a second table if the model has one
 *
 * The first layer of a model of text; its input has no gradient, and that of its table touches a row
 * for each character at most. Called by model.c (layer.h).
 */
#include "trainer/base/fail.h"
#include "trainer/base/row_set.h"
#include "trainer/model/model.h"

#include <stdlib.h>
#include <string.h>

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

/* One pass of the gradient. */
struct embed_sum {
	const struct train_pass *pass;
	struct train_embedding table; /* the touched rows, or all */
	uint32_t *chosen;             /* [vectors]: rows of this table */
	uint32_t *touched; /* [table.rows]: its rows in the whole table; NULL: it is the whole */
};

static void weights_leaf(void *arg, size_t row, size_t rows, float *out)
{
	const struct embed_sum *s = arg;
	const struct train_layer *l = s->pass->layer;
	struct train_device *d = s->pass->model->device;

	d->ops->embed_back(d, &s->table, rows * l->positions, s->chosen + row * l->positions,
			   s->pass->dy + row * l->outputs, out);
}

/* chosen: memory for two rows of each vector */
static void choose_rows(struct embed_sum *s, size_t vectors, uint32_t *chosen)
{
	const struct train_pass *p = s->pass;
	struct train_device *d = p->model->device;

	s->table = p->layer->embedding;
	s->chosen = chosen;
	d->ops->embed_rows(d, &s->table, vectors, p->x, chosen);
	if (vectors >= s->table.rows)
		return;
	s->touched = chosen + vectors;
	memcpy(s->touched, chosen, vectors * sizeof(*chosen));
	s->table.rows = train_rows_sort(s->touched, vectors);
	for (size_t i = 0; i < vectors; i++)
		chosen[i] = (uint32_t)train_rows_find(s->touched, s->table.rows, chosen[i]);
}

/* Leaves are summed over the touched rows alone; the sums are spread over the table at the end, unless the gradient
 * has these rows only. */
static int embed_backward_weights(const struct train_pass *p, const struct train_leaf_sum *sum,
				  float *gradients, const struct train_ready *ready)
{
	const struct train_embedding *whole = &p->layer->embedding;
	struct train_model *m = p->model;
	struct train_device *d = m->device;
	size_t vectors = p->rows * p->layer->positions, floats;
	uint32_t *chosen = malloc((2 * vectors + 1) * sizeof(*chosen));
	struct embed_sum s = { .pass = p };

	if (!chosen)
		return train_fail(TRAIN_FAILED, "no memory for the rows of %zu characters",
				  vectors);
	choose_rows(&s, vectors, chosen);
	floats = (s.table.rows + (whole->places ? whole->length : 0)) * whole->width;
	train_leaves_each(sum, p->rows, floats, weights_leaf, &s, gradients);
	for (size_t i = 0; s.touched && !m->touched && i < (sum ? sum->nodes : 1); i++)
		d->ops->embed_spread(d, whole, s.table.rows, s.touched,
				     gradients + (sum ? i * sum->stride : 0));
	if (m->touched) { /* a batch cannot touch all rows */
		m->ntouched = s.table.rows;
		memcpy(m->touched, s.touched, m->ntouched * sizeof(*m->touched));
	}
	free(chosen);
	return train_ready_notify(ready, 0);
}

int train_layer_add_embed(struct train_model *m, const struct train_embedding *e)
{
	size_t width = e->width, touched;
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
	touched = m->max_rows * m->inputs < e->rows ? m->max_rows * m->inputs : e->rows;
	layer.piece = layer.parameters - (e->rows - touched) * width;
	layer.flops = (double)layer.outputs;
	return rc ? rc : train_model_add_layer(m, &layer);
}

const struct train_layer_ops train_layer_embed = {
	.name = "embed",
	.forward = embed_forward,
	.backward_weights = embed_backward_weights,
};

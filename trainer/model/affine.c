/* affine.c - y = x W + b (affine.h) */
#include "trainer/model/affine.h"

#include "trainer/model/tensor_axis.h"

int train_affine_add(struct train_model *m, const char *name, size_t inputs, size_t outputs,
		     size_t vectors, enum train_cut cut, struct train_affine *ret_affine,
		     struct train_layer *layer)
{
	bool columns = cut == TRAIN_CUT_COLUMNS, rows = cut == TRAIN_CUT_ROWS;
	struct train_affine l = {
		.at = layer->parameters,
		.inputs = rows ? train_shards_of(&m->axis, inputs) : inputs,
		.outputs = columns ? train_shards_of(&m->axis, outputs) : outputs,
		.vectors = vectors,
		.cut = cut,
		.whole = rows ? inputs : outputs,
	};
	struct train_tensor weight = { .name = name,
				       .kind = "weight",
				       .rows = l.inputs,
				       .columns = l.outputs,
				       .cut = cut,
				       .whole = l.whole,
				       .inputs = inputs };
	struct train_tensor bias = { .name = name,
				     .kind = "bias",
				     .rows = 1,
				     .columns = l.outputs,
				     .cut = columns ? cut : TRAIN_CUT_NONE,
				     .whole = outputs };
	int rc;

	*ret_affine = l;
	layer->flops += 2.0 * (double)inputs * (double)outputs * (double)vectors;
	rc = train_model_add(m, &weight, layer);
	return rc ? rc : train_model_add(m, &bias, layer);
}

/* Offset of the bias. */
static size_t bias_at(const struct train_affine *l)
{
	return l->at + l->inputs * l->outputs;
}

/* ---- products over shards ----------------------------------------------------------------------- */

/* out[rows][n] = a[rows][k] b[k][n], where k is the dimension that is cut. */
struct shard_product {
	const struct train_affine_pass *pass;
	struct train_matrix a, b;
	size_t b_stride; /* floats of b from one k to the next */
	size_t rows, n;
};

/* out = the sum over shards first..last-1 of this rank; scratch from `level` on is used. */
static void sum_shards(const struct shard_product *s, size_t first, size_t last, size_t level,
		       float *out)
{
	struct train_model *m = s->pass->model;
	struct train_device *d = m->device;
	size_t middle = first + (last - first) / 2, most = m->leaf * s->pass->affine->vectors;
	float *right;

	if (last - first == 1) {
		struct train_node at = train_shard_range(&m->axis, s->pass->affine->whole, first);
		struct train_matrix a = s->a, b = s->b;

		a.at += at.first;
		b.at += at.first * s->b_stride;
		d->ops->gemm(d, s->rows, s->n, at.last - at.first, a, b, out, s->n);
		return;
	}
	right = m->scratch + level * most * s->n; /* one shard has no scratch */
	sum_shards(s, first, middle, level, out);
	sum_shards(s, middle, last, level + 1, right);
	d->ops->add(d, s->rows * s->n, right, out);
}

/* out = the product for all rows of the pass, at most a leaf at once, and over all ranks. */
static void sum_product(struct shard_product s, float *out)
{
	struct train_model *m = s.pass->model;
	size_t rows = s.pass->rows * s.pass->affine->vectors;
	size_t most = m->leaf * s.pass->affine->vectors, a_stride = s.a.stride;
	const float *a = s.a.at;

	for (size_t row = 0; row < rows; row += most) {
		s.rows = rows - row < most ? rows - row : most;
		s.a.at = a + row * a_stride;
		sum_shards(&s, 0, train_shards_each(&m->axis), 0, out + row * s.n);
	}
	train_tensor_axis_sum(m, out, rows * s.n);
}

size_t train_affine_scratch(const struct train_model *m, const struct train_affine *l)
{
	size_t levels = 0, n = l->cut == TRAIN_CUT_ROWS ? l->outputs : l->inputs;

	for (size_t shards = train_shards_each(&m->axis); shards > 1; shards /= 2)
		levels++;
	return l->cut == TRAIN_CUT_NONE ? 0 : levels * m->leaf * l->vectors * n;
}

static bool is_sharded(const struct train_affine_pass *p, enum train_cut cut)
{
	return p->affine->cut == cut && p->model->axis.shards > 1;
}

/* ---- forward and backward ----------------------------------------------------------------------- */

static struct train_node run_of(const struct train_affine_pass *p)
{
	return p->run.last ? p->run : (struct train_node){ 0, p->rows * p->affine->vectors };
}

void train_affine_forward(const struct train_affine_pass *p, const float *parameters, bool relu,
			  float *y)
{
	const struct train_affine *l = p->affine;
	struct train_device *d = p->model->device;
	struct train_node run = run_of(p);
	struct train_matrix x = { p->x + run.first * l->inputs, l->inputs, false },
			    w = { parameters + l->at, l->outputs, false };
	size_t rows = run.last - run.first;

	y += run.first * l->outputs;
	if (is_sharded(p, TRAIN_CUT_ROWS))
		sum_product((struct shard_product){ p, x, w, l->outputs, 0, l->outputs }, y);
	else
		d->ops->gemm(d, rows, l->outputs, l->inputs, x, w, y, l->outputs);
	d->ops->bias(d, rows, l->outputs, parameters + bias_at(l), relu, y);
}

void train_affine_backward_input(const struct train_affine_pass *p, const float *parameters,
				 float *dx)
{
	const struct train_affine *l = p->affine;
	struct train_device *d = p->model->device;
	struct train_node run = run_of(p);
	struct train_matrix dy = { p->dy + run.first * l->outputs, l->outputs, false },
			    w = { parameters + l->at, l->outputs, true };

	dx += run.first * l->inputs;
	if (is_sharded(p, TRAIN_CUT_COLUMNS))
		sum_product((struct shard_product){ p, dy, w, 1, 0, l->inputs }, dx);
	else
		d->ops->gemm(d, run.last - run.first, l->inputs, l->outputs, dy, w, dx, l->inputs);
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

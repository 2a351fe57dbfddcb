/*
 * layer_convolution.c - a 5 x 5 convolution with ReLU and 2 x 2 max pooling
 *
 * A device has convolutions, or the layer makes a matrix product of one: the bias is the weight of a
 * patch line of ones. It processes one leaf of samples at a time, since their patches (im2col) are 25
 * times as large as the images. Called by model.c (layer.h).
 */
#include "trainer/base/fail.h"
#include "trainer/model/model.h"
#include "trainer/model/tensor_axis.h"

enum { FORWARD_ROWS = 4 }; /* of a device with convolutions: their y stays in the cache */

/* The scratch memory of a leaf. */
struct convolution_scratch {
	float *partial; /* shape of the weights: gradient of a block of rows */
	float *y; /* [to][leaf][side][side], input of pooling, or its gradient; more with shards */
	size_t array; /* floats of y */
	float *patches; /* [lines][leaf][side][side], or scratch memory of the device's convolutions */
};

/* Lines of a patch: weights of one output plane. */
static size_t lines_of(const struct train_layer *l)
{
	return l->from * TRAIN_WINDOW * TRAIN_WINDOW + 1;
}

/* Floats in whole cache lines. */
static size_t whole_lines(size_t floats)
{
	return (floats + 15) / 16 * 16;
}

/* The convolution of some rows. */
static struct train_convolution convolution_of(const struct train_layer *l, size_t rows)
{
	return (struct train_convolution){
		.rows = rows, .from = l->from, .to = l->to, .side = l->side
	};
}

static bool is_direct(const struct train_model *m)
{
	return m->device->ops->convolve;
}

/* The planes are sums over shards of the planes before. */
static bool is_sharded(const struct train_model *m, const struct train_layer *l)
{
	return l->affine[0].cut == TRAIN_CUT_ROWS && m->axis.shards > 1;
}

/* Rows of one forward pass; ranks sum a leaf at once. */
static size_t forward_rows(const struct train_model *m, const struct train_layer *l)
{
	bool few = is_direct(m) && !is_sharded(m, l) && m->leaf > FORWARD_ROWS;

	return few ? FORWARD_ROWS : m->leaf;
}

/* Arrays of the shape of y: one, and with shards one for each level of their tree, and for biases. */
static size_t forward_arrays(const struct train_model *m, const struct train_layer *l)
{
	size_t arrays = is_sharded(m, l) ? 2 : 1;

	for (size_t shards = train_shards_each(&m->axis); arrays > 1 && shards > 1; shards /= 2)
		arrays++;
	return arrays;
}

static size_t convolution_scratch(const struct train_model *m, const struct train_layer *l)
{
	struct train_convolution c = convolution_of(l, m->leaf);
	size_t image = l->side * l->side, y = l->to * forward_rows(m, l) * image;
	size_t patches = is_direct(m) ? train_convolution_scratch(&c)
				      : whole_lines(lines_of(l) * m->leaf * image);

	return whole_lines(l->to * lines_of(l)) + forward_arrays(m, l) * whole_lines(y) + patches;
}

static struct convolution_scratch scratch_of(const struct train_pass *p)
{
	const struct train_layer *l = p->layer;
	size_t rows = forward_rows(p->model, l);
	struct convolution_scratch s = { .partial = p->model->scratch };

	s.y = s.partial + whole_lines(l->to * lines_of(l));
	s.array = whole_lines(l->to * rows * l->side * l->side);
	s.patches = s.y + forward_arrays(p->model, l) * s.array;
	return s;
}

static size_t rows_of_block(size_t most, size_t left)
{
	return left < most ? left : most;
}

/* ---- at most a leaf of rows --------------------------------------------------------------------- */

/* out = the sum over shards first..last-1 of this rank, without biases; scratch from `level` on is
 * used. */
static void sum_shards(const struct train_pass *p, struct train_convolution c, const float *weights,
		       const float *x, size_t first, size_t last, size_t level, float *out)
{
	const struct train_layer *l = p->layer;
	struct train_device *d = p->model->device;
	struct convolution_scratch s = scratch_of(p);
	size_t middle = first + (last - first) / 2, image = l->side * l->side;
	float *right = s.y + level * s.array;

	if (last - first == 1) {
		struct train_node at = train_shard_range(&p->model->axis, l->affine[0].whole,
							 first);

		c.from = at.last - at.first;
		d->ops->convolve(d, &c, x + at.first * image,
				 weights + at.first * TRAIN_WINDOW * TRAIN_WINDOW, s.patches, out);
		return;
	}
	sum_shards(p, c, weights, x, first, middle, level, out);
	sum_shards(p, c, weights, x, middle, last, level + 1, right);
	d->ops->add(d, c.to * c.rows * image, right, out);
}

/* y of some rows, over all ranks. */
static void sum_planes(const struct train_pass *p, const float *weights, const float *x,
		       size_t rows)
{
	const struct train_layer *l = p->layer;
	struct train_device *d = p->model->device;
	struct convolution_scratch s = scratch_of(p);
	struct train_convolution c = convolution_of(l, rows);
	size_t floats = l->to * rows * l->side * l->side;

	c.planes = l->from;
	c.lines = lines_of(l);
	c.no_bias = true;
	sum_shards(p, c, weights, x, 0, train_shards_each(&p->model->axis), 1, s.y);
	train_tensor_axis_sum(p->model, s.y, floats);
	c.from = 0;
	c.no_bias = false;
	d->ops->convolve(d, &c, x, weights, s.patches, s.y + s.array);
	d->ops->add(d, floats, s.y + s.array, s.y);
}

static void forward_block(const struct train_pass *p, const float *weights, size_t row, size_t rows)
{
	const struct train_layer *l = p->layer;
	struct train_device *d = p->model->device;
	struct convolution_scratch s = scratch_of(p);
	struct train_planes in = { rows, l->from, l->side }, out = { rows, l->to, l->side };
	struct train_convolution c = convolution_of(l, rows);
	size_t pixels = rows * l->side * l->side;

	if (is_sharded(p->model, l)) {
		sum_planes(p, weights, p->x + row * l->inputs, rows);
	} else if (is_direct(p->model)) {
		d->ops->convolve(d, &c, p->x + row * l->inputs, weights, s.patches, s.y);
	} else {
		d->ops->unfold(d, in, TRAIN_WINDOW, p->x + row * l->inputs, s.patches);
		d->ops->gemm(d, l->to, pixels, lines_of(l),
			     (struct train_matrix){ weights, lines_of(l), false },
			     (struct train_matrix){ s.patches, pixels, false }, s.y, pixels);
	}
	d->ops->pool(d, out, s.y, p->y + row * l->outputs, p->kept + row * l->kept);
}

/* scratch.y = the gradient of the input of pooling */
static void backward_pool(const struct train_pass *p, float *y, size_t row, size_t rows)
{
	const struct train_layer *l = p->layer;
	struct train_device *d = p->model->device;

	d->ops->pool_back(d, (struct train_planes){ rows, l->to, l->side },
			  p->dy + row * l->outputs, p->kept + row * l->kept, y);
}

static void input_block(const struct train_pass *p, const float *weights, size_t row, size_t rows)
{
	const struct train_layer *l = p->layer;
	struct train_device *d = p->model->device;
	struct convolution_scratch s = scratch_of(p);
	struct train_convolution c = convolution_of(l, rows);
	size_t pixels = rows * l->side * l->side;

	if (is_direct(p->model)) {
		d->ops->convolve_back_input(d, &c, p->dy + row * l->outputs,
					    p->kept + row * l->kept, weights, s.patches,
					    p->dx + row * l->inputs);
		return;
	}
	backward_pool(p, s.y, row, rows);
	d->ops->gemm(d, lines_of(l), pixels, l->to,
		     (struct train_matrix){ weights, lines_of(l), true },
		     (struct train_matrix){ s.y, pixels, false }, s.patches, pixels);
	d->ops->fold(d, (struct train_planes){ rows, l->from, l->side }, TRAIN_WINDOW, s.patches,
		     p->dx + row * l->inputs);
}

static void weights_block(const struct train_pass *p, size_t row, size_t rows, float *out)
{
	const struct train_layer *l = p->layer;
	struct train_device *d = p->model->device;
	struct convolution_scratch s = scratch_of(p);
	struct train_convolution c = convolution_of(l, rows);
	size_t pixels = rows * l->side * l->side;

	if (is_direct(p->model)) {
		d->ops->convolve_back_weights(d, &c, p->x + row * l->inputs,
					      p->dy + row * l->outputs, p->kept + row * l->kept,
					      s.patches, out);
		return;
	}
	backward_pool(p, s.y, row, rows);
	d->ops->unfold(d, (struct train_planes){ rows, l->from, l->side }, TRAIN_WINDOW,
		       p->x + row * l->inputs, s.patches);
	d->ops->gemm(d, l->to, lines_of(l), pixels, (struct train_matrix){ s.y, pixels, false },
		     (struct train_matrix){ s.patches, pixels, true }, out, lines_of(l));
}

/* ---- all rows ----------------------------------------------------------------------------------- */

static void convolution_forward(const struct train_pass *p, const float *parameters)
{
	size_t most = forward_rows(p->model, p->layer);

	for (size_t row = 0; row < p->rows; row += most)
		forward_block(p, parameters, row, rows_of_block(most, p->rows - row));
}

static void convolution_backward_input(const struct train_pass *p, const float *parameters)
{
	for (size_t row = 0; row < p->rows; row += p->model->leaf)
		input_block(p, parameters, row, rows_of_block(p->model->leaf, p->rows - row));
}

/* A leaf, or without leaves all rows, in blocks. */
static void convolution_leaf(void *arg, size_t row, size_t rows, float *out)
{
	const struct train_pass *p = arg;
	struct train_device *d = p->model->device;
	float *partial = scratch_of(p).partial;
	size_t done = rows_of_block(p->model->leaf, rows);

	weights_block(p, row, done, out);
	for (; done < rows; done += p->model->leaf) {
		weights_block(p, row + done, rows_of_block(p->model->leaf, rows - done), partial);
		d->ops->add(d, p->layer->parameters, partial, out);
	}
}

static int convolution_backward_weights(const struct train_pass *p,
					const struct train_leaf_sum *sum, float *gradients,
					const struct train_ready *ready)
{
	const struct train_layer *l = p->layer;

	train_leaves_each(sum, p->rows, l->parameters, convolution_leaf, (void *)p, gradients);
	return train_ready_notify(ready, 0);
}

int train_layer_add_convolution(struct train_model *m, size_t to, enum train_cut cut)
{
	const struct train_layer *before = m->layers ? &m->layer[m->layers - 1] : NULL;
	size_t inputs = train_model_outputs(m), from = before ? before->to : 1, side = 1;
	size_t whole_from = before ? before->affine[0].whole : 1;
	bool rows = cut == TRAIN_CUT_ROWS, columns = cut == TRAIN_CUT_COLUMNS;
	struct train_layer layer = { .ops = &train_layer_convolution, .inputs = inputs };
	struct train_tensor tensor = { .name = "convolution", .kind = "weight" };

	while (side * side * from < inputs)
		side++;
	layer.from = from;
	layer.to = columns ? train_shards_of(&m->axis, to) : to;
	layer.side = side;
	layer.affine[0].cut = cut;
	layer.affine[0].whole = rows ? whole_from : to;
	layer.outputs = layer.kept = layer.to * (side / 2) * (side / 2);
	layer.piece = layer.to * lines_of(&layer);
	tensor.inputs = whole_from * TRAIN_WINDOW * TRAIN_WINDOW + 1;
	layer.flops = 2.0 * (double)(to * tensor.inputs) * (double)(side * side);
	tensor.rows = layer.to;
	tensor.columns = lines_of(&layer);
	tensor.whole = layer.affine[0].whole;
	if (columns) /* of the product: planes, which are rows here */
		tensor.cut = TRAIN_CUT_ROWS;
	if (rows) {
		tensor.cut = TRAIN_CUT_COLUMNS;
		tensor.unit = TRAIN_WINDOW * TRAIN_WINDOW;
		tensor.shared = 1;
	}
	if (is_sharded(m, &layer) && !is_direct(m))
		return train_fail(TRAIN_USAGE,
				  "--shards: --device %s has no convolutions of some planes; use "
				  "--device cpu",
				  m->device->ops->name);
	if (train_model_add(m, &tensor, &layer))
		return TRAIN_FAILED;
	return train_model_add_layer(m, &layer);
}

const struct train_layer_ops train_layer_convolution = {
	.name = "convolution",
	.scratch = convolution_scratch,
	.forward = convolution_forward,
	.backward_input = convolution_backward_input,
	.backward_weights = convolution_backward_weights,
};

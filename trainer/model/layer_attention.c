/*
 * layer_attention.c - the attention half of a transformer's block: y = x + attention(norm(x)) W + b
 *
 *	q, k, v = the parts of norm(x) Wqkv + bqkv, for each of TRAIN_HEADS heads
 *	weights[i][j] = softmax over j <= i of q[i] k[j] / sqrt(head's width)
 *	attention[i] = sum of weights[i][j] v[j], of all heads side by side
 *
 * Columns of Wqkv are in the order of heads: q, k and v of the first head, then those of the second.
 * Called by model.c (layer.h); calls norm.c and affine.c. Source: Vaswani et al. 2017, Attention is
 * all you need.
 */
#include "trainer/model/affine.h"
#include "trainer/model/norm.h"
#include "trainer/model/tensor_axis.h"

#include <math.h>

/* What a pass keeps: inputs of the products, and gradients of their outputs. */
struct attention_memory {
	float *normed, *dnormed; /* norm(x) and its gradient */
	float *mixed, *dmixed;   /* attention and its gradient */
	float *qkv, *dqkv;
	float *weights; /* [rows][heads][positions][positions] */
	float *stats;
};

static struct attention_memory memory_of(const struct train_pass *p)
{
	const struct train_layer *l = p->layer;
	size_t vectors = p->rows * l->positions, n = vectors * l->width;
	size_t mixed = vectors * l->affine[1].inputs;
	struct attention_memory k = { .normed = (float *)p->kept };

	k.dnormed = k.normed + n;
	k.mixed = k.dnormed + n;
	k.dmixed = k.mixed + mixed;
	k.qkv = k.dmixed + mixed;
	k.dqkv = k.qkv + 3 * mixed;
	k.weights = k.dqkv + 3 * mixed;
	k.stats = k.weights + vectors * l->heads * l->positions;
	return k;
}

static struct train_affine_pass first_of(const struct train_pass *p)
{
	struct attention_memory k = memory_of(p);

	return train_affine_of(p, 0, k.normed, k.dqkv);
}

static struct train_affine_pass second_of(const struct train_pass *p)
{
	return train_affine_of(p, 1, memory_of(p).mixed, p->dy);
}

/* ---- a head of a sample ------------------------------------------------------------------------- */

struct attention_head {
	const struct train_layer *layer;
	struct train_device *device;
	size_t positions, width;         /* of the head */
	size_t mixed_stride, qkv_stride; /* floats of a position */
	float *q, *k, *v, *dq, *dk, *dv; /* [positions] */
	float *mixed, *dmixed;           /* [positions] */
	float *weights, *dweights;       /* [positions][positions] */
	float scale;
};

static struct attention_head head_of(const struct train_pass *p, size_t row, size_t head)
{
	const struct train_layer *l = p->layer;
	struct attention_memory k = memory_of(p);
	size_t width = l->affine[1].inputs / l->heads, first = row * l->positions;
	struct attention_head h = {
		.layer = l,
		.device = p->model->device,
		.positions = l->positions,
		.width = width,
		.mixed_stride = l->affine[1].inputs,
		.qkv_stride = l->affine[0].outputs,
		.dweights = p->model->scratch,
		.scale = 1.0f / sqrtf((float)width),
	};

	h.q = k.qkv + first * h.qkv_stride + head * 3 * width;
	h.dq = k.dqkv + (h.q - k.qkv);
	h.k = h.q + width;
	h.v = h.k + width;
	h.dk = h.dq + width;
	h.dv = h.dk + width;
	h.mixed = k.mixed + first * h.mixed_stride + head * width;
	h.dmixed = k.dmixed + (h.mixed - k.mixed);
	h.weights = k.weights + (row * l->heads + head) * l->positions * l->positions;
	return h;
}

/* c[m][n] = a[m][k] b[k][n]; each with its floats between rows */
static void product(const struct attention_head *h, size_t m, size_t n, size_t k,
		    struct train_matrix a, struct train_matrix b, float *c, size_t stride)
{
	h->device->ops->gemm(h->device, m, n, k, a, b, c, stride);
}

static void head_forward(const struct attention_head *h)
{
	size_t n = h->positions;

	product(h, n, n, h->width, (struct train_matrix){ h->q, h->qkv_stride, false },
		(struct train_matrix){ h->k, h->qkv_stride, true }, h->weights, n);
	h->device->ops->causal(h->device, n, h->scale, h->weights);
	product(h, n, h->width, n, (struct train_matrix){ h->weights, n, false },
		(struct train_matrix){ h->v, h->qkv_stride, false }, h->mixed, h->mixed_stride);
}

static void head_backward(const struct attention_head *h)
{
	size_t n = h->positions;

	product(h, n, n, h->width, (struct train_matrix){ h->dmixed, h->mixed_stride, false },
		(struct train_matrix){ h->v, h->qkv_stride, true }, h->dweights, n);
	product(h, n, h->width, n, (struct train_matrix){ h->weights, n, true },
		(struct train_matrix){ h->dmixed, h->mixed_stride, false }, h->dv, h->qkv_stride);
	h->device->ops->causal_back(h->device, n, h->scale, h->weights, h->dweights);
	product(h, n, h->width, n, (struct train_matrix){ h->dweights, n, false },
		(struct train_matrix){ h->k, h->qkv_stride, false }, h->dq, h->qkv_stride);
	product(h, n, h->width, n, (struct train_matrix){ h->dweights, n, true },
		(struct train_matrix){ h->q, h->qkv_stride, false }, h->dk, h->qkv_stride);
}

static void each_head(const struct train_pass *p, void (*fn)(const struct attention_head *h))
{
	for (size_t row = 0; row < p->rows; row++)
		for (size_t i = 0; i < p->layer->heads; i++) {
			struct attention_head head = head_of(p, row, i);

			fn(&head);
		}
}

/* ---- the layer ---------------------------------------------------------------------------------- */

static size_t attention_scratch(const struct train_model *m, const struct train_layer *l)
{
	size_t first = train_affine_scratch(m, &l->affine[0]);
	size_t second = train_affine_scratch(m, &l->affine[1]);
	size_t products = first > second ? first : second, head = l->positions * l->positions;

	return products > head ? products : head;
}

static void attention_forward(const struct train_pass *p, const float *parameters)
{
	struct attention_memory k = memory_of(p);
	struct train_affine_pass first = first_of(p), second = second_of(p);
	struct train_device *d = p->model->device;

	train_norm_forward(p, parameters, k.stats, k.normed);
	train_affine_forward(&first, parameters, false, k.qkv);
	each_head(p, head_forward);
	train_affine_forward(&second, parameters, false, p->y);
	d->ops->add(d, p->rows * p->layer->inputs, p->x, p->y);
}

static void attention_backward_input(const struct train_pass *p, const float *parameters)
{
	struct attention_memory k = memory_of(p);
	struct train_affine_pass first = first_of(p), second = second_of(p);

	train_affine_backward_input(&second, parameters, k.dmixed);
	each_head(p, head_backward);
	train_affine_backward_input(&first, parameters, k.dnormed);
	train_norm_backward_input(p, parameters, k.stats, k.dnormed, true);
}

static int attention_backward_weights(const struct train_pass *p, const struct train_leaf_sum *sum,
				      float *gradients, const struct train_ready *ready)
{
	struct attention_memory k = memory_of(p);
	struct train_affine_pass first = first_of(p), second = second_of(p);
	int rc = train_affine_backward_weights(&second, sum, gradients, ready);

	if (!rc)
		rc = train_affine_backward_weights(&first, sum, gradients, ready);
	return rc ? rc : train_norm_backward_weights(p, k.stats, k.dnormed, sum, gradients, ready);
}

int train_layer_add_attention(struct train_model *m)
{
	const struct train_layer *before = &m->layer[m->layers - 1];
	size_t positions = before->positions, width = before->width;
	struct train_layer layer = {
		.ops = &train_layer_attention,
		.inputs = positions * width,
		.outputs = positions * width,
		.positions = positions,
		.width = width,
		.heads = train_shards_of(&m->axis, TRAIN_HEADS),
		.piece = 3 * width,
		.flops = 4.0 * (double)(positions * positions * width),
	};
	size_t own = train_shards_of(&m->axis, width);
	int rc = train_norm_add(m, &layer);

	layer.kept = positions * (2 * width + 8 * own + layer.heads * positions + TRAIN_NORM_KEPT) *
		     sizeof(float);
	if (!rc)
		rc = train_affine_add(m, "attention.in", width, 3 * width, positions,
				      TRAIN_CUT_COLUMNS, &layer.affine[0], &layer);
	if (!rc)
		rc = train_affine_add(m, "attention.out", width, width, positions, TRAIN_CUT_ROWS,
				      &layer.affine[1], &layer);
	return rc ? rc : train_model_add_layer(m, &layer);
}

const struct train_layer_ops train_layer_attention = {
	.name = "attention",
	.scratch = attention_scratch,
	.forward = attention_forward,
	.backward_input = attention_backward_input,
	.backward_weights = attention_backward_weights,
};

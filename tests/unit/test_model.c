/*
 * test_model.c - models on the CPU: gradients of a batch, of shares and over leaves, and reports of
 * final gradients
 *
 * train.sh tests training by several ranks.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/random_floats.h"
#include "trainer/device/device.h"
#include "trainer/device/exact.h"
#include "trainer/base/fail.h"
#include "trainer/model/leaves.h"
#include "trainer/model/model.h"
#include "trainer/data/sampler.h"

TestSuite(model, .timeout = 600);

enum { INPUTS = 16, CLASSES = 4, ROWS = 6 };

struct model_fixture {
	struct train_device device;
	struct train_model model;
	float *parameters, *x;
	uint8_t labels[ROWS * INPUTS];
	size_t positions;
};

static void make_sharded(struct model_fixture *s, const char *text, size_t shards)
{
	struct train_model_size size = {
		.inputs = INPUTS, .classes = CLASSES, .max_rows = ROWS, .leaf = 4
	};

	size.axis.shards = shards;
	size.text = !strncmp(text, "gpt", 3) || !strncmp(text, "rnn", 3) ||
		    !strncmp(text, "embed", 5);
	size.positions = s->positions = size.text ? INPUTS : 1;

	cr_assert_eq(train_device_open(&s->device, "cpu", false), 0, "%s", train_error());
	cr_assert_eq(train_model_open(&s->model, text, &s->device, &size), 0, "%s", train_error());
	s->parameters = malloc(s->model.parameters * sizeof(float));
	/* with this seed no unit is so near to 0 that a change of 1e-3 switches the unit */
	train_model_init(&s->model, 17, s->parameters);
	for (size_t i = 0; i < s->model.parameters; i++) /* biases too */
		s->parameters[i] += 0.1f * random_float(8, i);
	s->x = random_floats(ROWS * INPUTS, 9);
	for (size_t i = 0; i < ROWS * INPUTS && size.text; i++)
		s->x[i] = (float)(i * i % 11 % CLASSES) / 255.0f;
	for (size_t i = 0; i < ROWS * s->positions; i++)
		s->labels[i] = (uint8_t)(i % CLASSES);
}

static void make_model(struct model_fixture *s, const char *text)
{
	make_sharded(s, text, 0);
}

static void free_model(struct model_fixture *s)
{
	free(s->parameters);
	free(s->x);
	train_model_close(&s->model);
	train_device_close(&s->device);
}

static double loss_of(struct model_fixture *s)
{
	const float *logits = train_model_forward(&s->model, s->parameters, s->x, ROWS);
	double loss = 0;

	for (size_t i = 0; i < ROWS * s->positions; i++)
		loss += train_cross_entropy(logits + i * CLASSES, CLASSES, s->labels[i]);
	return loss;
}

static int gradients_of(struct model_fixture *s, size_t first, size_t rows, float *gradients,
			const struct train_ready *ready)
{
	const float *x = s->x + first * INPUTS;
	float *logits = train_model_forward(&s->model, s->parameters, x, rows), loss;

	s->device.ops->loss(&s->device, rows * s->positions, CLASSES,
			    s->labels + first * s->positions, logits, &loss);
	return train_model_backward(&s->model, s->parameters, logits, NULL, gradients, ready);
}

static const char *const shapes[] = { "linear",    "mlp:9",      "mlp:8,7", "mlp:5,1,6",
				      "cnn",       "gpt:2x16",   "rnn:2x5", "rnn:gru:2x5",
				      "embed:9x4", "embed:500x4" };

/* Of a large tensor, TUTTI_TEST_FEWER leaves about 50 elements. */
static size_t stride_of(size_t elements)
{
	return getenv("TUTTI_TEST_FEWER") ? elements / 50 + 1 : 1;
}

Test(model, gradients_agree_with_finite_differences)
{
	for (size_t k = 0; k < sizeof(shapes) / sizeof(shapes[0]); k++) {
		struct model_fixture s;
		float *gradients;

		make_model(&s, shapes[k]);
		gradients = malloc(s.model.parameters * sizeof(float));
		cr_assert_eq(gradients_of(&s, 0, ROWS, gradients, NULL), 0);
		for (size_t t = 0; t < s.model.ntensors; t++) {
			double wrong = 0, size = 0;

			size_t at = s.model.tensors[t].at, n = s.model.tensors[t].count;

			for (size_t i = at; i < at + n; i += stride_of(n)) {
				float saved = s.parameters[i], above = saved + 1e-3f,
				      below = saved - 1e-3f;
				double slope;

				s.parameters[i] = above;
				slope = loss_of(&s);
				s.parameters[i] = below;
				slope = (slope - loss_of(&s)) / ((double)above - below);
				s.parameters[i] = saved;
				wrong += (slope - gradients[i]) * (slope - gradients[i]);
				size += slope * slope;
			}
			cr_expect_leq(sqrt(wrong), 2e-3 * sqrt(size),
				      "%s tensor %zu: off by %g of %g", shapes[k], t, sqrt(wrong),
				      sqrt(size));
			cr_expect_gt(size, 0.0);
		}
		free(gradients);
		free_model(&s);
	}
}

Test(model, products_over_shards_are_the_products)
{
	static const char *const cut[] = { "mlp:11,7,9", "gpt:2x16", "cnn" };

	for (size_t k = 0; k < sizeof(cut) / sizeof(cut[0]); k++) {
		struct model_fixture whole, sharded;
		float *a, *b;
		size_t bytes;

		make_model(&whole, cut[k]);
		make_sharded(&sharded, cut[k], 8);
		bytes = whole.model.parameters * sizeof(float);
		cr_expect_eq(memcmp(whole.parameters, sharded.parameters, bytes), 0);
		a = malloc(bytes);
		b = malloc(bytes);
		gradients_of(&whole, 0, ROWS, a, NULL);
		gradients_of(&sharded, 0, ROWS, b, NULL);
		for (size_t i = 0; i < whole.model.parameters; i++)
			cr_expect_float_eq(a[i], b[i], 1e-5f * (1 + fabsf(a[i])), "%s %zu", cut[k],
					   i);
		cr_expect_neq(memcmp(a, b, bytes), 0, "%s: shards have no effect", cut[k]);
		free(a);
		free(b);
		free_model(&whole);
		free_model(&sharded);
	}
}

Test(model, gradients_of_shares_add_up_to_the_whole_batch)
{
	struct model_fixture s;
	float *whole, *sum, *part;

	make_model(&s, "mlp:8,7");
	whole = malloc(s.model.parameters * sizeof(float));
	part = malloc(s.model.parameters * sizeof(float));
	sum = malloc(s.model.parameters * sizeof(float));
	gradients_of(&s, 0, ROWS, whole, NULL);
	for (int ranks = 2; ranks < 2 * ROWS; ranks++) {
		memset(sum, 0, s.model.parameters * sizeof(float));
		for (int r = 0; r < ranks; r++) {
			struct train_share share = train_share_of(ROWS, r, ranks);

			memset(part, 0xff, s.model.parameters * sizeof(float));
			gradients_of(&s, share.first, share.count, part, NULL);
			for (size_t i = 0; i < s.model.parameters; i++)
				sum[i] += part[i];
		}
		for (size_t i = 0; i < s.model.parameters; i++)
			cr_assert_float_eq(sum[i], whole[i], 1e-5, "%d ranks, gradient %zu", ranks,
					   i);
	}
	free(whole);
	free(part);
	free(sum);
	free_model(&s);
}

static const enum train_canonical expressions[] = { TRAIN_CANONICAL_TREE, TRAIN_CANONICAL_CHAIN };

/* All gradients of s over leaves of 2 rows, computed as by `ranks` ranks. */
static void over_leaves(struct model_fixture *s, enum train_canonical kind, int ranks, float *sums)
{
	struct train_leaves l = train_leaves_of(kind, ROWS, 2, ranks);
	size_t count = s->model.parameters, n = 0;
	struct train_node node[ROWS];
	float *memory = malloc(ROWS * count * sizeof(float));
	float *scratch = malloc(train_leaves_levels((struct train_node){ 0, ROWS }) *
				s->model.piece * sizeof(float));
	void *at[ROWS];

	for (int r = 0; r < ranks; r++) {
		struct train_leaf_sum sum = { &l,    &s->device, train_leaves_share(&l, r, ranks),
					      0,     node + n,   0,
					      count, scratch,    s->model.piece };
		struct train_node rows = train_leaves_rows(&l, sum.run);
		const float *x = s->x + rows.first * INPUTS;
		size_t many = rows.last - rows.first;
		float *logits = train_model_forward(&s->model, s->parameters, x, many), loss;

		sum.nodes = train_leaves_nodes(&l, sum.run, node + n);
		s->device.ops->loss(&s->device, many * s->positions, CLASSES,
				    s->labels + rows.first * s->positions, logits, &loss);
		cr_assert_eq(train_model_backward(&s->model, s->parameters, logits, &sum,
						  memory + n * count, NULL),
			     0);
		for (size_t i = 0; i < sum.nodes; i++, n++)
			at[n] = memory + n * count;
	}
	train_leaves_fold(&l, &s->device, node, at, &n, count);
	cr_assert_eq(n, 1);
	memcpy(sums, at[0], count * sizeof(float));
	free(memory);
	free(scratch);
}

Test(model, gradients_over_leaves_have_the_same_bits_for_any_number_of_ranks)
{
	for (size_t k = 0; k < sizeof(shapes) / sizeof(shapes[0]); k++) {
		for (int kind = 0; kind < 2; kind++) {
			struct model_fixture s;
			float *one, *many, *whole;

			make_model(&s, shapes[k]);
			one = malloc(s.model.parameters * sizeof(float));
			many = malloc(s.model.parameters * sizeof(float));
			whole = malloc(s.model.parameters * sizeof(float));
			over_leaves(&s, expressions[kind], 1, one);
			gradients_of(&s, 0, ROWS, whole, NULL);
			for (size_t i = 0; i < s.model.parameters; i++)
				cr_assert_float_eq(one[i], whole[i], 1e-4, "%s", shapes[k]);
			for (int ranks = 2; ranks < 6; ranks++) {
				over_leaves(&s, expressions[kind], ranks, many);
				cr_expect_eq(memcmp(one, many, s.model.parameters * sizeof(float)),
					     0, "%s, %d ranks", shapes[k], ranks);
			}
			free(one);
			free(many);
			free(whole);
			free_model(&s);
		}
	}
}

/* Their characters choose a row each at most. */
Test(model, leaves_of_a_large_table_are_sums_of_its_touched_rows)
{
	struct model_fixture s;

	make_model(&s, "embed:20000x4");
	cr_expect_eq(s.model.layer[0].piece, ROWS * INPUTS * 4);
	cr_expect_eq(s.model.piece, TRAIN_SUM_PIECE);
	free_model(&s);
}

struct model_watch {
	const float *now, *final;
	size_t from, parameters, calls, stop_at;
};

static int watch_ready(void *arg, size_t from)
{
	struct model_watch *w = arg;

	cr_expect_lt(from, w->from);
	cr_expect_eq(memcmp(w->now + from, w->final + from, (w->parameters - from) * sizeof(float)),
		     0, "gradients from %zu are reported too early", from);
	w->from = from;
	return ++w->calls == w->stop_at ? -77 : 0;
}

Test(model, final_gradients_are_reported_from_the_end_down)
{
	for (size_t k = 0; k < sizeof(shapes) / sizeof(shapes[0]); k++) {
		struct model_fixture s;
		float *final, *now;
		struct model_watch w;
		struct train_ready ready = { .fn = watch_ready, .arg = &w, .grain = 20 };
		size_t calls;

		make_model(&s, shapes[k]);
		final = malloc(s.model.parameters * sizeof(float));
		now = malloc(s.model.parameters * sizeof(float));
		gradients_of(&s, 0, ROWS, final, NULL);
		w = (struct model_watch){
			now, final, s.model.parameters, s.model.parameters, 0, 0
		};
		memset(now, 0xff, s.model.parameters * sizeof(float));
		cr_expect_eq(gradients_of(&s, 0, ROWS, now, &ready), 0);
		cr_expect_eq(w.from, 0);
		cr_expect_geq(w.calls, s.model.ntensors - 1);
		calls = w.calls;
		w = (struct model_watch){ now, final,    s.model.parameters, s.model.parameters,
					  0,   calls / 2 };
		memset(now, 0xff, s.model.parameters * sizeof(float));
		cr_expect_eq(gradients_of(&s, 0, ROWS, now, &ready), -77);
		cr_expect_eq(w.calls, calls / 2);
		free(final);
		free(now);
		free_model(&s);
	}
}

/* Gradients by two chunks, cut before layer `cut`, with the backward passes of input and weights
 * apart. */
static void by_chunks(struct model_fixture *s, size_t cut, float *gradients)
{
	struct train_model *m = &s->model;
	struct train_activations low, high;
	float loss, *logits;

	cr_assert_eq(train_activations_open(m, 0, cut, ROWS, &low), 0);
	cr_assert_eq(train_activations_open(m, cut, m->layers, ROWS, &high), 0);
	logits = train_chunk_forward(&high, s->parameters,
				     train_chunk_forward(&low, s->parameters, s->x, ROWS), ROWS);
	s->device.ops->loss(&s->device, ROWS, CLASSES, s->labels, logits, &loss);
	train_chunk_backward_input(&high, s->parameters, logits);
	memcpy(low.dy, high.dx, ROWS * m->layer[cut].inputs * sizeof(float));
	train_chunk_backward_input(&low, s->parameters, low.dy);
	cr_assert_eq(train_chunk_backward_weights(&low, NULL, gradients, NULL), 0);
	cr_assert_eq(train_chunk_backward_weights(&high, NULL, gradients, NULL), 0);
	train_activations_close(m, &low);
	train_activations_close(m, &high);
}

Test(model, chunks_with_backward_apart_have_the_bits_of_the_whole_model)
{
	static const char *const models[] = { "mlp:7", "mlp:9,5,8", "cnn" };

	for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
		struct model_fixture s;
		float *whole, *parts;

		make_model(&s, models[i]);
		whole = malloc(s.model.parameters * sizeof(*whole));
		parts = malloc(s.model.parameters * sizeof(*parts));
		cr_assert_eq(gradients_of(&s, 0, ROWS, whole, NULL), 0);
		for (size_t cut = 1; cut < s.model.layers; cut++) {
			memset(parts, 0xff, s.model.parameters * sizeof(*parts));
			by_chunks(&s, cut, parts);
			cr_expect_arr_eq(parts, whole, s.model.parameters * sizeof(*parts),
					 "%s, cut before layer %zu", models[i], cut);
		}
		free(whole);
		free(parts);
		free_model(&s);
	}
}

Test(model, invalid_shapes_are_refused)
{
	static const char *const bad[] = {
		"mlp:",      "mlp:0",    "mlp:-1",
		"mlp:8,",    "mlp:8,,8", "mlp:x",
		"mlp:65537", "mlp: 8",   "mlp:1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1",
		"linear:3",  "cnn:3",    "",
		"mlpx",
	};
	struct train_model_size size = { .inputs = 4, .classes = 2, .max_rows = 1, .leaf = 1 };
	struct train_device device;
	struct train_model other;

	cr_assert_eq(train_device_open(&device, "cpu", false), 0);
	cr_expect_eq(train_model_open(&other, "cnn", &device, &size), TRAIN_USAGE); /* 2 x 2 */
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct train_model model;

		cr_expect_eq(train_model_open(&model, bad[i], &device, &size), TRAIN_USAGE, "%s",
			     bad[i]);
		cr_expect_not_null(strstr(train_error(), bad[i]), "%s", train_error());
	}
	train_device_close(&device);
	cr_expect_eq(train_device_open(&device, "abacus", false), TRAIN_USAGE);
}

/* test_compress.c - compressed sums of gradients: nothing is lost, only sent later; equal on all ranks */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/must.h"
#include "tests/support/random_floats.h"
#include "trainer/strategy/compress.h"

enum { RANKS = 3, ROWS = 40, COLUMNS = 30, COUNT = ROWS * COLUMNS + COLUMNS, STEPS = 60 };

static struct train_tensor tensors[] = {
	{ .rows = ROWS, .columns = COLUMNS, .count = ROWS * COLUMNS },
	{ .rows = 1, .columns = COLUMNS, .at = ROWS * COLUMNS, .count = COLUMNS },
};

struct compression {
	const char *name;
	uint64_t message_bytes;
	double lost; /* greatest share of the sums that is neither sent nor in an error */
	double late; /* greatest size of the errors, in gradients */
};

/* A gradient of rank 2 with some noise: it has what each compressor needs. */
static float gradient(int rank, int step, size_t i)
{
	float row = (float)(i / COLUMNS) / ROWS, column = (float)(i % COLUMNS) / COLUMNS;

	return row * column + 0.5f * (float)(rank + 1) * (1.0f - column) +
	       0.05f * random_float((uint32_t)(rank * STEPS + step), i);
}

static double size_of(const double *v)
{
	double square = 0;

	for (size_t i = 0; i < COUNT; i++)
		square += v[i] * v[i];
	return sqrt(square);
}

/* all = the sum of v over the ranks */
static int sum_of(tuttiComm_t comm, double *v)
{
	MUST(tuttiAllReduce(v, v, COUNT, tuttiFloat64, tuttiSum, comm, NULL));
	return 0;
}

static int compress_steps(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct compression *want = arg;
	struct train_config config = { .compress = want->name, .seed = 3 };
	struct train_device device;
	struct train_rank t = {
		.config = &config, .comm = *comm, .rank = rank, .nranks = n, .comm_device = &device
	};
	struct train_compressor c = { 0 };
	double given[COUNT] = { 0 }, got[COUNT] = { 0 }, error[COUNT], all;

	t.model.parameters = COUNT;
	t.model.tensors = tensors;
	t.model.ntensors = 2;
	WANT(train_device_open(&device, "cpu", false) == 0);
	WANT(train_compressor_open(&c, &t) == 0);
	WANT(c.message_bytes == want->message_bytes);
	for (int step = 0; step < STEPS; step++) {
		float v[COUNT], first[COUNT];

		for (size_t i = 0; i < COUNT; i++)
			given[i] += (double)(v[i] = gradient(rank, step, i));
		WANT(train_compressor_sum(&c, v) == 0);
		memcpy(first, v, sizeof(v));
		MUST(tuttiBcast(first, COUNT, tuttiFloat32, 0, *comm, NULL));
		WANT(!memcmp(first, v, sizeof(v)));
		for (size_t i = 0; i < COUNT; i++)
			got[i] += (double)v[i];
	}
	for (size_t i = 0; i < COUNT; i++)
		error[i] = (double)c.error[i];
	train_compressor_close(&c);
	train_device_close(&device);
	WANT(!sum_of(*comm, given) && !sum_of(*comm, error));
	all = size_of(given);
	WANT(size_of(error) <= want->late * all / STEPS);
	for (size_t i = 0; i < COUNT; i++)
		given[i] -= got[i] + error[i];
	if (size_of(given) > want->lost * all)
		fprintf(stderr, "%s lost %g\n", want->name, size_of(given) / all);
	WANT(size_of(given) <= want->lost * all);
	return 0;
}

Test(compress, gradients_arrive_now_or_later, .timeout = 120)
{
	struct compression of[] = {
		{ "fp16", 2 * COUNT, 1e-3, 0.01 },
		{ "bf16", 2 * COUNT, 5e-3, 0.02 },
		{ "int8", 5 * (4 + 256), 1e-6, 0.02 },
		{ "topk:0.05", 8 * 62, 1e-6, 25 },
		{ "topk:1", 8 * COUNT, 1e-6, 0 },
		{ "powersgd:2", 4 * (2 * (ROWS + COLUMNS) + COLUMNS), 1e-5, 5 },
	};

	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		struct ranks r = { .n = RANKS, .limit_s = 60, .arg = &of[i] };

		cr_expect_eq(ranks_run(&r, compress_steps), 0, "%s", of[i].name);
	}
}

/* ---- topk ------------------------------------------------------------------------------------ */

enum { FEW = 256, SENT = 3 };

/* A step of deep gradient compression by its definition: v = what is sent. */
static void select_by_definition(const float *g, float *u, float *error, float *v)
{
	for (int i = 0; i < FEW; i++) {
		u[i] = 0.5f * u[i] + g[i];
		error[i] += u[i];
		v[i] = 0.0f;
	}
	for (int k = 0; k < SENT; k++) {
		int most = 0;

		for (int i = 1; i < FEW; i++)
			most = fabsf(error[i]) > fabsf(error[most]) ? i : most;
		v[most] = error[most];
		error[most] = u[most] = 0.0f;
	}
}

static void open_topk(struct train_rank *t, struct train_compressor *c)
{
	t->nranks = 1;
	t->model.parameters = FEW;
	cr_assert_eq(tuttiCommInitAll(&t->comm, 1, NULL), tuttiSuccess);
	cr_assert_eq(train_compressor_open(c, t), 0);
}

static void close_topk(struct train_rank *t, struct train_compressor *c)
{
	train_compressor_close(c);
	tuttiCommDestroy(t->comm);
}

Test(compress, momentum_accumulates_before_the_greatest_are_selected, .timeout = 60)
{
	struct train_config config = { .compress = "topk:0.01", .momentum = 0.5 };
	struct train_rank t = { .config = &config };
	struct train_compressor c = { 0 };
	float u[FEW] = { 0 }, error[FEW] = { 0 }, want[FEW];

	open_topk(&t, &c);
	for (t.step = 1; t.step <= STEPS; t.step++) {
		float *v = random_floats(FEW, (uint32_t)t.step);

		select_by_definition(v, u, error, want);
		cr_expect_eq(train_compressor_sum(&c, v), 0);
		cr_expect_arr_eq(v, want, sizeof(want), "step %d", (int)t.step);
		free(v);
	}
	close_topk(&t, &c);
}

Test(compress, more_is_sent_in_the_steps_of_the_warm_up, .timeout = 60)
{
	static const int want[] = { 64, 64, 16, 16, 4, 4, SENT, SENT, SENT };
	struct train_config config = { .compress = "topk:0.01", .warmup = 8 };
	struct train_rank t = { .config = &config };
	struct train_compressor c = { 0 };

	open_topk(&t, &c);
	for (t.step = 1; t.step <= 9; t.step++) {
		float *v = random_floats(FEW, (uint32_t)t.step);
		int sent = 0;

		cr_expect_eq(train_compressor_sum(&c, v), 0);
		for (int i = 0; i < FEW; i++)
			sent += v[i] != 0.0f;
		cr_expect_eq(sent, want[t.step - 1], "step %d: %d", (int)t.step, sent);
		free(v);
	}
	close_topk(&t, &c);
}

Test(compress, other_names_and_numbers_are_refused_in_words, .timeout = 60)
{
	static const char *const wrong[][2] = {
		{ "zip", "no such compressor" },       { "fp16:2", "takes no number" },
		{ "topk:", "from 1e-06 to 1" },        { "topk:0", "from 1e-06 to 1" },
		{ "topk:1.5", "such as topk:0.01" },   { "powersgd:2.5", "an integer" },
		{ "powersgd:x", "such as powersgd:4" }
	};
	struct train_config config = { 0 };

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		config.compress = wrong[i][0];
		cr_expect_eq(train_compress_check(&config), TRAIN_USAGE);
		cr_expect(strstr(train_error(), wrong[i][1]), "%s: %s", wrong[i][0], train_error());
	}
}

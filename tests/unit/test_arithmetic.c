/*
 * test_arithmetic.c - arithmetic of the trainer: matrix products, convolutions, element-wise loops, exp
 * and log, the hash of replicas
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/random_floats.h"
#include "trainer/device/convolution.h"
#include "trainer/device/device_host.h"
#include "trainer/device/exact.h"
#include "trainer/device/gemm.h"
#include "trainer/device/host_loops.h"
#include "trainer/replicas.h"
#include "trainer/data/sampler.h"

TestSuite(gemm, .timeout = 60);
TestSuite(convolution, .timeout = 60);
TestSuite(host_loops, .timeout = 60);
TestSuite(exact, .timeout = 60);
TestSuite(replicas, .timeout = 60);

/* ---- gemm ----------------------------------------------------------------------------------- */

static const char *const isas[] = { "avx512", "avx2", "scalar" };

static float element(struct train_matrix m, size_t i, size_t j)
{
	return m.transposed ? m.at[j * m.stride + i] : m.at[i * m.stride + j];
}

static void reference(size_t m, size_t n, size_t k, struct train_matrix a, struct train_matrix b,
		      float *c)
{
	for (size_t i = 0; i < m; i++) {
		for (size_t j = 0; j < n; j++) {
			float sum = 0.0f;

			for (size_t p = 0; p < k; p++)
				sum = fmaf(element(a, i, p), element(b, p, j), sum);
			c[i * n + j] = sum;
		}
	}
}

Test(gemm, every_instruction_set_gives_the_bits_of_one_chain_of_fmaf)
{
	static const size_t sizes[][3] = {
		{ 1, 1, 1 },     { 12, 32, 5 },  { 13, 33, 384 }, { 7, 10, 385 }, { 121, 10, 40 },
		{ 25, 513, 31 }, { 3, 65, 800 }, { 240, 3, 2 },   { 5, 5, 0 },    { 16, 65, 30 },
	};
	float *pool_a = random_floats(1 << 18, 1), *pool_b = random_floats(1 << 18, 2);
	float *want = malloc(1 << 18), *got = malloc(1 << 18);
	int tried = 0;

	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]) * 4; s++) {
		size_t m = sizes[s / 4][0], n = sizes[s / 4][1], k = sizes[s / 4][2];
		bool ta = s & 1, tb = s & 2;
		struct train_matrix a = { pool_a, ta ? m + 3 : k + 3, ta },
				    b = { pool_b, tb ? k + 1 : n + 1, tb };

		reference(m, n, k, a, b, want);
		for (size_t i = 0; i < sizeof(isas) / sizeof(isas[0]); i++) {
			struct train_gemm *g = train_gemm_open(isas[i]);

			if (!g)
				continue;
			train_gemm(g, m, n, k, a, b, got, n);
			cr_expect(!memcmp(want, got, m * n * sizeof(float)),
				  "%zux%zux%zu transposed %d %d: %s", m, n, k, ta, tb, isas[i]);
			tried++;
			train_gemm_close(g);
		}
	}
	cr_assert_geq(tried, 36);
	free(pool_a);
	free(pool_b);
	free(want);
	free(got);
}

Test(gemm, splitting_the_rows_changes_no_bit)
{
	enum { M = 61, N = 43, K = 500 };
	float *a = random_floats(M * K, 3), *b = random_floats(K * N, 4),
	      *whole = malloc(M * N * 4), *parts = malloc(M * N * 4);
	struct train_gemm *g = train_gemm_open(NULL);

	cr_assert_not_null(g);
	train_gemm(g, M, N, K, (struct train_matrix){ a, K, false },
		   (struct train_matrix){ b, N, false }, whole, N);
	for (int ranks = 2; ranks <= 70; ranks += 17) {
		memset(parts, 0xff, M * N * 4);
		for (int r = 0; r < ranks; r++) {
			struct train_share share = train_share_of(M, r, ranks);

			train_gemm(g, share.count, N, K,
				   (struct train_matrix){ a + share.first * K, K, false },
				   (struct train_matrix){ b, N, false }, parts + share.first * N,
				   N);
		}
		cr_expect(!memcmp(whole, parts, M * N * 4), "%d ranks", ranks);
	}
	train_gemm_close(g);
	free(a);
	free(b);
	free(whole);
	free(parts);
}

/* Memory of count floats, at whose end a page is that cannot be read. */
static float *before_a_wall(size_t count)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = count * sizeof(float);
	size_t pages = (bytes + page - 1) / page;
	char *at = mmap(NULL, (pages + 1) * page, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	cr_assert_neq(at, MAP_FAILED);
	mprotect(at + pages * page, page, PROT_NONE);
	return (float *)(at + pages * page - bytes);
}

Test(gemm, reads_nothing_behind_its_operands)
{
	static const size_t sizes[][3] = { { 13, 33, 17 }, { 4, 32, 8 },  { 16, 40, 5 },
					   { 31, 10, 9 },  { 1, 16, 2 },  { 24, 16, 3 },
					   { 2, 513, 4 },  { 5, 31, 385 } };
	struct train_gemm *g = train_gemm_open(NULL);

	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]) * 4; s++) {
		size_t m = sizes[s / 4][0], n = sizes[s / 4][1], k = sizes[s / 4][2];
		bool ta = s & 1, tb = s & 2;
		struct train_matrix a = { before_a_wall(m * k), ta ? m : k, ta },
				    b = { before_a_wall(k * n), tb ? k : n, tb };
		float *c = before_a_wall(m * n);

		train_gemm(g, m, n, k, a, b, c, n);
		cr_expect_eq(c[m * n - 1], 0.0f);
	}
	train_gemm_close(g);
}

Test(gemm, writes_nothing_outside_the_result)
{
	float *a = random_floats(100, 5), *b = random_floats(100, 6), c[9 * 11];
	struct train_gemm *g = train_gemm_open(NULL);

	for (size_t i = 0; i < 9 * 11; i++)
		c[i] = 7.0f;
	train_gemm(g, 5, 6, 4, (struct train_matrix){ a, 4, false },
		   (struct train_matrix){ b, 6, false }, c + 2 * 11 + 3, 11);
	for (size_t i = 0; i < 9; i++)
		for (size_t j = 0; j < 11; j++)
			cr_expect_eq(c[i * 11 + j] == 7.0f, !(i >= 2 && i < 7 && j >= 3 && j < 9),
				     "%zu %zu", i, j);
	train_gemm_close(g);
	free(a);
	free(b);
}

Test(gemm, an_unknown_instruction_set_is_refused)
{
	cr_assert_null(train_gemm_open("sse9"));
}

/* ---- convolutions ----------------------------------------------------------------------------- */

/* A convolution, its operands and results; each array has a float behind its end that must stay 7. */
struct convolution_case {
	struct train_convolution c;
	size_t image, lines,
		pooled; /* floats of a plane, of an output's weights, of a row of dpool */
	float *x, *weights, *dpool;
	uint8_t *argmax;
	float *y, *dx, *gradients;
};

static float *ends_in_seven(size_t floats)
{
	float *at = calloc(floats + 1, sizeof(*at));

	at[floats] = 7.0f;
	return at;
}

static void alloc_results(struct convolution_case *k)
{
	k->y = ends_in_seven(k->c.to * k->c.rows * k->image);
	k->dx = ends_in_seven(k->c.rows * k->c.from * k->image);
	k->gradients = ends_in_seven(k->c.to * k->lines);
}

static void free_results(const struct convolution_case *k)
{
	cr_expect_eq(k->y[k->c.to * k->c.rows * k->image], 7.0f);
	cr_expect_eq(k->dx[k->c.rows * k->c.from * k->image], 7.0f);
	cr_expect_eq(k->gradients[k->c.to * k->lines], 7.0f);
	free(k->y);
	free(k->dx);
	free(k->gradients);
}

/* With patches and products */
static void convolve_patches(struct convolution_case *k)
{
	const struct train_convolution *c = &k->c;
	struct train_planes in = { c->rows, c->from, c->side }, out = { c->rows, c->to, c->side };
	size_t pixels = c->rows * k->image;
	float *patches = malloc(k->lines * pixels * sizeof(*patches));
	float *dy = malloc(c->to * pixels * sizeof(*dy));
	struct train_gemm *g = train_gemm_open(NULL);
	struct train_matrix w = { k->weights, k->lines, false },
			    wt = { k->weights, k->lines, true }, p = { patches, pixels, false },
			    pt = { patches, pixels, true }, d = { dy, pixels, false };

	train_host_unfold(NULL, in, TRAIN_WINDOW, k->x, patches);
	train_gemm(g, c->to, pixels, k->lines, w, p, k->y, pixels);
	train_host_pool_back(NULL, out, k->dpool, k->argmax, dy);
	train_gemm(g, c->to, k->lines, pixels, d, pt, k->gradients, k->lines);
	train_gemm(g, k->lines, pixels, c->to, wt, d, patches, pixels);
	train_host_fold(NULL, in, TRAIN_WINDOW, patches, k->dx);
	train_gemm_close(g);
	free(patches);
	free(dy);
}

static void convolve_directly(const struct train_convolution_kernels *kernels,
			      struct convolution_case *k)
{
	float *scratch = ends_in_seven(train_convolution_scratch(&k->c));

	train_convolve(kernels, &k->c, k->x, k->weights, scratch, k->y);
	train_convolve_back_input(kernels, &k->c, k->dpool, k->argmax, k->weights, scratch, k->dx);
	train_convolve_back_weights(kernels, &k->c, k->x, k->dpool, k->argmax, scratch,
				    k->gradients);
	cr_expect_eq(scratch[train_convolution_scratch(&k->c)], 7.0f);
	free(scratch);
}

static bool same_results(const struct convolution_case *a, const struct convolution_case *b)
{
	return !memcmp(a->y, b->y, a->c.to * a->c.rows * a->image * sizeof(float)) &&
	       !memcmp(a->dx, b->dx, a->c.rows * a->c.from * a->image * sizeof(float)) &&
	       !memcmp(a->gradients, b->gradients, a->c.to * a->lines * sizeof(float));
}

Test(convolution, every_instruction_set_gives_the_bits_of_patches)
{
	static const struct train_convolution shapes[] = {
		{ .rows = 2, .from = 1, .to = 8, .side = 28 },
		{ .rows = 3, .from = 8, .to = 16, .side = 14 },
		{ .rows = 1, .from = 3, .to = 5, .side = 2 },
		{ .rows = 2, .from = 9, .to = 17, .side = 6 },
		{ .rows = 1, .from = 2, .to = 1, .side = 34 },
	};
	size_t tried = 0;

	for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
		const struct train_convolution *c = &shapes[s];
		struct convolution_case want = { .c = *c };

		want.image = c->side * c->side;
		want.lines = c->from * TRAIN_WINDOW * TRAIN_WINDOW + 1;
		want.pooled = c->to * want.image / 4;
		want.x = random_floats(c->rows * c->from * want.image, 1);
		want.weights = random_floats(c->to * want.lines, 2);
		want.dpool = random_floats(c->rows * want.pooled, 3);
		want.argmax = malloc(c->rows * want.pooled);
		for (size_t i = 0; i < c->rows * want.pooled; i++)
			want.argmax[i] = (uint8_t)(i * 7 / 3 % 5);
		alloc_results(&want);
		convolve_patches(&want);
		for (size_t i = 0; i < sizeof(isas) / sizeof(isas[0]); i++) {
			const struct train_convolution_kernels *kernels = train_convolution_of(
				isas[i]);
			struct convolution_case got = want;

			if (!kernels)
				continue;
			alloc_results(&got);
			convolve_directly(kernels, &got);
			cr_expect(same_results(&want, &got), "shape %zu, %s", s, isas[i]);
			free_results(&got);
			tried++;
		}
		free_results(&want);
		free(want.x);
		free(want.weights);
		free(want.dpool);
		free(want.argmax);
	}
	cr_expect_geq(tried, 5);
	cr_expect_null(train_convolution_of("mmx"));
}

Test(convolution, pooling_takes_the_first_of_equal_maxima_and_none_below_zero)
{
	enum { HALF_MOST = 14 };

	for (size_t half = 1; half <= HALF_MOST; half++) {
		struct train_planes p = { 1, 1, 2 * half };
		float y[4 * HALF_MOST * HALF_MOST], x[HALF_MOST * HALF_MOST];
		uint8_t argmax[HALF_MOST * HALF_MOST];

		for (size_t i = 0; i < 4 * half * half; i++)
			y[i] = (float)((i * 2654435761u >> 7) % 7) - 4.0f;
		train_host_pool(NULL, p, y, x, argmax);
		for (size_t i = 0; i < half * half; i++) {
			const float *at = y + i / half * 4 * half + i % half * 2;
			const float pixel[4] = { at[0], at[1], at[2 * half], at[2 * half + 1] };
			unsigned best = 0;

			for (unsigned k = 1; k < 4; k++)
				best = pixel[k] > pixel[best] ? k : best;
			cr_expect_eq(argmax[i], pixel[best] > 0.0f ? best : 4, "%zu of %zu", i,
				     half);
			cr_expect_eq(x[i], pixel[best] > 0.0f ? pixel[best] : 0.0f);
		}
	}
}

/* ---- element-wise loops --------------------------------------------------------------------- */

enum { LOOP_MOST = 70 };

/* Runs every loop on n elements; result[operation][LOOP_MOST], of which the last are not touched. */
static void run_loops(const struct train_host_loops *l, size_t n, const float *from,
		      float result[8][LOOP_MOST])
{
	uint8_t image[LOOP_MOST];

	for (size_t i = 0; i < LOOP_MOST; i++)
		image[i] = (uint8_t)(i * 37);
	for (int operation = 0; operation < 8; operation++)
		memcpy(result[operation], from + operation, sizeof(result[operation]));
	l->gather(n, image, 0.286f, result[0]);
	l->bias(n, from + 100, false, result[1]);
	l->bias(n, from + 100, true, result[2]);
	l->add(n, from + 101, result[3]);
	l->blend(n, 0.3f, 0.7f, from + 102, result[4]);
	l->blend(n, 0.3f, 0.0f, NULL, result[5]);
	l->relu_back(n, from + 103, result[6]);
	l->descend(n, 0.004f, 0.05f, 0.9f, from + 104, result[7], result[5]);
}

/* The same, element by element */
static void run_one_by_one(size_t n, const float *from, float result[8][LOOP_MOST])
{
	for (int operation = 0; operation < 8; operation++)
		memcpy(result[operation], from + operation, sizeof(result[operation]));
	for (size_t i = 0; i < n; i++) {
		float sum = from[1 + i] + from[100 + i], with = from[2 + i] + from[100 + i];

		result[0][i] = (float)(uint8_t)(i * 37) * (1.0f / 255.0f) - 0.286f;
		result[1][i] = sum;
		result[2][i] = with > 0.0f ? with : 0.0f;
		result[3][i] += from[101 + i];
		result[4][i] = 0.3f * result[4][i] + 0.7f * from[102 + i];
		result[5][i] *= 0.3f;
		result[6][i] = from[103 + i] > 0.0f ? result[6][i] : 0.0f;
		result[7][i] = 0.9f * result[7][i] + 0.004f * from[104 + i];
		result[5][i] -= 0.05f * result[7][i];
	}
}

Test(host_loops, every_instruction_set_has_the_bits_of_single_elements_and_writes_no_others)
{
	float *from = random_floats(256, 5), got[8][LOOP_MOST], want[8][LOOP_MOST];

	from[104] = NAN;
	from[105] = -0.0f;
	from[106] = 0.0f;
	for (size_t n = 0; n <= LOOP_MOST - 1; n++) {
		run_one_by_one(n, from, want);
		for (size_t i = 0; i < sizeof(isas) / sizeof(isas[0]); i++) {
			const struct train_host_loops *l = train_host_loops_of(isas[i]);

			if (!l)
				continue;
			run_loops(l, n, from, got);
			cr_expect(!memcmp(want, got, sizeof(got)), "%s, %zu elements", isas[i], n);
		}
	}
	cr_expect_not_null(train_host_loops_of("scalar"));
	cr_expect_null(train_host_loops_of("mmx"));
	free(from);
}

/* ---- exact ---------------------------------------------------------------------------------- */

Test(exact, exp_and_log_are_accurate)
{
	for (double x = -690; x < 690; x += 0.37)
		cr_expect_leq(fabs(train_exact_exp(x) / exp(x) - 1), 1e-15, "%g", x);
	for (double x = 1e-300; x < 1e300; x *= 1.37)
		cr_expect_leq(fabs(train_exact_log(x) - log(x)), 1e-15 * fmax(1.0, fabs(log(x))),
			      "%g", x);
	cr_expect_eq(train_exact_exp(-1e30), 0.0);
	cr_expect_eq(train_exact_exp(0.0), 1.0);
	cr_expect_eq(train_exact_log(1.0), 0.0);
	cr_expect(isnan(train_exact_exp(NAN)) && isnan(train_exact_log(NAN)));
}

Test(exact, exp_and_log_have_the_same_bits_on_every_machine)
{
	cr_expect_eq(train_exact_exp(-1.0), 0x1.78b56362cef38p-2, "%a", train_exact_exp(-1.0));
	cr_expect_eq(train_exact_exp(-12.345), 0x1.240572f47cb82p-18, "%a",
		     train_exact_exp(-12.345));
	cr_expect_eq(train_exact_log(10.0), 0x1.26bb1bbb55515p+1, "%a", train_exact_log(10.0));
	cr_expect_eq(train_exact_log(1.2345), 0x1.af71abe30f49p-3, "%a", train_exact_log(1.2345));
}

Test(exact, softmax_sums_to_one_and_agrees_with_cross_entropy)
{
	float logits[10], p[10];
	double sum = 0;

	for (size_t i = 0; i < 10; i++)
		p[i] = logits[i] = 30 * random_float(7, i);
	train_softmax(p, 10);
	for (size_t i = 0; i < 10; i++) {
		sum += p[i];
		cr_expect_leq(fabs(train_cross_entropy(logits, 10, i) + log(p[i])), 1e-5, "%zu", i);
	}
	cr_expect_leq(fabs(sum - 1), 1e-6);
}

/* ---- replicas ------------------------------------------------------------------------------- */

Test(replicas, the_hash_depends_on_every_bit)
{
	uint32_t words[40];
	uint64_t hash[40 * 32 + 1];
	size_t n = 0;

	for (uint32_t i = 0; i < 40; i++)
		words[i] = i * 77;
	hash[n++] = train_hash(words, sizeof(words));
	for (size_t bit = 0; bit < 40 * 32; bit++) {
		words[bit / 32] ^= 1u << bit % 32;
		hash[n++] = train_hash(words, sizeof(words));
		words[bit / 32] ^= 1u << bit % 32;
	}
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < i; j++)
			cr_assert_neq(hash[i], hash[j], "%zu %zu", i, j);
}

/*
 * test_trainer.c - the parts of tutti-train, each alone: kernels, sampler, files, data, models
 *
 * What several ranks do together is in train.sh.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include "trainer/data.h"
#include "trainer/device.h"
#include "trainer/exact.h"
#include "trainer/fail.h"
#include "trainer/idx.h"
#include "trainer/leaves.h"
#include "trainer/model.h"
#include "trainer/replicas.h"
#include "trainer/rng.h"
#include "trainer/sampler.h"

TestSuite(gemm, .timeout = 60);
TestSuite(exact, .timeout = 60);
TestSuite(sampler, .timeout = 60);
TestSuite(idx, .timeout = 60);
TestSuite(data, .timeout = 60);
TestSuite(leaves, .timeout = 60);
TestSuite(model, .timeout = 60);
TestSuite(replicas, .timeout = 60);

static float random_float(uint32_t part, uint64_t index)
{
	uint32_t random[4];

	tt_rng(99, TT_RNG_WEIGHTS, part, index, random);
	return tt_rng_unit(random[0]);
}

static float *random_floats(size_t count, uint32_t part)
{
	float *all = malloc((count ? count : 1) * sizeof(*all));

	cr_assert_not_null(all);
	for (size_t i = 0; i < count; i++)
		all[i] = random_float(part, i);
	return all;
}

/* ---- gemm ----------------------------------------------------------------------------------- */

static const char *const isas[] = { "avx512", "avx2", "scalar" };

static float element(struct tt_matrix m, size_t i, size_t j)
{
	return m.across ? m.at[j * m.stride + i] : m.at[i * m.stride + j];
}

static void reference(size_t m, size_t n, size_t k, struct tt_matrix a, struct tt_matrix b,
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
		{ 25, 513, 31 }, { 3, 65, 800 }, { 240, 3, 2 },   { 5, 5, 0 },
	};
	float *pool_a = random_floats(1 << 18, 1), *pool_b = random_floats(1 << 18, 2);
	float *want = malloc(1 << 18), *got = malloc(1 << 18);
	int tried = 0;

	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]) * 4; s++) {
		size_t m = sizes[s / 4][0], n = sizes[s / 4][1], k = sizes[s / 4][2];
		bool ta = s & 1, tb = s & 2;
		struct tt_matrix a = { pool_a, ta ? m + 3 : k + 3, ta },
				 b = { pool_b, tb ? k + 1 : n + 1, tb };

		reference(m, n, k, a, b, want);
		for (size_t i = 0; i < sizeof(isas) / sizeof(isas[0]); i++) {
			struct tt_gemm *g = tt_gemm_open(isas[i]);

			if (!g)
				continue;
			tt_gemm(g, m, n, k, a, b, got, n);
			cr_expect(!memcmp(want, got, m * n * sizeof(float)),
				  "%zux%zux%zu across %d %d: %s", m, n, k, ta, tb, isas[i]);
			tried++;
			tt_gemm_close(g);
		}
	}
	cr_assert_geq(tried, 36);
	free(pool_a);
	free(pool_b);
	free(want);
	free(got);
}

Test(gemm, cutting_the_rows_changes_no_bit)
{
	enum { M = 61, N = 43, K = 500 };
	float *a = random_floats(M * K, 3), *b = random_floats(K * N, 4),
	      *whole = malloc(M * N * 4), *parts = malloc(M * N * 4);
	struct tt_gemm *g = tt_gemm_open(NULL);

	cr_assert_not_null(g);
	tt_gemm(g, M, N, K, (struct tt_matrix){ a, K, false }, (struct tt_matrix){ b, N, false },
		whole, N);
	for (int ranks = 2; ranks <= 70; ranks += 17) {
		memset(parts, 0xff, M * N * 4);
		for (int r = 0; r < ranks; r++) {
			struct tt_share share = tt_share_of(M, r, ranks);

			tt_gemm(g, share.count, N, K,
				(struct tt_matrix){ a + share.first * K, K, false },
				(struct tt_matrix){ b, N, false }, parts + share.first * N, N);
		}
		cr_expect(!memcmp(whole, parts, M * N * 4), "%d ranks", ranks);
	}
	tt_gemm_close(g);
	free(a);
	free(b);
	free(whole);
	free(parts);
}

Test(gemm, writes_nothing_outside_the_result)
{
	float *a = random_floats(100, 5), *b = random_floats(100, 6), c[9 * 11];
	struct tt_gemm *g = tt_gemm_open(NULL);

	for (size_t i = 0; i < 9 * 11; i++)
		c[i] = 7.0f;
	tt_gemm(g, 5, 6, 4, (struct tt_matrix){ a, 4, false }, (struct tt_matrix){ b, 6, false },
		c + 2 * 11 + 3, 11);
	for (size_t i = 0; i < 9; i++)
		for (size_t j = 0; j < 11; j++)
			cr_expect_eq(c[i * 11 + j] == 7.0f, !(i >= 2 && i < 7 && j >= 3 && j < 9),
				     "%zu %zu", i, j);
	tt_gemm_close(g);
	free(a);
	free(b);
}

Test(gemm, an_unknown_instruction_set_is_refused) { cr_assert_null(tt_gemm_open("sse9")); }

/* ---- exact ---------------------------------------------------------------------------------- */

Test(exact, exp_and_log_are_right)
{
	for (double x = -690; x < 690; x += 0.37)
		cr_expect_leq(fabs(tt_exact_exp(x) / exp(x) - 1), 1e-15, "%g", x);
	for (double x = 1e-300; x < 1e300; x *= 1.37)
		cr_expect_leq(fabs(tt_exact_log(x) - log(x)), 1e-15 * fmax(1.0, fabs(log(x))), "%g", x);
	cr_expect_eq(tt_exact_exp(-1e30), 0.0);
	cr_expect_eq(tt_exact_exp(0.0), 1.0);
	cr_expect_eq(tt_exact_log(1.0), 0.0);
	cr_expect(isnan(tt_exact_exp(NAN)) && isnan(tt_exact_log(NAN)));
}

Test(exact, exp_and_log_have_the_bits_of_every_other_machine)
{
	cr_expect_eq(tt_exact_exp(-1.0), 0x1.78b56362cef38p-2, "%a", tt_exact_exp(-1.0));
	cr_expect_eq(tt_exact_exp(-12.345), 0x1.240572f47cb82p-18, "%a", tt_exact_exp(-12.345));
	cr_expect_eq(tt_exact_log(10.0), 0x1.26bb1bbb55515p+1, "%a", tt_exact_log(10.0));
	cr_expect_eq(tt_exact_log(1.2345), 0x1.af71abe30f49p-3, "%a", tt_exact_log(1.2345));
}

Test(exact, softmax_sums_to_one_and_agrees_with_cross_entropy)
{
	float logits[10], p[10];
	double sum = 0;

	for (size_t i = 0; i < 10; i++)
		p[i] = logits[i] = 30 * random_float(7, i);
	tt_softmax(p, 10);
	for (size_t i = 0; i < 10; i++) {
		sum += p[i];
		cr_expect_leq(fabs(tt_cross_entropy(logits, 10, i) + log(p[i])), 1e-5, "%zu", i);
	}
	cr_expect_leq(fabs(sum - 1), 1e-6);
}

/* ---- sampler -------------------------------------------------------------------------------- */

Test(sampler, an_epoch_takes_every_sample_once_and_drops_the_rest)
{
	struct tt_sampler s;
	uint8_t seen[1003] = { 0 };
	size_t total = 0;

	cr_assert_eq(tt_sampler_open(&s, 5, 1003, 10), 0);
	cr_assert_eq(tt_sampler_steps(&s), 100);
	for (uint64_t step = 0; step < 100; step++) {
		const uint32_t *samples = tt_sampler_rows(&s, step, 0);

		for (size_t i = 0; i < s.batch; i++, total++) {
			cr_assert_lt(samples[i], 1003);
			cr_assert_eq(seen[samples[i]]++, 0);
		}
	}
	cr_assert_eq(total, 1000);
	tt_sampler_close(&s);
}

Test(sampler, the_order_depends_on_seed_and_epoch_only)
{
	struct tt_sampler a, b, other;
	uint32_t first[50];

	cr_assert_eq(tt_sampler_open(&a, 5, 100, 50), 0);
	cr_assert_eq(tt_sampler_open(&b, 5, 100, 50), 0);
	cr_assert_eq(tt_sampler_open(&other, 6, 100, 50), 0);
	memcpy(first, tt_sampler_rows(&a, 6, 0), sizeof(first));
	tt_sampler_rows(&b, 1, 0);
	tt_sampler_rows(&b, 3, 0);
	cr_expect_eq(memcmp(first, tt_sampler_rows(&b, 6, 0), sizeof(first)), 0);
	cr_expect_neq(memcmp(first, tt_sampler_rows(&b, 4, 0), sizeof(first)), 0);
	cr_expect_neq(memcmp(first, tt_sampler_rows(&other, 6, 0), sizeof(first)), 0);
	tt_sampler_close(&a);
	tt_sampler_close(&b);
	tt_sampler_close(&other);
}

/* ---- idx ------------------------------------------------------------------------------------ */

static int file_of(const void *bytes, size_t count, bool zipped)
{
	int fd = memfd_create("idx", 0);

	cr_assert_geq(fd, 0);
	if (zipped) {
		gzFile gz = gzdopen(dup(fd), "wb");

		cr_assert_eq(gzwrite(gz, bytes, (unsigned)count), (int)count);
		gzclose(gz);
	} else {
		cr_assert_eq(write(fd, bytes, count), (ssize_t)count);
	}
	lseek(fd, 0, SEEK_SET);
	return fd;
}

static const uint8_t good[] = { 0, 0, 8, 3, 0, 0,  0,  2,  0,  0,  0,
				1, 0, 0, 0, 3, 10, 11, 12, 13, 14, 15 };

Test(idx, reads_plain_and_gzipped_files)
{
	for (int zipped = 0; zipped < 2; zipped++) {
		struct tt_idx idx;

		cr_assert_eq(tt_idx_read_fd(file_of(good, sizeof(good), zipped), "good", 3, &idx),
			     0, "%s", tt_train_error());
		cr_expect(idx.dims == 3 && idx.dim[0] == 2 && idx.dim[1] == 1 && idx.dim[2] == 3);
		cr_expect_eq(idx.bytes, 6);
		cr_expect_eq(memcmp(idx.at, good + 16, 6), 0);
		free(idx.at);
	}
}

/* The good file with `count` bytes changed from `at` on, and `bytes` long. */
static void expect_refused(size_t at, const char *change, size_t count, size_t bytes, unsigned dims,
			   const char *phrase)
{
	uint8_t file[64] = { 0 };
	struct tt_idx idx = { 0 };

	memcpy(file, good, sizeof(good));
	memcpy(file + at, change, count);
	for (int zipped = 0; zipped < 2; zipped++) {
		int rc = tt_idx_read_fd(file_of(file, bytes, zipped), "FILE", dims, &idx);

		cr_expect_eq(rc, TT_TRAIN_FAILED, "%s", phrase);
		cr_expect(strstr(tt_train_error(), "FILE: ") && strstr(tt_train_error(), phrase),
			  "want '%s', got '%s'", phrase, tt_train_error());
		cr_expect_null(idx.at);
	}
}

Test(idx, every_malformed_file_gets_a_sentence_of_its_own)
{
	size_t whole = sizeof(good);

	expect_refused(0, "\x50", 1, whole, 3, "begins with 50 00");
	expect_refused(2, "\x0d", 1, whole, 3, "of type 0x0d");
	expect_refused(3, "\x01", 1, whole, 3, "1 dimensions where 3");
	expect_refused(3, "\xff", 1, whole, 3, "255 dimensions where 3");
	expect_refused(4, "\0\0\0\0", 4, whole, 3, "dimension 0 is 0");
	expect_refused(12, "\0\0\0\0", 4, whole, 3, "dimension 2 is 0");
	expect_refused(4, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12, whole, 3,
		       "more than 1073741824 bytes");
	expect_refused(4, "\x3f\xff\xff\xff\0\0\0\x01\0\0\0\x01", 12, whole, 3,
		       "ends after 6 of 1073741823");
	expect_refused(0, "", 0, 0, 3, "ends within its header, after 0 of 16");
	expect_refused(0, "", 0, 3, 3, "ends within its header, after 3 of 16");
	expect_refused(0, "", 0, 15, 3, "ends within its header, after 15 of 16");
	expect_refused(0, "", 0, whole - 1, 3, "ends after 5 of 6");
	expect_refused(0, "", 0, whole + 1, 3, "more than the 6 bytes");
}

Test(idx, a_damaged_gzip_stream_is_said_to_be_one)
{
	uint8_t zipped[128];
	struct tt_idx idx = { 0 };
	int fd = file_of(good, sizeof(good), true);
	ssize_t bytes = read(fd, zipped, sizeof(zipped));

	close(fd);
	cr_assert_gt(bytes, 20);
	for (ssize_t cut = 11; cut < bytes; cut++) {
		cr_expect_eq(tt_idx_read_fd(file_of(zipped, (size_t)cut, false), "cut", 3, &idx),
			     TT_TRAIN_FAILED, "%zd", cut);
		cr_expect_null(idx.at);
	}
	zipped[bytes - 6] ^= 1; /* in the check sum */
	cr_expect_eq(tt_idx_read_fd(file_of(zipped, (size_t)bytes, false), "crc", 3, &idx),
		     TT_TRAIN_FAILED);
	cr_expect_not_null(strstr(tt_train_error(), "gzip stream is damaged"), "%s",
			   tt_train_error());
}

Test(idx, a_missing_file_and_a_folder_are_errors)
{
	struct tt_idx idx;

	cr_expect_eq(tt_idx_read("/nowhere/at/all", 3, &idx), TT_TRAIN_FAILED);
	cr_expect_not_null(strstr(tt_train_error(), "/nowhere/at/all: No such file"), "%s",
			   tt_train_error());
	cr_expect_eq(tt_idx_read("/tmp", 3, &idx), TT_TRAIN_FAILED);
	cr_expect_not_null(strstr(tt_train_error(), "directory"), "%s", tt_train_error());
}

Test(idx, a_label_out_of_range_is_named)
{
	uint8_t labels[] = { 9, 0, 10, 3 };
	struct tt_idx idx = { .dims = 1, .dim = { 4 }, .bytes = 4, .at = labels };

	cr_expect_eq(tt_idx_below(&idx, "labels", 10), TT_TRAIN_FAILED);
	cr_expect_not_null(strstr(tt_train_error(), "label 10 of sample 2"), "%s",
			   tt_train_error());
	cr_expect_eq(tt_idx_below(&idx, "labels", 11), 0);
}

/* ---- data ----------------------------------------------------------------------------------- */

static void put_idx(const char *folder, const char *name, unsigned dims, uint8_t samples)
{
	uint8_t head[16] = { 0, 0, 8, (uint8_t)dims, 0, 0, 0, samples, 0, 0, 0, 2, 0, 0, 0, 2 };
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s-ubyte", folder, name);
	f = fopen(path, "wb");
	cr_assert_not_null(f);
	fwrite(head, 4 + 4 * dims, 1, f);
	for (int i = 0; i < samples * (dims == 3 ? 4 : 1); i++)
		putc(i % 10, f);
	fclose(f);
}

static void remove_folder(const char *folder)
{
	static const char *const names[] = { "train-images-idx3", "train-labels-idx1",
					     "t10k-images-idx3", "t10k-labels-idx1" };
	char path[256];

	for (size_t i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), "%s/%s-ubyte", folder, names[i]);
		unlink(path);
	}
	rmdir(folder);
}

Test(data, four_files_of_ten_classes_are_a_data_set)
{
	char folder[] = "/tmp/tutti-test-XXXXXX";
	struct tt_data data;

	cr_assert_not_null(mkdtemp(folder));
	cr_expect_eq(tt_data_load("fashion", folder, 1, &data), TT_TRAIN_FAILED);
	cr_expect_not_null(strstr(tt_train_error(), "dataset-fashion-mnist"), "%s",
			   tt_train_error());
	put_idx(folder, "train-images-idx3", 3, 30);
	put_idx(folder, "train-labels-idx1", 1, 29);
	put_idx(folder, "t10k-images-idx3", 3, 5);
	put_idx(folder, "t10k-labels-idx1", 1, 5);
	cr_expect_eq(tt_data_load("fashion", folder, 1, &data), TT_TRAIN_FAILED);
	cr_expect_not_null(strstr(tt_train_error(), "29 labels for 30 images"), "%s",
			   tt_train_error());
	put_idx(folder, "train-labels-idx1", 1, 30);
	cr_assert_eq(tt_data_load("fashion", folder, 1, &data), 0, "%s", tt_train_error());
	cr_expect(data.train.samples == 30 && data.test.samples == 5 && data.pixels == 4 &&
		  data.classes == 10);
	cr_expect_float_eq(data.mean, 4.5 / 255, 1e-6);
	tt_data_free(&data);
	cr_assert_eq(tt_data_load("auto", folder, 1, &data), 0);
	cr_expect_str_eq(data.name, "fashion");
	tt_data_free(&data);
	remove_folder(folder);
}

Test(data, without_files_auto_is_synth)
{
	struct tt_data data;

	cr_assert_eq(tt_data_load("auto", "/nowhere", 1, &data), 0);
	cr_expect_str_eq(data.name, "synth");
	tt_data_free(&data);
	cr_expect_eq(tt_data_load("cifar", "/nowhere", 1, &data), TT_TRAIN_USAGE);
}

Test(data, synth_is_a_function_of_the_seed)
{
	struct tt_data a, b, other;
	size_t of_class[10] = { 0 };

	cr_assert_eq(tt_data_load("synth", "", 1, &a), 0);
	cr_assert_eq(tt_data_load("synth", "", 1, &b), 0);
	cr_assert_eq(tt_data_load("synth", "", 2, &other), 0);
	cr_expect_eq(a.pixels, 784);
	cr_expect_eq(memcmp(a.train.images, b.train.images, a.train.samples * a.pixels), 0);
	cr_expect_eq(memcmp(a.test.labels, b.test.labels, a.test.samples), 0);
	cr_expect_neq(memcmp(a.train.images, other.train.images, a.train.samples * a.pixels), 0);
	cr_expect_neq(memcmp(a.train.images, a.test.images, a.test.samples * a.pixels), 0);
	for (size_t i = 0; i < a.train.samples; i++)
		of_class[a.train.labels[i]]++;
	for (size_t c = 0; c < 10; c++)
		cr_expect_gt(of_class[c], a.train.samples / 12);
	tt_data_free(&a);
	tt_data_free(&b);
	tt_data_free(&other);
}

/* ---- leaves --------------------------------------------------------------------------------- */

static const enum tt_canonical kinds[] = { TT_CANONICAL_TREE, TT_CANONICAL_CHAIN };

/* The expression, as leaves.h says it, of leaves first..first+wide-1 of `count`. */
static float by_definition(enum tt_canonical kind, const float *leaf, size_t first, size_t wide,
			   size_t count)
{
	float sum = leaf[0];

	if (kind == TT_CANONICAL_CHAIN) {
		for (size_t i = 1; i < count; i++)
			sum += leaf[i];
		return sum;
	}
	if (wide == 1)
		return leaf[first];
	sum = by_definition(kind, leaf, first, wide / 2, count);
	if (first + wide / 2 < count)
		sum += by_definition(kind, leaf, first + wide / 2, wide / 2, count);
	return sum;
}

Test(leaves, the_shares_of_any_number_of_ranks_make_the_batch)
{
	for (int kind = TT_CANONICAL_OFF; kind <= TT_CANONICAL_FIXED64; kind++) {
		for (int ranks = 1; ranks < 14; ranks++) {
			struct tt_leaves l = tt_leaves_of((enum tt_canonical)kind, 103, 10, ranks);
			size_t rows = 0;

			for (int r = 0; r < ranks; r++) {
				struct tt_node at = tt_leaves_rows(&l, tt_leaves_share(&l, r, ranks));

				cr_assert_eq(at.first, rows);
				cr_assert_geq(at.last, rows);
				rows = at.last;
			}
			cr_assert_eq(rows, 103);
		}
	}
}

/* Folds what `ranks` ranks have of `count` leaves: first each alone, then all together. */
static float fold_over(struct tt_leaves *l, const float *leaf, int ranks)
{
	struct tt_node all[64];
	void *at[64];
	float sums[64];
	size_t n = 0;

	for (int r = 0; r < ranks; r++) {
		struct tt_node run = tt_leaves_share(l, r, ranks);
		size_t own = tt_leaves_nodes(l, run, all + n);

		for (size_t i = n; i < n + own; i++) {
			struct tt_node one[64];
			void *place[64];
			float copy[64];
			size_t many = all[i].last - all[i].first;

			for (size_t k = 0; k < many; k++) {
				copy[k] = leaf[all[i].first + k];
				one[k] = (struct tt_node){ all[i].first + k, all[i].first + k + 1 };
				place[k] = &copy[k];
			}
			tt_leaves_fold(l, one, place, &many, 1);
			cr_assert_eq(many, 1, "what is said to be a node is one");
			sums[i] = copy[0];
			at[i] = &sums[i];
		}
		n += own;
	}
	tt_leaves_fold(l, all, at, &n, 1);
	cr_assert_eq(n, 1);
	cr_assert_eq(all[0].last - all[0].first, l->count);
	return *(float *)at[0];
}

Test(leaves, the_sum_has_the_bits_of_its_definition_for_any_number_of_ranks)
{
	float leaf[40];
	size_t differ = 0;

	for (size_t i = 0; i < 40; i++)
		leaf[i] = random_float(12, i);
	for (size_t count = 1; count <= 40; count++) {
		float want[2];

		for (int k = 0; k < 2; k++) {
			struct tt_leaves l = tt_leaves_of(kinds[k], count, 1, 1);

			want[k] = by_definition(kinds[k], leaf, 0, 64, count);
			for (int ranks = 1; ranks < 44; ranks++) {
				float got = fold_over(&l, leaf, ranks);

				cr_assert_eq(memcmp(&got, &want[k], sizeof(got)), 0,
					     "kind %d, %zu leaves, %d ranks", kinds[k], count, ranks);
			}
		}
		differ += memcmp(&want[0], &want[1], sizeof(want[0])) != 0;
	}
	cr_expect_gt(differ, 20, "the two expressions are different ones");
}

/* ---- model ---------------------------------------------------------------------------------- */

enum { INPUTS = 16, CLASSES = 4, ROWS = 6 };

struct subject {
	struct tt_device device;
	struct tt_model model;
	float *parameters, *x;
	uint8_t labels[ROWS];
};

static void make_subject(struct subject *s, const char *text)
{
	struct tt_model_size size = { INPUTS, CLASSES, ROWS, 4 };

	cr_assert_eq(tt_device_open(&s->device, "cpu"), 0, "%s", tt_train_error());
	cr_assert_eq(tt_model_open(&s->model, text, &s->device, &size), 0, "%s", tt_train_error());
	s->parameters = malloc(s->model.parameters * sizeof(float));
	/* with this seed no unit is so near to 0 that a change of 1e-3 switches it */
	tt_model_start(&s->model, 17, s->parameters);
	for (size_t i = 0; i < s->model.parameters; i++)    /* biases too */
		s->parameters[i] += 0.1f * random_float(8, i);
	s->x = random_floats(ROWS * INPUTS, 9);
	for (size_t i = 0; i < ROWS; i++)
		s->labels[i] = (uint8_t)(i % CLASSES);
}

static void free_subject(struct subject *s)
{
	free(s->parameters);
	free(s->x);
	tt_model_close(&s->model);
	tt_device_close(&s->device);
}

static double loss_of(struct subject *s)
{
	const float *logits = s->model.ops->forward(&s->model, s->parameters, s->x, ROWS);
	double loss = 0;

	for (size_t i = 0; i < ROWS; i++)
		loss += tt_cross_entropy(logits + i * CLASSES, CLASSES, s->labels[i]);
	return loss;
}

static int gradients_of(struct subject *s, size_t first, size_t rows, float *gradients,
			const struct tt_ready *ready)
{
	const float *x = s->x + first * INPUTS;
	float *logits = s->model.ops->forward(&s->model, s->parameters, x, rows), loss;

	s->device.ops->loss(&s->device, rows, CLASSES, s->labels + first, logits, &loss);
	return s->model.ops->backward(&s->model, s->parameters, x, rows, logits, NULL, gradients,
				      ready);
}

static const char *const shapes[] = { "linear", "mlp:9", "mlp:8,7", "mlp:5,1,6", "cnn" };

Test(model, gradients_are_those_of_finite_differences)
{
	for (size_t k = 0; k < sizeof(shapes) / sizeof(shapes[0]); k++) {
		struct subject s;
		float *gradients;

		make_subject(&s, shapes[k]);
		gradients = malloc(s.model.parameters * sizeof(float));
		cr_assert_eq(gradients_of(&s, 0, ROWS, gradients, NULL), 0);
		for (size_t t = 0; t < s.model.ntensors; t++) {
			double wrong = 0, size = 0;

			for (size_t i = s.model.tensors[t].at, n = s.model.tensors[t].count; n;
			     i++, n--) {
				float kept = s.parameters[i], above = kept + 1e-3f,
				      below = kept - 1e-3f;
				double slope;

				s.parameters[i] = above;
				slope = loss_of(&s);
				s.parameters[i] = below;
				slope = (slope - loss_of(&s)) / ((double)above - below);
				s.parameters[i] = kept;
				wrong += (slope - gradients[i]) * (slope - gradients[i]);
				size += slope * slope;
			}
			cr_expect_leq(sqrt(wrong), 1e-3 * sqrt(size),
				      "%s tensor %zu: off by %g of %g", shapes[k], t, sqrt(wrong),
				      sqrt(size));
			cr_expect_gt(size, 0.0);
		}
		free(gradients);
		free_subject(&s);
	}
}

Test(model, shares_add_up_to_the_whole_batch)
{
	struct subject s;
	float *whole, *sum, *part;

	make_subject(&s, "mlp:8,7");
	whole = malloc(s.model.parameters * sizeof(float));
	part = malloc(s.model.parameters * sizeof(float));
	sum = malloc(s.model.parameters * sizeof(float));
	gradients_of(&s, 0, ROWS, whole, NULL);
	for (int ranks = 2; ranks < 2 * ROWS; ranks++) {
		memset(sum, 0, s.model.parameters * sizeof(float));
		for (int r = 0; r < ranks; r++) {
			struct tt_share share = tt_share_of(ROWS, r, ranks);

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
	free_subject(&s);
}

/* All gradients of s over leaves of 2 rows, by `ranks` ranks. */
static void over_leaves(struct subject *s, enum tt_canonical kind, int ranks, float *sums)
{
	struct tt_leaves l = tt_leaves_of(kind, ROWS, 2, ranks);
	size_t count = s->model.parameters, n = 0;
	struct tt_node node[ROWS];
	float *memory = malloc(ROWS * count * sizeof(float));
	float *scratch = malloc(TT_SUM_LEVELS * s->model.piece * sizeof(float));
	void *at[ROWS];

	for (int r = 0; r < ranks; r++) {
		struct tt_sum sum = { &l, &s->device, tt_leaves_share(&l, r, ranks), node + n, 0,
				      count, scratch, s->model.piece };
		struct tt_node rows = tt_leaves_rows(&l, sum.run);
		const float *x = s->x + rows.first * INPUTS;
		size_t many = rows.last - rows.first;
		float *logits = s->model.ops->forward(&s->model, s->parameters, x, many), loss;

		sum.nodes = tt_leaves_nodes(&l, sum.run, node + n);
		s->device.ops->loss(&s->device, many, CLASSES, s->labels + rows.first, logits, &loss);
		cr_assert_eq(s->model.ops->backward(&s->model, s->parameters, x, many, logits, &sum,
						    memory + n * count, NULL), 0);
		for (size_t i = 0; i < sum.nodes; i++, n++)
			at[n] = memory + n * count;
	}
	tt_leaves_fold(&l, node, at, &n, count);
	cr_assert_eq(n, 1);
	memcpy(sums, at[0], count * sizeof(float));
	free(memory);
	free(scratch);
}

Test(model, gradients_over_leaves_have_the_same_bits_for_any_number_of_ranks)
{
	for (size_t k = 0; k < sizeof(shapes) / sizeof(shapes[0]); k++) {
		for (int kind = 0; kind < 2; kind++) {
			struct subject s;
			float *one, *many, *whole;

			make_subject(&s, shapes[k]);
			one = malloc(s.model.parameters * sizeof(float));
			many = malloc(s.model.parameters * sizeof(float));
			whole = malloc(s.model.parameters * sizeof(float));
			over_leaves(&s, kinds[kind], 1, one);
			gradients_of(&s, 0, ROWS, whole, NULL);
			for (size_t i = 0; i < s.model.parameters; i++)
				cr_assert_float_eq(one[i], whole[i], 1e-4, "%s", shapes[k]);
			for (int ranks = 2; ranks < 6; ranks++) {
				over_leaves(&s, kinds[kind], ranks, many);
				cr_expect_eq(memcmp(one, many, s.model.parameters * sizeof(float)), 0,
					     "%s, %d ranks", shapes[k], ranks);
			}
			free(one);
			free(many);
			free(whole);
			free_subject(&s);
		}
	}
}

struct watch {
	const float *now, *final;
	size_t from, parameters, calls, stop_at;
};

static int watch_ready(void *arg, size_t from)
{
	struct watch *w = arg;

	cr_expect_lt(from, w->from);
	cr_expect_eq(memcmp(w->now + from, w->final + from, (w->parameters - from) * sizeof(float)),
		     0, "told that %zu is final, too early", from);
	w->from = from;
	return ++w->calls == w->stop_at ? -77 : 0;
}

Test(model, gradients_are_told_from_the_end_down_when_they_are_final)
{
	for (size_t k = 0; k < sizeof(shapes) / sizeof(shapes[0]); k++) {
		struct subject s;
		float *final, *now;
		struct watch w;
		struct tt_ready ready = { watch_ready, &w, 20 };
		size_t calls;

		make_subject(&s, shapes[k]);
		final = malloc(s.model.parameters * sizeof(float));
		now = malloc(s.model.parameters * sizeof(float));
		gradients_of(&s, 0, ROWS, final, NULL);
		w = (struct watch){ now, final, s.model.parameters, s.model.parameters, 0, 0 };
		memset(now, 0xff, s.model.parameters * sizeof(float));
		cr_expect_eq(gradients_of(&s, 0, ROWS, now, &ready), 0);
		cr_expect_eq(w.from, 0);
		cr_expect_geq(w.calls, s.model.ntensors - 1);
		calls = w.calls;
		w = (struct watch){ now, final, s.model.parameters, s.model.parameters, 0,
				    calls / 2 };
		memset(now, 0xff, s.model.parameters * sizeof(float));
		cr_expect_eq(gradients_of(&s, 0, ROWS, now, &ready), -77);
		cr_expect_eq(w.calls, calls / 2);
		free(final);
		free(now);
		free_subject(&s);
	}
}

Test(model, bad_shapes_are_refused)
{
	static const char *const bad[] = {
		"mlp:", "mlp:0", "mlp:-1", "mlp:8,", "mlp:8,,8", "mlp:x", "mlp:65537", "mlp: 8",
		"mlp:1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", "linear:3", "cnn:3", "", "mlpx",
	};
	struct tt_model_size size = { 4, 2, 1, 1 };
	struct tt_device device;
	struct tt_model other;

	cr_assert_eq(tt_device_open(&device, "cpu"), 0);
	cr_expect_eq(tt_model_open(&other, "cnn", &device, &size), TT_TRAIN_USAGE); /* 2 x 2 */
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct tt_model model;

		cr_expect_eq(tt_model_open(&model, bad[i], &device, &size), TT_TRAIN_USAGE, "%s",
			     bad[i]);
		cr_expect_not_null(strstr(tt_train_error(), bad[i]), "%s", tt_train_error());
	}
	tt_device_close(&device);
	cr_expect_eq(tt_device_open(&device, "abacus"), TT_TRAIN_USAGE);
}

/* ---- replicas ------------------------------------------------------------------------------- */

Test(replicas, the_hash_sees_every_bit)
{
	uint32_t words[40];
	uint64_t seen[40 * 32 + 1];
	size_t n = 0;

	for (uint32_t i = 0; i < 40; i++)
		words[i] = i * 77;
	seen[n++] = tt_hash(words, sizeof(words));
	for (size_t bit = 0; bit < 40 * 32; bit++) {
		words[bit / 32] ^= 1u << bit % 32;
		seen[n++] = tt_hash(words, sizeof(words));
		words[bit / 32] ^= 1u << bit % 32;
	}
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < i; j++)
			cr_assert_neq(seen[i], seen[j], "%zu %zu", i, j);
}

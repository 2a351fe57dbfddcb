/*
 * test_data.c - training data: the sampler, IDX files, data sets
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include "trainer/data/data.h"
#include "trainer/base/fail.h"
#include "trainer/base/rng.h"
#include "trainer/data/idx.h"
#include "trainer/data/sampler.h"
#include "trainer/data/shard.h"

TestSuite(sampler, .timeout = 60);
TestSuite(idx, .timeout = 60);
TestSuite(data, .timeout = 60);

/* ---- sampler -------------------------------------------------------------------------------- */

Test(sampler, an_epoch_takes_every_sample_once_and_drops_the_last_partial_batch)
{
	struct train_sampler s;
	uint8_t uses[1003] = { 0 };
	size_t total = 0;

	cr_assert_eq(train_sampler_open(&s, 5, 1003, 10), 0);
	cr_assert_eq(train_sampler_steps(&s), 100);
	for (uint64_t step = 0; step < 100; step++) {
		const uint32_t *samples = train_sampler_rows(&s, step, 0);

		for (size_t i = 0; i < s.batch; i++, total++) {
			cr_assert_lt(samples[i], 1003);
			cr_assert_eq(uses[samples[i]]++, 0);
		}
	}
	cr_assert_eq(total, 1000);
	train_sampler_close(&s);
}

Test(sampler, the_order_depends_on_seed_and_epoch_only)
{
	struct train_sampler a, b, other;
	uint32_t first[50];

	cr_assert_eq(train_sampler_open(&a, 5, 100, 50), 0);
	cr_assert_eq(train_sampler_open(&b, 5, 100, 50), 0);
	cr_assert_eq(train_sampler_open(&other, 6, 100, 50), 0);
	memcpy(first, train_sampler_rows(&a, 6, 0), sizeof(first));
	train_sampler_rows(&b, 1, 0);
	train_sampler_rows(&b, 3, 0);
	cr_expect_eq(memcmp(first, train_sampler_rows(&b, 6, 0), sizeof(first)), 0);
	cr_expect_neq(memcmp(first, train_sampler_rows(&b, 4, 0), sizeof(first)), 0);
	cr_expect_neq(memcmp(first, train_sampler_rows(&other, 6, 0), sizeof(first)), 0);
	train_sampler_close(&a);
	train_sampler_close(&b);
	train_sampler_close(&other);
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

Test(idx, plain_and_gzipped_files_are_read)
{
	for (int zipped = 0; zipped < 2; zipped++) {
		struct train_idx idx;

		cr_assert_eq(train_idx_read_fd(file_of(good, sizeof(good), zipped), "good", 3,
					       &idx),
			     0, "%s", train_error());
		cr_expect(idx.dims == 3 && idx.dim[0] == 2 && idx.dim[1] == 1 && idx.dim[2] == 3);
		cr_expect_eq(idx.bytes, 6);
		cr_expect_eq(memcmp(idx.at, good + 16, 6), 0);
		free(idx.at);
	}
}

/* A file of `bytes` bytes, valid but for `count` bytes of change at offset `at`, is refused. */
static void expect_refused(size_t at, const char *change, size_t count, size_t bytes, unsigned dims,
			   const char *phrase)
{
	uint8_t file[64] = { 0 };
	struct train_idx idx = { 0 };

	memcpy(file, good, sizeof(good));
	memcpy(file + at, change, count);
	for (int zipped = 0; zipped < 2; zipped++) {
		int rc = train_idx_read_fd(file_of(file, bytes, zipped), "FILE", dims, &idx);

		cr_expect_eq(rc, TRAIN_USAGE, "%s", phrase);
		cr_expect(strstr(train_error(), "FILE: ") && strstr(train_error(), phrase),
			  "want '%s', got '%s'", phrase, train_error());
		cr_expect_null(idx.at);
	}
}

Test(idx, every_malformed_file_gets_its_own_error_text)
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

Test(idx, a_damaged_gzip_stream_is_named)
{
	uint8_t zipped[128];
	struct train_idx idx = { 0 };
	int fd = file_of(good, sizeof(good), true);
	ssize_t bytes = read(fd, zipped, sizeof(zipped));

	close(fd);
	cr_assert_gt(bytes, 20);
	for (ssize_t cut = 11; cut < bytes; cut++) {
		cr_expect_eq(train_idx_read_fd(file_of(zipped, (size_t)cut, false), "cut", 3, &idx),
			     TRAIN_USAGE, "%zd", cut);
		cr_expect_null(idx.at);
	}
	zipped[bytes - 6] ^= 1; /* in the check sum */
	cr_expect_eq(train_idx_read_fd(file_of(zipped, (size_t)bytes, false), "crc", 3, &idx),
		     TRAIN_USAGE);
	cr_expect_not_null(strstr(train_error(), "gzip stream is damaged"), "%s", train_error());
}

Test(idx, a_missing_file_and_a_folder_are_errors)
{
	struct train_idx idx;

	cr_expect_eq(train_idx_read("/nowhere/at/all", 3, &idx), TRAIN_USAGE);
	cr_expect_not_null(strstr(train_error(), "/nowhere/at/all: No such file"), "%s",
			   train_error());
	cr_expect_eq(train_idx_read("/tmp", 3, &idx), TRAIN_FAILED);
	cr_expect_not_null(strstr(train_error(), "directory"), "%s", train_error());
}

Test(idx, a_label_out_of_range_is_named)
{
	uint8_t labels[] = { 9, 0, 10, 3 };
	struct train_idx idx = { .dims = 1, .dim = { 4 }, .bytes = 4, .at = labels };

	cr_expect_eq(train_idx_below(&idx, "labels", 10), TRAIN_USAGE);
	cr_expect_not_null(strstr(train_error(), "label 10 of sample 2"), "%s", train_error());
	cr_expect_eq(train_idx_below(&idx, "labels", 11), 0);
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

static int load(const char *name, const char *directory, uint64_t seed, struct train_data *data)
{
	struct train_data_options options = { directory, seed, 4, false };

	return train_data_load(name, &options, data);
}

Test(data, four_idx_files_are_a_data_set)
{
	char folder[] = "/tmp/tutti-test-XXXXXX";
	struct train_data data;

	cr_assert_not_null(mkdtemp(folder));
	cr_expect_eq(load("fashion", folder, 1, &data), TRAIN_USAGE);
	cr_expect_not_null(strstr(train_error(), "dataset-fashion-mnist"), "%s", train_error());
	put_idx(folder, "train-images-idx3", 3, 30);
	put_idx(folder, "train-labels-idx1", 1, 29);
	put_idx(folder, "t10k-images-idx3", 3, 5);
	put_idx(folder, "t10k-labels-idx1", 1, 5);
	cr_expect_eq(load("fashion", folder, 1, &data), TRAIN_USAGE);
	cr_expect_not_null(strstr(train_error(), "29 labels for 30 images"), "%s", train_error());
	put_idx(folder, "train-labels-idx1", 1, 30);
	cr_assert_eq(load("fashion", folder, 1, &data), 0, "%s", train_error());
	cr_expect(data.train.samples == 30 && data.test.samples == 5 && data.pixels == 4 &&
		  data.classes == 10);
	cr_expect_float_eq(data.mean, 4.5 / 255, 1e-6);
	train_data_free(&data);
	cr_assert_eq(load("auto", folder, 1, &data), 0);
	cr_expect_str_eq(data.name, "fashion");
	train_data_free(&data);
	remove_folder(folder);
}

/* The samples of a shard are those of the whole set. */
static void expect_samples(const struct train_set *whole, const uint32_t *want,
			   const struct train_set *part, const uint32_t *got, size_t count,
			   size_t pixels)
{
	for (size_t i = 0; i < count; i++) {
		cr_expect_eq(whole->labels[want[i]], part->labels[got[i]], "%zu", i);
		cr_expect(!memcmp(whole->images + want[i] * pixels, part->images + got[i] * pixels,
				  pixels),
			  "%zu", i);
	}
}

/* Rows 2 .. 4 of batches of 7, for two epochs, and two of the tests. */
static void expect_shard(const char *name, const struct train_data_options *options)
{
	struct train_data_options all = *options;
	struct train_data whole, data;
	struct train_sampler sampler;
	struct train_shard shard = { 0 };
	const uint32_t *got;
	size_t steps;

	all.shard = false;
	cr_assert_eq(train_data_load(name, &all, &whole), 0);
	cr_assert_eq(train_data_load(name, options, &data), 0, "%s", train_error());
	cr_assert(!data.train.images && !data.test.images && !data.train.labels);
	cr_expect_eq(data.mean, whole.mean);
	cr_assert_eq(data.train.samples, whole.train.samples);
	cr_assert_eq(train_sampler_open(&sampler, 5, data.train.samples, 7), 0);
	steps = train_sampler_steps(&sampler);
	for (size_t step = 0; step < 2 * steps; step += steps / 2) {
		cr_assert_eq(train_shard_rows(&shard, &data, &sampler, step, 2, 5, &got), 0);
		expect_samples(&whole.train, train_sampler_rows(&sampler, step, 2),
			       &shard.train.set, got, 3, data.pixels);
	}
	cr_assert_eq(train_shard_test(&shard, &data, (struct train_share){ 1, 2 }), 0);
	expect_samples(&whole.test, (const uint32_t[]){ 1, 2 }, &shard.test.set,
		       (const uint32_t[]){ 0, 1 }, 2, data.pixels);
	cr_expect_eq(train_shard_bytes(&shard, &data), (steps * 3 + 2) * (data.pixels + 1));
	cr_expect_eq(train_shard_bytes(&shard, &whole),
		     (whole.train.samples + whole.test.samples) * (data.pixels + 1));
	train_shard_close(&shard);
	train_sampler_close(&sampler);
	train_data_free(&data);
	train_data_free(&whole);
}

Test(data, a_shard_has_the_samples_of_its_rows)
{
	char folder[] = "/tmp/tutti-test-XXXXXX";
	struct train_data_options options = { folder, 1, 4, true };
	struct train_shard shard = { 0 };
	struct train_data data;

	cr_assert_not_null(mkdtemp(folder));
	put_idx(folder, "train-images-idx3", 3, 30);
	put_idx(folder, "train-labels-idx1", 1, 30);
	put_idx(folder, "t10k-images-idx3", 3, 5);
	put_idx(folder, "t10k-labels-idx1", 1, 5);
	expect_shard("fashion", &options);
	expect_shard("synth", &options);
	cr_assert_eq(train_data_load("fashion", &options, &data), 0);
	put_idx(folder, "t10k-images-idx3", 3, 4);
	cr_expect_eq(train_shard_test(&shard, &data, (struct train_share){ 0, 5 }), TRAIN_USAGE);
	cr_expect_not_null(strstr(train_error(), "4 parts where there were 5"), "%s",
			   train_error());
	cr_expect_eq(train_data_load("cartpole", &options, &data), TRAIN_USAGE);
	cr_expect_not_null(strstr(train_error(), "as a whole only"), "%s", train_error());
	train_shard_close(&shard);
	remove_folder(folder);
}

Test(data, without_files_auto_is_synth)
{
	struct train_data data;

	cr_assert_eq(load("auto", "/nowhere", 1, &data), 0);
	cr_expect_str_eq(data.name, "synth");
	train_data_free(&data);
	cr_expect_eq(load("cifar", "/nowhere", 1, &data), TRAIN_USAGE);
}

Test(data, numbers_of_many_parts_are_those_of_each_part)
{
	static uint32_t all[4 * 200], each[4];

	for (uint32_t parts = 0; parts <= 200; parts += 3) {
		uint32_t part = parts % 2 ? UINT32_MAX - 5 : 7; /* the number of a part wraps */
		uint64_t seed = 0x9E3779B97F4A7C15u * (parts + 1), index = ~seed;

		train_rng_parts(seed, TRAIN_RNG_TEST, part, parts, index, all);
		for (uint32_t i = 0; i < parts; i++) {
			train_rng(seed, TRAIN_RNG_TEST, part + i, index, each);
			cr_assert_arr_eq(&all[4 * i], each, sizeof(each), "part %u of %u", i,
					 parts);
		}
	}
}

Test(data, synth_depends_only_on_the_seed)
{
	struct train_data a, b, other;
	size_t of_class[10] = { 0 };

	cr_assert_eq(load("synth", "", 1, &a), 0);
	cr_assert_eq(load("synth", "", 1, &b), 0);
	cr_assert_eq(load("synth", "", 2, &other), 0);
	cr_expect_eq(a.pixels, 784);
	cr_expect_eq(memcmp(a.train.images, b.train.images, a.train.samples * a.pixels), 0);
	cr_expect_eq(memcmp(a.test.labels, b.test.labels, a.test.samples), 0);
	cr_expect_neq(memcmp(a.train.images, other.train.images, a.train.samples * a.pixels), 0);
	cr_expect_neq(memcmp(a.train.images, a.test.images, a.test.samples * a.pixels), 0);
	for (size_t i = 0; i < a.train.samples; i++)
		of_class[a.train.labels[i]]++;
	for (size_t c = 0; c < 10; c++)
		cr_expect_gt(of_class[c], a.train.samples / 12);
	train_data_free(&a);
	train_data_free(&b);
	train_data_free(&other);
}

/* ---- text ----------------------------------------------------------------------------------- */

Test(data, text_is_windows_of_bytes_and_the_bytes_that_follow)
{
	char path[] = "/tmp/tutti-test-XXXXXX", name[64];
	int fd = mkstemp(path);
	struct train_data data;

	snprintf(name, sizeof(name), "text:%s", path);
	cr_expect_eq(load(name, "", 1, &data), TRAIN_USAGE);
	cr_expect_not_null(strstr(train_error(), "use a longer text"), "%s", train_error());
	cr_assert_eq(write(fd, "abcbdaccaddbz", 13), 13); /* 3 windows of 4, each with its next */
	cr_assert_eq(load(name, "", 1, &data), 0, "%s", train_error());
	cr_expect(data.train.samples == 2 && data.test.samples == 1 && data.positions == 4);
	cr_expect_eq(data.classes, 5);
	cr_expect_eq(memcmp(data.train.images, "\0\1\2\1\3\0\2\2", 8), 0);
	cr_expect_eq(memcmp(data.train.labels, "\1\2\1\3\0\2\2\0", 8), 0);
	cr_expect_eq(memcmp(data.test.labels, "\3\3\1\4", 4), 0);
	cr_expect_eq(data.mean, 0.0f);
	train_data_free(&data);
	cr_expect_eq(load("text", "", 1, &data), TRAIN_USAGE);
	cr_expect_eq(load("synth:x", "", 1, &data), TRAIN_USAGE);
	close(fd);
	unlink(path);
}

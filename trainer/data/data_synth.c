/*
 * data_synth.c - synthetic images of Fashion-MNIST's shape, for hosts without the data set and
 * for tests
 *
 * Every class has two prototypes, smooth random pictures. A sample is a prototype of its class,
 * blended with a random other prototype, so that classes overlap, plus noise. All values depend
 * on the seed alone. Row of the table in data.c.
 */
#include "trainer/data/data.h"

#include "trainer/base/fail.h"
#include "trainer/base/rng.h"

#include <stdlib.h>

enum { SIDE = 28, PIXELS = SIDE * SIDE, CLASSES = 10, PROTOTYPES = 2 };
enum { COARSE = 8 }; /* points on a side of the grid that a picture is interpolated from */
enum { TRAIN = 20000, TEST = 4000 };

struct prototype {
	uint8_t pixel[PIXELS];
};

/* Enlarges a coarse random grid by linear interpolation. */
static void draw(uint64_t seed, uint32_t number, struct prototype *prototype)
{
	uint8_t grid[COARSE][COARSE];
	uint32_t random[4];

	for (int i = 0; i < COARSE * COARSE; i++) {
		train_rng(seed, TRAIN_RNG_SYNTH_CLASS, number, (uint64_t)i, random);
		grid[i / COARSE][i % COARSE] = (uint8_t)random[0];
	}
	for (int y = 0; y < SIDE; y++) {
		for (int x = 0; x < SIDE; x++) {
			int v = y * (COARSE - 1), u = x * (COARSE - 1);
			int row = v / SIDE, col = u / SIDE, down = v % SIDE, right = u % SIDE;
			int above = grid[row][col] * (SIDE - right) + grid[row][col + 1] * right;
			int below = grid[row + 1][col] * (SIDE - right) +
				    grid[row + 1][col + 1] * right;

			prototype->pixel[y * SIDE + x] =
				(uint8_t)((above * (SIDE - down) + below * down) / PIXELS);
		}
	}
}

/* Bell-shaped noise, -255..255: the halved difference of two sums of bytes */
static int noise(uint32_t random)
{
	int up = (int)(random & 255) + (int)(random >> 8 & 255);
	int down = (int)(random >> 16 & 255) + (int)(random >> 24);

	return (up - down) / 2;
}

/* A function of its own, so that gcc vectorizes the loop. share: the weight of the other, of 256 */
static void blend(const uint8_t *restrict own, const uint8_t *restrict other, int share,
		  const uint32_t *restrict random, uint8_t *restrict image)
{
	for (int i = 0; i < PIXELS; i++) {
		int value = ((own[i] * (256 - share) + other[i] * share) >> 8) + noise(random[i]);

		value = value < 0 ? 0 : value;
		image[i] = (uint8_t)(value > 255 ? 255 : value);
	}
}

static void make_sample(uint64_t seed, uint64_t index, const struct prototype *prototypes,
			uint8_t *image, uint8_t *label)
{
	uint32_t random[PIXELS];
	const struct prototype *own, *other;
	int share;

	train_rng(seed, TRAIN_RNG_SYNTH_SAMPLE, 0, index, random);
	*label = (uint8_t)train_rng_below(random[0], CLASSES);
	own = &prototypes[*label * PROTOTYPES + (random[1] & 1)];
	other = &prototypes[train_rng_below(random[2], CLASSES * PROTOTYPES)];
	share = (int)train_rng_below(random[3], 120);
	train_rng_parts(seed, TRAIN_RNG_SYNTH_SAMPLE, 1, PIXELS / 4, index, random);
	blend(own->pixel, other->pixel, share, random, image);
}

static int make_set(uint64_t seed, uint64_t first, size_t samples,
		    const struct prototype *prototypes, struct train_set *set)
{
	set->samples = samples;
	set->images = malloc(samples * PIXELS);
	set->labels = malloc(samples);
	if (!set->images || !set->labels)
		return train_fail(TRAIN_FAILED, "no memory for %zu synthetic images", samples);
	for (size_t i = 0; i < samples; i++)
		make_sample(seed, first + i, prototypes, set->images + i * PIXELS, &set->labels[i]);
	return TRAIN_OK;
}

static void draw_all(uint64_t seed, struct prototype prototypes[CLASSES * PROTOTYPES])
{
	for (uint32_t i = 0; i < CLASSES * PROTOTYPES; i++)
		draw(seed, i, &prototypes[i]);
}

static int each(const struct train_data *data, bool test, const struct train_sink *sink)
{
	struct prototype prototypes[CLASSES * PROTOTYPES];
	uint64_t seed = data->options.seed;

	draw_all(seed, prototypes);
	for (size_t i = 0; i < (test ? TEST : TRAIN); i++) {
		uint8_t label, *image = sink->image(sink->arg, i);

		if (!image)
			continue;
		make_sample(seed, test ? TRAIN + i : i, prototypes, image, &label);
		sink->label(sink->arg, i, label);
	}
	return TRAIN_OK;
}

static int load(const char *directory, const struct train_data_options *options,
		struct train_data *data)
{
	struct prototype prototypes[CLASSES * PROTOTYPES];
	uint64_t seed = options->seed;
	int rc;

	(void)directory;
	draw_all(seed, prototypes);
	data->pixels = PIXELS;
	data->classes = CLASSES;
	data->train.samples = TRAIN;
	data->test.samples = TEST;
	if (options->shard)
		return TRAIN_OK;
	rc = make_set(seed, 0, TRAIN, prototypes, &data->train);
	return rc ? rc : make_set(seed, TRAIN, TEST, prototypes, &data->test);
}

const struct train_data_source train_data_synth = {
	.name = "synth",
	.help = "synthetic images of the same shape, from --seed",
	.load = load,
	.each = each,
};

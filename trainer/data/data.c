/* data.c - the table of data sources (data.h) */
#include "trainer/data/data.h"

#include "trainer/base/fail.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_COLLAPSE /* Linux 6.1 */
#define MADV_COLLAPSE 25
#endif

enum { HUGE_PAGE = 2 << 20 };

const struct train_data_source *const train_data_sources[] = { &train_data_fashion,
							       &train_data_synth, &train_data_text,
							       &train_data_cartpole, NULL };

static const struct train_data_source *find(const char *name, const char *directory)
{
	const struct train_data_source *const *at = train_data_sources;

	size_t length = strcspn(name, ":");

	if (strcmp(name, "auto"))
		while (*at && (strncmp((*at)->name, name, length) || (*at)->name[length] ||
			       !(*at)->syntax != !name[length]))
			at++;
	else
		while (*at && (*at)->present && !(*at)->present(directory))
			at++;
	return *at;
}

static float mean_of(const struct train_set *set, size_t pixels)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < set->samples * pixels; i++)
		sum += set->images[i];
	return (float)((double)sum / (double)(set->samples * pixels) / 255.0);
}

/* ---- the mean of images that are read one by one ------------------------------------------------ */

struct pixel_sum {
	uint8_t *image;
	size_t pixels;
	uint64_t sum;
};

static uint8_t *any_image(void *arg, size_t sample)
{
	struct pixel_sum *p = arg;

	(void)sample;
	return p->image;
}

static void add_image(void *arg, size_t sample, uint8_t label)
{
	struct pixel_sum *p = arg;

	(void)sample;
	(void)label;
	for (size_t i = 0; i < p->pixels; i++)
		p->sum += p->image[i];
}

static int read_mean(struct train_data *data)
{
	struct pixel_sum p = { malloc(data->pixels), data->pixels, 0 };
	const struct train_sink sink = { any_image, add_image, &p };
	int rc = p.image ? data->source->each(data, false, &sink)
			 : train_fail(TRAIN_FAILED, "no memory for an image of %zu pixels",
				      data->pixels);

	data->mean = (float)((double)p.sum / (double)(data->train.samples * data->pixels) / 255.0);
	free(p.image);
	return rc;
}

/* ---- load --------------------------------------------------------------------------------------- */

/* A batch is a random selection of samples: in small pages each would miss the TLB. Does nothing where the
 * kernel has no such pages. */
static void use_huge_pages(uint8_t *at, size_t bytes)
{
	uintptr_t first = ((uintptr_t)at + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1);
	uintptr_t end = ((uintptr_t)at + bytes) & ~(uintptr_t)(HUGE_PAGE - 1);

	if (end <= first)
		return;
	madvise((void *)first, end - first, MADV_HUGEPAGE);
	madvise((void *)first, end - first, MADV_COLLAPSE);
}

int train_data_load(const char *name, const struct train_data_options *options,
		    struct train_data *ret_data)
{
	const struct train_data_source *source = find(name, options->directory);
	struct train_data data = { .positions = 1 };
	const char *path = strchr(name, ':');
	int rc;

	if (!source)
		return train_fail(TRAIN_USAGE,
				  "--data %s: there is no such data source; --help lists them",
				  name);
	if (options->shard && !source->each)
		return train_fail(
			TRAIN_USAGE,
			"--shard-data: --data %s is loaded as a whole only; use fashion or "
			"synth, or omit the option",
			source->name);
	data.name = source->name;
	data.sharded = options->shard;
	data.source = source;
	data.path = path ? path + 1 : options->directory;
	data.options = *options;
	rc = source->load(data.path, options, &data);
	if (rc) {
		train_data_free(&data);
		return rc;
	}
	if (data.sharded)
		rc = read_mean(&data);
	else
		data.mean = data.text || data.plays ? 0.0f : mean_of(&data.train, data.pixels);
	if (data.train.images)
		use_huge_pages(data.train.images, data.train.samples * data.pixels);
	*ret_data = data;
	return rc;
}

void train_data_free(struct train_data *data)
{
	free(data->train.images);
	free(data->train.labels);
	free(data->test.images);
	free(data->test.labels);
	memset(data, 0, sizeof(*data));
}

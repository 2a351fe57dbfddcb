/*
 * data_fashion.c - Fashion-MNIST: 70,000 images of clothes, 28 x 28, 10 classes (Xiao, Rasul,
 * Vollgraf 2017)
 *
 * Debian's package dataset-fashion-mnist has the four IDX files. The loader also reads other
 * sets of ten classes in the same four files, such as MNIST. Row of the table in data.c; calls
 * idx.c.
 */
#include "trainer/data/data.h"

#include "trainer/base/fail.h"
#include "trainer/data/idx.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { CLASSES = 10 };

static void path_of(const char *directory, const char *part, const char *kind,
		    char ret_path[PATH_MAX])
{
	snprintf(ret_path, PATH_MAX, "%s/%s-%s-ubyte.gz", directory, part, kind);
	if (access(ret_path, F_OK))
		snprintf(ret_path, PATH_MAX, "%s/%s-%s-ubyte", directory, part, kind);
}

static int present(const char *directory)
{
	char path[PATH_MAX];

	path_of(directory, "train", "images-idx3", path);
	return !access(path, R_OK);
}

/* Labels of set->samples samples. */
static int load_labels(const char *directory, const char *part, struct train_set *set)
{
	char path[PATH_MAX];
	struct train_idx labels;
	int rc;

	path_of(directory, part, "labels-idx1", path);
	rc = train_idx_read(path, 1, &labels);
	if (rc)
		return rc;
	set->labels = labels.at;
	if (labels.bytes != set->samples)
		return train_fail(TRAIN_USAGE, "%s: %zu labels for %zu images", path, labels.bytes,
				  set->samples);
	return train_idx_below(&labels, path, CLASSES);
}

/* shard: the sizes alone */
static int load_set(const char *directory, const char *part, bool shard, struct train_set *set,
		    size_t *ret_pixels)
{
	char path[PATH_MAX];
	struct train_idx images;
	int rc;

	path_of(directory, part, "images-idx3", path);
	rc = shard ? train_idx_read_sizes(path, 3, &images) : train_idx_read(path, 3, &images);
	if (rc)
		return rc;
	set->images = images.at;
	set->samples = images.dim[0];
	*ret_pixels = images.bytes / images.dim[0];
	return shard ? TRAIN_OK : load_labels(directory, part, set);
}

struct labelled {
	const struct train_sink *sink;
	const uint8_t *labels;
};

static uint8_t *image_at(void *arg, size_t sample)
{
	const struct labelled *l = arg;

	return l->sink->image(l->sink->arg, sample);
}

static void image_read(void *arg, size_t sample)
{
	const struct labelled *l = arg;

	l->sink->label(l->sink->arg, sample, l->labels[sample]);
}

static int each(const struct train_data *data, bool test, const struct train_sink *sink)
{
	struct train_set set = { .samples = test ? data->test.samples : data->train.samples };
	const char *part = test ? "t10k" : "train";
	char path[PATH_MAX];
	int rc = load_labels(data->path, part, &set);
	struct labelled labelled = { sink, set.labels };

	path_of(data->path, part, "images-idx3", path);
	if (!rc)
		rc = train_idx_each(path, 3, set.samples, image_at, image_read, &labelled);
	free(set.labels);
	return rc;
}

static int load(const char *directory, const struct train_data_options *options,
		struct train_data *data)
{
	size_t pixels;
	int rc;

	if (!present(directory))
		return train_fail(TRAIN_USAGE,
				  "--data fashion: no readable train-images-idx3-ubyte.gz in %s: "
				  "install the package dataset-fashion-mnist, give --data-dir, "
				  "or use --data synth",
				  directory);
	data->classes = CLASSES;
	rc = load_set(directory, "train", options->shard, &data->train, &data->pixels);
	if (!rc)
		rc = load_set(directory, "t10k", options->shard, &data->test, &pixels);
	if (!rc && pixels != data->pixels)
		rc = train_fail(TRAIN_USAGE,
				"%s: training images of %zu pixels, test images of %zu", directory,
				data->pixels, pixels);
	return rc;
}

const struct train_data_source train_data_fashion = {
	.name = "fashion",
	.help = "Fashion-MNIST, from the files of --data-dir",
	.load = load,
	.each = each,
	.present = present,
};

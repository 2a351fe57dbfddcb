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

static int load_set(const char *directory, const char *part, struct train_set *set,
		    size_t *ret_pixels)
{
	char path[PATH_MAX];
	struct train_idx images, labels;
	int rc;

	path_of(directory, part, "images-idx3", path);
	rc = train_idx_read(path, 3, &images);
	if (rc)
		return rc;
	set->images = images.at;
	set->samples = images.dim[0];
	*ret_pixels = images.bytes / images.dim[0];
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

static int load(const char *directory, const struct train_data_options *options,
		struct train_data *data)
{
	size_t pixels;
	int rc;

	(void)options;
	if (!present(directory))
		return train_fail(TRAIN_USAGE,
				  "--data fashion: no readable train-images-idx3-ubyte.gz in %s: "
				  "install the package dataset-fashion-mnist, give --data-dir, "
				  "or use --data synth",
				  directory);
	data->classes = CLASSES;
	rc = load_set(directory, "train", &data->train, &data->pixels);
	if (!rc)
		rc = load_set(directory, "t10k", &data->test, &pixels);
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
	.present = present,
};

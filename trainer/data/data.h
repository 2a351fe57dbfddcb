/*
 * data.h - the training and test sets: 8-bit images and their labels, windows of a text, or an
 * environment that workers play in
 *
 * A data source is one file data_NAME.c with a loader, and one row of the table in data.c. The sets
 * are loaded once, before the ranks are started, and are read-only afterwards, so local ranks share
 * their memory. With --shard-data, each rank reads its own samples instead (shard.h).
 */
#ifndef TRAIN_DATA_H
#define TRAIN_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct train_set {
	size_t samples;
	uint8_t *images; /* [samples][pixels] */
	uint8_t *labels; /* [samples][positions], each below classes */
};

struct train_data_options {
	const char *directory; /* of the files, unless the name has a path */
	uint64_t seed;         /* for synthetic data */
	size_t context;        /* characters of a window of text */
	bool shard;            /* leave the sets empty, for train_data_source.each */
};

struct train_data {
	const char *name; /* of the source */
	bool text;        /* pixels are characters, numbers below classes */
	bool plays; /* samples are frames of an environment (rank/rollout.h), tests its episodes */
	size_t pixels;    /* of a sample */
	size_t positions; /* predictions of a sample: 1 for an image */
	unsigned classes;
	struct train_set train, test;
	float mean;   /* of all training pixels, 0..1; centered images train faster; text: 0 */
	bool sharded; /* the sets have no images and labels */
	const struct train_data_source *source; /* sharded: to read samples from, */
	const char *path;                       /* with this argument */
	struct train_data_options options;
};

/* The receiver of the samples of a set, in ascending order. */
struct train_sink {
	/* The memory for the image of a sample; NULL: it is not wanted. */
	uint8_t *(*image)(void *arg, size_t sample);
	/* After each image that is wanted: it is there, and this is its label. */
	void (*label)(void *arg, size_t sample, uint8_t label);
	void *arg;
};

struct train_data_source {
	const char *name, *help;
	const char *syntax; /* NAME:PATH; NULL: NAME alone */
	/* Fills *data except its name and mean. `path` is that behind the name, or the directory of
	 * options. On failure the caller frees the parts that are already filled in. Returns 0 |
	 * TRAIN_USAGE | TRAIN_FAILED. */
	int (*load)(const char *path, const struct train_data_options *options,
		    struct train_data *data);
	/* Reads a set again, sample by sample, without keeping it. NULL: sets of this source are
	 * loaded as a whole only. */
	int (*each)(const struct train_data *data, bool test, const struct train_sink *sink);
	/* Tells whether the source's files are present in directory. NULL: always. */
	int (*present)(const char *directory);
};
extern const struct train_data_source train_data_fashion, train_data_synth, train_data_text,
	train_data_cartpole;
extern const struct train_data_source *const train_data_sources[]; /* best first, ends with NULL */

/* Loads the source NAME or NAME:PATH; "auto" selects the first that is present. Returns 0 |
 * TRAIN_FAILED | TRAIN_USAGE (no such source). options must live as long as the data. Free with
 * train_data_free. */
int train_data_load(const char *name, const struct train_data_options *options,
		    struct train_data *ret_data);
void train_data_free(struct train_data *data);

#endif

/*
 * data.h - the training and test sets: 8-bit images and their labels
 *
 * A data source is one file data_NAME.c with a loader, and one row of the table in data.c. The sets
 * are loaded once, before the ranks are started, and are read-only afterwards, so local ranks share
 * their memory.
 */
#ifndef TRAIN_DATA_H
#define TRAIN_DATA_H

#include <stddef.h>
#include <stdint.h>

struct train_set {
	size_t samples;
	uint8_t *images; /* [samples][pixels] */
	uint8_t *labels; /* [samples], each below classes */
};

struct train_data {
	const char *name; /* of the source */
	size_t pixels;
	unsigned classes;
	struct train_set train, test;
	float mean; /* of all training pixels, 0..1; centered images train faster */
};

struct train_data_source {
	const char *name, *help;
	/* Fills *data except its name and mean. `directory` holds the source's files; `seed` is for
	 * synthetic data. On failure the caller frees the parts that are already filled in.
	 * Returns 0 | TRAIN_FAILED. */
	int (*load)(const char *directory, uint64_t seed, struct train_data *data);
	/* Tells whether the source's files are present in directory. NULL: always. */
	int (*present)(const char *directory);
};
extern const struct train_data_source train_data_fashion, train_data_synth;
extern const struct train_data_source *const train_data_sources[]; /* best first, ends with NULL */

/* Loads the source `name`; "auto" selects the first that is present. Returns 0 | TRAIN_FAILED |
 * TRAIN_USAGE (no such source). Free with train_data_free. */
int train_data_load(const char *name, const char *directory, uint64_t seed,
		    struct train_data *ret_data);
void train_data_free(struct train_data *data);

#endif

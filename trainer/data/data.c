/* data.c - the table of data sources (data.h) */
#include "trainer/data/data.h"

#include "trainer/base/fail.h"

#include <stdlib.h>
#include <string.h>

const struct train_data_source *const train_data_sources[] = { &train_data_fashion,
							       &train_data_synth, NULL };

static const struct train_data_source *find(const char *name, const char *directory)
{
	const struct train_data_source *const *at = train_data_sources;

	if (strcmp(name, "auto"))
		while (*at && strcmp((*at)->name, name))
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

int train_data_load(const char *name, const char *directory, uint64_t seed,
		    struct train_data *ret_data)
{
	const struct train_data_source *source = find(name, directory);
	struct train_data data = { 0 };
	int rc;

	if (!source)
		return train_fail(TRAIN_USAGE,
				  "--data %s: there is no such data source; --help lists them",
				  name);
	data.name = source->name;
	rc = source->load(directory, seed, &data);
	if (rc) {
		train_data_free(&data);
		return rc;
	}
	data.mean = mean_of(&data.train, data.pixels);
	*ret_data = data;
	return TRAIN_OK;
}

void train_data_free(struct train_data *data)
{
	free(data->train.images);
	free(data->train.labels);
	free(data->test.images);
	free(data->test.labels);
	memset(data, 0, sizeof(*data));
}

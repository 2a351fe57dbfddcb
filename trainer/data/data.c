/* data.c - the table of data sources (data.h) */
#include "trainer/data/data.h"

#include "trainer/fail.h"

#include <stdlib.h>
#include <string.h>

const struct tt_data_source *const tt_data_sources[] = { &tt_data_fashion, &tt_data_synth, NULL };

static const struct tt_data_source *find(const char *name, const char *directory)
{
	const struct tt_data_source *const *at = tt_data_sources;

	if (strcmp(name, "auto"))
		while (*at && strcmp((*at)->name, name))
			at++;
	else
		while (*at && (*at)->present && !(*at)->present(directory))
			at++;
	return *at;
}

static float mean_of(const struct tt_set *set, size_t pixels)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < set->samples * pixels; i++)
		sum += set->images[i];
	return (float)((double)sum / (double)(set->samples * pixels) / 255.0);
}

int tt_data_load(const char *name, const char *directory, uint64_t seed, struct tt_data *ret_data)
{
	const struct tt_data_source *source = find(name, directory);
	struct tt_data data = { 0 };
	int rc;

	if (!source)
		return tt_train_fail(TT_TRAIN_USAGE,
				     "--data %s: there is no such data; --help lists what there is",
				     name);
	data.name = source->name;
	rc = source->load(directory, seed, &data);
	if (rc) {
		tt_data_free(&data);
		return rc;
	}
	data.mean = mean_of(&data.train, data.pixels);
	*ret_data = data;
	return TT_TRAIN_OK;
}

void tt_data_free(struct tt_data *data)
{
	free(data->train.images);
	free(data->train.labels);
	free(data->test.images);
	free(data->test.labels);
	memset(data, 0, sizeof(*data));
}

/* data.c - the table of data sources (data.h) */
#include "trainer/data/data.h"

#include "trainer/base/fail.h"

#include <stdlib.h>
#include <string.h>

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
	data.name = source->name;
	rc = source->load(path ? path + 1 : options->directory, options, &data);
	if (rc) {
		train_data_free(&data);
		return rc;
	}
	data.mean = data.text || data.plays ? 0.0f : mean_of(&data.train, data.pixels);
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

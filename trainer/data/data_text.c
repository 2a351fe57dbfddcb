/*
 * data_text.c - data source text: the bytes of a file, to be predicted each from those before it
 *
 * A sample is a window of --context bytes, and its labels are the bytes that follow each of them. The
 * vocabulary is the bytes that occur, in their order. Windows do not overlap; the last tenth of the
 * file is the test set. Row of the table in data.c.
 */
#include "trainer/base/fail.h"
#include "trainer/data/data.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES_MAX = 1 << 28 };

/* Replaces the bytes by their numbers in the vocabulary. Returns its size. */
static unsigned number_bytes(uint8_t *text, size_t bytes)
{
	uint8_t number[256] = { 0 };
	unsigned known = 0;

	for (size_t i = 0; i < bytes; i++)
		number[text[i]] = 1;
	for (int byte = 0; byte < 256; byte++)
		if (number[byte])
			number[byte] = (uint8_t)known++;
	for (size_t i = 0; i < bytes; i++)
		text[i] = number[text[i]];
	return known;
}

static int read_file(const char *path, uint8_t **ret_text, size_t *ret_bytes)
{
	FILE *f = fopen(path, "re");
	uint8_t *text = NULL;
	size_t bytes = 0, got = 1;

	if (!f)
		return train_fail(TRAIN_USAGE, "--data text:%s: %m; give a file of text", path);
	while (got && bytes < BYTES_MAX) {
		uint8_t *more = realloc(text, bytes + (1 << 20));

		if (!more)
			break;
		text = more;
		got = fread(text + bytes, 1, 1 << 20, f);
		bytes += got;
	}
	*ret_text = text;
	*ret_bytes = bytes;
	if (ferror(f) || got) {
		int error = ferror(f) ? errno : EFBIG;

		fclose(f);
		errno = error;
		return train_fail(TRAIN_USAGE, "--data text:%s: %m%s", path,
				  error == EISDIR ? "; give a file of text" : "");
	}
	fclose(f);
	return TRAIN_OK;
}

/* Windows first..first+samples-1 of the text. */
static int make_set(const uint8_t *text, size_t context, size_t first, size_t samples,
		    struct train_set *set)
{
	set->samples = samples;
	set->images = malloc(samples * context);
	set->labels = malloc(samples * context);
	if (!set->images || !set->labels)
		return train_fail(TRAIN_FAILED, "no memory for a text of %zu bytes",
				  samples * context);
	memcpy(set->images, text + first * context, samples * context);
	memcpy(set->labels, text + first * context + 1, samples * context);
	return TRAIN_OK;
}

static int load(const char *path, const struct train_data_options *options, struct train_data *data)
{
	size_t context = options->context, bytes = 0, windows, tests;
	uint8_t *text = NULL;
	int rc = read_file(path, &text, &bytes);

	windows = !rc && bytes ? (bytes - 1) / context : 0;
	tests = (windows + 9) / 10;
	if (!rc && windows < 2)
		rc = train_fail(TRAIN_USAGE,
				"--data text:%s: has %zu bytes, and two windows of --context %zu "
				"need %zu; use a longer text",
				path, bytes, context, 2 * context + 1);
	if (!rc) {
		data->classes = number_bytes(text, bytes);
		data->pixels = data->positions = context;
		data->text = true;
		rc = make_set(text, context, 0, windows - tests, &data->train);
	}
	if (!rc)
		rc = make_set(text, context, windows - tests, tests, &data->test);
	free(text);
	return rc;
}

const struct train_data_source train_data_text = {
	.name = "text",
	.syntax = "text:FILE",
	.help = "the bytes of a file, in windows of --context; for gpt and rnn",
	.load = load,
};

/*
 * export.c - the parameters as a file in the format safetensors (export.h)
 *
 *	8 bytes, little-endian: the length of the header
 *	header: JSON, {"NAME": {"dtype": "F32", "shape": [..], "data_offsets": [begin, end]}, ..}
 *	the values of all tensors without gaps; offsets count from here
 *
 * A name is layers.NUMBER.PART.KIND. Matrices are [inputs][outputs]: y = x W + b.
 */
#include "trainer/export.h"

#include "trainer/model/tensor_axis.h"
#include "trainer/whole_file.h"

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_tensor(FILE *header, const struct train_tensor *t)
{
	size_t rows = t->cut == TRAIN_CUT_ROWS ? t->whole : t->rows;
	size_t columns = train_tensor_whole_columns(t);

	fprintf(header, ",\"layers.%zu.%s.%s\":{\"dtype\":\"F32\",\"shape\":[", t->layer, t->name,
		t->kind);
	if (rows > 1 || strcmp(t->kind, "bias"))
		fprintf(header, "%zu,", rows);
	fprintf(header, "%zu],\"data_offsets\":[%zu,%zu]}", columns, t->at * sizeof(float),
		(t->at + t->count) * sizeof(float));
}

/* Returns the header, freed by the caller; NULL: no memory. Blanks make the values aligned. */
static char *make_header(const struct train_rank *t, uint64_t step, size_t *ret_bytes)
{
	char *text = NULL;
	FILE *header = open_memstream(&text, ret_bytes);

	if (!header)
		return NULL;
	fprintf(header, "{\"__metadata__\":{\"producer\":\"tutti-train\",\"model\":\"%s\"",
		t->config->model);
	fprintf(header, ",\"data\":\"%s\",\"step\":\"%" PRIu64 "\"}", t->data->name, step);
	for (size_t i = 0; i < t->model.nwhole; i++)
		add_tensor(header, &t->model.whole_tensors[i]);
	fputc('}', header);
	while (ftell(header) % 8)
		fputc(' ', header);
	if (fclose(header)) {
		free(text);
		return NULL;
	}
	return text;
}

struct export_file {
	const char *header;
	size_t bytes; /* of header */
	const float *values;
	size_t count;
};

static bool write_export(FILE *f, void *arg)
{
	const struct export_file *e = arg;
	uint64_t length = htole64(e->bytes);

	bool written = fwrite(&length, sizeof(length), 1, f) == 1 &&
		       fwrite(e->header, 1, e->bytes, f) == e->bytes;

	for (size_t i = 0; i < e->count && written; i++) {
		uint32_t bits;

		memcpy(&bits, &e->values[i], sizeof(bits));
		bits = htole32(bits);
		written = fwrite(&bits, sizeof(bits), 1, f) == 1;
	}
	return written;
}

/* values: [whole_parameters], on the lead; the others of replica 0 send theirs. */
static int gather(struct train_rank *t, float *values)
{
	float *own = train_parameters_download(t);

	if (t->config->mesh)
		return train_mesh_gather(t, own, values);
	memcpy(values, own, t->model.parameters * sizeof(*values));
	return TRAIN_OK;
}

int train_export(struct train_rank *t, uint64_t step)
{
	size_t count = t->model.whole_parameters, bytes = 0;
	float *values;
	char *header;
	int rc;

	if (t->rank)
		return TRAIN_OK;
	if (!train_is_lead(t))
		return gather(t, NULL);
	values = malloc(count * sizeof(*values));
	header = make_header(t, step, &bytes);
	if (!values || !header)
		rc = train_fail(TRAIN_FAILED, "--export %s: no memory for %zu parameters",
				t->config->export, count);
	else
		rc = gather(t, values);
	if (!rc && train_whole_file_replace("export", t->config->export, write_export,
					    &(struct export_file){ header, bytes, values, count }))
		rc = TRAIN_UNWRITTEN;
	free(values);
	free(header);
	return rc;
}

/*
 * fuzz_checkpoint.c - arbitrary bytes as the checkpoint of --resume
 *
 * The first byte chooses whether the magic, the settings and the hash are made right, so that an input
 * reaches what is behind them. A file is refused with a sentence, or has as many values as its header
 * says.
 */
#include <sys/mman.h>

#include "trainer/checkpoint.c" /* header and values are read by static functions */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define PARAMETERS 3

static const struct checkpoint_header want = { .magic = "TUTTICK2",
					       .parameters = PARAMETERS,
					       .seed = 1,
					       .batch = 8,
					       .model = "mlp",
					       .data = "synth" };

static void must(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "fuzz_checkpoint: violated: %s\n", what);
	abort();
}

/* mend: bit 0 magic and settings, bit 1 the hash */
static void mend_header(struct checkpoint_header *h, unsigned mend, const uint8_t *values,
			size_t bytes)
{
	if (mend & 1) {
		struct checkpoint_header own = *h;

		*h = want;
		h->step = own.step;
		h->ranks = own.ranks;
		h->arrays = own.arrays;
		h->average = own.average;
	}
	if (mend & 2 && bytes % sizeof(float) == 0) {
		h->hash = 0;
		h->hash = train_hash(h, sizeof(*h)) ^ train_hash(values, bytes);
	}
}

static FILE *make_file(unsigned mend, const uint8_t *data, size_t bytes)
{
	int fd = memfd_create("checkpoint", MFD_CLOEXEC);
	FILE *f = fdopen(fd, "w+e");
	struct checkpoint_header h;

	must(f, "a file in memory");
	if (bytes >= sizeof(h)) {
		memcpy(&h, data, sizeof(h));
		data += sizeof(h);
		bytes -= sizeof(h);
		mend_header(&h, mend, data, bytes);
		must(fwrite(&h, sizeof(h), 1, f) == 1, "a header is written");
	}
	must(fwrite(data, 1, bytes, f) == bytes, "values are written");
	rewind(f);
	return f;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct checkpoint_header h;
	float *values = NULL;
	FILE *f;
	int rc;

	if (!bytes)
		return 0;
	f = make_file(data[0], data + 1, bytes - 1);
	rc = read_header("file", f, &want, &h);
	if (!rc) {
		must(h.parameters == PARAMETERS, "a header of another model is refused");
		rc = read_values("file", f, &h, &values);
	}
	if (!rc)
		must(bytes - 1 == sizeof(h) + values_of(&h) * sizeof(float),
		     "the file has the values that its header says");
	must(rc == TRAIN_OK || rc == TRAIN_USAGE, "a bad file is an error of use");
	free(values);
	fclose(f);
	return 0;
}

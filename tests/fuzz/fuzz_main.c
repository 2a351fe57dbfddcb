/*
 * fuzz_main.c - drives a fuzzer's LLVMFuzzerTestOneInput where the compiler has no libFuzzer
 *
 * Linked into each tests/fuzz/fuzz_*.c unless configured with --enable-fuzzers. Takes the part of
 * libFuzzer's command line that tests/tiers uses: -max_total_time=SECONDS, -runs=N, and files or
 * folders whose files are fed first and then mutated. The seed is fixed, so failures are
 * reproducible.
 */
#include "base/base.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LARGEST = 4096, INPUTS = 256 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static struct input { uint8_t *data; size_t bytes; } inputs[INPUTS];
static int ninputs;
static uint64_t state = 0x9e3779b97f4a7c15u;

static uint64_t next_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

/* Feed from memory of exactly this size, so that a sanitizer sees a read past the end. */
static void feed(const uint8_t *data, size_t bytes)
{
	uint8_t *copy = malloc(bytes ? bytes : 1);

	if (!copy)
		abort();
	memcpy(copy, data, bytes);
	LLVMFuzzerTestOneInput(copy, bytes);
	free(copy);
}

static void read_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	struct input *in = &inputs[ninputs];

	if (!file || ninputs == INPUTS)
		goto close_file;
	in->data = malloc(LARGEST);
	if (!in->data)
		abort();
	in->bytes = fread(in->data, 1, LARGEST, file);
	feed(in->data, in->bytes);
	ninputs++;
close_file:
	if (file)
		fclose(file);
}

static void read_path(const char *path)
{
	struct dirent **names;
	struct stat st;
	int n;

	if (stat(path, &st) || !S_ISDIR(st.st_mode)) {
		read_file(path);
		return;
	}
	n = scandir(path, &names, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		char file[4096];

		snprintf(file, sizeof(file), "%s/%s", path, names[i]->d_name);
		if (names[i]->d_name[0] != '.')
			read_file(file);
		free(names[i]);
	}
	if (n >= 0)
		free(names);
}

/* Random bytes, or a known input with a few bytes changed, in some cases truncated. */
static size_t make_input(uint8_t data[LARGEST])
{
	size_t bytes = next_random() % (next_random() % 8 ? 64 : LARGEST);

	for (size_t i = 0; i < bytes; i++)
		data[i] = (uint8_t)(next_random() >> 32);
	if (ninputs && next_random() % 8) {
		const struct input *in = &inputs[next_random() % (uint64_t)ninputs];

		memcpy(data, in->data, in->bytes);
		bytes = next_random() % 4 ? in->bytes : next_random() % (in->bytes + 1);
		for (int i = (int)(next_random() % 6); i > 0 && bytes; i--)
			data[next_random() % bytes] = (uint8_t)(next_random() >> 32);
	}
	return bytes;
}

int main(int argc, char **argv)
{
	static uint8_t data[LARGEST];
	unsigned long runs = 20000, seconds = 0, done = 0;
	uint64_t end;

	for (int i = 1; i < argc; i++)
		if (sscanf(argv[i], "-max_total_time=%lu", &seconds) != 1 &&
		    sscanf(argv[i], "-runs=%lu", &runs) != 1 && argv[i][0] != '-')
			read_path(argv[i]);
	end = tt_now_ns() + seconds * 1000000000ull;
	for (; seconds ? tt_now_ns() < end : done < runs; done++)
		feed(data, make_input(data));
	for (int i = 0; i < ninputs; i++)
		free(inputs[i].data);
	printf("fuzzed: %d inputs, then %lu random ones\n", ninputs, done);
	return 0;
}

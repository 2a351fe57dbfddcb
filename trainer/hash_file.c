/* hash_file.c - write and continue the file of --hashes (hash_file.h) */
#include "trainer/hash_file.h"

#include "tools/hashes.h"
#include "trainer/replicas.h"
#include "trainer/strategy/strategy.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes of the header and of the whole records up to step `newest`, the last one of *ret_last. -1: another file */
static off_t find_end(FILE *file, uint64_t parameters, uint64_t newest, uint64_t *ret_last)
{
	uint64_t hashes = tool_hashes_buckets(parameters, TOOL_HASHES_BUCKET) * sizeof(uint64_t);
	struct tool_hashes_header head;
	struct tool_hashes_step step;
	struct stat st;
	off_t end = sizeof(head), next;

	if (fread(&head, sizeof(head), 1, file) != 1 || head.magic != TOOL_HASHES_MAGIC ||
	    head.parameters != parameters || head.bucket != TOOL_HASHES_BUCKET ||
	    fstat(fileno(file), &st))
		return -1;
	for (; fread(&step, sizeof(step), 1, file) == 1 && step.step <= newest; end = next) {
		next = end + (off_t)(sizeof(step) + hashes +
				     (step.values ? parameters * sizeof(float) : 0));
		if (next > st.st_size || fseeko(file, next, SEEK_SET))
			break;
		*ret_last = step.step;
	}
	return end;
}

/* A file without bytes, a pipe or a device has nothing to continue. */
static bool has_records(FILE *file)
{
	struct stat st;

	return !fstat(fileno(file), &st) && S_ISREG(st.st_mode) && st.st_size;
}

/* The record of step `newest`, whose parameters this rank has: the rank that was to write it may have died before. A
 * worker that is handed shares has parameters of no step in common. */
static void add_newest(FILE *file, struct train_rank *t, const char *path, bool continued,
		       uint64_t newest, uint64_t *last)
{
	if (*last >= newest || t->strategy->ask)
		return;
	if (continued && !*last && newest > 1)
		fprintf(stderr,
			"tutti-train: --hashes %s: the records begin with step %" PRIu64
			"; those before are missing\n",
			path, newest);
	else if (continued && *last + 1 < newest)
		fprintf(stderr,
			"tutti-train: --hashes %s: the records end with step %" PRIu64
			" and go on with step %" PRIu64 "; those between are missing\n",
			path, *last, newest);
	train_hash_file_write(file, t, newest);
	*last = newest;
}

int train_hash_file_open(struct train_rank *t, const char *path, uint64_t newest, FILE **ret_file,
			 uint64_t *ret_last)
{
	struct tool_hashes_header head = { TOOL_HASHES_MAGIC, t->model.parameters,
					   TOOL_HASHES_BUCKET };
	int fd = open(path, O_CREAT | O_CLOEXEC | (newest ? O_RDWR : O_WRONLY | O_TRUNC), 0666);
	FILE *file = fd < 0 ? NULL : fdopen(fd, newest ? "r+" : "w");
	off_t end;

	*ret_last = 0;
	if (fd >= 0 && !file)
		close(fd);
	if (!file)
		return train_fail(TRAIN_USAGE, "--hashes %s: %m; give a file that can be written",
				  path);
	if (!newest || !has_records(file)) {
		fwrite(&head, sizeof(head), 1, file);
		add_newest(file, t, path, false, newest, ret_last);
		*ret_file = file;
		return TRAIN_OK;
	}
	end = find_end(file, head.parameters, newest, ret_last);
	if (end < 0 || ftruncate(fd, end) || fseeko(file, end, SEEK_SET)) {
		fclose(file);
		return train_fail(TRAIN_USAGE,
				  "--hashes %s: no file of hashes of %zu parameters, which this "
				  "training could continue; give another",
				  path, t->model.parameters);
	}
	add_newest(file, t, path, true, newest, ret_last);
	*ret_file = file;
	return TRAIN_OK;
}

void train_hash_file_write(FILE *to, struct train_rank *t, uint64_t step)
{
	struct tool_hashes_step head = { step, step == (uint64_t)t->config->hash_values };
	size_t count = t->model.parameters;
	const float *at = train_parameters_download(t);

	fwrite(&head, sizeof(head), 1, to);
	for (size_t i = 0; i < count; i += TOOL_HASHES_BUCKET) {
		size_t wide = count - i < TOOL_HASHES_BUCKET ? count - i : TOOL_HASHES_BUCKET;
		uint64_t hash = train_hash(at + i, wide * sizeof(*at));

		fwrite(&hash, sizeof(hash), 1, to);
	}
	if (head.values)
		fwrite(at, sizeof(*at), count, to);
	fflush(to);
}

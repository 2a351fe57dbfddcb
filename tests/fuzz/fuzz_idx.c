/*
 * fuzz_idx.c - arbitrary bytes as an IDX file, plain or gzipped: read right or refused with a text
 *
 * The first byte is the number of requested dimensions; the other bytes are the file.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "trainer/base/fail.h"
#include "trainer/data/idx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void need(int claim)
{
	if (!claim)
		abort();
}

/* The result must agree with the bytes of a plain file. */
static void compare(const struct train_idx *idx, unsigned dims, const uint8_t *file, size_t bytes)
{
	uint64_t product = 1;

	for (unsigned d = 0; d < dims; d++) {
		need(idx->dim[d] > 0);
		product *= idx->dim[d];
	}
	need(idx->dims == dims && idx->bytes == product);
	if (bytes >= 2 && file[0] == 0x1f && file[1] == 0x8b)
		return;
	need(bytes == 4 + 4 * dims + idx->bytes);
	need(!memcmp(idx->at, file + 4 + 4 * dims, idx->bytes));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	unsigned dims;
	struct train_idx idx = { 0 };
	int fd;

	if (bytes < 1)
		return 0;
	dims = 1 + data[0] % TRAIN_IDX_DIMS_MAX;
	fd = memfd_create("fuzz", 0);
	need(fd >= 0 && write(fd, data + 1, bytes - 1) == (ssize_t)(bytes - 1));
	lseek(fd, 0, SEEK_SET);
	if (train_idx_read_fd(fd, "fuzz", dims, &idx)) {
		need(!strncmp(train_error(), "fuzz: ", 6) && !idx.at);
		return 0;
	}
	compare(&idx, dims, data + 1, bytes - 1);
	train_idx_below(&idx, "fuzz", 10);
	free(idx.at);
	return 0;
}

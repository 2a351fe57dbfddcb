/*
 * idx.h - reader of IDX files, plain or gzipped: the format of MNIST and similar sets
 *
 * A file is four bytes (0, 0, element type, number of dimensions), the dimensions as big-endian
 * 32-bit numbers, then the elements, and nothing after them. Only unsigned bytes (type 8) are read.
 * Called by data_fashion.c and the fuzzer.
 */
#ifndef TRAIN_IDX_H
#define TRAIN_IDX_H

#include <stddef.h>
#include <stdint.h>

enum { TRAIN_IDX_DIMS_MAX = 4 };
#define TRAIN_IDX_BYTES_MAX (UINT64_C(1) << 30) /* larger files are refused */

struct train_idx {
	unsigned dims;
	uint32_t dim[TRAIN_IDX_DIMS_MAX];
	size_t bytes; /* product of dim */
	uint8_t *at;  /* freed by the caller */
};

/* train_idx_read - read and validate a whole file
 *
 *   dims      required number of dimensions; none of them may be 0
 *   Returns   0 | TRAIN_FAILED: the error names the file and the fault; a short file, excess bytes
 *             and a damaged gzip stream are errors
 *
 * Memory grows with the bytes that the file holds, independent of the sizes in its header. */
int train_idx_read(const char *path, unsigned dims, struct train_idx *ret_idx);

/* Reads and validates the header alone; ret_idx->at is NULL. Returns as above. */
int train_idx_read_sizes(const char *path, unsigned dims, struct train_idx *ret_idx);

/* train_idx_each - read the parts of the first dimension one after the other, and keep none
 *
 *   count     required size of the first dimension
 *   place     returns the memory for part i, or NULL: it is skipped
 *   done      part i is in the memory that place returned; not called for others
 *   Returns   as train_idx_read */
int train_idx_each(const char *path, unsigned dims, size_t count,
		   uint8_t *(*place)(void *arg, size_t i), void (*done)(void *arg, size_t i),
		   void *arg);

/* The same as train_idx_read for an open file; closes fd. `name` is for error texts. */
int train_idx_read_fd(int fd, const char *name, unsigned dims, struct train_idx *ret_idx);

/* Checks that all elements are below `bound`. Returns 0 | TRAIN_FAILED: the error names the first
 * element that is not. */
int train_idx_below(const struct train_idx *idx, const char *name, unsigned bound);

#endif

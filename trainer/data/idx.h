/*
 * idx.h - reader of IDX files, plain or gzipped: the format of MNIST and its likes
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

/* Reads a file that must have `dims` dimensions, none of them 0. The whole file is judged: a short
 * one, one with bytes left over and a damaged gzip stream are errors. Memory grows with what the
 * file really holds, whatever its header says. Returns 0 | TRAIN_FAILED with a sentence that
 * names the file and what is wrong with it. */
int train_idx_read(const char *path, unsigned dims, struct train_idx *ret_idx);

/* The same from an open file, which is closed; `name` is for sentences. */
int train_idx_read_fd(int fd, const char *name, unsigned dims, struct train_idx *ret_idx);

/* Are all elements below `bound`? Returns 0 | TRAIN_FAILED with a sentence that names the first
 * that is not. */
int train_idx_below(const struct train_idx *idx, const char *name, unsigned bound);

#endif

/* idx.c - reader of IDX files, plain or gzipped (idx.h); zlib's gz functions read both */
#include "trainer/data/idx.h"

#include "trainer/base/fail.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { TYPE_UNSIGNED_BYTE = 8, FIRST_BYTES = 1 << 20 };

struct idx_stream {
	gzFile gz;
	const char *name;
};

/* Reads `bytes` bytes; *ret_got is smaller at the end of the file only. */
static int read_some(struct idx_stream *f, void *to, size_t bytes, size_t *ret_got)
{
	int got, code;
	const char *text;

	for (*ret_got = 0; *ret_got < bytes; *ret_got += (size_t)got) {
		size_t left = bytes - *ret_got;

		got = gzread(f->gz, (char *)to + *ret_got,
			     left < 1 << 20 ? (unsigned)left : 1 << 20);
		if (got <= 0)
			break;
	}
	text = gzerror(f->gz, &code);
	if (code == Z_ERRNO)
		return train_fail(TRAIN_FAILED, "%s: cannot be read: %m", f->name);
	if (code != Z_OK && code != Z_STREAM_END)
		return train_fail(TRAIN_USAGE, "%s: the gzip stream is damaged: %s", f->name, text);
	return TRAIN_OK;
}

static uint32_t big_endian(const uint8_t *at)
{
	return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static int read_header(struct idx_stream *f, unsigned dims, struct train_idx *idx)
{
	uint8_t head[4 + 4 * TRAIN_IDX_DIMS_MAX];
	size_t want = 4 + 4 * (size_t)dims, got;
	uint64_t bytes = 1;
	int rc = read_some(f, head, want, &got);

	if (rc)
		return rc;
	if (got >= 4 && (head[0] || head[1]))
		return train_fail(TRAIN_USAGE,
				  "%s: not an IDX file: it begins with %02x %02x, not 00 00",
				  f->name, head[0], head[1]);
	if (got >= 4 && head[2] != TYPE_UNSIGNED_BYTE)
		return train_fail(
			TRAIN_USAGE,
			"%s: elements of type 0x%02x; only unsigned bytes (0x08) are supported",
			f->name, head[2]);
	if (got >= 4 && head[3] != dims)
		return train_fail(TRAIN_USAGE, "%s: %u dimensions where %u are needed", f->name,
				  head[3], dims);
	if (got < want)
		return train_fail(TRAIN_USAGE, "%s: ends within its header, after %zu of %zu bytes",
				  f->name, got, want);
	for (unsigned d = 0; d < dims; d++) {
		idx->dim[d] = big_endian(head + 4 + 4 * d);
		if (!idx->dim[d])
			return train_fail(TRAIN_USAGE, "%s: dimension %u is 0", f->name, d);
		/* both factors are below 2^32: no overflow before the check */
		bytes *= idx->dim[d];
		if (bytes > TRAIN_IDX_BYTES_MAX)
			return train_fail(TRAIN_USAGE,
					  "%s: more than %llu bytes, the supported maximum",
					  f->name, (unsigned long long)TRAIN_IDX_BYTES_MAX);
	}
	idx->dims = dims;
	idx->bytes = (size_t)bytes;
	return TRAIN_OK;
}

/* The stream ends here. */
static int read_end(struct idx_stream *f, const struct train_idx *idx)
{
	uint8_t extra;
	size_t got;
	int rc = read_some(f, &extra, 1, &got);

	if (!rc && got)
		rc = train_fail(TRAIN_USAGE,
				"%s: holds more than the %zu bytes of data of its header", f->name,
				idx->bytes);
	return rc;
}

static int read_elements(struct idx_stream *f, struct train_idx *idx)
{
	size_t capacity = 0, used = 0, got;
	int rc;

	do {
		uint8_t *more;

		capacity = capacity ? 2 * capacity : FIRST_BYTES;
		capacity = capacity < idx->bytes ? capacity : idx->bytes;
		more = realloc(idx->at, capacity);
		if (!more)
			return train_fail(TRAIN_FAILED, "%s: no memory for %zu bytes", f->name,
					  capacity);
		idx->at = more;
		rc = read_some(f, idx->at + used, capacity - used, &got);
		if (rc)
			return rc;
		used += got;
	} while (used == capacity && capacity < idx->bytes);
	if (used < idx->bytes)
		return train_fail(TRAIN_USAGE,
				  "%s: ends after %zu of %zu bytes of data; the file is truncated",
				  f->name, used, idx->bytes);
	return read_end(f, idx);
}

int train_idx_read_fd(int fd, const char *name, unsigned dims, struct train_idx *ret_idx)
{
	struct idx_stream f = { gzdopen(fd, "rb"), name };
	struct train_idx idx = { 0 };
	int rc;

	if (!f.gz) {
		close(fd);
		return train_fail(TRAIN_FAILED, "%s: no memory to read it", name);
	}
	errno = 0;
	rc = read_header(&f, dims, &idx);
	if (!rc)
		rc = read_elements(&f, &idx);
	gzclose(f.gz);
	if (rc)
		free(idx.at);
	else
		*ret_idx = idx;
	return rc;
}

int train_idx_read(const char *path, unsigned dims, struct train_idx *ret_idx)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return train_fail(TRAIN_USAGE, "%s: %m", path);
	return train_idx_read_fd(fd, path, dims, ret_idx);
}

/* ---- without keeping it ------------------------------------------------------------------------- */

/* Opens a file and reads its header. Close f->gz in any case. */
static int open_stream(struct idx_stream *f, const char *path, unsigned dims, struct train_idx *idx)
{
	*f = (struct idx_stream){ gzopen(path, "rbe"), path };
	*idx = (struct train_idx){ 0 };
	if (!f->gz)
		return train_fail(TRAIN_USAGE, "%s: %m", path);
	errno = 0;
	return read_header(f, dims, idx);
}

int train_idx_read_sizes(const char *path, unsigned dims, struct train_idx *ret_idx)
{
	struct idx_stream f;
	int rc = open_stream(&f, path, dims, ret_idx);

	if (f.gz)
		gzclose(f.gz);
	return rc;
}

static int read_part(struct idx_stream *f, const struct train_idx *idx, size_t i, uint8_t *to)
{
	size_t bytes = idx->bytes / idx->dim[0], got;
	int rc = read_some(f, to, bytes, &got);

	if (!rc && got < bytes)
		rc = train_fail(TRAIN_USAGE,
				"%s: ends after %zu of %zu bytes of data; the file is truncated",
				f->name, i * bytes + got, idx->bytes);
	return rc;
}

int train_idx_each(const char *path, unsigned dims, size_t count,
		   uint8_t *(*place)(void *arg, size_t i), void (*done)(void *arg, size_t i),
		   void *arg)
{
	struct idx_stream f;
	struct train_idx idx;
	uint8_t *skipped = NULL;
	int rc = open_stream(&f, path, dims, &idx);

	if (!rc && idx.dim[0] != count)
		rc = train_fail(TRAIN_USAGE, "%s: %u parts where there were %zu before", path,
				idx.dim[0], count);
	if (!rc && !(skipped = malloc(idx.bytes / count)))
		rc = train_fail(TRAIN_FAILED, "%s: no memory for %zu bytes", path,
				idx.bytes / count);
	for (size_t i = 0; i < count && !rc; i++) {
		uint8_t *to = place(arg, i);

		rc = read_part(&f, &idx, i, to ? to : skipped);
		if (!rc && to)
			done(arg, i);
	}
	if (!rc)
		rc = read_end(&f, &idx);
	free(skipped);
	if (f.gz)
		gzclose(f.gz);
	return rc;
}

int train_idx_below(const struct train_idx *idx, const char *name, unsigned bound)
{
	for (size_t i = 0; i < idx->bytes; i++)
		if (idx->at[i] >= bound)
			return train_fail(TRAIN_USAGE, "%s: label %u of sample %zu is not below %u",
					  name, idx->at[i], i, bound);
	return TRAIN_OK;
}

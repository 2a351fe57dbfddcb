/*
 * device_host_planes.c - convolutions and pooling in host memory (device.h, device_host.h)
 *
 * A convolution is a matrix product with patches (im2col). A line of patches is the image
 * shifted by (dy, dx), so unfold copies it as a whole and clears what came from beyond an edge.
 */
#include "trainer/device/device_host.h"

#include <string.h>

/* The columns first..last-1 of a row that stay inside the image after a shift. */
struct column_range {
	size_t first, last;
};

static struct column_range columns_inside(size_t side, long by)
{
	size_t cut = (size_t)(by < 0 ? -by : by);

	cut = cut < side ? cut : side;
	return by < 0 ? (struct column_range){ cut, side } : (struct column_range){ 0, side - cut };
}

/* The image, moved as a whole; then what came from beyond its edges is 0. */
static void unfold_image(size_t side, long down, long right, const float *image, float *line)
{
	struct column_range columns = columns_inside(side, right),
			    rows = columns_inside(side, down);
	long shift = down * (long)side + right, n = (long)(side * side);
	long first = shift < 0 ? -shift : 0, last = shift > 0 ? n - shift : n;

	if (first < last)
		memcpy(line + first, image + first + shift, (size_t)(last - first) * sizeof(*line));
	memset(line, 0, rows.first * side * sizeof(*line));
	memset(line + rows.last * side, 0, (side - rows.last) * side * sizeof(*line));
	for (size_t y = rows.first; y < rows.last; y++) {
		for (size_t x = 0; x < columns.first; x++)
			line[y * side + x] = 0.0f;
		for (size_t x = columns.last; x < side; x++)
			line[y * side + x] = 0.0f;
	}
}

void train_host_unfold(struct train_device *d, struct train_planes p, size_t window, const float *x,
		       float *patches)
{
	long reach = (long)window / 2;
	size_t image = p.side * p.side;

	(void)d;
	for (size_t plane = 0; plane < p.planes; plane++)
		for (long down = -reach; down <= reach; down++)
			for (long right = -reach; right <= reach; right++)
				for (size_t row = 0; row < p.rows; row++, patches += image)
					unfold_image(p.side, down, right,
						     x + (row * p.planes + plane) * image, patches);
	for (size_t i = 0; i < p.rows * image; i++)
		patches[i] = 1.0f;
}

static void fold_image(size_t side, long down, long right, const float *line, float *image)
{
	struct column_range columns = columns_inside(side, right);

	for (long y = 0; y < (long)side; y++, line += side) {
		float *to = image + (y + down) * (long)side + right;

		if (y + down < 0 || y + down >= (long)side)
			continue;
		for (size_t x = columns.first; x < columns.last; x++)
			to[x] += line[x];
	}
}

void train_host_fold(struct train_device *d, struct train_planes p, size_t window,
		     const float *patches, float *x)
{
	long reach = (long)window / 2;
	size_t image = p.side * p.side;

	(void)d;
	memset(x, 0, p.rows * p.planes * image * sizeof(*x));
	for (size_t plane = 0; plane < p.planes; plane++)
		for (long down = -reach; down <= reach; down++)
			for (long right = -reach; right <= reach; right++)
				for (size_t row = 0; row < p.rows; row++, patches += image)
					fold_image(p.side, down, right, patches,
						   x + (row * p.planes + plane) * image);
}

/* ---- pooling -------------------------------------------------------------------------------- */

/* Without branches, which data would decide */
static void pool_line(size_t half, const float *upper, const float *lower, float *x,
		      uint8_t *argmax)
{
	for (size_t j = 0; j < half; j++, upper += 2, lower += 2) {
		const float four[3] = { upper[1], lower[0], lower[1] };
		float most = upper[0];
		unsigned best = 0;

		for (unsigned k = 0; k < 3; k++) {
			best = four[k] > most ? k + 1 : best;
			most = four[k] > most ? four[k] : most;
		}
		argmax[j] = (uint8_t)(most > 0.0f ? best : 4);
		x[j] = most > 0.0f ? most : 0.0f;
	}
}

void train_host_pool(struct train_device *d, struct train_planes p, const float *y, float *x,
		     uint8_t *argmax)
{
	size_t half = p.side / 2;

	(void)d;
	for (size_t i = 0; i < p.rows * p.planes; i++) {
		size_t row = i / p.planes, plane = i % p.planes;
		const float *from = y + (plane * p.rows + row) * p.side * p.side;

		for (size_t j = 0; j < half; j++, x += half, argmax += half, from += 2 * p.side)
			pool_line(half, from, from + p.side, x, argmax);
	}
}

void train_host_pool_back(struct train_device *d, struct train_planes p, const float *dx,
			  const uint8_t *argmax, float *dy)
{
	size_t half = p.side / 2;

	(void)d;
	memset(dy, 0, p.rows * p.planes * p.side * p.side * sizeof(*dy));
	for (size_t i = 0; i < p.rows * p.planes; i++) {
		size_t row = i / p.planes, plane = i % p.planes;
		float *to = dy + (plane * p.rows + row) * p.side * p.side;

		for (size_t j = 0; j < half * half; j++, dx++, argmax++)
			if (*argmax < 4)
				to[(j / half * 2 + *argmax / 2) * p.side + j % half * 2 +
				   *argmax % 2] = *dx;
	}
}

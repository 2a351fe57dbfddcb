/*
 * device_host_planes.c - convolutions and pooling in host memory (device.h, device_host.h)
 *
 * convolution.c has convolutions without patches. With patches (im2col), for devices that compute
 * like this one, a convolution is a matrix product: a line of patches is the image shifted by (dy,
 * dx), so unfold copies it as a whole and clears what came from beyond an edge.
 */
#include "trainer/device/convolution.h"
#include "trainer/device/device_host.h"
#include "trainer/device/host_loops.h"

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

/* Four pooled pixels */
typedef float four __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t four_ints __attribute__((vector_size(16)));
typedef uint8_t four_bytes __attribute__((vector_size(4), aligned(1), may_alias));

static four even(four a, four b)
{
	return __builtin_shufflevector(a, b, 0, 2, 4, 6);
}

static four odd(four a, four b)
{
	return __builtin_shufflevector(a, b, 1, 3, 5, 7);
}

/* Without branches, which data would decide */
static void pool_four(const float *upper, const float *lower, float *x, uint8_t *argmax)
{
	four u[2] = { *(const four *)upper, *(const four *)(upper + 4) };
	four l[2] = { *(const four *)lower, *(const four *)(lower + 4) };
	const four other[3] = { odd(u[0], u[1]), even(l[0], l[1]), odd(l[0], l[1]) };
	four most = even(u[0], u[1]);
	four_ints best = { 0 }, positive;

	for (int k = 0; k < 3; k++) {
		four_ints more = other[k] > most;

		best = (more & (k + 1)) | (~more & best);
		most = (four)((more & (four_ints)other[k]) | (~more & (four_ints)most));
	}
	positive = most > 0.0f;
	best = (positive & best) | (~positive & 4);
	*(four_bytes *)argmax = __builtin_convertvector(best, four_bytes);
	*(four *)x = (four)(positive & (four_ints)most);
}

static void pool_one(const float *upper, const float *lower, float *x, uint8_t *argmax)
{
	const float pixel[4] = { upper[0], upper[1], lower[0], lower[1] };
	uint8_t best = 0;

	for (uint8_t k = 1; k < 4; k++)
		best = pixel[k] > pixel[best] ? k : best;
	*argmax = pixel[best] > 0.0f ? best : 4;
	*x = pixel[best] > 0.0f ? pixel[best] : 0.0f;
}

/* The last four may overlap those before. */
static void pool_line(size_t half, const float *upper, const float *lower, float *x,
		      uint8_t *argmax)
{
	if (half < 4)
		for (size_t j = 0; j < half; j++)
			pool_one(upper + 2 * j, lower + 2 * j, x + j, argmax + j);
	for (size_t j = 0; half >= 4 && j < half; j += 4) {
		size_t at = j + 4 <= half ? j : half - 4;

		pool_four(upper + 2 * at, lower + 2 * at, x + at, argmax + at);
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

/* ---- convolutions without patches ----------------------------------------------------------- */

static const struct train_convolution_kernels *kernels(void)
{
	const struct train_convolution_kernels *k = train_convolution_of(train_host_loops()->isa);

	return k ? k : train_convolution_of(NULL);
}

void train_host_convolve(struct train_device *d, const struct train_convolution *c, const float *x,
			 const float *weights, float *scratch, float *y)
{
	(void)d;
	train_convolve(kernels(), c, x, weights, scratch, y);
}

void train_host_convolve_back_input(struct train_device *d, const struct train_convolution *c,
				    const float *dpool, const uint8_t *argmax, const float *weights,
				    float *scratch, float *dx)
{
	(void)d;
	train_convolve_back_input(kernels(), c, dpool, argmax, weights, scratch, dx);
}

void train_host_convolve_back_weights(struct train_device *d, const struct train_convolution *c,
				      const float *x, const float *dpool, const uint8_t *argmax,
				      float *scratch, float *gradients)
{
	(void)d;
	train_convolve_back_weights(kernels(), c, x, dpool, argmax, scratch, gradients);
}

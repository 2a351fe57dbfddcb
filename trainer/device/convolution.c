/*
 * convolution.c - direct convolutions of 5 x 5 in host memory (convolution.h)
 *
 * One image after the other is given a border of zeros, so that the kernels (convolution_isa.h) need no
 * cases at its edges and all their data stays in the cache. Lanes of a vector are neighboring pixels, but
 * planes for gradients of weights: each of those is one chain over all pixels.
 *
 * A new instruction set is one more inclusion of convolution_isa.h and one row of `isas`.
 */
#include "trainer/device/convolution.h"
#include "trainer/device/isa.h"

#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { REACH = TRAIN_WINDOW / 2, TAPS = TRAIN_WINDOW * TRAIN_WINDOW };
enum { PANEL_MOST = 8, LANES_MOST = 16 };

/* Floats of a row, and of a plane, of an image with its border */
#define ROW(side) ((side) + 2 * REACH)
#define PLANE(side) (ROW(side) * ROW(side))

/* ---- kernels -------------------------------------------------------------------------------- */

#if defined(__x86_64__)
#define KERNEL(name) name##_avx512
#define KERNEL_TARGET __attribute__((target("avx512f")))
#define KERNEL_ISA "avx512"
#define VEC __m512
#define LANES 16
#define PANEL 8
#define TAP_ROWS 5
#define LOAD _mm512_loadu_ps
#define STORE _mm512_storeu_ps
#define STORE_SOME(at, n, v) _mm512_mask_storeu_ps(at, (__mmask16)((1u << (n)) - 1), v)
#define SPLAT _mm512_set1_ps
#define FMA _mm512_fmadd_ps
#define ADD _mm512_add_ps
#include "trainer/device/convolution_isa.h"

/* The first n of eight lanes */
__attribute__((target("avx2"))) static inline __m256i first_lanes(size_t n)
{
	return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n),
				  _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

#define KERNEL(name) name##_avx2
#define KERNEL_TARGET __attribute__((target("avx2,fma")))
#define KERNEL_ISA "avx2"
#define VEC __m256
#define LANES 8
#define PANEL 4
#define TAP_ROWS 2
#define LOAD _mm256_loadu_ps
#define STORE _mm256_storeu_ps
#define STORE_SOME(at, n, v) _mm256_maskstore_ps(at, first_lanes(n), v)
#define SPLAT _mm256_set1_ps
#define FMA _mm256_fmadd_ps
#define ADD _mm256_add_ps
#include "trainer/device/convolution_isa.h"
#endif

static inline float add_one(float a, float b)
{
	return a + b;
}

#define KERNEL(name) name##_scalar
#define KERNEL_TARGET
#define KERNEL_ISA "scalar"
#define VEC float
#define LANES 1
#define PANEL 4
#define TAP_ROWS 2
#define LOAD load_one
#define STORE store_one
#define STORE_SOME(at, n, v) store_one(at, v)
#define SPLAT(x) (x)
#define FMA __builtin_fmaf
#define ADD add_one
#include "trainer/device/convolution_isa.h"

/* best first */
static const struct convolution_isa {
	const struct train_convolution_kernels *kernels;
	bool (*present)(void);
} isas[] = {
#if defined(__x86_64__)
	{ &kernels_avx512, has_avx512 },
	{ &kernels_avx2, has_avx2 },
#endif
	{ &kernels_scalar, has_scalar },
};

const struct train_convolution_kernels *train_convolution_of(const char *isa)
{
	for (size_t i = 0; i < sizeof(isas) / sizeof(isas[0]); i++)
		if ((!isa || !strcmp(isa, isas[i].kernels->isa)) && isas[i].present())
			return isas[i].kernels;
	return NULL;
}

/* ---- scratch memory ------------------------------------------------------------------------- */

static size_t round_up(size_t value, size_t unit)
{
	return (value + unit - 1) / unit * unit;
}

/* Floats of images with borders, and of what vectors may read behind them. */
static size_t bordered(size_t planes, size_t side)
{
	return round_up(planes * PLANE(side) + ROW(side) + LANES_MOST, LANES_MOST);
}

static size_t lines_of(const struct train_convolution *c)
{
	return c->from * TAPS + 1;
}

size_t train_convolution_scratch(const struct train_convolution *c)
{
	size_t most = c->from > c->to ? c->from : c->to;
	size_t weights = PANEL_MOST * lines_of(c), input = PANEL_MOST * TAPS * c->to;
	size_t gradients = LANES_MOST * (c->side * c->side + lines_of(c));

	weights = weights > input ? weights : input;
	return bordered(most, c->side) + round_up(weights > gradients ? weights : gradients, 16);
}

/* ---- forward -------------------------------------------------------------------------------- */

/* Copies the image to the middle of `to`, whose borders are zero. */
static void put_image(size_t planes, size_t side, const float *image, float *to)
{
	for (size_t p = 0; p < planes; p++, to += PLANE(side))
		for (size_t y = 0; y < side; y++, image += side)
			memcpy(to + (y + REACH) * ROW(side) + REACH, image, side * sizeof(*to));
}

/* Planes of the panel from `first` on, of `planes`. */
static size_t panel_of(const struct train_convolution_kernels *k, size_t planes, size_t first)
{
	return planes - first < k->panel ? planes - first : k->panel;
}

void train_convolve(const struct train_convolution_kernels *k, const struct train_convolution *c,
		    const float *x, const float *weights, float *scratch, float *y)
{
	size_t lines = c->lines ? c->lines : lines_of(c), image = c->side * c->side;
	size_t last = c->from * TAPS, row_floats = (c->planes ? c->planes : c->from) * image;
	float *bordered_x = scratch, *w = scratch + bordered(c->from, c->side);

	memset(bordered_x, 0, bordered(c->from, c->side) * sizeof(*bordered_x));
	for (size_t first = 0; first < c->to; first += k->panel) {
		size_t planes = panel_of(k, c->to, first);

		memset(w, 0, lines_of(c) * k->panel * sizeof(*w));
		for (size_t i = 0; i < planes; i++) {
			const float *own = weights + (first + i) * lines;

			for (size_t line = 0; line < last; line++)
				w[line * k->panel + i] = own[line];
			w[last * k->panel + i] = c->no_bias ? 0.0f : own[lines - 1];
		}
		for (size_t row = 0; row < c->rows; row++) {
			put_image(c->from, c->side, x + row * row_floats, bordered_x);
			k->forward(c, bordered_x, w, planes, y + (first * c->rows + row) * image,
				   c->rows * image);
		}
	}
}

/* ---- backward ------------------------------------------------------------------------------- */

/* Puts the gradient of each pooled pixel where the maximum was: to[plane * plane_stride + y *
 * row_stride + x * column_stride], all others of which are zero. */
static void unpool(const struct train_convolution *c, size_t first, size_t planes,
		   const float *dpool, const uint8_t *argmax, size_t plane_stride,
		   size_t row_stride, size_t column_stride, float *to)
{
	size_t half = c->side / 2;
	const size_t offset[5] = { 0, column_stride, row_stride, row_stride + column_stride, 0 };

	dpool += first * half * half;
	argmax += first * half * half;
	for (size_t p = 0; p < planes; p++, to += plane_stride)
		for (size_t y = 0; y < half; y++)
			for (size_t x = 0; x < half; x++, dpool++, argmax++)
				to[2 * y * row_stride + 2 * x * column_stride + offset[*argmax]] =
					*argmax < 4 ? *dpool : 0.0f;
}

void train_convolve_back_input(const struct train_convolution_kernels *k,
			       const struct train_convolution *c, const float *dpool,
			       const uint8_t *argmax, const float *weights, float *scratch,
			       float *dx)
{
	size_t lines = lines_of(c), side = c->side, pooled = c->to * (side / 2) * (side / 2);
	float *dy = scratch, *w = scratch + bordered(c->to, side);

	for (size_t first = 0; first < c->from; first += k->panel) {
		size_t planes = panel_of(k, c->from, first);

		memset(w, 0, TAPS * c->to * k->panel * sizeof(*w));
		for (size_t i = 0; i < planes; i++)
			for (size_t tap = 0; tap < TAPS; tap++)
				for (size_t o = 0; o < c->to; o++)
					w[(tap * c->to + o) * k->panel + i] =
						weights[o * lines + (first + i) * TAPS + tap];
		for (size_t row = 0; row < c->rows; row++) {
			memset(dy, 0, bordered(c->to, side) * sizeof(*dy));
			unpool(c, 0, c->to, dpool + row * pooled, argmax + row * pooled,
			       PLANE(side), ROW(side), 1, dy + REACH * ROW(side) + REACH);
			k->back_input(c, dy, w, planes, dx + (row * c->from + first) * side * side);
		}
	}
}

void train_convolve_back_weights(const struct train_convolution_kernels *k,
				 const struct train_convolution *c, const float *x,
				 const float *dpool, const uint8_t *argmax, float *scratch,
				 float *gradients)
{
	size_t lines = lines_of(c), lanes = k->lanes, side = c->side, image = side * side;
	size_t pooled = c->to * (side / 2) * (side / 2);
	float *bordered_x = scratch, *dy = scratch + bordered(c->from, side);
	float *sums = dy + image * lanes;

	memset(bordered_x, 0, bordered(c->from, side) * sizeof(*bordered_x));
	for (size_t first = 0; first < c->to; first += lanes) {
		size_t planes = c->to - first < lanes ? c->to - first : lanes;

		memset(sums, 0, lines * lanes * sizeof(*sums));
		for (size_t row = 0; row < c->rows; row++) {
			put_image(c->from, side, x + row * c->from * image, bordered_x);
			memset(dy, 0, image * lanes * sizeof(*dy));
			unpool(c, first, planes, dpool + row * pooled, argmax + row * pooled, 1,
			       side * lanes, lanes, dy);
			k->back_weights(c, bordered_x, dy, sums);
		}
		for (size_t i = 0; i < planes; i++)
			for (size_t line = 0; line < lines; line++)
				gradients[(first + i) * lines + line] = sums[line * lanes + i];
	}
}

/* device_host_sequence.c - operations on sequences of devices that compute in host memory
 * (device_host.h) */
#include "trainer/device/device_host.h"

#include "trainer/device/exact.h"

#include <string.h>

/* ---- characters --------------------------------------------------------------------------------- */

/* The character of an input that gather divided by 255. */
static size_t character_of(float x)
{
	return (size_t)(x * 255.0f + 0.5f);
}

/* The row of vector i: its character, or a hash of the last `grams` characters of its sample. */
static size_t row_of(const struct train_embedding *e, const float *x, size_t i)
{
	uint64_t hash = 0;

	if (e->grams == 1)
		return character_of(x[i]);
	for (size_t back = 0; back < e->grams && back <= i % e->length; back++)
		hash = train_embedding_hash(hash, character_of(x[i - back]));
	return train_embedding_row(e, hash);
}

void train_host_embed(struct train_device *d, const struct train_embedding *e, size_t vectors,
		      const float *x, const float *table, float *y)
{
	size_t width = e->width;

	(void)d;
	for (size_t i = 0; i < vectors; i++, y += width) {
		memcpy(y, table + row_of(e, x, i) * width, width * sizeof(*y));
		for (size_t k = 0; e->places && k < width; k++)
			y[k] += table[(e->rows + i % e->length) * width + k];
	}
}

void train_host_embed_rows(struct train_device *d, const struct train_embedding *e, size_t vectors,
			   const float *x, uint32_t *row)
{
	(void)d;
	for (size_t i = 0; i < vectors; i++)
		row[i] = (uint32_t)row_of(e, x, i);
}

void train_host_embed_back(struct train_device *d, const struct train_embedding *e, size_t vectors,
			   const uint32_t *row, const float *dy, float *gradients)
{
	size_t width = e->width;

	(void)d;
	memset(gradients, 0, (e->rows + (e->places ? e->length : 0)) * width * sizeof(*gradients));
	for (size_t i = 0; i < vectors; i++, dy += width) {
		float *vector = gradients + row[i] * width;

		for (size_t k = 0; k < width; k++)
			vector[k] += dy[k];
		for (size_t k = 0; e->places && k < width; k++)
			gradients[(e->rows + i % e->length) * width + k] += dy[k];
	}
}

void train_host_embed_spread(struct train_device *d, const struct train_embedding *e, size_t n,
			     const uint32_t *row, float *gradients)
{
	size_t width = e->width, end = e->rows, bytes = width * sizeof(*gradients);

	(void)d;
	if (e->places)
		memmove(gradients + end * width, gradients + n * width, e->length * bytes);
	while (n--) { /* from the end: a row moves up, behind those that are still packed */
		memset(gradients + (row[n] + 1) * width, 0, (end - row[n] - 1) * bytes);
		memmove(gradients + row[n] * width, gradients + n * width, bytes);
		end = row[n];
	}
	memset(gradients, 0, end * bytes);
}

/* ---- normalization ------------------------------------------------------------------------------ */

void train_host_norm(struct train_device *d, size_t vectors, size_t width, const float *x,
		     const float *parameters, float *stats, float *y)
{
	const float *gain = parameters, *bias = parameters + width;

	(void)d;
	for (; vectors; vectors--, x += width, y += width, stats += 2) {
		double mean = 0.0, square = 0.0;

		for (size_t k = 0; k < width; k++)
			mean += x[k];
		mean /= (double)width;
		for (size_t k = 0; k < width; k++)
			square += (x[k] - mean) * (x[k] - mean);
		stats[0] = (float)mean;
		stats[1] = (float)(1.0 / __builtin_sqrt(square / (double)width + 1e-5));
		for (size_t k = 0; k < width; k++)
			y[k] = (x[k] - stats[0]) * stats[1] * gain[k] + bias[k];
	}
}

void train_host_norm_back(struct train_device *d, size_t vectors, size_t width, const float *x,
			  const float *gain, const float *stats, const float *dy, float *dx)
{
	(void)d;
	for (; vectors; vectors--, x += width, dy += width, dx += width, stats += 2) {
		double mean = 0.0, along = 0.0; /* of dy gain; of dy gain with the normed x */

		for (size_t k = 0; k < width; k++) {
			float g = dy[k] * gain[k];

			mean += g;
			along += g * ((x[k] - stats[0]) * stats[1]);
		}
		mean /= (double)width;
		along /= (double)width;
		for (size_t k = 0; k < width; k++)
			dx[k] = stats[1] * (dy[k] * gain[k] - (float)mean -
					    (x[k] - stats[0]) * stats[1] * (float)along);
	}
}

void train_host_norm_back_weights(struct train_device *d, size_t vectors, size_t width,
				  const float *x, const float *stats, const float *dy,
				  float *gradients)
{
	float *gain = gradients, *bias = gradients + width;

	(void)d;
	memset(gradients, 0, 2 * width * sizeof(*gradients));
	for (; vectors; vectors--, x += width, dy += width, stats += 2)
		for (size_t k = 0; k < width; k++) {
			gain[k] += dy[k] * ((x[k] - stats[0]) * stats[1]);
			bias[k] += dy[k];
		}
}

/* ---- gelu --------------------------------------------------------------------------------------- */

static const double slope = 0.7978845608028654; /* sqrt(2 / pi) */
static const double cubic = 0.044715;

/* tanh(slope (x + cubic x^3)) */
static double gelu_tanh(double x)
{
	return 1.0 - 2.0 / (train_exact_exp(2.0 * slope * (x + cubic * x * x * x)) + 1.0);
}

void train_host_gelu(struct train_device *d, size_t count, const float *x, float *y)
{
	(void)d;
	for (size_t i = 0; i < count; i++)
		y[i] = (float)(0.5 * x[i] * (1.0 + gelu_tanh(x[i])));
}

void train_host_gelu_back(struct train_device *d, size_t count, const float *x, float *dy)
{
	(void)d;
	for (size_t i = 0; i < count; i++) {
		double at = x[i], t = gelu_tanh(at);
		double inner = slope * (1.0 + 3.0 * cubic * at * at);

		dy[i] = (float)(dy[i] * (0.5 * (1.0 + t) + 0.5 * at * (1.0 - t * t) * inner));
	}
}

/* ---- attention ---------------------------------------------------------------------------------- */

void train_host_causal(struct train_device *d, size_t positions, float scale, float *weights)
{
	(void)d;
	for (size_t i = 0; i < positions; i++, weights += positions) {
		for (size_t j = 0; j <= i; j++)
			weights[j] *= scale;
		train_softmax(weights, i + 1);
		memset(weights + i + 1, 0, (positions - i - 1) * sizeof(*weights));
	}
}

void train_host_causal_back(struct train_device *d, size_t positions, float scale,
			    const float *weights, float *dweights)
{
	(void)d;
	for (size_t i = 0; i < positions; i++, weights += positions, dweights += positions) {
		double along = 0.0;

		for (size_t j = 0; j <= i; j++)
			along += (double)weights[j] * dweights[j];
		for (size_t j = 0; j < positions; j++)
			dweights[j] = weights[j] * (dweights[j] - (float)along) * scale;
	}
}

/* ---- recurrent cells ---------------------------------------------------------------------------- */

static float sigmoid(float x)
{
	return (float)(1.0 / (1.0 + train_exact_exp(-x)));
}

static float hyperbolic_tangent(float x)
{
	return (float)(1.0 - 2.0 / (train_exact_exp(2.0 * x) + 1.0));
}

void train_host_lstm(struct train_device *d, const struct train_lstm *l, const float *z, float *h)
{
	size_t n = l->width;

	(void)d;
	for (size_t row = 0; row < l->rows; row++, z += 4 * n) {
		size_t at = row * l->stride * n;
		float *ifgo = l->ifgo + 4 * at;

		for (size_t k = 0; k < n; k++) {
			float i = sigmoid(z[k]), f = sigmoid(z[n + k] + 1.0f);
			float g = hyperbolic_tangent(z[2 * n + k]), o = sigmoid(z[3 * n + k]);
			float c = f * (l->before ? l->before[at + k] : 0.0f) + i * g;

			ifgo[k] = i;
			ifgo[n + k] = f;
			ifgo[2 * n + k] = g;
			ifgo[3 * n + k] = o;
			l->c[at + k] = c;
			h[at + k] = o * hyperbolic_tangent(c);
		}
	}
}

void train_host_lstm_back(struct train_device *d, const struct train_lstm *l, const float *dy,
			  const float *dh, size_t dh_stride, float *dc, float *dz)
{
	size_t n = l->width;

	(void)d;
	for (size_t row = 0; row < l->rows; row++, dc += n) {
		size_t at = row * l->stride * n;
		const float *ifgo = l->ifgo + 4 * at;
		float *to = dz + 4 * at;

		for (size_t k = 0; k < n; k++) {
			float i = ifgo[k], f = ifgo[n + k], g = ifgo[2 * n + k],
			      o = ifgo[3 * n + k];
			float out = dy[at + k] + (dh ? dh[row * dh_stride + k] : 0.0f);
			float tanh_c = hyperbolic_tangent(l->c[at + k]);
			float of_c = out * o * (1.0f - tanh_c * tanh_c) + (dh ? dc[k] : 0.0f);

			to[k] = of_c * g * i * (1.0f - i);
			to[n + k] = of_c * (l->before ? l->before[at + k] : 0.0f) * f * (1.0f - f);
			to[2 * n + k] = of_c * i * (1.0f - g * g);
			to[3 * n + k] = out * tanh_c * o * (1.0f - o);
			dc[k] = of_c * f;
		}
	}
}

void train_host_gru(struct train_device *d, const struct train_gru *l, const float *zh, float *h)
{
	size_t n = l->width;

	(void)d;
	for (size_t row = 0; row < l->rows; row++, zh += 3 * n) {
		size_t at = row * l->stride * n;
		float *zrn = l->zrn + 3 * at;

		for (size_t k = 0; k < n; k++) {
			float z = sigmoid(zrn[k] + zh[k]), r = sigmoid(zrn[n + k] + zh[n + k]);
			float c = hyperbolic_tangent(zrn[2 * n + k] + r * zh[2 * n + k]);

			zrn[k] = z;
			zrn[n + k] = r;
			zrn[2 * n + k] = c;
			l->un[at + k] = zh[2 * n + k];
			h[at + k] = (1.0f - z) * c + z * l->before[at + k];
		}
	}
}

void train_host_gru_back(struct train_device *d, const struct train_gru *l, const float *dy,
			 const float *dh, float *direct, float *dx_zrn, float *dh_zrn)
{
	size_t n = l->width;

	(void)d;
	for (size_t row = 0; row < l->rows; row++, direct += n) {
		size_t at = row * l->stride * n;
		const float *zrn = l->zrn + 3 * at;
		float *of_x = dx_zrn + 3 * at, *of_h = dh_zrn + 3 * at;

		for (size_t k = 0; k < n; k++) {
			float z = zrn[k], r = zrn[n + k], c = zrn[2 * n + k];
			float out = dy[at + k] + (dh ? dh[row * n + k] + direct[k] : 0.0f);
			float of_c = out * (1.0f - z) * (1.0f - c * c);

			of_x[k] = of_h[k] = out * (l->before[at + k] - c) * z * (1.0f - z);
			of_x[n + k] = of_h[n + k] = of_c * l->un[at + k] * r * (1.0f - r);
			of_x[2 * n + k] = of_c;
			of_h[2 * n + k] = of_c * r;
			direct[k] = out * z;
		}
	}
}

/* device_host.c - operations of devices that compute in host memory (device_host.h) */
#include "trainer/device/device_host.h"

#include "trainer/device/exact.h"
#include "trainer/device/host_loops.h"
#include "tutti.h"

#include <string.h>

enum { AHEAD = 8 }; /* rows that gather prefetches */

/* Memory of the library, so that transports can read it without a copy. */
void *train_host_alloc(struct train_device *d, size_t bytes)
{
	void *memory;

	(void)d;
	return tuttiMemAlloc(&memory, bytes ? bytes : 1) == tuttiSuccess ? memory : NULL;
}

void train_host_free(struct train_device *d, void *memory)
{
	(void)d;
	tuttiMemFree(memory);
}

void train_host_copy(struct train_device *d, void *to, const void *from, size_t bytes)
{
	(void)d;
	if (to != from)
		memcpy(to, from, bytes);
}

/* A batch is a random selection of images, so their addresses are known here only. */
static void prefetch(const uint8_t *image, size_t pixels)
{
	for (size_t i = 0; i < pixels; i += 64)
		__builtin_prefetch(image + i);
}

void train_host_gather(struct train_device *d, const uint8_t *images, const uint32_t *samples,
		       size_t rows, size_t pixels, float mean, float *restrict x)
{
	(void)d;
	for (size_t row = 0; row < rows; row++) {
		if (row + AHEAD < rows)
			prefetch(images + samples[row + AHEAD] * pixels, pixels);
		train_host_loops()->gather(pixels, images + samples[row] * pixels, mean,
					   x + row * pixels);
	}
}

void train_host_bias(struct train_device *d, size_t rows, size_t n, const float *bias, bool relu,
		     float *y)
{
	(void)d;
	for (size_t row = 0; row < rows; row++, y += n)
		train_host_loops()->bias(n, bias, relu, y);
}

void train_host_bias_back(struct train_device *d, size_t rows, size_t n, const float *dy,
			  float *dbias)
{
	(void)d;
	memset(dbias, 0, n * sizeof(*dbias));
	for (size_t row = 0; row < rows; row++, dy += n)
		train_host_loops()->add(n, dy, dbias);
}

void train_host_add(struct train_device *d, size_t count, const float *restrict from,
		    float *restrict to)
{
	(void)d;
	train_host_loops()->add(count, from, to);
}

void train_host_blend(struct train_device *d, size_t count, float keep, float take,
		      const float *restrict from, float *restrict to)
{
	(void)d;
	train_host_loops()->blend(count, keep, take, from, to);
}

void train_host_relu_back(struct train_device *d, size_t count, const float *y, float *dy)
{
	(void)d;
	train_host_loops()->relu_back(count, y, dy);
}

void train_host_loss(struct train_device *d, size_t rows, size_t classes, const uint8_t *labels,
		     float *logits, float *loss)
{
	double total = 0.0;

	(void)d;
	for (size_t row = 0; row < rows; row++, logits += classes) {
		total += train_softmax_loss(logits, classes, labels[row]);
		logits[labels[row]] -= 1.0f;
	}
	*loss = (float)total;
}

void train_host_descend(struct train_device *d, size_t count, float scale, float rate,
			float momentum, const float *restrict gradient, float *restrict velocity,
			float *restrict weight)
{
	(void)d;
	train_host_loops()->descend(count, scale, rate, momentum, gradient, velocity, weight);
}

void train_host_rmsprop(struct train_device *d, size_t count, float scale, float rate,
			const float *restrict gradient, float *restrict square,
			float *restrict weight)
{
	(void)d;
	train_host_loops()->rmsprop(count, scale, rate, gradient, square, weight);
}

void train_host_adam(struct train_device *d, size_t count, const struct train_adam *a,
		     const float *restrict gradient, float *restrict mean, float *restrict square,
		     float *restrict weight)
{
	(void)d;
	train_host_loops()->adam(count, a, gradient, mean, square, weight);
}

/*
 * device_cpu.c - the processor, with bits that depend on nothing but the numbers
 *
 * Every sum has one written order (gemm.h; rows and classes from 0 upwards), exp and log are our own: the same parameters come out on
 * any processor, instruction set and C library. One thread: ranks are what runs in parallel.
 * Row of the table in device.c.
 */
#include "device.h"

#include "exact.h"
#include "fail.h"
#include "tutti.h"

#include <stdlib.h>
#include <string.h>

static int cpu_open(struct tt_device *d)
{
	const char *isa = getenv("TUTTI_ISA");
	bool any = !isa || !strcmp(isa, "auto");

	d->state = tt_gemm_open(any ? NULL : isa);
	if (!d->state && !any)
		return tt_train_fail(TT_TRAIN_USAGE, "TUTTI_ISA=%s: this processor has no such instructions; use auto or scalar",
				     isa);
	if (!d->state)
		return tt_train_fail(TT_TRAIN_FAILED, "no memory for the matrix product");
	return TT_TRAIN_OK;
}

static void cpu_close(struct tt_device *d) { tt_gemm_close(d->state); }

/* The library's memory, so that transports may read it without copying. */
static void *cpu_alloc(struct tt_device *d, size_t bytes)
{
	void *memory;

	(void)d;
	return tuttiMemAlloc(&memory, bytes ? bytes : 1) == tuttiSuccess ? memory : NULL;
}

static void cpu_free(struct tt_device *d, void *memory)
{
	(void)d;
	tuttiMemFree(memory);
}

static void cpu_copy(struct tt_device *d, void *to, const void *from, size_t bytes)
{
	(void)d;
	memcpy(to, from, bytes);
}

static void cpu_gather(struct tt_device *d, const uint8_t *images, const uint32_t *samples, size_t rows, size_t pixels,
		       float mean, float *restrict x)
{
	(void)d;
	for (size_t row = 0; row < rows; row++) {
		const uint8_t *image = images + samples[row] * pixels;

		for (size_t i = 0; i < pixels; i++)
			x[row * pixels + i] = (float)image[i] * (1.0f / 255.0f) - mean;
	}
}

static void cpu_gemm(struct tt_device *d, size_t m, size_t n, size_t k, struct tt_matrix a, struct tt_matrix b, float *c,
		     size_t ldc)
{
	tt_gemm(d->state, m, n, k, a, b, c, ldc);
}

static void cpu_bias(struct tt_device *d, size_t rows, size_t n, const float *bias, bool relu, float *y)
{
	(void)d;
	for (size_t row = 0; row < rows; row++, y += n) {
		for (size_t i = 0; i < n; i++)
			y[i] += bias[i];
		for (size_t i = 0; relu && i < n; i++)
			y[i] = y[i] > 0.0f ? y[i] : 0.0f;
	}
}

static void cpu_bias_back(struct tt_device *d, size_t rows, size_t n, const float *dy, float *dbias)
{
	(void)d;
	memset(dbias, 0, n * sizeof(*dbias));
	for (size_t row = 0; row < rows; row++, dy += n)
		for (size_t i = 0; i < n; i++)
			dbias[i] += dy[i];
}

static void cpu_relu_back(struct tt_device *d, size_t count, const float *y, float *dy)
{
	(void)d;
	for (size_t i = 0; i < count; i++)
		dy[i] = y[i] > 0.0f ? dy[i] : 0.0f;
}

static void cpu_loss(struct tt_device *d, size_t rows, size_t classes, const uint8_t *labels, float *logits, float *loss)
{
	double total = 0.0;

	(void)d;
	for (size_t row = 0; row < rows; row++, logits += classes) {
		total += tt_cross_entropy(logits, classes, labels[row]);
		tt_softmax(logits, classes);
		logits[labels[row]] -= 1.0f;
	}
	*loss = (float)total;
}

static void cpu_descend(struct tt_device *d, size_t count, float scale, float rate, float momentum,
			const float *restrict gradient, float *restrict velocity, float *restrict weight)
{
	(void)d;
	for (size_t i = 0; i < count; i++) {
		velocity[i] = momentum * velocity[i] + scale * gradient[i];
		weight[i] -= rate * velocity[i];
	}
}

const struct tt_device_ops tt_device_cpu = {
	.name = "cpu",
	.help = "own kernels; the same bits on every processor",
	.open = cpu_open,
	.close = cpu_close,
	.alloc = cpu_alloc,
	.free = cpu_free,
	.put = cpu_copy,
	.get = cpu_copy,
	.gather = cpu_gather,
	.gemm = cpu_gemm,
	.bias = cpu_bias,
	.bias_back = cpu_bias_back,
	.relu_back = cpu_relu_back,
	.loss = cpu_loss,
	.descend = cpu_descend,
};

/*
 * device_sim.c - a make-believe accelerator: memory of its own, which only explicit copies reach
 *
 * It computes what cpu computes. Its pointers are marked, so that code which touches them on the
 * host dies on the spot, as it would with a real device's memory, and what is copied to and fro is
 * counted. So a strategy that runs here needs no line changed for a device with memory of its own.
 * Row of the table in device.c.
 */
#include "trainer/device/device_host.h"

#include <stdint.h>

#define MARK (UINT64_C(1) << 62) /* makes an address that no processor accepts */

static void *mark(void *memory) { return memory ? (void *)((uintptr_t)memory | MARK) : NULL; }
static void *real(const void *memory) { return (void *)((uintptr_t)memory & ~MARK); }

static int sim_open(struct tt_device *d) { return tt_device_cpu.open(d); }
static void sim_close(struct tt_device *d) { tt_device_cpu.close(d); }
static void *sim_alloc(struct tt_device *d, size_t bytes) { return mark(tt_host_alloc(d, bytes)); }
static void sim_free(struct tt_device *d, void *memory) { tt_host_free(d, real(memory)); }

static void sim_put(struct tt_device *d, void *to, const void *from_host, size_t bytes)
{
	d->put_bytes += bytes;
	tt_host_copy(d, real(to), from_host, bytes);
}

static void sim_get(struct tt_device *d, void *to_host, const void *from, size_t bytes)
{
	d->get_bytes += bytes;
	tt_host_copy(d, to_host, real(from), bytes);
}

static void sim_gather(struct tt_device *d, const uint8_t *images, const uint32_t *samples,
		       size_t rows, size_t pixels, float mean, float *x)
{
	tt_host_gather(d, images, samples, rows, pixels, mean, real(x));
}

static void sim_gemm(struct tt_device *d, size_t m, size_t n, size_t k, struct tt_matrix a,
		     struct tt_matrix b, float *c, size_t ldc)
{
	a.at = real(a.at);
	b.at = real(b.at);
	tt_device_cpu.gemm(d, m, n, k, a, b, real(c), ldc);
}

static void sim_bias(struct tt_device *d, size_t rows, size_t n, const float *bias, bool relu,
		     float *y)
{
	tt_host_bias(d, rows, n, real(bias), relu, real(y));
}

static void sim_bias_back(struct tt_device *d, size_t rows, size_t n, const float *dy, float *dbias)
{
	tt_host_bias_back(d, rows, n, real(dy), real(dbias));
}

static void sim_add(struct tt_device *d, size_t count, const float *from, float *to)
{
	tt_host_add(d, count, real(from), real(to));
}

static void sim_blend(struct tt_device *d, size_t count, float keep, float take, const float *from,
		      float *to)
{
	tt_host_blend(d, count, keep, take, real(from), real(to));
}

static void sim_copy(struct tt_device *d, void *to, const void *from, size_t bytes)
{
	tt_host_copy(d, real(to), real(from), bytes);
}

static void sim_unfold(struct tt_device *d, struct tt_planes p, size_t window, const float *x,
		       float *patches)
{
	tt_host_unfold(d, p, window, real(x), real(patches));
}

static void sim_fold(struct tt_device *d, struct tt_planes p, size_t window, const float *patches,
		     float *x)
{
	tt_host_fold(d, p, window, real(patches), real(x));
}

static void sim_pool(struct tt_device *d, struct tt_planes p, const float *y, float *x,
		     uint8_t *which)
{
	tt_host_pool(d, p, real(y), real(x), real(which));
}

static void sim_pool_back(struct tt_device *d, struct tt_planes p, const float *dx,
			  const uint8_t *which, float *dy)
{
	tt_host_pool_back(d, p, real(dx), real(which), real(dy));
}

static void sim_relu_back(struct tt_device *d, size_t count, const float *y, float *dy)
{
	tt_host_relu_back(d, count, real(y), real(dy));
}

static void sim_loss(struct tt_device *d, size_t rows, size_t classes, const uint8_t *labels,
		     float *logits, float *loss)
{
	tt_host_loss(d, rows, classes, labels, real(logits), real(loss));
}

static void sim_descend(struct tt_device *d, size_t count, float scale, float rate, float momentum,
			const float *gradient, float *velocity, float *weight)
{
	tt_host_descend(d, count, scale, rate, momentum, real(gradient), real(velocity),
			real(weight));
}

const struct tt_device_ops tt_device_sim = {
	.name = "sim",
	.help = "cpu behind a wall: memory of its own, explicit copies",
	.apart = true,
	.open = sim_open,
	.close = sim_close,
	.alloc = sim_alloc,
	.free = sim_free,
	.put = sim_put,
	.get = sim_get,
	.copy = sim_copy,
	TT_DEVICE_WORK(TT_DEVICE_MEMBER, sim)
	TT_DEVICE_MEMBER(sim, gemm)
};

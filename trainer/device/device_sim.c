/*
 * device_sim.c - device sim: a simulated accelerator with separate memory and explicit copies
 *
 * It computes like cpu. Its pointers are tagged with a bit that makes them invalid: code that
 * accesses them on the host faults at once, as with a real device's memory. Copies in both
 * directions are counted. A strategy that runs here needs no change for a device with separate
 * memory. Row of the table in device.c.
 */
#include "trainer/device/device_host.h"

#include <stdint.h>

#define MARK (UINT64_C(1) << 62) /* a non-canonical address, which faults */

static void *mark(void *memory)
{
	return memory ? (void *)((uintptr_t)memory | MARK) : NULL;
}
static void *real(const void *memory)
{
	return (void *)((uintptr_t)memory & ~MARK);
}

static int sim_open(struct train_device *d)
{
	return train_device_cpu.open(d);
}
static void sim_close(struct train_device *d)
{
	train_device_cpu.close(d);
}
static void *sim_alloc(struct train_device *d, size_t bytes)
{
	return mark(train_host_alloc(d, bytes));
}
static void sim_free(struct train_device *d, void *memory)
{
	train_host_free(d, real(memory));
}

static void sim_put(struct train_device *d, void *to, const void *from_host, size_t bytes)
{
	d->put_bytes += bytes;
	train_host_copy(d, real(to), from_host, bytes);
}

static void sim_get(struct train_device *d, void *to_host, const void *from, size_t bytes)
{
	d->get_bytes += bytes;
	train_host_copy(d, to_host, real(from), bytes);
}

static void sim_gather(struct train_device *d, const uint8_t *images, const uint32_t *samples,
		       size_t rows, size_t pixels, float mean, float *x)
{
	train_host_gather(d, images, samples, rows, pixels, mean, real(x));
}

static void sim_gemm(struct train_device *d, size_t m, size_t n, size_t k, struct train_matrix a,
		     struct train_matrix b, float *c, size_t ldc)
{
	a.at = real(a.at);
	b.at = real(b.at);
	train_device_cpu.gemm(d, m, n, k, a, b, real(c), ldc);
}

static void sim_bias(struct train_device *d, size_t rows, size_t n, const float *bias, bool relu,
		     float *y)
{
	train_host_bias(d, rows, n, real(bias), relu, real(y));
}

static void sim_bias_back(struct train_device *d, size_t rows, size_t n, const float *dy,
			  float *dbias)
{
	train_host_bias_back(d, rows, n, real(dy), real(dbias));
}

static void sim_add(struct train_device *d, size_t count, const float *from, float *to)
{
	train_host_add(d, count, real(from), real(to));
}

static void sim_blend(struct train_device *d, size_t count, float keep, float take,
		      const float *from, float *to)
{
	train_host_blend(d, count, keep, take, real(from), real(to));
}

static void sim_copy(struct train_device *d, void *to, const void *from, size_t bytes)
{
	train_host_copy(d, real(to), real(from), bytes);
}

static void sim_unfold(struct train_device *d, struct train_planes p, size_t window, const float *x,
		       float *patches)
{
	train_host_unfold(d, p, window, real(x), real(patches));
}

static void sim_fold(struct train_device *d, struct train_planes p, size_t window,
		     const float *patches, float *x)
{
	train_host_fold(d, p, window, real(patches), real(x));
}

static void sim_pool(struct train_device *d, struct train_planes p, const float *y, float *x,
		     uint8_t *argmax)
{
	train_host_pool(d, p, real(y), real(x), real(argmax));
}

static void sim_pool_back(struct train_device *d, struct train_planes p, const float *dx,
			  const uint8_t *argmax, float *dy)
{
	train_host_pool_back(d, p, real(dx), real(argmax), real(dy));
}

static void sim_relu_back(struct train_device *d, size_t count, const float *y, float *dy)
{
	train_host_relu_back(d, count, real(y), real(dy));
}

static void sim_loss(struct train_device *d, size_t rows, size_t classes, const uint8_t *labels,
		     float *logits, float *loss)
{
	train_host_loss(d, rows, classes, labels, real(logits), real(loss));
}

static void sim_descend(struct train_device *d, size_t count, float scale, float rate,
			float momentum, const float *gradient, float *velocity, float *weight)
{
	train_host_descend(d, count, scale, rate, momentum, real(gradient), real(velocity),
			   real(weight));
}

static void sim_rmsprop(struct train_device *d, size_t count, float scale, float rate,
			const float *gradient, float *square, float *weight)
{
	train_host_rmsprop(d, count, scale, rate, real(gradient), real(square), real(weight));
}

static void sim_adam(struct train_device *d, size_t count, const struct train_adam *a,
		     const float *gradient, float *mean, float *square, float *weight)
{
	train_host_adam(d, count, a, real(gradient), real(mean), real(square), real(weight));
}

static void sim_embed(struct train_device *d, const struct train_embedding *e, size_t vectors,
		      const float *x, const float *table, float *y)
{
	train_host_embed(d, e, vectors, real(x), real(table), real(y));
}

static void sim_embed_rows(struct train_device *d, const struct train_embedding *e, size_t vectors,
			   const float *x, uint32_t *row)
{
	train_host_embed_rows(d, e, vectors, real(x), row);
}

static void sim_embed_back(struct train_device *d, const struct train_embedding *e, size_t vectors,
			   const uint32_t *row, const float *dy, float *gradients)
{
	train_host_embed_back(d, e, vectors, row, real(dy), real(gradients));
}

static void sim_embed_spread(struct train_device *d, const struct train_embedding *e, size_t n,
			     const uint32_t *row, float *gradients)
{
	train_host_embed_spread(d, e, n, row, real(gradients));
}

static void sim_norm(struct train_device *d, size_t vectors, size_t width, const float *x,
		     const float *parameters, float *stats, float *y)
{
	train_host_norm(d, vectors, width, real(x), real(parameters), real(stats), real(y));
}

static void sim_norm_back(struct train_device *d, size_t vectors, size_t width, const float *x,
			  const float *gain, const float *stats, const float *dy, float *dx)
{
	train_host_norm_back(d, vectors, width, real(x), real(gain), real(stats), real(dy),
			     real(dx));
}

static void sim_norm_back_weights(struct train_device *d, size_t vectors, size_t width,
				  const float *x, const float *stats, const float *dy,
				  float *gradients)
{
	train_host_norm_back_weights(d, vectors, width, real(x), real(stats), real(dy),
				     real(gradients));
}

static void sim_gelu(struct train_device *d, size_t count, const float *x, float *y)
{
	train_host_gelu(d, count, real(x), real(y));
}

static void sim_gelu_back(struct train_device *d, size_t count, const float *x, float *dy)
{
	train_host_gelu_back(d, count, real(x), real(dy));
}

static void sim_causal(struct train_device *d, size_t positions, float scale, float *weights)
{
	train_host_causal(d, positions, scale, real(weights));
}

static void sim_causal_back(struct train_device *d, size_t positions, float scale,
			    const float *weights, float *dweights)
{
	train_host_causal_back(d, positions, scale, real(weights), real(dweights));
}

static struct train_lstm real_lstm(const struct train_lstm *l)
{
	struct train_lstm cells = *l;

	cells.ifgo = real(l->ifgo);
	cells.before = real(l->before);
	cells.c = real(l->c);
	return cells;
}

static void sim_lstm(struct train_device *d, const struct train_lstm *l, const float *z, float *h)
{
	struct train_lstm cells = real_lstm(l);

	train_host_lstm(d, &cells, real(z), real(h));
}

static void sim_lstm_back(struct train_device *d, const struct train_lstm *l, const float *dy,
			  const float *dh, size_t dh_stride, float *dc, float *dz)
{
	struct train_lstm cells = real_lstm(l);

	train_host_lstm_back(d, &cells, real(dy), real(dh), dh_stride, real(dc), real(dz));
}

static struct train_gru real_gru(const struct train_gru *l)
{
	struct train_gru cells = *l;

	cells.zrn = real(l->zrn);
	cells.un = real(l->un);
	cells.before = real(l->before);
	return cells;
}

static void sim_gru(struct train_device *d, const struct train_gru *l, const float *zh, float *h)
{
	struct train_gru cells = real_gru(l);

	train_host_gru(d, &cells, real(zh), real(h));
}

static void sim_gru_back(struct train_device *d, const struct train_gru *l, const float *dy,
			 const float *dh, float *direct, float *dx_zrn, float *dh_zrn)
{
	struct train_gru cells = real_gru(l);

	train_host_gru_back(d, &cells, real(dy), real(dh), real(direct), real(dx_zrn),
			    real(dh_zrn));
}

const struct train_device_ops train_device_sim = {
	.name = "sim",
	.help = "cpu with separate memory and explicit, counted copies",
	.separate_memory = true,
	.open = sim_open,
	.close = sim_close,
	.alloc = sim_alloc,
	.free = sim_free,
	.put = sim_put,
	.get = sim_get,
	.copy = sim_copy,
	TRAIN_DEVICE_COMPUTE(TRAIN_DEVICE_MEMBER, sim) TRAIN_DEVICE_MEMBER(sim, gemm)
		TRAIN_DEVICE_SEQUENCE(TRAIN_DEVICE_MEMBER, sim) TRAIN_DEVICE_MEMBER(sim, adam)
			TRAIN_DEVICE_MEMBER(sim, rmsprop)
};

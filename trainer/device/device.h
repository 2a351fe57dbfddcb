/*
 * device.h - what a device must be able to do to train: memory, the matrix product, and a few loops
 * over elements
 *
 * A device is one file device_NAME.c with a struct train_device_ops at its end, and one
 * row of the table in device.c. Pointers are to the device's memory unless their
 * names begin with host_ or end so: nothing but the operations touch them, unless the
 * device says that its memory is not apart. All calls come from the one thread of the
 * rank, take effect in call order, and may run behind the caller: get waits for what
 * it reads. Called by models, by trainer.c and by strategies (which name no device).
 */
#ifndef TRAIN_DEVICE_H
#define TRAIN_DEVICE_H

#include "trainer/device/gemm.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct train_device {
	const struct train_device_ops *ops;
	void *state;         /* the device's own */
	bool canonical;      /* bits must be those of the processor */
	uint64_t put_bytes;  /* copied to memory that the host cannot touch, and from it */
	uint64_t get_bytes;
};

/* Images in planes: [rows][planes][side][side]. */
struct train_planes {
	size_t rows, planes, side;
};

struct train_device_ops {
	const char *name, *help;
	bool apart;   /* its memory is its own: the host must copy (put, get) */
	bool reached; /* if so: the library's calls take it all the same */

	/* Before a rank joins, in its thread: the device that `name` means becomes the rank's, so
	 * that the library takes its memory. local_rank: among those of its host. NULL: nothing to
	 * be done. Returns 0 | TRAIN_USAGE (not on this host). */
	int (*take)(const char *name, int local_rank);

	/* Sets d->state. Returns 0 | TRAIN_FAILED | TRAIN_USAGE (not on this host). */
	int (*open)(struct train_device *d);
	void (*close)(struct train_device *d);

	/* Zeroed memory, aligned to a page; NULL when there is none. */
	void *(*alloc)(struct train_device *d, size_t bytes);
	void (*free)(struct train_device *d, void *memory);
	void (*put)(struct train_device *d, void *to, const void *from_host, size_t bytes);
	void (*get)(struct train_device *d, void *to_host, const void *from, size_t bytes);

	/* Waits until all is done. Returns 0 | TRAIN_FAILED: something failed since open.
	 * NULL: all is done when its call returns. */
	int (*settle)(struct train_device *d);

	/* The library's calls beside the computing, where memory is apart and reached: a stream for
	 * them; what they are given from now on comes behind all computed so far; waits for them.
	 * NULL: host streams do. */
	void *(*beside)(struct train_device *d);
	void (*lead)(struct train_device *d);
	int (*join)(struct train_device *d);

	/* x[rows][pixels] = the images of these samples, 0..255 as 0..1, minus mean */
	void (*gather)(struct train_device *d, const uint8_t *host_images,
		       const uint32_t *host_samples, size_t rows, size_t pixels, float mean,
		       float *x);

	/* c[m x n] = a[m x k] * b[k x n]; k == 0 gives zeros */
	void (*gemm)(struct train_device *d, size_t m, size_t n, size_t k, struct train_matrix a,
		     struct train_matrix b, float *c, size_t ldc);

	/* y[rows][n] += bias[n], and with relu: y = max(y, 0) */
	void (*bias)(struct train_device *d, size_t rows, size_t n, const float *bias, bool relu,
		     float *y);

	/* dbias[n] = the sums of dy[rows][n] over its rows, row after row */
	void (*bias_back)(struct train_device *d, size_t rows, size_t n, const float *dy,
			  float *dbias);

	/* to += from */
	void (*add)(struct train_device *d, size_t count, const float *from, float *to);
	/* to = keep * to + take * from; from NULL: to = keep * to */
	void (*blend)(struct train_device *d, size_t count, float keep, float take, const float *from,
		      float *to);
	/* Within the device's memory; what lies there twice is not copied */
	void (*copy)(struct train_device *d, void *to, const void *from, size_t bytes);

	/* For convolutions of window x window (odd) with zeros around the images. patches[planes *
	 * window * window + 1][rows * side * side]: line (plane, dy, dx) holds each pixel's
	 * neighbour there; the last line holds ones, for a bias. */
	void (*unfold)(struct train_device *d, struct train_planes p, size_t window, const float *x,
		       float *patches);
	/* The way back: x = for each pixel the sum of what unfold made of it, (dy, dx) upwards */
	void (*fold)(struct train_device *d, struct train_planes p, size_t window, const float *patches,
		     float *x);

	/* The greatest of each 2 x 2 pixels, and 0: from y[planes][rows][side][side]
	 * to x [rows][planes][side / 2][side / 2]; which[as x] notes which it was.
	 * The way back: y = what x's gradient dx comes to; side is y's, and even. */
	void (*pool)(struct train_device *d, struct train_planes p, const float *y, float *x,
		     uint8_t *which);
	void (*pool_back)(struct train_device *d, struct train_planes p, const float *dx,
			  const uint8_t *which, float *dy);

	/* dy = 0 wherever y is not above 0 */
	void (*relu_back)(struct train_device *d, size_t count, const float *y, float *dy);

	/* Softmax and cross-entropy: *loss = the sum over the rows; logits[rows][classes] become
	 * their gradient of that sum. labels is host memory. */
	void (*loss)(struct train_device *d, size_t rows, size_t classes, const uint8_t *host_labels,
		     float *logits, float *loss);

	/* velocity = momentum * velocity + scale * gradient; weight = weight - rate * velocity */
	void (*descend)(struct train_device *d, size_t count, float scale, float rate, float momentum,
			const float *gradient, float *velocity, float *weight);
};

/* What a device computes, but for the matrix product: functions PREFIX_gather and so on, and their
 * row of the table. */
#define TRAIN_DEVICE_WORK(X, prefix)                                                                  \
	X(prefix, gather) X(prefix, bias) X(prefix, bias_back) X(prefix, add) X(prefix, blend)     \
	X(prefix, unfold) X(prefix, fold) X(prefix, pool) X(prefix, pool_back)                     \
	X(prefix, relu_back) X(prefix, loss) X(prefix, descend)
#define TRAIN_DEVICE_FUNCTION(prefix, name)                                                           \
	__typeof__(*((struct train_device_ops *)NULL)->name) prefix##_##name;
#define TRAIN_DEVICE_MEMBER(prefix, name) .name = prefix##_##name,

extern const struct train_device_ops train_device_cpu, train_device_blas, train_device_sim,
	train_device_cuda;
extern const struct train_device_ops *const train_devices[];    /* ends with NULL */

/* The device's row by its name, which may have a number behind a colon; NULL after a sentence. */
const struct train_device_ops *train_device_find(const char *name);

/* canonical: its bits must be those of the processor. Returns 0 | TRAIN_USAGE (no such device,
 * or not on this host) | TRAIN_FAILED. Close with train_device_close. */
int train_device_open(struct train_device *d, const char *name, bool canonical);
void train_device_close(struct train_device *d);

static inline int train_device_settle(struct train_device *d)
{
	return d->ops->settle ? d->ops->settle(d) : 0;
}

#endif

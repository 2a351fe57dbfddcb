/*
 * device.h - a compute device: memory, the matrix product, and a few element-wise loops
 *
 * A device is one file device_NAME.c with a struct train_device_ops at its end, and one row of
 * the table in device.c. Pointers are to device memory unless their names begin or end with
 * host; only the operations access device memory, unless the device has separate_memory ==
 * false. All calls come from the rank's one thread, take effect in call order, and may be
 * asynchronous: get waits for the data that it reads. Called by models, rank.c, gradient.c and
 * strategies (which name no device).
 */
#ifndef TRAIN_DEVICE_H
#define TRAIN_DEVICE_H

#include "trainer/device/gemm.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct train_device {
	const struct train_device_ops *ops;
	void *state;        /* the device's own */
	bool canonical;     /* results must have the bits of device cpu */
	uint64_t put_bytes; /* bytes copied to separate memory */
	uint64_t get_bytes; /* bytes copied from separate memory */
};

/* An update by AdamW. */
struct train_adam {
	float scale;        /* of the gradient */
	float beta1, beta2; /* shares of the means that are kept */
	float rate;         /* learning rate / (1 - beta1^step) */
	float correct2;     /* 1 / (1 - beta2^step) */
	float epsilon;
	float keep; /* 1 - learning rate * weight decay */
};

/* Vectors of the positions of a sample. */
struct train_embedding {
	size_t rows, width; /* of the table */
	size_t length;      /* positions of a sample */
	size_t grams;       /* characters that choose a row: 1, the character is its number */
	bool places;        /* a second table has a row for each position */
};

/* A row is a hash of characters, the last one first; begins with 0. */
static inline uint64_t train_embedding_hash(uint64_t hash, size_t character)
{
	return (hash + character + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

static inline size_t train_embedding_row(const struct train_embedding *e, uint64_t hash)
{
	return (hash >> 32) % e->rows;
}

/* LSTM cells of a position of `rows` sequences. */
struct train_lstm {
	size_t rows, width;
	size_t stride; /* vectors from a row to the next */
	float *ifgo;   /* [rows * stride][4][width]: i, f, g, o, after their functions */
	const float *before;
	float *c; /* before, c: [rows * stride][width]; before NULL: zeros */
};

/* GRU cells of a position of `rows` sequences. */
struct train_gru {
	size_t rows, width;
	size_t stride; /* vectors from a row to the next */
	float *zrn;    /* [rows * stride][3][width]: parts z, r, n of x's product, then after their
			* functions */
	float *un;     /* [rows * stride][width]: part n of the product of the outputs before */
	const float *before; /* [rows * stride][width]: these outputs */
};

/* Images in planes: [rows][planes][side][side]. */
struct train_planes {
	size_t rows, planes, side;
};

enum { TRAIN_WINDOW = 5 };

/* A convolution of TRAIN_WINDOW x TRAIN_WINDOW pixels with zero padding, of `rows` images in `from` planes
 * to `to` planes. Weights: [to][from * 25 + 1], the last for the bias. */
struct train_convolution {
	size_t rows, from, to, side;
	/* of convolve alone, for some planes of x: planes of an image of x, of which the first `from`
	 * are taken, and floats of an output's weights, the last for the bias; 0: no others */
	size_t planes, lines;
	bool no_bias;
};

/* Floats of the scratch memory of its operations. */
size_t train_convolution_scratch(const struct train_convolution *c);

struct train_device_ops {
	const char *name, *help;
	bool separate_memory; /* the host cannot access device memory and must copy (put, get) */
	bool tutti_aware;     /* the library accepts pointers to this separate memory */

	/* Selects the rank's device by `name` before the rank joins, in its thread, so that the
	 * library accepts its memory. local_rank: rank among the ranks of the host. NULL:
	 * nothing to select. Returns 0 | TRAIN_USAGE (not on this host). */
	int (*select)(const char *name, int local_rank);

	/* Sets d->state. Returns 0 | TRAIN_FAILED | TRAIN_USAGE (not on this host). */
	int (*open)(struct train_device *d);
	void (*close)(struct train_device *d);

	/* Zeroed memory, page-aligned; NULL without memory. */
	void *(*alloc)(struct train_device *d, size_t bytes);
	void (*free)(struct train_device *d, void *memory);
	void (*put)(struct train_device *d, void *to, const void *from_host, size_t bytes);
	void (*get)(struct train_device *d, void *to_host, const void *from, size_t bytes);

	/* Waits for all operations. Returns 0 | TRAIN_FAILED: an operation failed since open.
	 * NULL: operations are synchronous. */
	int (*sync)(struct train_device *d);

	/* Communication overlap of a tutti_aware device. comm_stream: a stream for library
	 * calls; comm_stream_after_compute: its later calls run after all operations submitted
	 * so far; comm_stream_sync: waits for its calls, returns 0 | TRAIN_FAILED. NULL: use
	 * host streams. */
	void *(*comm_stream)(struct train_device *d);
	void (*comm_stream_after_compute)(struct train_device *d);
	int (*comm_stream_sync)(struct train_device *d);

	/* x[rows][pixels] = the images of host_samples, 0..255 scaled to 0..1, minus mean */
	void (*gather)(struct train_device *d, const uint8_t *host_images,
		       const uint32_t *host_samples, size_t rows, size_t pixels, float mean,
		       float *x);

	/* c[m x n] = a[m x k] * b[k x n]; k == 0 gives zeros */
	void (*gemm)(struct train_device *d, size_t m, size_t n, size_t k, struct train_matrix a,
		     struct train_matrix b, float *c, size_t ldc);

	/* y[rows][n] += bias[n], and with relu: y = max(y, 0) */
	void (*bias)(struct train_device *d, size_t rows, size_t n, const float *bias, bool relu,
		     float *y);

	/* dbias[n] = the column sums of dy[rows][n], in row order */
	void (*bias_back)(struct train_device *d, size_t rows, size_t n, const float *dy,
			  float *dbias);

	/* to += from */
	void (*add)(struct train_device *d, size_t count, const float *from, float *to);
	/* to = keep * to + take * from; from NULL: to = keep * to */
	void (*blend)(struct train_device *d, size_t count, float keep, float take,
		      const float *from, float *to);
	/* Copies within device memory; to == from is a no-op */
	void (*copy)(struct train_device *d, void *to, const void *from, size_t bytes);

	/* im2col for convolutions of window x window (odd) with zero padding. patches[planes *
	 * window * window + 1][rows * side * side]: line (plane, dy, dx) holds each pixel's
	 * neighbor at that offset; the last line holds ones, for a bias. */
	void (*unfold)(struct train_device *d, struct train_planes p, size_t window, const float *x,
		       float *patches);
	/* Adjoint of unfold (col2im): each pixel of x = the sum of its copies, in order of (dy,
	 * dx) */
	void (*fold)(struct train_device *d, struct train_planes p, size_t window,
		     const float *patches, float *x);

	/* Max pooling of each 2 x 2 pixels, with ReLU: from y[planes][rows][side][side] to
	 * x[rows][planes][side / 2][side / 2]; argmax[shape of x] = index of the maximum, 4 for
	 * none. pool_back: dy = the gradient of y for x's gradient dx; side is y's, and even. */
	void (*pool)(struct train_device *d, struct train_planes p, const float *y, float *x,
		     uint8_t *argmax);
	void (*pool_back)(struct train_device *d, struct train_planes p, const float *dx,
			  const uint8_t *argmax, float *dy);

	/* Convolutions without patches, with the bits of unfold, gemm, fold and pool_back. NULL: the
	 * device has none of these operations. convolve: y[to][rows][side][side] = the convolution
	 * of x[rows][from][side][side]. back_input, back_weights: dx, gradients[shape of weights] =
	 * the gradients for dpool and argmax of pool, with the shapes there. */
	void (*convolve)(struct train_device *d, const struct train_convolution *c, const float *x,
			 const float *weights, float *scratch, float *y);
	void (*convolve_back_input)(struct train_device *d, const struct train_convolution *c,
				    const float *dpool, const uint8_t *argmax, const float *weights,
				    float *scratch, float *dx);
	void (*convolve_back_weights)(struct train_device *d, const struct train_convolution *c,
				      const float *x, const float *dpool, const uint8_t *argmax,
				      float *scratch, float *gradients);

	/* dy = 0 where y <= 0 */
	void (*relu_back)(struct train_device *d, size_t count, const float *y, float *dy);

	/* Softmax and cross-entropy: *loss = the sum over the rows; logits[rows][classes] are
	 * replaced by their gradient of that sum. */
	void (*loss)(struct train_device *d, size_t rows, size_t classes,
		     const uint8_t *host_labels, float *logits, float *loss);

	/* velocity = momentum * velocity + scale * gradient; weight = weight - rate * velocity */
	void (*descend)(struct train_device *d, size_t count, float scale, float rate,
			float momentum, const float *gradient, float *velocity, float *weight);

	/* Sequences; NULL: the device has none of these operations. Vectors are of `width` floats,
	 * one for each position of a sample.
	 *
	 * embed: y = a row of the table, plus the position's row of the places behind it, for each of
	 * x[vectors], characters as gather gives them; embed_rows: these rows of the table.
	 * embed_back: gradients of a table of e->rows and of the places, where vector i chooses row
	 * host_row[i]. embed_spread: gradients of n rows of the table, and of the places, become those
	 * of the whole table, of which they are host_row[n], ascending; the other rows have 0. */
	void (*embed)(struct train_device *d, const struct train_embedding *e, size_t vectors,
		      const float *x, const float *table, float *y);
	void (*embed_rows)(struct train_device *d, const struct train_embedding *e, size_t vectors,
			   const float *x, uint32_t *host_row);
	void (*embed_back)(struct train_device *d, const struct train_embedding *e, size_t vectors,
			   const uint32_t *host_row, const float *dy, float *gradients);
	void (*embed_spread)(struct train_device *d, const struct train_embedding *e, size_t n,
			     const uint32_t *host_row, float *gradients);

	/* norm: y = (x - mean) / deviation * gain + bias of each vector; parameters: gain, bias;
	 * stats[vectors][2] = mean, 1 / deviation. norm_back: dx = the gradient of x. back_weights:
	 * gradients of gain and bias, in the vectors' order. */
	void (*norm)(struct train_device *d, size_t vectors, size_t width, const float *x,
		     const float *parameters, float *stats, float *y);
	void (*norm_back)(struct train_device *d, size_t vectors, size_t width, const float *x,
			  const float *gain, const float *stats, const float *dy, float *dx);
	void (*norm_back_weights)(struct train_device *d, size_t vectors, size_t width,
				  const float *x, const float *stats, const float *dy,
				  float *gradients);

	/* gelu: y = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))). gelu_back: dy = the gradient
	 * of x. */
	void (*gelu)(struct train_device *d, size_t count, const float *x, float *y);
	void (*gelu_back)(struct train_device *d, size_t count, const float *x, float *dy);

	/* causal: row i of weights[positions][positions] = softmax of scale times its first i + 1
	 * elements; the others 0. causal_back: dweights = the gradient of the argument. */
	void (*causal)(struct train_device *d, size_t positions, float scale, float *weights);
	void (*causal_back)(struct train_device *d, size_t positions, float scale,
			    const float *weights, float *dweights);

	/* lstm: i, f, g, o and c of a position for the product z[rows][4 width] of its parts i, f, g, o
	 * (layer_lstm.c); h = its outputs. lstm_back: dz = the gradient of z, for dy of h plus, unless
	 * NULL, dh of the position behind it, whose rows are dh_stride floats apart; dc[rows][width] is
	 * the gradient of c, replaced by that of `before`; not read if dh is NULL. h, dy and dz have
	 * the stride of c. */
	void (*lstm)(struct train_device *d, const struct train_lstm *cells, const float *z,
		     float *h);
	void (*lstm_back)(struct train_device *d, const struct train_lstm *cells, const float *dy,
			  const float *dh, size_t dh_stride, float *dc, float *dz);

	/* gru: zrn and outputs h of a position for the product zh[rows][3 width] of the outputs before
	 * (layer_gru.c). gru_back: the gradients of both products, of stride of zrn, for dy of h plus,
	 * unless NULL, dh[rows][width] and direct of the position behind it; direct[rows][width] becomes
	 * the part of the gradient of `before` that takes no product. */
	void (*gru)(struct train_device *d, const struct train_gru *cells, const float *zh,
		    float *h);
	void (*gru_back)(struct train_device *d, const struct train_gru *cells, const float *dy,
			 const float *dh, float *direct, float *dx_zrn, float *dh_zrn);

	/* g = scale * gradient; rmsprop.h. NULL: the device has no RMSProp. */
	void (*rmsprop)(struct train_device *d, size_t count, float scale, float rate,
			const float *gradient, float *square, float *weight);

	/* g = scale * gradient; mean = beta1 * mean + (1 - beta1) * g; square = beta2 * square +
	 * (1 - beta2) * g * g; weight = keep * weight - rate * mean / (sqrt(correct2 * square) +
	 * epsilon). NULL: the device has no AdamW. */
	void (*adam)(struct train_device *d, size_t count, const struct train_adam *a,
		     const float *gradient, float *mean, float *square, float *weight);
};

/* X-list of the compute operations without the matrix product; declares functions PREFIX_gather
 * ... and fills their members of the table. */
#define TRAIN_DEVICE_COMPUTE(X, prefix) \
	X(prefix, gather)               \
	X(prefix, bias)                 \
	X(prefix, bias_back)            \
	X(prefix, add)                  \
	X(prefix, blend)                \
	X(prefix, unfold)               \
	X(prefix, fold)                 \
	X(prefix, pool) X(prefix, pool_back) X(prefix, relu_back) X(prefix, loss) X(prefix, descend)
#define TRAIN_DEVICE_SEQUENCE(X, prefix) \
	X(prefix, embed)                 \
	X(prefix, embed_rows)            \
	X(prefix, embed_back)            \
	X(prefix, embed_spread)          \
	X(prefix, norm)                  \
	X(prefix, norm_back)             \
	X(prefix, norm_back_weights)     \
	X(prefix, gelu)                  \
	X(prefix, gelu_back)             \
	X(prefix, causal)                \
	X(prefix, causal_back)           \
	X(prefix, lstm) X(prefix, lstm_back) X(prefix, gru) X(prefix, gru_back)
#define TRAIN_DEVICE_CONVOLUTION(X, prefix) \
	X(prefix, convolve) X(prefix, convolve_back_input) X(prefix, convolve_back_weights)
#define TRAIN_DEVICE_FUNCTION(prefix, name) \
	__typeof__(*((struct train_device_ops *)NULL)->name) prefix##_##name;
#define TRAIN_DEVICE_MEMBER(prefix, name) .name = prefix##_##name,

extern const struct train_device_ops train_device_cpu, train_device_cpu_blas, train_device_sim,
	train_device_cuda;
extern const struct train_device_ops *const train_devices[]; /* ends with NULL */

/* The row of the table for NAME or NAME:NUMBER; NULL with an error text if there is none. */
const struct train_device_ops *train_device_find(const char *name);

/* canonical: results must have the bits of device cpu. Returns 0 | TRAIN_USAGE (no such device,
 * or not on this host) | TRAIN_FAILED. Close with train_device_close. */
int train_device_open(struct train_device *d, const char *name, bool canonical);
void train_device_close(struct train_device *d);

static inline int train_device_sync(struct train_device *d)
{
	return d->ops->sync ? d->ops->sync(d) : 0;
}

#endif

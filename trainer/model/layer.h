/*
 * layer.h - a layer of a model: parameters, forward, backward of the input and of the weights apart
 *
 * A layer computes on samples one by one: its outputs, and the gradients of its inputs, have bits
 * that do not depend on the other samples of a pass. Only gradients of weights are sums over
 * samples (leaves.h). A kind of layer is one file layer_NAME.c with a struct train_layer_ops at its
 * end. Called by model.c; calls the device and leaves.c.
 */
#ifndef TRAIN_LAYER_H
#define TRAIN_LAYER_H

#include "trainer/model/leaves.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct train_model;

enum { TRAIN_HEADS = 8 }; /* of attention */

/* How the ranks of a tensor group divide a product (tensor_axis.h). */
enum train_cut {
	TRAIN_CUT_NONE,    /* each rank has it */
	TRAIN_CUT_COLUMNS, /* each has some outputs, of all inputs */
	TRAIN_CUT_ROWS     /* each has some inputs, and the outputs are sums over all ranks */
};

/* y = x W + b (affine.h) */
struct train_affine {
	size_t at; /* of weights[inputs][outputs] in the layer's arrays; bias[outputs] follows */
	size_t inputs, outputs; /* of this rank */
	size_t vectors;         /* of a sample */
	enum train_cut cut;
	size_t whole; /* size of the dimension that is cut */
};

struct train_layer {
	const struct train_layer_ops *ops;
	size_t inputs, outputs; /* floats of a sample */
	size_t at, parameters;  /* floats in the model's arrays */
	size_t kept;            /* bytes of a sample that forward keeps besides x and y */
	size_t piece;           /* greatest number of gradients that backward sums at once */
	double flops;           /* of a sample's forward pass; backward takes twice as many */
	bool relu;              /* y = max(y, 0) */
	size_t from, to, side;  /* convolution: planes in and out, side of the planes in */
	struct train_affine affine[2];
	size_t positions, width; /* of a sequence: vectors of a sample, and their size */
	size_t heads;            /* of attention */
	struct train_embedding embedding;
};

/* One pass over some samples. */
struct train_pass {
	struct train_model *model;
	const struct train_layer *layer;
	size_t rows;
	const float *x;         /* [rows][inputs] */
	float *y;               /* [rows][outputs] */
	float *dy;              /* gradient of y */
	float *dx;              /* gradient of x, by backward_input */
	uint8_t *kept;          /* [rows][layer->kept] */
	struct train_node part; /* of a sequence: the positions to compute; empty: all */
};

static inline struct train_node train_pass_positions(const struct train_pass *p)
{
	return p->part.last ? p->part : (struct train_node){ 0, p->layer->positions };
}

/* The vectors that a pass computes, as runs of consecutive ones: all, or a part of each row. */
static inline size_t train_pass_runs(const struct train_pass *p)
{
	return p->part.last ? p->rows : 1;
}

static inline struct train_node train_pass_run(const struct train_pass *p, size_t i)
{
	size_t n = p->layer->positions;

	return p->part.last ? (struct train_node){ i * n + p->part.first, i * n + p->part.last }
			    : (struct train_node){ 0, p->rows * n };
}

/* Callback of the backward pass: gradients have become final. */
struct train_ready {
	/* The gradients from `from`, counted from the model's first, to the end are final. Returns 0, or a code that ends the
	 * pass. */
	int (*fn)(void *arg, size_t from);
	void *arg;
	size_t grain; /* approximate number of floats between two calls */
	size_t base;  /* index of the first gradient of the layer that calls */
};

struct train_layer_ops {
	const char *name;
	/* Floats that the passes of a layer share with those of other layers. NULL: none. */
	size_t (*scratch)(const struct train_model *m, const struct train_layer *layer);

	/* parameters, gradients: those of the layer. */
	void (*forward)(const struct train_pass *p, const float *parameters);
	void (*backward_input)(const struct train_pass *p, const float *parameters);

	/* gradients = sums over the rows, cut into nodes by sum; sum NULL: one sum over all rows.
	 * Calls ready (or NULL) from the layer's end down. Returns 0 | the code of ready->fn. */
	int (*backward_weights)(const struct train_pass *p, const struct train_leaf_sum *sum,
				float *gradients, const struct train_ready *ready);
};

extern const struct train_layer_ops train_layer_dense, train_layer_convolution, train_layer_embed,
	train_layer_attention, train_layer_feedforward, train_layer_head, train_layer_lstm,
	train_layer_gru;

/* Add a layer, whose inputs are the outputs of the layer before: fully connected; a convolution of
 * 5 x 5 of square planes, with ReLU and 2 x 2 max pooling, to `to` planes; cut as a product is, of which planes are the columns. Return 0 | TRAIN_FAILED
 * (no memory). */
int train_layer_add_dense(struct train_model *m, size_t outputs, bool relu, enum train_cut cut);
int train_layer_add_convolution(struct train_model *m, size_t to, enum train_cut cut);

/* Add a layer of a model of text: vectors of the characters, of e without its length; x + attention(norm(x)); x + feedforward(norm(x)); LSTM or GRU cells; norm(x) W + b. Return 0 |
 * TRAIN_FAILED. */
int train_layer_add_embed(struct train_model *m, const struct train_embedding *e);
int train_layer_add_attention(struct train_model *m);
int train_layer_add_feedforward(struct train_model *m);
int train_layer_add_lstm(struct train_model *m, size_t width);
int train_layer_add_gru(struct train_model *m, size_t width);
int train_layer_add_head(struct train_model *m);

/* from: in the layer's gradients */
static inline int train_ready_notify(const struct train_ready *ready, size_t from)
{
	return ready ? ready->fn(ready->arg, ready->base + from) : 0;
}

#endif

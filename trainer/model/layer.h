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

struct train_layer {
	const struct train_layer_ops *ops;
	size_t inputs, outputs; /* floats of a sample */
	size_t at, parameters;  /* floats in the model's arrays */
	size_t kept;            /* bytes of a sample that forward keeps besides x and y */
	size_t piece;           /* greatest number of gradients that backward sums at once */
	double flops;           /* of a sample's forward pass; backward takes twice as many */
	bool relu;              /* y = max(y, 0) */
	size_t from, to, side;  /* convolution: planes in and out, side of the planes in */
};

/* One pass over some samples. */
struct train_pass {
	struct train_model *model;
	const struct train_layer *layer;
	size_t rows;
	const float *x; /* [rows][inputs] */
	float *y;       /* [rows][outputs] */
	float *dy;      /* gradient of y */
	float *dx;      /* gradient of x, by backward_input */
	uint8_t *kept;  /* [rows][layer->kept] */
};

/* Callback of the backward pass: gradients have become final. */
struct train_ready {
	/* The gradients from `from` to the end are final. Returns 0, or a code that ends the
	 * pass. */
	int (*fn)(void *arg, size_t from);
	void *arg;
	size_t grain; /* approximate number of floats between two calls */
};

struct train_layer_ops {
	const char *name;
	/* Floats that the passes of a layer share with those of other layers; leaf as in
	 * train_model. NULL: none. */
	size_t (*scratch)(const struct train_layer *layer, size_t leaf);

	void (*forward)(const struct train_pass *p, const float *parameters);
	void (*backward_input)(const struct train_pass *p, const float *parameters);

	/* gradients = sums over the rows, cut into nodes by sum; sum NULL: one sum over all rows.
	 * Calls ready (or NULL) from the layer's end down. Returns 0 | the code of ready->fn. */
	int (*backward_weights)(const struct train_pass *p, const struct train_leaf_sum *sum,
				float *gradients, const struct train_ready *ready);
};

extern const struct train_layer_ops train_layer_dense, train_layer_convolution;

/* Add a layer, whose inputs are the outputs of the layer before: fully connected; a convolution of
 * 5 x 5 of square planes, with ReLU and 2 x 2 max pooling, to `to` planes. Return 0 | TRAIN_FAILED
 * (no memory). */
int train_layer_add_dense(struct train_model *m, size_t outputs, bool relu);
int train_layer_add_convolution(struct train_model *m, size_t to);

static inline int train_ready_notify(const struct train_ready *ready, size_t from)
{
	return ready ? ready->fn(ready->arg, from) : 0;
}

#endif

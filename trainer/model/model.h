/*
 * model.h - a model: a function of parameters in one flat array, and its gradient
 *
 * A model is one file model_NAME.c with a struct train_model_ops at its end, and one row of the
 * table in model.c. Parameters and gradients are flat arrays of the same layout: tensor after
 * tensor, in the order of the forward pass. The backward pass therefore finishes gradients from
 * the end of the array downwards, and one index separates final gradients from the others.
 * Called by trainer.c and gradient.c; calls the device and leaves.c.
 */
#ifndef TRAIN_MODEL_H
#define TRAIN_MODEL_H

#include "trainer/device/device.h"
#include "trainer/model/leaves.h"

#include <stddef.h>
#include <stdint.h>

struct train_tensor {
	size_t at, count; /* offset in the array and size, in floats */
	size_t inputs;    /* fan-in of one output; 0: a bias, initialized with zeros */
};

struct train_model {
	const struct train_model_ops *ops;
	struct train_device *device;
	size_t inputs, classes; /* pixels of a sample, outputs */
	size_t max_rows;        /* greatest number of samples of a pass; 0 is valid too */
	size_t parameters;      /* floats of all tensors */
	size_t piece;           /* greatest number of gradients that backward sums at once */
	size_t leaf;            /* samples of a leaf; without --canonical, of a block of rows */
	struct train_tensor *tensors;
	size_t ntensors;
	void *state; /* the model's own */
};

/* Callback of the backward pass: gradients have become final. */
struct train_ready {
	/* The gradients from `from` to the end are final. Returns 0, or a code that ends the
	 * pass. */
	int (*fn)(void *arg, size_t from);
	void *arg;
	size_t grain; /* approximate number of floats between two calls */
};

/* Sizes that a model is opened for; leaf as in struct train_model. */
struct train_model_size {
	size_t inputs, classes, max_rows, leaf;
};

struct train_model_ops {
	const char *name, *syntax, *help;

	/* Adds the tensors (train_model_add) and sets m->state. `shape` is the text behind the
	 * name and a colon in --model, or NULL. Returns 0 | TRAIN_USAGE (bad shape) |
	 * TRAIN_FAILED (memory); close is called after a failure too. */
	int (*open)(struct train_model *m, const char *shape);
	void (*close)(struct train_model *m);

	/* Returns logits[rows][classes], memory of the model, valid until the next forward. */
	float *(*forward)(struct train_model *m, const float *parameters, const float *x,
			  size_t rows);

	/* After forward of the same rows: gradients = sums over the rows, cut into nodes by sum;
	 * sum NULL: one sum over all rows. Overwrites dlogits. ready may be NULL. Returns 0 |
	 * the code of ready->fn. */
	int (*backward)(struct train_model *m, const float *parameters, const float *x, size_t rows,
			float *dlogits, const struct train_leaf_sum *sum, float *gradients,
			const struct train_ready *ready);
};

extern const struct train_model_ops train_model_linear, train_model_mlp, train_model_cnn;
extern const struct train_model_ops *const train_models[]; /* ends with NULL */

/* text: NAME or NAME:SHAPE. Returns 0 | TRAIN_USAGE | TRAIN_FAILED. */
int train_model_open(struct train_model *m, const char *text, struct train_device *device,
		     const struct train_model_size *size);
void train_model_close(struct train_model *m);

/* For ops.open: adds a tensor at the end of the array. Returns 0 | TRAIN_FAILED. */
int train_model_add(struct train_model *m, size_t count, size_t inputs);

static inline int train_ready_notify(const struct train_ready *ready, size_t from)
{
	return ready ? ready->fn(ready->arg, from) : 0;
}

/* Initial parameters, in host memory: a function of the seed, uniform in +-sqrt(6 / inputs) (He et
 * al. 2015). */
void train_model_init(const struct train_model *m, uint64_t seed, float *host_parameters);

#endif

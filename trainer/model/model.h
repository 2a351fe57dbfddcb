/*
 * model.h - what is trained: a function of parameters that all lie in one array, and its gradient
 *
 * A model is one file model_NAME.c with a struct train_model_ops at its end, and one row of the table
 * in model.c. Parameters and gradients are flat arrays of the same layout: tensor after tensor, in
 * the order of the forward pass. So the backward pass finishes gradients from the end of the array
 * downwards, and "which gradients are final" is one number. Called by trainer.c; calls the device.
 */
#ifndef TRAIN_MODEL_H
#define TRAIN_MODEL_H

#include "trainer/device/device.h"
#include "trainer/strategy/leaves.h"

#include <stddef.h>
#include <stdint.h>

struct train_tensor {
	size_t at, count; /* place in the array, in floats */
	size_t inputs;    /* numbers that one output is made of; 0: a bias, starts as zeros */
};

struct train_model {
	const struct train_model_ops *ops;
	struct train_device *device;
	size_t inputs, classes; /* of a sample */
	size_t max_rows;        /* samples at once; fewer are ordinary, none too */
	size_t parameters;      /* floats in all */
	size_t piece;           /* the most gradients that backward adds up at once */
	size_t leaf;            /* samples of a leaf, or of what a model may take for one */
	struct train_tensor *tensors;
	size_t ntensors;
	void *state; /* the model's own */
};

/* Who wants to know, during the backward pass, that gradients have become final. */
struct train_ready {
	/* All from here to the end are. Returns 0 or a code that ends the pass. */
	int (*fn)(void *arg, size_t from);
	void *arg;
	size_t grain; /* told after each piece of about so many floats */
};

/* What a model is opened for; leaf as in struct train_model. */
struct train_model_size {
	size_t inputs, classes, max_rows, leaf;
};

struct train_model_ops {
	const char *name, *syntax, *help;

	/* `shape` is what follows the name and a colon in --model, or NULL. Adds the tensors
	 * (train_model_add), sets m->state. Returns 0 | TRAIN_USAGE (bad shape) | TRAIN_FAILED
	 * (memory); on failure close is called. */
	int (*open)(struct train_model *m, const char *shape);
	void (*close)(struct train_model *m);

	/* Returns logits[rows][classes], memory of the model, valid until the next forward. */
	float *(*forward)(struct train_model *m, const float *parameters, const float *x, size_t rows);

	/* After forward of the same rows: gradients = the sums over the
	 * rows, as sum says; NULL: over all of them. dlogits is overwritten.
	 * ready may be NULL. Returns 0 or what ready->fn returned. */
	int (*backward)(struct train_model *m, const float *parameters, const float *x, size_t rows,
			float *dlogits, const struct train_gradient_sum *sum, float *gradients,
			const struct train_ready *ready);
};

extern const struct train_model_ops train_model_linear, train_model_mlp, train_model_cnn;
extern const struct train_model_ops *const train_models[]; /* ends with NULL */

/* text: NAME or NAME:SHAPE. Returns 0 | TRAIN_USAGE | TRAIN_FAILED. */
int train_model_open(struct train_model *m, const char *text, struct train_device *device,
		  const struct train_model_size *size);
void train_model_close(struct train_model *m);

/* For open: one more tensor at the end of the array. Returns 0 | TRAIN_FAILED. */
int train_model_add(struct train_model *m, size_t count, size_t inputs);

static inline int train_ready_tell(const struct train_ready *ready, size_t from)
{
	return ready ? ready->fn(ready->arg, from) : 0;
}

/* The parameters to start from, in host memory: a function of the seed. Uniform in +-sqrt(6 /
 * inputs) (He et al. 2015). */
void train_model_start(const struct train_model *m, uint64_t seed, float *host_parameters);

#endif

/*
 * model.h - what is trained: a function of parameters that all lie in one array, and its gradient
 *
 * A model is one file model_NAME.c with a struct tt_model_ops at its end, and one row of the table
 * in model.c. Parameters and gradients are flat arrays of the same layout: tensor after tensor, in
 * the order of the forward pass. So the backward pass finishes gradients from the end of the array
 * downwards, and "which gradients are final" is one number. Called by trainer.c; calls the device.
 */
#ifndef TT_TRAINER_MODEL_H
#define TT_TRAINER_MODEL_H

#include "trainer/device/device.h"
#include "trainer/strategy/leaves.h"

#include <stddef.h>
#include <stdint.h>

struct tt_tensor {
	size_t at, count; /* place in the array, in floats */
	size_t inputs;    /* numbers that one output is made of; 0: a bias, starts as zeros */
};

struct tt_model {
	const struct tt_model_ops *ops;
	struct tt_device *device;
	size_t inputs, classes; /* of a sample */
	size_t max_rows;        /* samples at once; fewer are ordinary, none too */
	size_t parameters;      /* floats in all */
	size_t piece;           /* the most gradients that backward adds up at once */
	size_t leaf;            /* samples of a leaf, or of what a model may take for one */
	struct tt_tensor *tensors;
	size_t ntensors;
	void *state; /* the model's own */
};

/* Who wants to know, during the backward pass, that gradients have become final. */
struct tt_ready {
	/* All from here to the end are. Returns 0 or a code that ends the pass. */
	int (*fn)(void *arg, size_t from);
	void *arg;
	size_t grain; /* told after each piece of about so many floats */
};

/* What a model is opened for; leaf as in struct tt_model. */
struct tt_model_size {
	size_t inputs, classes, max_rows, leaf;
};

struct tt_model_ops {
	const char *name, *syntax, *help;

	/* `shape` is what follows the name and a colon in --model, or NULL. Adds the tensors
	 * (tt_model_add), sets m->state. Returns 0 | TT_TRAIN_USAGE (bad shape) | TT_TRAIN_FAILED
	 * (memory); on failure close is called. */
	int (*open)(struct tt_model *m, const char *shape);
	void (*close)(struct tt_model *m);

	/* Returns logits[rows][classes], memory of the model, valid until the next forward. */
	float *(*forward)(struct tt_model *m, const float *parameters, const float *x, size_t rows);

	/* After forward of the same rows: gradients = the sums over the
	 * rows, as sum says; NULL: over all of them. dlogits is overwritten.
	 * ready may be NULL. Returns 0 or what ready->fn returned. */
	int (*backward)(struct tt_model *m, const float *parameters, const float *x, size_t rows,
			float *dlogits, const struct tt_sum *sum, float *gradients,
			const struct tt_ready *ready);
};

extern const struct tt_model_ops tt_model_linear, tt_model_mlp, tt_model_cnn;
extern const struct tt_model_ops *const tt_models[]; /* ends with NULL */

/* text: NAME or NAME:SHAPE. Returns 0 | TT_TRAIN_USAGE | TT_TRAIN_FAILED. */
int tt_model_open(struct tt_model *m, const char *text, struct tt_device *device,
		  const struct tt_model_size *size);
void tt_model_close(struct tt_model *m);

/* For open: one more tensor at the end of the array. Returns 0 | TT_TRAIN_FAILED. */
int tt_model_add(struct tt_model *m, size_t count, size_t inputs);

static inline int tt_ready_tell(const struct tt_ready *ready, size_t from)
{
	return ready ? ready->fn(ready->arg, from) : 0;
}

/* The parameters to start from, in host memory: a function of the seed. Uniform in +-sqrt(6 /
 * inputs) (He et al. 2015). */
void tt_model_start(const struct tt_model *m, uint64_t seed, float *host_parameters);

#endif

/*
 * model.h - a model: a list of layers over parameters in one flat array, and its gradient
 *
 * A model is one file model_NAME.c with a struct train_model_ops at its end, and one row of the
 * table in model.c; it lists the layers (layer.h). Parameters and gradients are flat arrays of the
 * same layout: tensor after tensor, in the order of the forward pass. The backward pass therefore
 * finishes gradients from the end of the array downwards, and one index separates final gradients
 * from the others.
 *
 * A run of layers is a chunk. A pass over a chunk keeps its data in a struct train_activations, so
 * that several passes of a pipeline can be under way at once. Called by trainer.c and gradient.c.
 */
#ifndef TRAIN_MODEL_H
#define TRAIN_MODEL_H

#include "trainer/device/device.h"
#include "trainer/model/layer.h"
#include "trainer/model/leaves.h"

#include <stddef.h>
#include <stdint.h>

/* The ranks that divide products (tensor_axis.h). All zero: one rank, one shard. */
struct train_tensor_axis {
	size_t shards;      /* of a dimension that is cut; a power of two */
	size_t ranks, rank; /* the shards of a rank are consecutive */
	/* data[count] of each rank becomes the sum over all ranks, as a perfect binary tree in the
	 * order of ranks. Returns 0 | TRAIN_FAILED. */
	int (*sum)(void *arg, float *data, size_t count);
	void *arg;
};

struct train_tensor {
	const char *name, *kind; /* of the part of a layer; weight, bias, ... */
	size_t rows, columns;    /* of this rank */
	bool sparse;             /* a character touches a row at most; the model's first tensor */
	enum train_cut cut;      /* of its rows or columns */
	size_t whole;            /* parts of all ranks, if it is cut, */
	size_t unit;             /* columns of each; 0: a row or column */
	size_t shared;           /* columns behind those that are cut: each rank has them */
	size_t at, count;        /* offset in the array and size, in floats */
	size_t inputs;           /* fan-in of one output; 0: initialized with `value` */
	float value;
	size_t layer;    /* that it belongs to */
	uint32_t number; /* among the tensors of the whole model */
};

/* The passes of some samples through the layers of a chunk; all in device memory. */
struct train_activations {
	size_t first, last;      /* layers first..last-1 */
	struct train_pass *pass; /* [last - first] */
	float *dx;               /* gradient of the chunk's input; NULL: it is the model's input */
	float *dy;               /* memory for the gradient of the chunk's output; NULL: y is */
	struct train_node part;  /* positions of the next forward or backward_input; empty: all */
};

/* Layers whose parameters or gradients a rank has for a while only. All zero: the model's arrays have
 * them. */
struct train_layer_hooks {
	/* The parameters of a layer, valid until the next call. A failure sets m->failed. */
	const float *(*parameters)(void *arg, size_t layer);
	/* The gradients of a layer are complete, at the begin of the array. Returns 0, or a code
	 * that ends the pass. */
	int (*done)(void *arg, size_t layer);
	void *arg;
};

struct train_model {
	const struct train_model_ops *ops;
	struct train_device *device;
	size_t inputs, classes; /* pixels of a sample, outputs of a prediction */
	size_t positions;       /* predictions of a sample */
	struct train_tensor_axis axis;
	struct train_layer_hooks hooks;
	bool failed;       /* a call of the axis or of the hooks failed */
	size_t max_rows;   /* greatest number of samples of a pass; 0 is valid too */
	size_t parameters; /* floats of all tensors */
	size_t piece;      /* greatest number of gradients that backward sums at once */
	size_t leaf;       /* samples of a leaf; without --canonical, of a block of rows */
	struct train_tensor *tensors;
	size_t ntensors;
	struct train_layer *layer; /* of the whole model */
	size_t layers;
	int stages, stage, chunks; /* this part of a model that is cut; 1, 0, 1: it is not */
	size_t *chunk_first;       /* [chunks + 1]: chunk c begins with this layer */
	/* of all stages, uncut: with offsets and counts in the whole array */
	struct train_tensor *whole_tensors;
	size_t nwhole, whole_parameters;
	/* Of a sparse table a gradient has only the rows that a pass touches, ascending, where the table begins; the rest
	 * of its place is never touched, so it takes no memory. NULL: a gradient has the whole table. */
	uint32_t *touched; /* [rows of a whole batch] */
	size_t ntouched;
	float *scratch;                 /* device memory that the layers share during a pass */
	struct train_activations whole; /* of all layers and max_rows samples; not if it is cut */
};

/* Sizes that a model is opened for; leaf as in struct train_model. chunks 0: the model is not cut.
 * Otherwise it has the layers and parameters of chunks stage, stage + stages ... */
struct train_model_size {
	size_t inputs, classes, max_rows, leaf;
	int stages, stage, chunks;
	size_t positions; /* predictions of a sample; 0: 1 */
	bool text;        /* inputs are characters */
	struct train_tensor_axis axis;
};

struct train_model_ops {
	const char *name, *syntax, *help;
	bool text;      /* inputs are characters, not images */
	bool recurrent; /* passes may compute parts of a sequence one after the other */

	/* Adds the layers. `shape` is the text behind the name and a colon in --model, or NULL.
	 * Returns 0 | TRAIN_USAGE (bad shape) | TRAIN_FAILED (memory). */
	int (*open)(struct train_model *m, const char *shape);
};

extern const struct train_model_ops train_model_linear, train_model_mlp, train_model_cnn,
	train_model_gpt, train_model_rnn, train_model_embed;
extern const struct train_model_ops *const train_models[]; /* ends with NULL */

/* text: NAME or NAME:SHAPE. Returns 0 | TRAIN_USAGE | TRAIN_FAILED. */
int train_model_open(struct train_model *m, const char *text, struct train_device *device,
		     const struct train_model_size *size);
void train_model_close(struct train_model *m);

/* For layers: add a tensor of a layer that is being made, of which the first members up to columns,
 * inputs and value are given; add the layer behind the others. Return 0 | TRAIN_FAILED. */
int train_model_add(struct train_model *m, const struct train_tensor *tensor,
		    struct train_layer *layer);
int train_model_add_layer(struct train_model *m, const struct train_layer *layer);

/* A model that is cut: the stage of a layer, and the parameters of a stage. */
int train_model_stage_of(const struct train_model *m, size_t layer);
/* Of all ranks of the tensor axis. */
size_t train_model_stage_parameters(const struct train_model *m, int stage);

/* Used by model.c: leaves the layers of the stage. Returns 0 | TRAIN_USAGE (fewer layers than
 * chunks) | TRAIN_FAILED. */
int train_model_cut(struct train_model *m, const struct train_model_size *size);

/* Outputs of the last layer so far, or the model's inputs. */
size_t train_model_outputs(const struct train_model *m);

/* Initial parameters, in host memory: a function of the seed, uniform in +-sqrt(6 / inputs) (He et
 * al. 2015). */
void train_model_init(const struct train_model *m, uint64_t seed, float *host_parameters);

/* ---- all layers --------------------------------------------------------------------------------- */

/* Returns logits[rows][classes], memory of the model, valid until the next forward. */
float *train_model_forward(struct train_model *m, const float *parameters, const float *x,
			   size_t rows);

/* After forward of the same rows: gradients = sums over the rows, cut into nodes by sum; sum NULL:
 * one sum over all rows. Overwrites dlogits. ready may be NULL. Returns 0 | the code of
 * ready->fn. */
int train_model_backward(struct train_model *m, const float *parameters, float *dlogits,
			 const struct train_leaf_sum *sum, float *gradients,
			 const struct train_ready *ready);

/* ---- a chunk ------------------------------------------------------------------------------------ */

/* Memory for passes of up to `rows` samples through layers first..last-1. Returns 0 | TRAIN_FAILED;
 * close it in any case. */
int train_activations_open(struct train_model *m, size_t first, size_t last, size_t rows,
			   struct train_activations *ret_activations);
void train_activations_close(struct train_model *m, struct train_activations *a);

/* x stays in use until the backward pass. Returns the chunk's outputs [rows][outputs]. */
float *train_chunk_forward(struct train_activations *a, const float *parameters, const float *x,
			   size_t rows);

/* The backward passes of the input and of the weights apart. input: dy is the gradient of the
 * outputs, which is overwritten; sets a->dx unless NULL. weights: follows input; the rest as
 * train_model_backward. */
void train_chunk_backward_input(struct train_activations *a, const float *parameters, float *dy);
int train_chunk_backward_weights(struct train_activations *a, const struct train_leaf_sum *sum,
				 float *gradients, const struct train_ready *ready);

/* Both, layer after layer. */
int train_chunk_backward(struct train_activations *a, const float *parameters, float *dy,
			 const struct train_leaf_sum *sum, float *gradients,
			 const struct train_ready *ready);

#endif

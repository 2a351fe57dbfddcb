/*
 * affine.h - the part of a layer that is y = x W + b, for one or several vectors of a sample
 *
 * A sum over a dimension that is cut is that of its shards, as a perfect binary tree: a rank computes
 * the subtree of its shards, then the ranks of the tensor axis sum theirs. So the bits depend on the
 * number of shards, not of ranks. Called by layers; calls the device, leaves.c and tensor_axis.c.
 */
#ifndef TRAIN_MODEL_AFFINE_H
#define TRAIN_MODEL_AFFINE_H

#include "trainer/model/model.h"

/* Adds the tensors to a layer that is being made. Returns 0 | TRAIN_FAILED. */
int train_affine_add(struct train_model *m, const char *name, size_t inputs, size_t outputs,
		     size_t vectors, enum train_cut cut, struct train_affine *ret_affine,
		     struct train_layer *layer);

/* Floats of model.scratch that the products use. */
size_t train_affine_scratch(const struct train_model *m, const struct train_affine *l);

/* One pass over some samples. */
struct train_affine_pass {
	struct train_model *model;
	const struct train_affine *affine;
	size_t rows;           /* samples */
	const float *x;        /* [rows * vectors][inputs] */
	const float *dy;       /* [rows * vectors][outputs] */
	struct train_node run; /* vectors that forward and backward_input compute; empty: all.
				* Not of a product that is cut. */
};

/* A pass through affine[i] of a layer. */
static inline struct train_affine_pass train_affine_of(const struct train_pass *p, int i,
						       const float *x, const float *dy)
{
	return (struct train_affine_pass){
		.model = p->model, .affine = &p->layer->affine[i], .rows = p->rows, .x = x, .dy = dy
	};
}

/* parameters, gradients: those of the layer. */
void train_affine_forward(const struct train_affine_pass *p, const float *parameters, bool relu,
			  float *y);
void train_affine_backward_input(const struct train_affine_pass *p, const float *parameters,
				 float *dx);
/* As backward_weights of a layer; the bias first. */
int train_affine_backward_weights(const struct train_affine_pass *p,
				  const struct train_leaf_sum *sum, float *gradients,
				  const struct train_ready *ready);

#endif

/*
 * dense.h - a stack of fully connected layers: y = x W + b, with ReLU (max(y, 0)) between layers
 *
 * The implementation of model_linear.c (one layer) and model_mlp.c (several); the functions have
 * the types of struct train_model_ops.
 */
#ifndef TRAIN_DENSE_H
#define TRAIN_DENSE_H

#include "trainer/model/model.h"

enum { TRAIN_DENSE_LAYERS_MAX = 16 };

/* widths: of the `hidden` layers between input and output, at most TRAIN_DENSE_LAYERS_MAX - 1.
 * Returns 0 | TRAIN_FAILED (no memory). */
int train_dense_open(struct train_model *m, const size_t *widths, size_t hidden);
void train_dense_close(struct train_model *m);
float *train_dense_forward(struct train_model *m, const float *parameters, const float *x,
			   size_t rows);
int train_dense_backward(struct train_model *m, const float *parameters, const float *x,
			 size_t rows, float *dlogits, const struct train_leaf_sum *sum,
			 float *gradients, const struct train_ready *ready);

#endif

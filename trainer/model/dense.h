/*
 * dense.h - a stack of fully connected layers: y = x W + b, with max(y, 0) between layers
 *
 * The body of model_linear.c (one layer) and model_mlp.c (several);
 * has the shape of struct tt_model_ops.
 */
#ifndef TT_TRAINER_DENSE_H
#define TT_TRAINER_DENSE_H

#include "trainer/model/model.h"

enum { TT_DENSE_LAYERS_MAX = 16 };

/* widths: of the `hidden` layers between input and output, at most TT_DENSE_LAYERS_MAX - 1 */
int tt_dense_open(struct tt_model *m, const size_t *widths, size_t hidden);
void tt_dense_close(struct tt_model *m);
float *tt_dense_forward(struct tt_model *m, const float *parameters, const float *x, size_t rows);
int tt_dense_backward(struct tt_model *m, const float *parameters, const float *x, size_t rows,
		      float *dlogits, const struct tt_sum *sum, float *gradients,
		      const struct tt_ready *ready);

#endif

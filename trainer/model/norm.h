/*
 * norm.h - the part of a layer of a sequence that normalizes its input: each vector is shifted to
 * mean 0, scaled to variance 1, then multiplied by a gain and shifted by a bias
 *
 * Its tensors are the first of the layer: gain[width], bias[width]. Called by layers; calls the
 * device. Source: Ba, Kiros and Hinton 2016, Layer normalization.
 */
#ifndef TRAIN_MODEL_NORM_H
#define TRAIN_MODEL_NORM_H

#include "trainer/model/model.h"

/* Floats of a vector that forward keeps: mean and 1 / standard deviation. */
enum { TRAIN_NORM_KEPT = 2 };

/* Returns 0 | TRAIN_FAILED. */
int train_norm_add(struct train_model *m, struct train_layer *layer);

/* y[rows * positions][width], stats[rows * positions][TRAIN_NORM_KEPT] */
void train_norm_forward(const struct train_pass *p, const float *parameters, float *stats,
			float *y);

/* p->dx = the gradient of x for the gradient dy of y, plus p->dy if the layer adds its input. */
void train_norm_backward_input(const struct train_pass *p, const float *parameters,
			       const float *stats, const float *dy, bool adds_input);
/* As backward_weights of a layer. */
int train_norm_backward_weights(const struct train_pass *p, const float *stats, const float *dy,
				const struct train_leaf_sum *sum, float *gradients,
				const struct train_ready *ready);

#endif

/*
 * rmsprop.h - RMSProp: gradients divided by the root of their mean square
 *
 *	square = 0.99 square + 0.01 g^2;  weight -= rate g / sqrt(square + 0.00001)
 *
 * Called by host_loops_isa.h and shared_parameters.c, whose bits are the same. Sources: Tieleman and
 * Hinton 2012, Neural networks for machine learning, lecture 6e; Mnih et al. 2016, whose workers share
 * the squares.
 */
#ifndef TRAIN_DEVICE_RMSPROP_H
#define TRAIN_DEVICE_RMSPROP_H

static inline float train_rmsprop_square(float square, float g)
{
	return 0.99f * square + 0.01f * g * g;
}

/* The change of a weight, for the new square. */
static inline float train_rmsprop_change(float square, float g, float rate)
{
	return rate * g / __builtin_sqrtf(square + 1e-5f);
}

#endif

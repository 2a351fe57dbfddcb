/*
 * exact.h - exp, log, softmax and cross-entropy, bit-reproducible with every C library
 *
 * Computed in double, with +, -, *, / in a fixed order (compile with -ffp-contract=off). Called by
 * device_host.c and gradient.c; train_kernels.cu compiles exact.c for a GPU.
 */
#ifndef TRAIN_EXACT_H
#define TRAIN_EXACT_H

#include <stddef.h>

#ifdef __CUDACC__
#define TRAIN_EXACT_FN __device__
#else
#define TRAIN_EXACT_FN
#endif

/* e^x, relative error about 1e-15; 0 below -700, e^700 above 700. NaN stays NaN. */
TRAIN_EXACT_FN double train_exact_exp(double x);

/* ln x for normal x > 0, error about 1e-15. NaN stays NaN. */
TRAIN_EXACT_FN double train_exact_log(double x);

/* -ln of the softmax probability of `label`; NaN or infinite if the logits are */
TRAIN_EXACT_FN double train_cross_entropy(const float *logits, size_t classes, size_t label);

/* logits = softmax(logits) */
TRAIN_EXACT_FN void train_softmax(float *logits, size_t classes);

/* Both, for at most 256 classes. Returns the cross-entropy. */
TRAIN_EXACT_FN double train_softmax_loss(float *logits, size_t classes, size_t label);

#endif

/*
 * exact.h - exp, log, softmax and cross-entropy whose bits do not depend on the C library
 *
 * In double, only +, -, *, / in a written order (compile with -ffp-contract=off). Called by
 * device_host.c and trainer.c; train_kernels.cu has it compiled for a GPU.
 */
#ifndef TRAIN_EXACT_H
#define TRAIN_EXACT_H

#include <stddef.h>

#ifdef __CUDACC__
#define TRAIN_WHERE __device__
#else
#define TRAIN_WHERE
#endif

/* e^x, right to about 1e-15; 0 below -700, and beyond 700 as at 700. NaN stays NaN. */
TRAIN_WHERE double train_exact_exp(double x);

/* ln x for normal x > 0, right to about 1e-15. NaN stays NaN. */
TRAIN_WHERE double train_exact_log(double x);

/* -ln of the probability that softmax gives to `label`; NaN or infinity where the logits are */
TRAIN_WHERE double train_cross_entropy(const float *logits, size_t classes, size_t label);

/* logits become softmax(logits) */
TRAIN_WHERE void train_softmax(float *logits, size_t classes);

#endif

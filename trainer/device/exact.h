/*
 * exact.h - exp, log, softmax and cross-entropy whose bits do not depend on the C library
 *
 * In double, only +, -, *, / in a written order (compile with -ffp-contract=off). Called by
 * device_host.c and trainer.c; train_kernels.cu has it compiled for a GPU.
 */
#ifndef TT_TRAINER_EXACT_H
#define TT_TRAINER_EXACT_H

#include <stddef.h>

#ifdef __CUDACC__
#define TT_WHERE __device__
#else
#define TT_WHERE
#endif

/* e^x, right to about 1e-15; 0 below -700, and beyond 700 as at 700. NaN stays NaN. */
TT_WHERE double tt_exact_exp(double x);

/* ln x for normal x > 0, right to about 1e-15. NaN stays NaN. */
TT_WHERE double tt_exact_log(double x);

/* -ln of the probability that softmax gives to `label`; NaN or infinity where the logits are */
TT_WHERE double tt_cross_entropy(const float *logits, size_t classes, size_t label);

/* logits become softmax(logits) */
TT_WHERE void tt_softmax(float *logits, size_t classes);

#endif

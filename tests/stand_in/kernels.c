/*
 * kernels.c - the stand-in's kernels: none yet
 */
#include "stand_in.h"

const struct stand_in_kernel stand_in_kernels[] = { { NULL, NULL, 0 } };

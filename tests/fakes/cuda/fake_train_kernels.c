/* fake_train_kernels.c - the trainer's kernels, compiled for the host, one thread per block */
#include "tests/fakes/cuda/fake_cuda.h"

#include "trainer/device/train_kernels.cu"

#define ROW(name, type) { "train_kernel_" #name, train_kernel_##name, sizeof(struct type), NULL },
const struct fake_kernel fake_train_kernels[] = { TRAIN_CUDA_KERNELS(ROW){ NULL, NULL, 0, NULL } };

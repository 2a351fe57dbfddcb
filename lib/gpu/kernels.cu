/*
 * kernels.cu - combine the memory of several ranks on a GPU: one kernel for each type, with every
 * op
 *
 * Launched by gpu_open.c, gpu_call.c and gpu_streams.c. nvcc compiles the file to a fat binary,
 * which the library embeds; the tests' fake driver compiles the file as C, where a block is one
 * thread. The bits are those of lib/mem/reduce*.c: operands in rank order, small floats widened to
 * float and rounded once, a NaN result replaced by the canonical NaN of its type, no contraction
 * (-fmad=false).
 *
 * Ways of a job (enum tt_dev_way), a file of kernels/ each: kernel_barrier.h, kernel_ll.h,
 * kernel_fifo.h, and kernel_streams.h for jobs that streams order. A rank's block b synchronizes
 * with block b of its peers only. Epochs are kept in device memory, so a graph can be replayed.
 * Every wait polls the report's abort word and a clock.
 *
 * Scopes of strong accesses are .sys, since a peer may be on another GPU and the report is host
 * memory. No pointer is __restrict__: loads by the non-coherent path (ld.global.nc) would break the
 * orders that the files of the ways name.
 */
#include "gpu/kernels/kernel_barrier.h"
#include "gpu/kernels/kernel_fifo.h"
#include "gpu/kernels/kernel_fold.h"
#include "gpu/kernels/kernel_formats.h"
#include "gpu/kernels/kernel_move.h"
#include "gpu/kernels/kernel_streams.h"

#define TYPE Int8
#define RAW uint8_t
#define VALUE uint8_t
#define ARITHMETIC Int8
#define WHOLE 1
#include "gpu/kernels/kernel_type.h"

#define TYPE Uint8
#define RAW uint8_t
#define VALUE uint8_t
#define ARITHMETIC Uint8
#define WHOLE 1
#include "gpu/kernels/kernel_type.h"

#define TYPE Int32
#define RAW uint32_t
#define VALUE uint32_t
#define ARITHMETIC Int32
#define WHOLE 1
#include "gpu/kernels/kernel_type.h"

#define TYPE Uint32
#define RAW uint32_t
#define VALUE uint32_t
#define ARITHMETIC Uint32
#define WHOLE 1
#include "gpu/kernels/kernel_type.h"

#define TYPE Int64
#define RAW uint64_t
#define VALUE uint64_t
#define ARITHMETIC Int64
#define WHOLE 1
#include "gpu/kernels/kernel_type.h"

#define TYPE Uint64
#define RAW uint64_t
#define VALUE uint64_t
#define ARITHMETIC Uint64
#define WHOLE 1
#include "gpu/kernels/kernel_type.h"

#define TYPE Float16
#define RAW uint16_t
#define VALUE float
#define ARITHMETIC Float32
#define WHOLE 0
#include "gpu/kernels/kernel_type.h"

#define TYPE Bfloat16
#define RAW uint16_t
#define VALUE float
#define ARITHMETIC Float32
#define WHOLE 0
#include "gpu/kernels/kernel_type.h"

#define TYPE Float32
#define AWAITS
#define RAW uint32_t
#define VALUE float
#define ARITHMETIC Float32
#define WHOLE 0
#include "gpu/kernels/kernel_type.h"

#define TYPE Float64
#define RAW uint64_t
#define VALUE double
#define ARITHMETIC Float64
#define WHOLE 0
#include "gpu/kernels/kernel_type.h"

#define TYPE Float8e4m3
#define RAW uint8_t
#define VALUE float
#define ARITHMETIC Float32
#define WHOLE 0
#include "gpu/kernels/kernel_type.h"

#define TYPE Float8e5m2
#define RAW uint8_t
#define VALUE float
#define ARITHMETIC Float32
#define WHOLE 0
#include "gpu/kernels/kernel_type.h"

/* gpu_ranks.h - ranks with a GPU, each group of ranks in a process of its own; and claims. For the
 * files of test_gpu. */
#ifndef TESTS_GPU_RANKS_H
#define TESTS_GPU_RANKS_H

#include <stdio.h>

#include "comm/comm.h"
#include "gpu/gpu.h"
#include "tests/support/harness_cuda.h"
#include "tests/support/ranks.h"

extern int gpu_failed;  /* 1: a claim of this case failed */
extern int gpu_limit_s; /* seconds for the ranks of a run */
#define claim(x)                                                                        \
	do {                                                                            \
		if (!(x)) {                                                             \
			fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #x); \
			gpu_failed = 1;                                                 \
		}                                                                       \
	} while (0)

struct gpu_ranks {
	struct ranks ranks;
	rank_fn *fn;
	enum {
		KERNEL_BARRIER, /* threads that share a GPU */
		STREAM_ORDER, /* processes; also ranks with a GPU each, whose kernels need no barrier */
		STAGED
	} mode;
	bool mixed;               /* rank 0 has no GPU */
	void (*before)(int rank); /* called after CUDA is loaded, before init; NULL: nothing */
};

/* The device of a rank: 0, or with TUTTI_TEST_CUDA_DEVICES set, round robin over that many devices. */
int gpu_rank_device(int rank);
/* Gives the next ranks `devices` devices. false: this host has a GPU, but fewer of them. */
bool gpu_use_devices(int devices);
/* Runs the ranks. Returns the number of failed ranks, 100: their process failed. */
int gpu_ranks_run(struct gpu_ranks *t);
/* Runs fn as n ranks; on a GPU with a deadline of a fourth of the run's limit, else of the limit. Returns as
 * gpu_ranks_run. */
int run_gpu_ranks(int n, int mode, bool threads, rank_fn *fn);
/* Runs fn as n processes with a deadline of an hour: only the failure itself ends a call. Returns as gpu_ranks_run. */
int run_gpu_ranks_without_deadline(int n, int mode, rank_fn *fn);
/* 1 MiB of device memory and a stream, on which a first allreduce of 60000 floats of this memory has ended */
void *gpu_first_call(tuttiComm_t comm, tt_custream *ret_stream);
/* Waits until the communicator has an error. Returns the error; tuttiSuccess: none after 15 s. */
tuttiResult_t gpu_await_error(tuttiComm_t comm);
/* Runs fn as threads with kernel barriers, as processes in stream order, and as staged processes, one
 * after the other. Returns the number of failures. */
int run_gpu_ranks_all_modes(int n, rank_fn *fn);

/* Is there time for more than a minimal choice of calls? True in the tiers full and soak and on a GPU,
 * except under slow tools (TT_GPU_BRIEF). */
bool gpu_thorough(void);
/* The same for ranks that are processes, which are slow where they share a GPU. */
bool gpu_thorough_processes(void);

/* The cases of test_gpu, by file. test_gpu.c runs each case in a process of its own. */
struct gpu_case {
	const char *name;
	void (*run)(void);
	bool is_long;
};
#define GPU_CASE(name)             \
	{                          \
#name, name, false \
	}
#define GPU_LONG_CASE(name)       \
	{                         \
#name, name, true \
	} /* runs only if named */
/* The last case has no name. */
extern const struct gpu_case gpu_values[], gpu_algorithms[], gpu_pairs[], gpu_order[], gpu_errors[],
	gpu_failed_devices[], gpu_devices[], gpu_mismatches[], gpu_peer_records[], gpu_cost[],
	gpu_shared_fifo[];

#endif

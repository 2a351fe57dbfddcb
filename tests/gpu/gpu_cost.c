/*
 * gpu_cost.c - what a call on device memory takes of the host and of the device: calls of the driver,
 * wake-ups of the watchdog, blocks
 *
 * Counted in the fake driver (tests/fakes/cuda/fake_counts.h), so these cases are skipped on a GPU.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#include "tests/fakes/cuda/fake_counts.h"
#include "tests/gpu/gpu_ranks.h"

enum { COUNT = 1 << 20 };

struct summed {
	tt_custream stream;
	tt_cuptr in, out;
};

static int open_sums(struct summed *x)
{
	const struct tt_cuda *cu = tt_cuda_here();

	return cu->mem_alloc(&x->in, COUNT * 4) || cu->mem_alloc(&x->out, COUNT * 4) ||
	       cu->memset8_async(x->in, 0, COUNT * 4, NULL) ||
	       cu->stream_create(&x->stream, TT_CU_STREAM_NON_BLOCKING);
}

static int sum(tuttiComm_t comm, const struct summed *x, size_t count, bool in_place)
{
	return tuttiAllReduce((void *)(uintptr_t)x->in,
			      (void *)(uintptr_t)(in_place ? x->in : x->out), count, tuttiInt32,
			      tuttiSum, comm, x->stream) != tuttiSuccess;
}

static int close_sums(struct summed *x)
{
	const struct tt_cuda *cu = tt_cuda_here();

	return cu->stream_synchronize(x->stream) || cu->stream_destroy(x->stream) ||
	       cu->mem_free(x->in) || cu->mem_free(x->out);
}

/* The context and the capture mode of the thread, twice (5); the memory behind each buffer (2); is the stream
 * captured; the wait for the call before; the kernel; the event behind it (4) */
static int count_calls(tuttiComm_t *comm, int rank, int n, void *arg)
{
	fake_calls_fn *calls = NULL;
	struct summed x;
	int wrong = open_sums(&x);

	(void)arg, (void)n;
	*(void **)&calls = dlsym(RTLD_DEFAULT, "fake_calls");
	for (int k = 0; k < 6 && calls && !wrong; k++) {
		bool in_place = k % 2;
		unsigned long before = calls(), made, most = in_place ? 10 : 11;

		wrong += sum(*comm, &x, k < 4 ? 1000 : COUNT, in_place);
		made = calls() - before;
		if (k > 1 && made > most)
			wrong += fprintf(stderr, "rank %d: %lu calls of the driver, not %lu\n",
					 rank, made, most) > 0;
	}
	return wrong + close_sums(&x);
}

static void a_call_by_kernels_makes_eleven_calls_of_the_driver(void)
{
	if (getenv("TUTTI_TEST_GPU"))
		return;
	claim(run_gpu_ranks(2, KERNEL_BARRIER, true, count_calls) == 0);
	claim(gpu_use_devices(2) && run_gpu_ranks(2, STREAM_ORDER, false, count_calls) == 0);
}

/* Four ranks have a block on each multiprocessor at a time. Communicators of one rank leave it to them. */
static int fill_device(tuttiComm_t *comm, int rank, int n, void *arg)
{
	struct tt_gpu *d = (*comm)->gpu;
	fake_most_blocks_fn *most = NULL;
	tuttiComm_t alone, again;
	int sms = 0, wrong = 0;
	struct summed x;

	(void)arg;
	wrong += d->cu->device_attribute(&sms, TT_CU_ATTR_SMS, d->device) || open_sums(&x);
	wrong += tuttiCommSplit(*comm, rank, 0, &alone, NULL) ||
		 tuttiCommSplit(*comm, 0, rank, &again, NULL);
	wrong += sum(*comm, &x, COUNT, false) + sum(alone, &x, COUNT, false) + close_sums(&x);
	*(void **)&most = dlsym(RTLD_DEFAULT, "fake_most_blocks");
	if (!most || most() != (unsigned)sms || d->blocks != (uint32_t)(sms / n) ||
	    again->gpu->blocks != d->blocks / 2)
		wrong +=
			fprintf(stderr,
				"rank %d: %u blocks, then %u, on %d multiprocessors; %u at a time\n",
				rank, d->blocks, again->gpu->blocks, sms, most ? most() : 0) > 0;
	tuttiCommDestroy(again), tuttiCommDestroy(alone);
	return wrong;
}

static void threads_that_share_a_gpu_have_a_block_on_each_multiprocessor(void)
{
	if (!getenv("TUTTI_TEST_GPU"))
		claim(run_gpu_ranks(4, KERNEL_BARRIER, true, fill_device) == 0);
}

/* Small blocks may leave room for another one on each multiprocessor, but for no large one. */
static int mix_blocks(tuttiComm_t *comm, int rank, int n, void *arg)
{
	tuttiComm_t pair;
	struct summed x;
	int wrong = open_sums(&x);

	(void)arg, (void)n;
	wrong += tuttiCommSplit(*comm, rank < 2 ? 0 : TUTTI_SPLIT_NOCOLOR, rank, &pair, NULL) != 0;
	for (int i = 0; i < 4 && !wrong; i++) {
		if (pair)
			wrong += sum(pair, &x, COUNT, false) + pair->gpu->kernels_wait;
		wrong += sum(*comm, &x, COUNT, false);
	}
	if (pair)
		tuttiCommDestroy(pair);
	return wrong + close_sums(&x);
}

static void large_blocks_are_not_counted_on_beside_small_ones(void)
{
	if (!getenv("TUTTI_TEST_GPU"))
		claim(gpu_use_devices(2) &&
		      run_gpu_ranks(3, KERNEL_BARRIER, true, mix_blocks) == 0);
}

static __thread long signals; /* to other threads */

/* In place of libc's */
int pthread_cond_signal(pthread_cond_t *cond)
{
	static int (*libc_signal)(pthread_cond_t *);

	if (!libc_signal)
		*(void **)&libc_signal = dlsym(RTLD_NEXT, "pthread_cond_signal");
	signals++;
	return libc_signal(cond);
}

/* The thread sleeps only where 20 ms pass between two calls, so the time bounds its wake-ups. */
static int call_often(tuttiComm_t *comm, int rank, int n, void *arg)
{
	enum { CALLS = 4000 };
	struct summed x;
	int wrong = open_sums(&x) || sum(*comm, &x, 1, true);
	uint64_t began = tt_now_ns();
	long most;

	(void)arg, (void)n, (void)rank;
	signals = 0;
	for (int i = 0; i < CALLS && !wrong; i++)
		wrong += sum(*comm, &x, 1, true);
	most = 1 + (long)((tt_now_ns() - began) / 20000000);
	if (signals > most)
		wrong += fprintf(stderr, "%ld signals in %d calls\n", signals, CALLS) > 0;
	return wrong + close_sums(&x);
}

static void a_series_of_calls_wakes_the_watchdog_once(void)
{
	claim(run_gpu_ranks(1, KERNEL_BARRIER, true, call_often) == 0);
}

const struct gpu_case gpu_cost[] = {
	GPU_CASE(a_call_by_kernels_makes_eleven_calls_of_the_driver),
	GPU_CASE(threads_that_share_a_gpu_have_a_block_on_each_multiprocessor),
	GPU_CASE(large_blocks_are_not_counted_on_beside_small_ones),
	GPU_CASE(a_series_of_calls_wakes_the_watchdog_once),
	{ NULL, NULL, false },
};

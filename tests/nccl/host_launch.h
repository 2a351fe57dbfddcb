/*
 * host_launch.h - the kernels of nccl-tests' verifiable.cu as host functions, for tests/scripts/nccl_tests.sh
 *
 * C++17, included before a copy of verifiable.cu in which HOST_KERNEL and host_launch stand for the address and the
 * launch of a kernel. A kernel runs as a host function of its stream, its threads one after the other:
 * these kernels have neither barriers nor shared memory.
 */
#ifndef TT_HOST_LAUNCH_H
#define TT_HOST_LAUNCH_H

#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <tuple>
#include <utility>

static thread_local struct {
	dim3 thread, block, threads, blocks;
} host_place;
#undef __launch_bounds__
#define __launch_bounds__(...)
#define threadIdx host_place.thread
#define blockIdx host_place.block
#define blockDim host_place.threads
#define gridDim host_place.blocks

struct host_kernel {
	void *(*keep)(void **args); /* copies the arguments */
	void (*run)(void *kept);    /* one thread */
	void (*drop)(void *kept);
};

template <auto F> struct host_kernel_of;
template <class... A, void (*F)(A...)> struct host_kernel_of<F> {
	using arguments = std::tuple<A...>;
	template <size_t... I> static void *keep(void **args, std::index_sequence<I...>)
	{
		return new arguments(*(A *)args[I]...);
	}
	static void *keep_all(void **args)
	{
		return keep(args, std::index_sequence_for<A...>{});
	}
	static void run(void *kept)
	{
		std::apply(F, *(arguments *)kept);
	}
	static void drop(void *kept)
	{
		delete (arguments *)kept;
	}
	static constexpr host_kernel kernel = { keep_all, run, drop };
};
#define HOST_KERNEL(...) ((const void *)&host_kernel_of<&__VA_ARGS__>::kernel)

struct host_work {
	const host_kernel *kernel;
	dim3 grid, block;
	void *kept;
};

static void run_host_work(void *arg)
{
	host_work *w = (host_work *)arg;

	gridDim = w->grid;
	blockDim = w->block;
	for (blockIdx.x = 0; blockIdx.x < w->grid.x; blockIdx.x++)
		for (threadIdx.x = 0; threadIdx.x < w->block.x; threadIdx.x++)
			w->kernel->run(w->kept);
	w->kernel->drop(w->kept);
	delete w;
}

static cudaError_t host_launch(const void *kernel, dim3 grid, dim3 block, void **args, size_t,
			       cudaStream_t stream)
{
	const host_kernel *k = (const host_kernel *)kernel;

	return cudaLaunchHostFunc(stream, run_host_work,
				  new host_work{ k, grid, block, k->keep(args) });
}

#endif

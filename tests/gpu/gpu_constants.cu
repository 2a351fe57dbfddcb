/*
 * gpu_constants.cu - the constants of lib/model/gpu_time.c, measured on device 0: launch, load, word, fence, barrier,
 * and the rates at which multiprocessors copy
 *
 * Called by tests/gpu/run. Prints rows of a Markdown table. Words and fences have the scope of the system, as those of
 * the library's kernels; here they stay on one device.
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#define OK(x)                                                                     \
	do {                                                                      \
		cudaError_t rc_ = (x);                                            \
		if (rc_ != cudaSuccess) {                                         \
			fprintf(stderr, "%s: %s\n", #x, cudaGetErrorString(rc_)); \
			exit(1);                                                  \
		}                                                                 \
	} while (0)

static const size_t most_bytes = (size_t)1 << 30;
static const int threads = 512, kernels = 100, repeats = 20000;

static cudaStream_t stream;
static cudaEvent_t began, ended;

/* us of the work that `run` puts on the stream, the second time */
template <typename F> static double timed(F run)
{
	float ms = 0;

	run();
	OK(cudaEventRecord(began, stream));
	run();
	OK(cudaEventRecord(ended, stream));
	OK(cudaEventSynchronize(ended));
	OK(cudaEventElapsedTime(&ms, began, ended));
	return (double)ms * 1e3;
}

static void row(const char *what, double figure, const char *unit)
{
	printf("| %s | %.4g | %s |\n", what, figure, unit);
}

static __global__ void nothing() {}

/* The time between two kernels of a graph, which follow one another */
static void launch(int blocks)
{
	cudaGraphExec_t exec;
	cudaGraph_t graph;
	char what[80];

	OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	for (int i = 0; i < kernels; i++)
		nothing<<<blocks, threads, 0, stream>>>();
	OK(cudaStreamEndCapture(stream, &graph));
	OK(cudaGraphInstantiate(&exec, graph, 0));
	snprintf(what, sizeof(what), "launch: an empty kernel of %d blocks in a graph", blocks);
	row(what, timed([&] { OK(cudaGraphLaunch(exec, stream)); }) / kernels, "us");
}

/* Each element of the list has the index of the next one. */
static __global__ void make_list(uint64_t *list, uint64_t n, uint64_t step)
{
	for (uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		list[i] = (i + step) % n;
}

/* Goes on where the last walk ended, so that no element is in a cache because of it. */
static __global__ void follow(const uint64_t *list, int n, uint64_t *at)
{
	uint64_t i = *at;

	while (n--)
		asm volatile("ld.global.u64 %0, [%1];" : "=l"(i) : "l"(list + i));
	*at = i;
}

static void load(uint64_t *memory, size_t bytes, const char *what)
{
	uint64_t n = bytes / sizeof(*memory);

	OK(cudaMemsetAsync(memory + n, 0, sizeof(*memory), stream));
	make_list<<<264, threads, 0, stream>>>(memory, n, 0x9e3779b1ull % n | 1);
	row(what,
	    timed([&] { follow<<<1, 1, 0, stream>>>(memory, repeats, memory + n); }) / repeats *
		    1e3,
	    "ns");
}

/* Block 0 writes i, block 1 answers. */
static __global__ void ping_pong(uint32_t *words, int n)
{
	uint32_t *mine = words + 64 * blockIdx.x, *theirs = words + 64 * (1 - blockIdx.x), seen;

	for (uint32_t i = 1; i <= n; i++) {
		if (blockIdx.x == 0)
			asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(theirs), "r"(i)
				     : "memory");
		do
			asm volatile("ld.acquire.sys.global.u32 %0, [%1];"
				     : "=r"(seen)
				     : "l"(mine)
				     : "memory");
		while (seen != i);
		if (blockIdx.x == 1)
			asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(theirs), "r"(i)
				     : "memory");
	}
	*mine = 0;
}

/* Each thread stores 16 bytes, then one publishes them by a release, or none does. */
static __global__ void publish(uint4 *memory, uint32_t *word, int n, int releases)
{
	for (int i = 0; i < n; i++) {
		memory[(i % 64) * blockDim.x + threadIdx.x] = make_uint4(i, i, i, i);
		__syncthreads();
		if (releases && threadIdx.x == 0)
			asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(i)
				     : "memory");
	}
}

static __global__ void barriers(int n)
{
	while (n--)
		__syncthreads();
}

/* Blocks copy by vectors of 16 bytes, DEEP at once. Shared memory leaves room for one block on a multiprocessor. */
template <int DEEP> static __global__ void copy(uint4 *to, const uint4 *from, size_t n)
{
	size_t step = (size_t)gridDim.x * blockDim.x;

	for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i + (DEEP - 1) * step < n;
	     i += DEEP * step) {
		uint4 x[DEEP];
#pragma unroll
		for (int k = 0; k < DEEP; k++)
			x[k] = from[i + k * step];
#pragma unroll
		for (int k = 0; k < DEEP; k++)
			to[i + k * step] = x[k];
	}
}

template <int DEEP> static void copies(uint4 *memory, int sms)
{
	const int alone = 120 << 10;
	size_t n = most_bytes / 2 / sizeof(*memory);

	OK(cudaFuncSetAttribute(copy<DEEP>, cudaFuncAttributeMaxDynamicSharedMemorySize, alone));
	for (int size = 256; size <= 1024; size *= 2)
		for (int blocks : { 1, 16, 32, 64, sms }) {
			size_t part = blocks < 16 ? n / 64 : n;
			double us = timed([&] {
				copy<DEEP>
					<<<blocks, size, alone, stream>>>(memory, memory + n, part);
			});
			char what[100], unit[60];

			snprintf(what, sizeof(what),
				 "%d multiprocessors copy, %d threads, %d vectors at once", blocks,
				 size, DEEP);
			snprintf(unit, sizeof(unit), "GB/s read and written; %.1f each",
				 32e-3 * (double)part / us / blocks);
			row(what, 32e-3 * (double)part / us, unit);
		}
}

int main()
{
	cudaDeviceProp device;
	uint64_t *memory;
	uint32_t *words;
	double plain;

	OK(cudaGetDeviceProperties(&device, 0));
	OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	OK(cudaEventCreate(&began));
	OK(cudaEventCreate(&ended));
	OK(cudaMalloc(&memory, most_bytes + 4096));
	OK(cudaMalloc(&words, 4096));
	OK(cudaMemset(words, 0, 4096));
	OK(cudaMemset(memory, 1, most_bytes));
	OK(cudaDeviceSynchronize());
	printf("| %s | figure | unit |\n| --- | --- | --- |\n", device.name);
	launch(1);
	launch(64);
	launch(device.multiProcessorCount);
	load(memory, most_bytes, "load: a pointer of 1 GiB");
	load(memory, 16 << 20, "load: a pointer of 16 MiB, in the L2 cache");
	row("word: from one multiprocessor to another, released and acquired",
	    timed([&] { ping_pong<<<2, 1, 0, stream>>>(words, repeats); }) / repeats / 2 * 1e3,
	    "ns");
	plain = timed([&] {
			publish<<<1, threads, 0, stream>>>((uint4 *)memory, words, repeats, 0);
		}) /
		repeats;
	row("fence: a release of 8 KiB, without the time of the stores",
	    (timed([&] {
		     publish<<<1, threads, 0, stream>>>((uint4 *)memory, words, repeats, 1);
	     }) / repeats -
	     plain) *
		    1e3,
	    "ns");
	row("barrier of 512 threads",
	    timed([&] { barriers<<<1, threads, 0, stream>>>(repeats); }) / repeats * 1e3, "ns");
	copies<1>((uint4 *)memory, device.multiProcessorCount);
	copies<4>((uint4 *)memory, device.multiProcessorCount);
	copies<8>((uint4 *)memory, device.multiProcessorCount);
	OK(cudaDeviceSynchronize());
	return 0;
}

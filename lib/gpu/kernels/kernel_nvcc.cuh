/*
 * kernel_nvcc.cuh - the words of kernels for nvcc: qualifiers, numbers of threads, accesses of memory
 *
 * kernel_host.h defines the same for C compilers; kernel_words.h includes one of them.
 */
#ifndef TT_KERNEL_NVCC_CUH
#define TT_KERNEL_NVCC_CUH

#define DEV static __device__ __forceinline__
#define KERNEL(name)                                                 \
	extern "C" __global__ void __launch_bounds__(TT_DEV_THREADS) \
		name(const __grid_constant__ struct tt_dev_job job)
#define JOB (&job)
#define THREAD threadIdx.x
#define THREADS blockDim.x
#define BLOCK blockIdx.x
#define BLOCKS gridDim.x
#define SYNC() __syncthreads()
#define SHARED __shared__
#define UNROLL _Pragma("unroll")
#define ONCE _Pragma("unroll 1")
#define PRAGMA(x) _Pragma(#x)
#define UNROLL_TO(n) PRAGMA(unroll(n))

struct __align__(16) pair
{
	uint64_t a, b;
};

DEV void put_release(uint32_t *p, uint32_t v)
{
	asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
/* For counters that only the host reads: a release would wait for all earlier writes, also writes
 * over the bus. */
DEV void put_count(uint32_t *p, uint32_t v)
{
	asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
DEV void put_relaxed(uint64_t *p, uint64_t v)
{
	asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

DEV uint32_t swap_relaxed(uint32_t *p, uint32_t v)
{
	return atomicExch(p, v);
}

/* Among the blocks of one kernel */
DEV uint32_t add_acq_rel(uint32_t *p, uint32_t v)
{
	uint32_t old;

	asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;"
		     : "=r"(old)
		     : "l"(p), "r"(v)
		     : "memory");
	return old;
}

DEV uint32_t get_acquire(uint32_t *p)
{
	uint32_t v;

	asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
	return v;
}

DEV uint32_t get_flag(uint32_t *p)
{
	uint32_t v;

	asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
	return v;
}

DEV uint64_t get_relaxed(uint64_t *p)
{
	uint64_t v;

	asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
	return v;
}

/* 16 bytes of global memory at once. Without "memory", so that addresses stay in registers: the order
 * of volatile statements and SYNC suffice. */
DEV struct pair load_pair(const struct pair *p)
{
	struct pair x;

	asm volatile("ld.global.v2.u64 {%0, %1}, [%2];" : "=l"(x.a), "=l"(x.b) : "l"(p));
	return x;
}
DEV void store_pair(struct pair *p, struct pair x)
{
	asm volatile("st.global.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(x.a), "l"(x.b) : "memory");
}

DEV uint32_t count_bits(uint32_t mask)
{
	return (uint32_t)__popc(mask);
}

DEV uint64_t clock_ns(void)
{
	uint64_t t;

	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
	return t;
}

DEV uint32_t bits_of(float x)
{
	return __float_as_uint(x);
}
DEV float float_of(uint32_t x)
{
	return __uint_as_float(x);
}
DEV uint64_t bits_of_double(double x)
{
	return (uint64_t)__double_as_longlong(x);
}
DEV double double_of(uint64_t x)
{
	return __longlong_as_double((long long)x);
}

#endif

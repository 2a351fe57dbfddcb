/*
 * kernel_host.h - the words of kernels for C compilers, where a block is one thread
 *
 * For the tests' fake driver, which defines fake_block and fake_blocks. kernel_nvcc.cuh defines the same for nvcc.
 */
#ifndef TT_KERNEL_HOST_H
#define TT_KERNEL_HOST_H

#include <stdint.h>
#include <string.h>
#include <time.h>

#define DEV static inline __attribute__((always_inline, unused))
#define KERNEL(name) static void name(const void *params)
#define JOB ((const struct tt_dev_job *)params)
#define THREAD 0u
#define THREADS 1u
#define BLOCK fake_block
#define BLOCKS fake_blocks
#define SYNC() ((void)0)
#define SHARED static __thread
#define UNROLL
#define ONCE
#define UNROLL_TO(n)

extern __thread unsigned fake_block, fake_blocks;

struct pair {
	uint64_t a, b;
};

DEV void put_release(uint32_t *p, uint32_t v)
{
	__atomic_store_n(p, v, __ATOMIC_RELEASE);
}
DEV void put_count(uint32_t *p, uint32_t v)
{
	__atomic_store_n(p, v, __ATOMIC_RELAXED);
}
DEV void put_relaxed(uint64_t *p, uint64_t v)
{
	__atomic_store_n(p, v, __ATOMIC_RELAXED);
}
DEV uint32_t swap_relaxed(uint32_t *p, uint32_t v)
{
	return __atomic_exchange_n(p, v, __ATOMIC_RELAXED);
}
DEV uint32_t add_acq_rel(uint32_t *p, uint32_t v)
{
	return __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL);
}
DEV uint32_t get_acquire(uint32_t *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
DEV uint32_t get_flag(uint32_t *p)
{
	return __atomic_load_n(p, __ATOMIC_RELAXED);
}
DEV uint64_t get_relaxed(uint64_t *p)
{
	return __atomic_load_n(p, __ATOMIC_RELAXED);
}
DEV struct pair load_pair(const struct pair *p)
{
	return *p;
}
DEV void store_pair(struct pair *p, struct pair x)
{
	*p = x;
}
DEV uint32_t count_bits(uint32_t mask)
{
	return (uint32_t)__builtin_popcount(mask);
}

/* The pause also lets the threads of other streams run: streams outnumber cores. */
DEV uint64_t clock_ns(void)
{
	struct timespec t, pause = { 0, 20000 };

	nanosleep(&pause, NULL);
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

DEV uint32_t bits_of(float x)
{
	uint32_t v;
	memcpy(&v, &x, 4);
	return v;
}
DEV float float_of(uint32_t x)
{
	float v;
	memcpy(&v, &x, 4);
	return v;
}
DEV uint64_t bits_of_double(double x)
{
	uint64_t v;
	memcpy(&v, &x, 8);
	return v;
}
DEV double double_of(uint64_t x)
{
	double v;
	memcpy(&v, &x, 8);
	return v;
}

#endif

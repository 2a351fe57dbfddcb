/*
 * ticks.h - clocks of measure.c: CLOCK_MONOTONIC for batches; the processor's cycle counter, the
 * cheapest clock, for single calls
 */
#ifndef BENCH_TICKS_H
#define BENCH_TICKS_H

#include "base/base.h"

static inline double bench_ticks_us(void)
{
	return (double)tt_now_ns() / 1000;
}

static inline uint64_t bench_ticks(void)
{
#if defined(__x86_64__) || defined(__i386__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t t;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
	return t;
#else
	return tt_now_ns();
#endif
}

#endif

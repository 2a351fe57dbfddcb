/*
 * fpmode.h - floating-point mode for the kernels: round to nearest, keep denormals
 *
 * Another library may have set flush-to-zero or another rounding mode for this thread; the bits of
 * a result must not depend on that. Entered by run around the work of a call; leave restores the
 * saved mode. The control register is written only if its value differs, since a write is slow.
 */
#ifndef TT_FPMODE_H
#define TT_FPMODE_H

#include "base/base.h"

#if defined(__x86_64__) || defined(__SSE__)
#include <xmmintrin.h>

#define TT_FPMODE_FLAGS 0x3fu    /* sticky exception flags: any value */
#define TT_FPMODE_NORMAL 0x1f80u /* nearest, denormals kept, every exception masked */

static inline uint32_t tt_fpmode_get(void)
{
	return _mm_getcsr();
}

static inline void tt_fpmode_set(uint32_t mode)
{
	_mm_setcsr(mode);
}

#elif defined(__aarch64__)

#define TT_FPMODE_FLAGS 0u /* the exception flags are in another register, FPSR */
#define TT_FPMODE_NORMAL 0u

static inline uint32_t tt_fpmode_get(void)
{
	uint64_t fpcr;

	__asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
	return (uint32_t)fpcr;
}

static inline void tt_fpmode_set(uint32_t mode)
{
	__asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)mode) : "memory");
}

#else
#include <fenv.h>

#define TT_FPMODE_FLAGS 0u
#define TT_FPMODE_NORMAL ((uint32_t)FE_TONEAREST)

static inline uint32_t tt_fpmode_get(void)
{
	return (uint32_t)fegetround();
}

static inline void tt_fpmode_set(uint32_t mode)
{
	fesetround((int)mode);
}
#endif

struct tt_fpmode {
	uint32_t saved;
};

static inline struct tt_fpmode tt_fpmode_enter(void)
{
	struct tt_fpmode mode = { .saved = tt_fpmode_get() };

	if (tt_unlikely((mode.saved & ~TT_FPMODE_FLAGS) != TT_FPMODE_NORMAL))
		tt_fpmode_set(TT_FPMODE_NORMAL | (mode.saved & TT_FPMODE_FLAGS));
	return mode;
}

static inline void tt_fpmode_leave(struct tt_fpmode mode)
{
	if (tt_unlikely((mode.saved & ~TT_FPMODE_FLAGS) != TT_FPMODE_NORMAL))
		tt_fpmode_set(mode.saved);
}

#endif

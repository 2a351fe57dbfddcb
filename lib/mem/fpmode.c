/*
 * fpmode.c - floating-point mode for the kernels: round to nearest, keep denormals
 *
 * Another library may have set flush-to-zero or another rounding mode for this thread; the bits of
 * a result must not depend on that. Called by run around the work of a call. The control register
 * is written only if its value differs, since a write is slow.
 */
#include "mem/reduce.h"

#if defined(__x86_64__) || defined(__SSE__)
#include <xmmintrin.h>

#define FLAGS 0x3fu    /* sticky exception flags: any value */
#define NORMAL 0x1f80u /* nearest, denormals kept, every exception masked */

static uint32_t mode_get(void)
{
	return _mm_getcsr();
}

static void mode_set(uint32_t mode)
{
	_mm_setcsr(mode);
}

#elif defined(__aarch64__)

#define FLAGS 0u /* the exception flags are in another register, FPSR */
#define NORMAL 0u

static uint32_t mode_get(void)
{
	uint64_t fpcr;

	__asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
	return (uint32_t)fpcr;
}

static void mode_set(uint32_t mode)
{
	__asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)mode) : "memory");
}

#else
#include <fenv.h>

#define FLAGS 0u
#define NORMAL ((uint32_t)FE_TONEAREST)

static uint32_t mode_get(void)
{
	return (uint32_t)fegetround();
}

static void mode_set(uint32_t mode)
{
	fesetround((int)mode);
}
#endif

struct tt_fpmode tt_fpmode_enter(void)
{
	struct tt_fpmode mode = { .saved = mode_get() };

	if (tt_unlikely((mode.saved & ~FLAGS) != NORMAL))
		mode_set(NORMAL | (mode.saved & FLAGS));
	return mode;
}

void tt_fpmode_leave(struct tt_fpmode mode)
{
	if (tt_unlikely((mode.saved & ~FLAGS) != NORMAL))
		mode_set(mode.saved);
}

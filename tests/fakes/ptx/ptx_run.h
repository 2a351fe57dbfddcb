/*
 * ptx_run.h - functions for kernels that ptx_to_c translated: memory, atomics, barriers, arithmetic
 *
 * A statement of a translated kernel passes its PTX line, so that each failure names kernel, PTX line
 * and source line. Generic addresses are the host's. An access is checked for alignment, for the bounds
 * of its variable (shared, local, param), and for those of its allocation (global). Built with
 * -DPTX_RACES -fsanitize=thread, the data races of kernels are ThreadSanitizer's; volatile accesses are
 * weak then, since the order of the kernels must come from acquires and releases.
 */
#ifndef PTX_RUN_H
#define PTX_RUN_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum ptx_order { PTX_WEAK, PTX_RELAXED, PTX_VOLATILE, PTX_ACQUIRE, PTX_RELEASE };

/* The source line of the instructions from a PTX line on */
struct ptx_source {
	unsigned ptx_line;
	const char *file;
	unsigned line;
};

struct ptx_thread;
struct ptx_kernel {
	const char *name, *module;
	void (*run)(struct ptx_thread *g); /* one thread of one block */
	uint32_t shared_bytes, local_bytes, param_bytes;
	const struct ptx_source *sources;
	size_t nsources;
};

enum { PTX_RECENT = 64, PTX_PAGE = 4096 };
struct ptx_block {
	const struct ptx_kernel *kernel;
	uint32_t threads, number,
		blocks; /* threads of the block; the block's number among blocks */
	unsigned char *shared, *params;
	/* allocations that the block accessed, by the page of the address */
	struct ptx_range {
		uintptr_t from, to;
	} recent[PTX_RECENT];
	struct ptx_scheduler *scheduler;
};

struct ptx_thread {
	struct ptx_block *block;
	unsigned char *local;
	uint32_t tid, polls;
};

/* Runs one block of a kernel. params: the kernel's only parameter, a struct */
void ptx_run_block(const struct ptx_kernel *kernel, const void *params, uint32_t threads,
		   uint32_t block, uint32_t blocks);

/* Given by the includer's driver: the allocation that contains at, or false */
bool ptx_find_range(uintptr_t at, uintptr_t *ret_from, uintptr_t *ret_to);

/* The block's other threads run first. */
void ptx_yield(struct ptx_thread *g);
void ptx_barrier(struct ptx_thread *g, unsigned line);
uint64_t ptx_globaltimer(void);
/* Finds the place of an access, or ends the process with a sentence that names kernel and lines. */
unsigned char *ptx_find(struct ptx_thread *g, uint64_t at, unsigned bytes, unsigned line,
			bool generic);
void ptx_bad_offset(struct ptx_thread *g, const char *space, uint64_t at, unsigned bytes,
		    uint32_t size, unsigned line) __attribute__((noreturn));

/* Built with -DPTX_COUNTS, kernels call the includer's functions at each access of global or
 * generic memory, and at each barrier. */
#ifdef PTX_COUNTS
void ptx_count(const struct ptx_thread *g, const unsigned char *at, unsigned bytes, bool store,
	       enum ptx_order order);
void ptx_count_barrier(const struct ptx_thread *g);
#else
#define ptx_count(g, at, bytes, store, order) ((void)0)
#define ptx_count_barrier(g) ((void)0)
#endif

#define INLINE static inline __attribute__((always_inline, unused))

/* ---- addresses ------------------------------------------------------------------------------- */

/* Under ThreadSanitizer the list of ranges is read by ptx_run.c only, which is not instrumented. */
INLINE unsigned char *ptx_at(struct ptx_thread *g, uint64_t at, unsigned bytes, unsigned line,
			     bool generic)
{
#ifndef PTX_RACES
	const struct ptx_range *r = &g->block->recent[at / PTX_PAGE % PTX_RECENT];

	if (__builtin_expect(at % bytes == 0 && at >= r->from && at + bytes <= r->to, 1))
		return (unsigned char *)(uintptr_t)at;
#endif
	return ptx_find(g, at, bytes, line, generic);
}
#define ptx_global(g, at, bytes, line) ptx_at(g, at, bytes, line, false)
#define ptx_generic(g, at, bytes, line) ptx_at(g, at, bytes, line, true)

#define SPACE(space, base, size)                                                             \
	INLINE unsigned char *ptx_##space(struct ptx_thread *g, uint64_t at, unsigned bytes, \
					  unsigned line)                                     \
	{                                                                                    \
		if (__builtin_expect(at % bytes || at > (size) || bytes > (size)-at, 0))     \
			ptx_bad_offset(g, #space, at, bytes, size, line);                    \
		return (base) + at;                                                          \
	}                                                                                    \
	INLINE uint64_t ptx_from_##space(const struct ptx_thread *g, uint64_t at)            \
	{                                                                                    \
		return at + (uintptr_t)(base);                                               \
	}                                                                                    \
	INLINE uint64_t ptx_to_##space(const struct ptx_thread *g, uint64_t at)              \
	{                                                                                    \
		return at - (uintptr_t)(base);                                               \
	}
SPACE(shared, g->block->shared, g->block->kernel->shared_bytes)
SPACE(local, g->local, g->block->kernel->local_bytes)
SPACE(param, g->block->params, g->block->kernel->param_bytes)

INLINE uint64_t ptx_from_global(const struct ptx_thread *g, uint64_t at)
{
	(void)g;
	return at;
}
#define ptx_to_global ptx_from_global

/* ---- loads and stores ------------------------------------------------------------------------ */

#ifdef PTX_RACES
#define PTX_IS_PLAIN(order) ((order) == PTX_WEAK || (order) == PTX_VOLATILE)
void ptx_dawdle(void); /* before a strong store: gives other orders a chance */
#else
#define PTX_IS_PLAIN(order) ((order) == PTX_WEAK)
#define ptx_dawdle() ((void)0)
#endif

/* A thread that polls lets the block's other threads run. */
#define ACCESS(width)                                                                           \
	typedef uint##width##_t __attribute__((may_alias)) ptx_u##width;                        \
	INLINE uint##width##_t ptx_load##width(struct ptx_thread *g, const unsigned char *p,    \
					       enum ptx_order order)                            \
	{                                                                                       \
		uint##width##_t x;                                                              \
                                                                                                \
		if (PTX_IS_PLAIN(order))                                                        \
			return *(const ptx_u##width *)p;                                        \
		x = order == PTX_ACQUIRE                                                        \
			    ? __atomic_load_n((const ptx_u##width *)p, __ATOMIC_ACQUIRE)        \
			    : __atomic_load_n((const ptx_u##width *)p, __ATOMIC_RELAXED);       \
		if (order != PTX_VOLATILE && ++g->polls % 4 == 0)                               \
			ptx_yield(g);                                                           \
		return x;                                                                       \
	}                                                                                       \
	INLINE void ptx_store##width(struct ptx_thread *g, unsigned char *p, uint##width##_t x, \
				     enum ptx_order order)                                      \
	{                                                                                       \
		(void)g;                                                                        \
		if (PTX_IS_PLAIN(order)) {                                                      \
			*(ptx_u##width *)p = x;                                                 \
			return;                                                                 \
		}                                                                               \
		ptx_dawdle();                                                                   \
		if (order == PTX_RELEASE)                                                       \
			__atomic_store_n((ptx_u##width *)p, x, __ATOMIC_RELEASE);               \
		else                                                                            \
			__atomic_store_n((ptx_u##width *)p, x, __ATOMIC_RELAXED);               \
	}
ACCESS(8)
ACCESS(16)
ACCESS(32)
ACCESS(64)

#define ptx_exch32(p, x, order) __atomic_exchange_n((ptx_u32 *)(p), x, order)
#define ptx_add32(p, x, order) __atomic_fetch_add((ptx_u32 *)(p), x, order)

/* ---- arithmetic ------------------------------------------------------------------------------ */

INLINE float ptx_float(uint32_t x)
{
	float f;

	memcpy(&f, &x, sizeof(f));
	return f;
}
INLINE double ptx_double(uint64_t x)
{
	double f;

	memcpy(&f, &x, sizeof(f));
	return f;
}

/* The bits of a result; arithmetic of a GPU has one NaN. */
INLINE uint32_t ptx_bits_f32(float f)
{
	uint32_t x;

	memcpy(&x, &f, sizeof(x));
	return f != f ? 0x7fffffffu : x;
}
INLINE uint64_t ptx_bits_f64(double f)
{
	uint64_t x;

	memcpy(&x, &f, sizeof(x));
	return f != f ? 0xfff8000000000000u : x;
}

/* A division by zero gives all ones on a GPU, and the dividend as remainder. */
#define DIVIDE(type, word, real)                                                                   \
	INLINE word ptx_div_##type(word a, word b)                                                 \
	{                                                                                          \
		return b == 0                          ? (word)-1                                  \
		       : (real)-1 < 0 && b == (word)-1 ? 0 - a                                     \
						       : (word)((real)a / (real)b);                \
	}                                                                                          \
	INLINE word ptx_rem_##type(word a, word b)                                                 \
	{                                                                                          \
		return b == 0 ? a : (real)-1 < 0 && b == (word)-1 ? 0 : (word)((real)a % (real)b); \
	}
DIVIDE(u32, uint32_t, uint32_t)
DIVIDE(s32, uint32_t, int32_t)
DIVIDE(u64, uint64_t, uint64_t)
DIVIDE(s64, uint64_t, int64_t)

/* The operand that is no NaN, if there is one; -0 is less than +0. */
#define EXTREMES(type, word, value, nan)                                                  \
	INLINE word ptx_max_##type(word a, word b)                                        \
	{                                                                                 \
		if (value(a) != value(a) || value(b) != value(b))                         \
			return value(a) == value(a) ? a : value(b) == value(b) ? b : nan; \
		return value(a) > value(b) ? a : value(a) < value(b) ? b : (a & b);       \
	}                                                                                 \
	INLINE word ptx_min_##type(word a, word b)                                        \
	{                                                                                 \
		if (value(a) != value(a) || value(b) != value(b))                         \
			return value(a) == value(a) ? a : value(b) == value(b) ? b : nan; \
		return value(a) < value(b) ? a : value(a) > value(b) ? b : (a | b);       \
	}
EXTREMES(f32, uint32_t, ptx_float, 0x7fffffffu)
EXTREMES(f64, uint64_t, ptx_double, 0x7fffffffffffffffu)

/* b with `length` low bits of a at `position`; width: of the operands, in bits */
INLINE uint64_t ptx_bfi(uint64_t a, uint64_t b, uint32_t position, uint32_t length, uint32_t width)
{
	uint64_t mask;

	position &= 255;
	length &= 255;
	if (position >= width)
		return b;
	mask = (length >= 64 ? ~0ull : (1ull << length) - 1) << position;
	return (b & ~mask) | (a << position & mask);
}

INLINE uint32_t ptx_truncate(double f)
{
	if (f != f)
		return 0;
	return f >= 2147483647.0    ? 0x7fffffffu
	       : f <= -2147483648.0 ? 0x80000000u
				    : (uint32_t)(int32_t)f;
}

INLINE uint32_t ptx_widen_f16(uint16_t h)
{
	uint32_t sign = (uint32_t)(h >> 15) << 31, exponent = h >> 10 & 31, mantissa = h & 1023,
		 bits;
	float least = (float)mantissa * 0x1p-24f;

	if (exponent == 31)
		return mantissa ? 0x7fffffffu : sign | 0x7f800000u;
	if (exponent)
		return sign | (exponent + 112) << 23 | mantissa << 13;
	memcpy(&bits, &least, sizeof(bits));
	return sign | bits;
}

INLINE uint16_t ptx_narrow_f16(float f)
{
	uint16_t sign = signbit(f) ? 0x8000 : 0;
	double magnitude = fabs((double)f), mantissa;
	int exponent;

	if (f != f)
		return 0x7fff;
	if (magnitude >= 65520)
		return sign | 0x7c00;
	if (magnitude < 0x1p-14)
		return (uint16_t)(sign | (uint16_t)rint(magnitude * 0x1p24));
	mantissa = rint(frexp(magnitude, &exponent) * 2048); /* 1024 to 2048 */
	return (uint16_t)(sign | (uint16_t)(((exponent + 14) << 10) + ((int)mantissa - 1024)));
}

#undef INLINE
#undef SPACE
#undef ACCESS
#undef DIVIDE
#undef EXTREMES

#endif

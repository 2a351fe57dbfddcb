/*
 * kernels.cu - combine the memory of several ranks on a GPU: one kernel a type, every op
 *
 * Launched by lib/run/device*.c. nvcc makes a fat binary of it that the library carries; the tests'
 * stand-in compiles it as C, where a block is one thread. The bits are those of lib/mem/reduce*.c:
 * operands in rank order, small floats widened to float and rounded once, a NaN result replaced by
 * the one NaN of its type, no contraction (-fmad=false).
 *
 * A rank's block b speaks to block b of its peers only. MEET: it writes its card and then its epoch
 * to each peer's desk, awaits theirs, works on its share and does the same at the end: then nobody
 * reads or writes its rank's buffers any more. Epochs live in device memory, so a graph can be
 * replayed. Every wait looks at the report's abort word and at a clock.
 */
#include "gpu/kernels.h"

#ifdef __CUDACC__

#define DEV static __device__ __forceinline__
#define KERNEL(name) extern "C" __global__ void __launch_bounds__(TT_DEV_THREADS) \
	name(const __grid_constant__ struct tt_dev_job job)
#define JOB (&job)
#define THREAD threadIdx.x
#define THREADS blockDim.x
#define BLOCK blockIdx.x
#define BLOCKS gridDim.x
#define SYNC() __syncthreads()
#define SHARED __shared__
#define UNROLL _Pragma("unroll")
#define PRAGMA(x) _Pragma(#x)
#define UNROLL_TO(n) PRAGMA(unroll (n))

struct __align__(16) pair { uint64_t a, b; };

DEV void put_release(uint32_t *p, uint32_t v)
{
	asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
/* For counters that only the host looks at: a release would wait for all writes before it, one of
 * them over the bus. */
DEV void put_count(uint32_t *p, uint32_t v)
{
	asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
DEV void put_relaxed(uint64_t *p, uint64_t v)
{
	asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

DEV uint32_t swap_relaxed(uint32_t *p, uint32_t v) { return atomicExch(p, v); }

DEV uint32_t get_acquire(uint32_t *p)
{
	uint32_t v;

	asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
	return v;
}

DEV uint64_t get_relaxed(uint64_t *p)
{
	uint64_t v;

	asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
	return v;
}

DEV uint64_t clock_ns(void)
{
	uint64_t t;

	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
	return t;
}

DEV uint32_t bits_of(float x) { return __float_as_uint(x); }
DEV float float_of(uint32_t x) { return __uint_as_float(x); }
DEV uint64_t bits_of_double(double x) { return (uint64_t)__double_as_longlong(x); }
DEV double double_of(uint64_t x) { return __longlong_as_double((long long)x); }

#else

#include <string.h>
#include <time.h>

#include "tests/fakes/cuda/fake_cuda.h"

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
#define UNROLL_TO(n)

struct pair { uint64_t a, b; };

DEV void put_release(uint32_t *p, uint32_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
DEV void put_count(uint32_t *p, uint32_t v) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }
DEV void put_relaxed(uint64_t *p, uint64_t v) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }
DEV uint32_t swap_relaxed(uint32_t *p, uint32_t v)
{
	return __atomic_exchange_n(p, v, __ATOMIC_RELAXED);
}
DEV uint32_t get_acquire(uint32_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
DEV uint64_t get_relaxed(uint64_t *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }

/* Also lets other streams' threads run, of which there are more than cores. */
DEV uint64_t clock_ns(void)
{
	struct timespec t, pause = { 0, 20000 };

	nanosleep(&pause, NULL);
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

DEV uint32_t bits_of(float x) { uint32_t v; memcpy(&v, &x, 4); return v; }
DEV float float_of(uint32_t x) { float v; memcpy(&v, &x, 4); return v; }
DEV uint64_t bits_of_double(double x) { uint64_t v; memcpy(&v, &x, 8); return v; }
DEV double double_of(uint64_t x) { double v; memcpy(&v, &x, 8); return v; }

#endif

/* ---- waiting --------------------------------------------------------------------------------- */

struct watch { uint64_t since; uint32_t looks; };

/* The first trouble is kept, and told by one thread alone, since several of a rank may have it; the
 * host reads what last. */
DEV void tell(const struct tt_dev_job *j, uint32_t what, uint32_t rank, const uint64_t *call)
{
	struct tt_dev_report *r = (struct tt_dev_report *)j->report;

	if (get_acquire(&r->abort) ||
	    swap_relaxed(&((struct tt_dev_signals *)j->desk[j->rank])->troubled, 1))
		return;
	r->rank = rank;
	r->call[0] = call ? call[0] : 0;
	r->call[1] = call ? call[1] : 0;
	put_release(&r->what, what);
	put_release(&r->abort, 1);
}

/* Once for each look in vain at something of peer's. 1: it is to give up */
DEV int weary(const struct tt_dev_job *j, struct watch *w, uint32_t peer)
{
	struct tt_dev_report *r = (struct tt_dev_report *)j->report;
	uint64_t now;

	if (++w->looks % 256)
		return 0;
	if (get_acquire(&r->abort))
		return 1;
	now = clock_ns();
	if (!w->since)
		w->since = now;
	if (now - w->since < j->limit_ns)
		return 0;
	tell(j, TT_DEV_LATE, peer, 0);
	return 1;
}

DEV int await_epoch(const struct tt_dev_job *j, uint32_t *flag, uint32_t epoch, uint32_t peer)
{
	struct watch w = { 0, 0 };

	while ((int32_t)(get_acquire(flag) - epoch) < 0)
		if (weary(j, &w, peer))
			return 0;
	return 1;
}

DEV struct tt_dev_signals *desk_of(const struct tt_dev_job *j, uint32_t rank)
{
	return (struct tt_dev_signals *)j->desk[rank];
}

/* ---- meeting --------------------------------------------------------------------------------- */

/*
 * Which rule of the PTX memory model each order rests upon; scopes are .sys, for a peer may be on
 * another GPU, and its report is the host's.
 *   inputs, before peers load them       what lies before a kernel on its stream happens before it;
 *                 a release is cumulative, so it publishes that too; the thread that acquires
 *                 `start` passes it on to its block by SYNC (bar.sync)
 *   outputs, before this rank's stream goes on       all threads' stores, SYNC, the release of
 *                 `end` by one of them, its acquire here, SYNC, the end of this kernel
 *   inputs, before their owner writes them again     likewise: SYNC holds the loads before `end`
 *   cards         plain stores before the release of `start` by the same thread, loads behind its
 *                 acquire by the same thread; behind `end` they may be written again
 *   lines         payload and epoch are one aligned word of 8 bytes, which is never torn, so they
 *                 need no other order. A half is written again two epochs later: by then its writer
 *                 has had the epoch between from this rank, whose kernel before it had ended.
 *   where streams order ranks     a kernel's stores happen before what its stream does next, and
 *                 cuStreamWriteValue is preceded by a fence of the system; a kernel behind
 *                 cuStreamWaitValue begins after it
 *   report        rank and call before the release of `what`, which the host acquires
 * No pointer is __restrict__ here: loads by the path that is not coherent (ld.global.nc)
 * would break the first three.
 */

DEV void post_card(const struct tt_dev_job *j, uint32_t peer, uint32_t block)
{
	volatile struct tt_dev_record *c = &desk_of(j, peer)->card[block][j->rank];

	c->in = j->in[j->rank];
	c->out = j->out[j->rank];
	c->scale = j->scale;
	c->call[0] = j->call[0];
	c->call[1] = j->call[1];
}

DEV int same_call(const struct tt_dev_job *j, uint32_t peer, uint32_t block)
{
	volatile struct tt_dev_record *c = &desk_of(j, j->rank)->card[block][peer];
	uint64_t call[2];

	call[0] = c->call[0];
	call[1] = c->call[1];
	if (call[0] == j->call[0] && call[1] == j->call[1])
		return 1;
	tell(j, TT_DEV_OTHER_CALL, peer, call);
	return 0;
}

/* A job between waits of streams, which the host has ended as the call has failed: what it would
 * read and write may be gone. */
DEV int is_vain(const struct tt_dev_job *j)
{
	return j->way == TT_DEV_ALONE && j->report &&
	       get_acquire(&((struct tt_dev_report *)j->report)->abort);
}

/* All peers have come to this job. 0: give up. Every thread of the block calls it. */
DEV int meet_start(const struct tt_dev_job *j, uint32_t epoch, int *failed)
{
	for (uint32_t p = THREAD; p < j->nranks; p += THREADS)
		if (p != j->rank) {
			post_card(j, p, BLOCK);
			put_release(&desk_of(j, p)->start[BLOCK][j->rank], epoch);
		}
	for (uint32_t p = THREAD; p < j->nranks; p += THREADS)
		if (p != j->rank &&
		    (!await_epoch(j, &desk_of(j, j->rank)->start[BLOCK][p], epoch, p) ||
		     !same_call(j, p, BLOCK)))
			*failed = 1;
	SYNC();
	return !*failed;
}

/* All peers are through with it. */
DEV void meet_end(const struct tt_dev_job *j, uint32_t epoch)
{
	SYNC();
	for (uint32_t p = THREAD; p < j->nranks; p += THREADS)
		if (p != j->rank)
			put_release(&desk_of(j, p)->end[BLOCK][j->rank], epoch);
	for (uint32_t p = THREAD; p < j->nranks; p += THREADS)
		if (p != j->rank)
			await_epoch(j, &desk_of(j, j->rank)->end[BLOCK][p], epoch, p);
	SYNC();
}

/* ---- elements to operands and back: the formats are those of reduce_types.h ------------------ */

DEV uint32_t quiet(uint32_t x)
{
	return (x & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u : x;
}

DEV float small_widen(uint32_t code, uint32_t bits, uint32_t mantissa, uint32_t bias,
		      uint32_t special)
{
	uint32_t magnitude = code & ((1u << (bits - 1)) - 1), sign = (code >> (bits - 1)) << 31;
	uint32_t shifted = magnitude << (23 - mantissa), least = (128 - bias) << 23;

	/* put the leading bit there and take it off again */
	if (magnitude < 1u << mantissa)
		return float_of(sign | bits_of(float_of(shifted + least) - float_of(least)));
	return float_of(sign | ((shifted + ((127 - bias) << 23)) |
				(magnitude >= special ? 0x7f800000u : 0)));
}

DEV uint32_t small_narrow(float value, uint32_t bits, uint32_t mantissa, uint32_t bias,
			  uint32_t biggest, uint32_t infinity, uint32_t nan)
{
	uint32_t x = bits_of(value), magnitude = x & 0x7fffffffu, cut = 23 - mantissa, code;

	if (magnitude > 0x7f800000u)
		return nan;
	if (magnitude == 0x7f800000u) {
		code = infinity;
	} else if (magnitude < (128 - bias)
				       << 23) { /* the hardware rounds to the format's least step */
		uint32_t step = (151 - bias - mantissa) << 23;

		code = bits_of(float_of(magnitude) + float_of(step)) - step;
	} else {
		code = ((magnitude + ((1u << (cut - 1)) - 1) + ((magnitude >> cut) & 1)) >> cut) -
		       ((127 - bias) << mantissa);
		code = code > biggest ? biggest : code;
	}
	return ((x & 0x80000000u) >> (32 - bits)) | code;
}

#ifdef __CUDACC__
DEV float widen_Float16(uint16_t x)
{
	float f;

	asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(x));
	return f;
}

DEV uint16_t narrow_Float16(float f)
{
	uint16_t x;

	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(x) : "f"(f));
	return (x & 0x7fff) > 0x7c00 ? 0x7e00 : x;
}
#else
DEV float widen_Float16(uint16_t x) { return small_widen(x, 16, 10, 15, 0x7c00); }
DEV uint16_t narrow_Float16(float f)
{
	return (uint16_t)small_narrow(f, 16, 10, 15, 0x7c00, 0x7c00, 0x7e00);
}
#endif

DEV float widen_Bfloat16(uint16_t x) { return float_of((uint32_t)x << 16); }
DEV uint16_t narrow_Bfloat16(float f)
{
	uint32_t x = quiet(bits_of(f));

	return (uint16_t)((x + 0x7fff + ((x >> 16) & 1)) >> 16);
}

DEV float widen_Float8e4m3(uint8_t x) { return small_widen(x, 8, 3, 7, 0x7f); }
DEV uint8_t narrow_Float8e4m3(float f)
{
	return (uint8_t)small_narrow(f, 8, 3, 7, 0x7e, 0x7e, 0x7f);
}
DEV float widen_Float8e5m2(uint8_t x) { return small_widen(x, 8, 2, 15, 0x7c); }
DEV uint8_t narrow_Float8e5m2(float f)
{
	return (uint8_t)small_narrow(f, 8, 2, 15, 0x7b, 0x7c, 0x7f);
}
DEV float widen_Float32(uint32_t x) { return float_of(x); }
DEV uint32_t narrow_Float32(float f) { return quiet(bits_of(f)); }
DEV double widen_Float64(uint64_t x) { return double_of(x); }
DEV uint64_t narrow_Float64(double f) { return f == f ? bits_of_double(f) : 0x7ff8000000000000u; }

/* ---- two operands to one --------------------------------------------------------------------- */

/* tuttiRedOp_t's numbers; avg is sum. */
/* a sum whose inputs are scaled or that is divided */
enum { SUM, PROD, MAX, MIN, AVG, BAND, BOR, BXOR, ADJUSTED };

/* Sums and products wrap, so they are taken unsigned. */
#define INTEGER(name, raw, compared, product, wide)						\
	DEV raw widen_##name(raw x) { return x; }						\
	DEV raw narrow_##name(raw x) { return x; }						\
	DEV raw fold_##name(int op, raw x, raw y)						\
	{											\
		switch (op) {									\
		case SUM:									\
		case ADJUSTED:									\
			return (raw)((product)x + (product)y);					\
		case PROD:									\
			return (raw)((product)x * (product)y);					\
		case MIN:									\
			return (compared)x < (compared)y ? x : y;				\
		case MAX:									\
			return (compared)x > (compared)y ? x : y;				\
		case BAND:									\
			return x & y;								\
		case BOR:									\
			return x | y;								\
		default:									\
			return x ^ y;								\
		}										\
	}											\
	DEV raw times_##name(raw x, uint64_t scale) { return (raw)((product)x * (product)scale); \
			}									\
	DEV raw over_##name(raw x, uint64_t n) { return (raw)((wide)(compared)x / (wide)n); }
INTEGER(Int8, uint8_t, int8_t, uint32_t, int64_t)
INTEGER(Uint8, uint8_t, uint8_t, uint32_t, uint64_t)
INTEGER(Int32, uint32_t, int32_t, uint32_t, int64_t)
INTEGER(Uint32, uint32_t, uint32_t, uint32_t, uint64_t)
INTEGER(Int64, uint64_t, int64_t, uint64_t, int64_t)
INTEGER(Uint64, uint64_t, uint64_t, uint64_t, uint64_t)

/* When neither operand is less, both are equal or one is a NaN. Or-ing the bits is right for min: x
 * = y, or -0 of two zeros, or a NaN; for max too, except that max(-0, +0) = +0. */
#define FLOATING(name, value, word, bits, back)							\
	DEV value fold_##name(int op, value x, value y)						\
	{											\
		word a = bits(x), b = bits(y);							\
												\
		if (op == SUM || op == ADJUSTED)						\
			return x + y;								\
		if (op == PROD)									\
			return x * y;								\
		if (op == MIN)									\
			return x < y ? x : x > y ? y : back(a | b);				\
		return x > y ? x : x < y ? y : x == y ? back(a & b) : back(a | b);		\
	}											\
	DEV value times_##name(value x, uint64_t scale) { return x * (value)double_of(scale); }	\
	DEV value over_##name(value x, uint64_t divisor) { return x / (value)double_of(divisor); \
			}
FLOATING(Float32, float, uint32_t, bits_of, float_of)
FLOATING(Float64, double, uint64_t, bits_of_double, double_of)

/* ---- the work -------------------------------------------------------------------------------- */

struct task {
	const char *src[TT_DEV_RANKS];
	uint64_t scale[TT_DEV_RANKS];
	char *dst[TT_DEV_RANKS];
	uint32_t nsrc, ndst;
	uint64_t bytes, divisor;
	uint32_t flags;
};

/* Piece i with the addresses of in and out; ranks that take part, in rank order. */
DEV void make_task(const struct tt_dev_job *j, const struct tt_dev_piece *x,
		   const struct tt_dev_record *card, struct task *t)
{
	t->nsrc = t->ndst = 0;
	t->bytes = x->bytes;
	t->flags = j->flags;
	t->divisor = j->divisor;
	for (uint32_t p = 0; p < j->nranks; p++) {
		if (x->from >> p & 1) {
			t->src[t->nsrc] = (const char *)card[p].in + x->from_at;
			t->scale[t->nsrc++] = card[p].scale;
		}
		if (x->to >> p & 1)
			t->dst[t->ndst++] = (char *)card[p].out + x->to_at;
	}
}

/* All addresses are multiples of this, a power of two up to 16. */
DEV uint32_t alignment(const struct task *t)
{
	uint64_t all = 16;

	for (uint32_t s = 0; s < t->nsrc; s++)
		all |= (uint64_t)t->src[s];
	for (uint32_t d = 0; d < t->ndst; d++)
		all |= (uint64_t)t->dst[d];
	return (uint32_t)(all & (~all + 1));
}

DEV uint64_t get_bytes(const char *p, uint32_t n)
{
	uint64_t v = 0;

	for (uint32_t i = 0; i < n; i++)
		v |= (uint64_t)(unsigned char)p[i] << 8 * i;
	return v;
}

DEV void put_bytes(char *p, uint64_t v, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		p[i] = (char)(v >> 8 * i);
}

#define TYPE Int8
#define RAW uint8_t
#define VALUE uint8_t
#define ARITHMETIC Int8
#define WHOLE 1
#include "gpu/kernels_type.h"

#define TYPE Uint8
#define RAW uint8_t
#define VALUE uint8_t
#define ARITHMETIC Uint8
#define WHOLE 1
#include "gpu/kernels_type.h"

#define TYPE Int32
#define RAW uint32_t
#define VALUE uint32_t
#define ARITHMETIC Int32
#define WHOLE 1
#include "gpu/kernels_type.h"

#define TYPE Uint32
#define RAW uint32_t
#define VALUE uint32_t
#define ARITHMETIC Uint32
#define WHOLE 1
#include "gpu/kernels_type.h"

#define TYPE Int64
#define RAW uint64_t
#define VALUE uint64_t
#define ARITHMETIC Int64
#define WHOLE 1
#include "gpu/kernels_type.h"

#define TYPE Uint64
#define RAW uint64_t
#define VALUE uint64_t
#define ARITHMETIC Uint64
#define WHOLE 1
#include "gpu/kernels_type.h"

#define TYPE Float16
#define RAW uint16_t
#define VALUE float
#define ARITHMETIC Float32
#define WHOLE 0
#include "gpu/kernels_type.h"

#define TYPE Bfloat16
#define RAW uint16_t
#define VALUE float
#define ARITHMETIC Float32
#define WHOLE 0
#include "gpu/kernels_type.h"

#define TYPE Float32
#define RAW uint32_t
#define VALUE float
#define ARITHMETIC Float32
#define WHOLE 0
#include "gpu/kernels_type.h"

#define TYPE Float64
#define RAW uint64_t
#define VALUE double
#define ARITHMETIC Float64
#define WHOLE 0
#include "gpu/kernels_type.h"

#define TYPE Float8e4m3
#define RAW uint8_t
#define VALUE float
#define ARITHMETIC Float32
#define WHOLE 0
#include "gpu/kernels_type.h"

#define TYPE Float8e5m2
#define RAW uint8_t
#define VALUE float
#define ARITHMETIC Float32
#define WHOLE 0
#include "gpu/kernels_type.h"

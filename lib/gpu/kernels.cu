/*
 * kernels.cu - combine the memory of several ranks on a GPU: one kernel for each type, with every
 * op
 *
 * Launched by gpu_open.c, gpu_call.c and gpu_streams.c. nvcc compiles the file to a fat binary,
 * which the library embeds; the tests' fake driver compiles the file as C, where a block is one
 * thread. The bits are those of lib/mem/reduce*.c: operands in rank order, small floats widened to
 * float and rounded once, a NaN result replaced by the canonical NaN of its type, no contraction
 * (-fmad=false).
 *
 * A rank's block b synchronizes with block b of its peers only. BARRIER: the block writes its
 * record and then its epoch to each peer's signal words, waits for the peers' epochs, works on its
 * share, and passes a second barrier at the end: from then on no peer reads or writes its rank's
 * buffers. Epochs are kept in device memory, so a graph can be replayed. Every wait polls the
 * report's abort word and a clock.
 */
#include "gpu/kernels.h"

#define TT_MOVE_DEEP 4 /* vectors that a thread of a copy has in flight */

#ifdef __CUDACC__

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

#else /* the includer declares fake_block and fake_blocks */

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

/* ---- waiting --------------------------------------------------------------------------------- */

/* A wait by polling: polls so far, and the time of the first look at the clock (0: none yet) */
struct spin_wait {
	uint64_t since;
	uint32_t polls;
};

/* Reports a failure (enum tt_dev_trouble) to the host. The first failure stays, and one thread
 * alone reports it, since several threads of a rank may see one. The host reads `what` last. */
DEV void report_failure(const struct tt_dev_job *j, uint32_t what, uint32_t rank,
			const uint64_t *call)
{
	struct tt_dev_report *r = (struct tt_dev_report *)j->report;

	if (get_acquire(&r->abort) ||
	    swap_relaxed(&((struct tt_dev_signals *)j->signals[j->rank])->troubled, 1))
		return;
	r->rank = rank;
	r->call[0] = call ? call[0] : 0;
	r->call[1] = call ? call[1] : 0;
	put_release(&r->what, what);
	put_release(&r->abort, 1);
}

/* Called once for each poll without success of a word of peer's. 1: end the wait */
DEV int must_give_up(const struct tt_dev_job *j, struct spin_wait *w, uint32_t peer)
{
	struct tt_dev_report *r = (struct tt_dev_report *)j->report;
	uint64_t now;

	if (++w->polls % 256)
		return 0;
	if (get_acquire(&r->abort))
		return 1;
	now = clock_ns();
	if (!w->since)
		w->since = now;
	if (now - w->since < j->limit_ns)
		return 0;
	report_failure(j, TT_DEV_LATE, peer, 0);
	return 1;
}

DEV int await_epoch(const struct tt_dev_job *j, uint32_t *flag, uint32_t epoch, uint32_t peer)
{
	struct spin_wait w = { 0, 0 };

	while ((int32_t)(get_flag(flag) - epoch) < 0)
		if (must_give_up(j, &w, peer))
			return 0;
	get_acquire(flag);
	return 1;
}

DEV struct tt_dev_signals *signals_of(const struct tt_dev_job *j, uint32_t rank)
{
	return (struct tt_dev_signals *)j->signals[rank];
}

/* ---- barriers -------------------------------------------------------------------------------- */

/*
 * The rule of the PTX memory model behind each order. Scopes are .sys, since a peer may be on
 * another GPU and the report is host memory.
 *   inputs, before peers load them       work before a kernel on its stream happens before the
 *                 kernel; a release is cumulative, so it publishes that work too; the thread that
 *                 acquires `start` orders its whole block by SYNC (bar.sync)
 *   outputs, before this rank's stream goes on       stores of all threads, SYNC, the release of
 *                 `end` by one thread, its acquire by this rank, SYNC, the end of this kernel
 *   inputs, before their owner writes them again     likewise: SYNC orders the loads before `end`
 *   records       plain stores before the release of `start` by the same thread, loads after its
 *                 acquire by the same thread; after `end` they may be written again
 *   LL words      payload and epoch are one aligned word of 8 bytes, which is never torn, so they
 *                 need no other order. A half is written again two epochs later: by then its writer
 *                 has received the epoch between from this rank, whose earlier kernel had ended.
 *   where streams order ranks     stores of all threads of a block, SYNC, blocks_done by one thread
 *                 (acq_rel), SYNC in the last block, the release of a signal word at the peer by a
 *                 thread of that block, which is cumulative; the peer's stream waits for the word,
 *                 and a kernel behind cuStreamWaitValue begins after the wait
 *   report        rank and call before the release of `what`, which the host acquires
 * No pointer of a kernel is __restrict__: loads by the non-coherent path (ld.global.nc) would break
 * the first three.
 */

DEV void post_record(const struct tt_dev_job *j, uint32_t peer, uint32_t block)
{
	volatile struct tt_dev_record *c = &signals_of(j, peer)->record[block][j->rank];

	c->in = j->in[j->rank];
	c->out = j->out[j->rank];
	c->scale = j->scale;
	c->call[0] = j->call[0];
	c->call[1] = j->call[1];
}

DEV int same_call(const struct tt_dev_job *j, uint32_t peer, uint32_t block)
{
	volatile struct tt_dev_record *c = &signals_of(j, j->rank)->record[block][peer];
	uint64_t call[2];

	call[0] = c->call[0];
	call[1] = c->call[1];
	if (call[0] == j->call[0] && call[1] == j->call[1])
		return 1;
	report_failure(j, TT_DEV_OTHER_CALL, peer, call);
	return 0;
}

/* The signature of the call in LL words: ranks that run different calls by LL, or one by LL and one
 * with barriers, share no other order than that of these words. */
DEV void put_signature(const struct tt_dev_job *j, uint32_t peer, uint32_t epoch)
{
	uint64_t *words = signals_of(j, peer)->signature[epoch & 1][j->rank];

	UNROLL
	for (uint32_t i = 0; i < 4; i++)
		put_relaxed(&words[i],
			    (uint64_t)epoch << 32 | (uint32_t)(j->call[i / 2] >> 32 * (i % 2)));
}

/* Waits for the peer's signature. 0: the peer is late or in another call, which is reported */
DEV int check_signature(const struct tt_dev_job *j, uint32_t peer, uint32_t epoch)
{
	uint64_t *words = signals_of(j, j->rank)->signature[epoch & 1][peer], call[2] = { 0, 0 },
		 word;
	struct spin_wait w = { 0, 0 };

	UNROLL
	for (uint32_t i = 0; i < 4; i++) {
		while ((word = get_relaxed(&words[i])) >> 32 != epoch)
			if (must_give_up(j, &w, peer))
				return 0;
		call[i / 2] |= (word & 0xffffffffu) << 32 * (i % 2);
	}
	if (call[0] == j->call[0] && call[1] == j->call[1])
		return 1;
	report_failure(j, TT_DEV_OTHER_CALL, peer, call);
	return 0;
}

/* Sets a signal word of each rank in signal_to, once all blocks have done their work: the last block
 * does. A stream must not write the word: streams write the memory of their own GPU only. */
DEV void signal_ranks(const struct tt_dev_job *j, struct tt_dev_signals *mine)
{
	SHARED int last;

	SYNC();
	if (THREAD == 0) {
		last = add_acq_rel(&mine->blocks_done, 1) == BLOCKS - 1;
		if (last)
			mine->blocks_done = 0;
	}
	SYNC();
	for (uint32_t p = THREAD; last && p < TT_DEV_RANKS; p += THREADS)
		if (j->signal_to >> p & 1)
			put_release(&signals_of(j, p)->arrived[0] + j->signal_word, 1);
}

/* Is this a job between stream waits that the host has ended since the call failed? Its buffers may
 * be freed already. */
DEV int is_aborted(const struct tt_dev_job *j)
{
	return j->way == TT_DEV_ALONE && j->report &&
	       get_acquire(&((struct tt_dev_report *)j->report)->abort);
}

/* The barrier before a job. 0: give up. Called by every thread of the block. */
DEV int barrier_start(const struct tt_dev_job *j, uint32_t epoch, int *failed)
{
	for (uint32_t p = THREAD; p < j->nranks; p += THREADS)
		if (p != j->rank) {
			if (BLOCK == 0)
				put_signature(j, p, epoch);
			post_record(j, p, BLOCK);
			put_release(&signals_of(j, p)->start[BLOCK][j->rank], epoch);
		}
	for (uint32_t p = THREAD; p < j->nranks; p += THREADS)
		if (p != j->rank &&
		    (!await_epoch(j, &signals_of(j, j->rank)->start[BLOCK][p], epoch, p) ||
		     !same_call(j, p, BLOCK)))
			*failed = 1;
	SYNC();
	return !*failed;
}

/* The barrier after a job. */
DEV void barrier_end(const struct tt_dev_job *j, uint32_t epoch)
{
	SYNC();
	for (uint32_t p = THREAD; p < j->nranks; p += THREADS)
		if (p != j->rank)
			put_release(&signals_of(j, p)->end[BLOCK][j->rank], epoch);
	for (uint32_t p = THREAD; p < j->nranks; p += THREADS)
		if (p != j->rank)
			await_epoch(j, &signals_of(j, j->rank)->end[BLOCK][p], epoch, p);
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

	/* a subnormal: add the leading bit as float, then subtract it */
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
DEV float widen_Float16(uint16_t x)
{
	return small_widen(x, 16, 10, 15, 0x7c00);
}
DEV uint16_t narrow_Float16(float f)
{
	return (uint16_t)small_narrow(f, 16, 10, 15, 0x7c00, 0x7c00, 0x7e00);
}
#endif

DEV float widen_Bfloat16(uint16_t x)
{
	return float_of((uint32_t)x << 16);
}
DEV uint16_t narrow_Bfloat16(float f)
{
	uint32_t x = quiet(bits_of(f));

	return (uint16_t)((x + 0x7fff + ((x >> 16) & 1)) >> 16);
}

DEV float widen_Float8e4m3(uint8_t x)
{
	return small_widen(x, 8, 3, 7, 0x7f);
}
DEV uint8_t narrow_Float8e4m3(float f)
{
	return (uint8_t)small_narrow(f, 8, 3, 7, 0x7e, 0x7e, 0x7f);
}
DEV float widen_Float8e5m2(uint8_t x)
{
	return small_widen(x, 8, 2, 15, 0x7c);
}
DEV uint8_t narrow_Float8e5m2(float f)
{
	return (uint8_t)small_narrow(f, 8, 2, 15, 0x7b, 0x7c, 0x7f);
}
DEV float widen_Float32(uint32_t x)
{
	return float_of(x);
}
DEV uint32_t narrow_Float32(float f)
{
	return quiet(bits_of(f));
}
DEV double widen_Float64(uint64_t x)
{
	return double_of(x);
}
DEV uint64_t narrow_Float64(double f)
{
	return f == f ? bits_of_double(f) : 0x7ff8000000000000u;
}

/* ---- two operands to one --------------------------------------------------------------------- */

/* The numbers of tuttiRedOp_t (AVG runs as a sum), and ADJUSTED: a sum whose inputs are scaled or
 * whose result is divided */
enum { SUM, PROD, MAX, MIN, AVG, BAND, BOR, BXOR, ADJUSTED };

/* Sums and products wrap, so they are computed unsigned. */
#define INTEGER(name, raw, compared, product, wide)               \
	DEV raw widen_##name(raw x)                               \
	{                                                         \
		return x;                                         \
	}                                                         \
	DEV raw narrow_##name(raw x)                              \
	{                                                         \
		return x;                                         \
	}                                                         \
	DEV raw fold_##name(int op, raw x, raw y)                 \
	{                                                         \
		switch (op) {                                     \
		case SUM:                                         \
		case ADJUSTED:                                    \
			return (raw)((product)x + (product)y);    \
		case PROD:                                        \
			return (raw)((product)x * (product)y);    \
		case MIN:                                         \
			return (compared)x < (compared)y ? x : y; \
		case MAX:                                         \
			return (compared)x > (compared)y ? x : y; \
		case BAND:                                        \
			return x & y;                             \
		case BOR:                                         \
			return x | y;                             \
		default:                                          \
			return x ^ y;                             \
		}                                                 \
	}                                                         \
	DEV raw times_##name(raw x, uint64_t scale)               \
	{                                                         \
		return (raw)((product)x * (product)scale);        \
	}                                                         \
	DEV raw over_##name(raw x, uint64_t n)                    \
	{                                                         \
		return (raw)((wide)(compared)x / (wide)n);        \
	}
INTEGER(Int8, uint8_t, int8_t, uint32_t, int64_t)
INTEGER(Uint8, uint8_t, uint8_t, uint32_t, uint64_t)
INTEGER(Int32, uint32_t, int32_t, uint32_t, int64_t)
INTEGER(Uint32, uint32_t, uint32_t, uint32_t, uint64_t)
INTEGER(Int64, uint64_t, int64_t, uint64_t, int64_t)
INTEGER(Uint64, uint64_t, uint64_t, uint64_t, uint64_t)

/* If neither operand is less, both are equal or one is a NaN. The OR of the bits is the minimum
 * then: x = y, or -0 of two zeros, or a NaN. It is the maximum too, except that max(-0, +0) =
 * +0. */
#define FLOATING(name, value, word, bits, back)                                    \
	DEV value fold_##name(int op, value x, value y)                            \
	{                                                                          \
		word a = bits(x), b = bits(y);                                     \
                                                                                   \
		if (op == SUM || op == ADJUSTED)                                   \
			return x + y;                                              \
		if (op == PROD)                                                    \
			return x * y;                                              \
		if (op == MIN)                                                     \
			return x < y ? x : x > y ? y : back(a | b);                \
		return x > y ? x : x < y ? y : x == y ? back(a & b) : back(a | b); \
	}                                                                          \
	DEV value times_##name(value x, uint64_t scale)                            \
	{                                                                          \
		return x * (value)double_of(scale);                                \
	}                                                                          \
	DEV value over_##name(value x, uint64_t divisor)                           \
	{                                                                          \
		return x / (value)double_of(divisor);                              \
	}
FLOATING(Float32, float, uint32_t, bits_of, float_of)
FLOATING(Float64, double, uint64_t, bits_of_double, double_of)

/* ---- pieces of a job ------------------------------------------------------------------------- */

/* A piece of a job with the addresses of its operands */
struct combine_task {
	const char *src[TT_DEV_RANKS];
	uint64_t scale[TT_DEV_RANKS];
	char *dst[TT_DEV_RANKS];
	uint32_t nsrc, ndst;
	uint64_t bytes, divisor;
	uint32_t flags;
};

/* Makes the task of piece x; record: [nranks], the addresses of the ranks' buffers. Sources and
 * destinations are in rank order. */
DEV void make_task(const struct tt_dev_job *j, const struct tt_dev_piece *x,
		   const struct tt_dev_record *record, struct combine_task *t)
{
	t->nsrc = t->ndst = 0;
	t->bytes = x->bytes;
	t->flags = j->flags;
	t->divisor = j->divisor;
	for (uint32_t p = 0; p < j->nranks; p++) {
		if (x->from >> p & 1) {
			t->src[t->nsrc] = (const char *)record[p].in + x->from_at;
			t->scale[t->nsrc++] = record[p].scale;
		}
		if (x->to >> p & 1)
			t->dst[t->ndst++] = (char *)record[p].out + x->to_at;
	}
}

/* The largest power of two up to 16 that divides all addresses */
DEV uint32_t alignment(const struct combine_task *t)
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

/* ---- copies ---------------------------------------------------------------------------------- */

/* Sixteen bytes that begin `apart` bytes after those of x; y follows x. */
DEV struct pair shifted(struct pair x, struct pair y, uint32_t apart)
{
	uint64_t low = apart < 8 ? x.a : x.b, middle = apart < 8 ? x.b : y.a,
		 high = apart < 8 ? y.a : y.b;
	uint32_t shift = apart % 8 * 8;
	struct pair r;

	r.a = shift ? low >> shift | middle << (64 - shift) : low;
	r.b = shift ? middle >> shift | high << (64 - shift) : middle;
	return r;
}

/* Copies bytes; the thread takes vector `first` and each `stride`-th of those that follow. Vectors are
 * aligned at dst. Where src is not, two aligned loads give a vector; none of them leaves src. */
DEV void move(char *dst, const char *src, uint32_t bytes, uint32_t first, uint32_t stride)
{
	uint32_t head = (uint32_t)(0 - (uint64_t)dst) & 15, n = 0,
		 apart = ((uint32_t)(uint64_t)src + head) & 15;
	const struct pair *from;
	struct pair *to;

	head += head < apart ? 16 : 0;
	if (bytes >= head + 16)
		n = (bytes - head + apart) / 16 - (apart ? 1 : 0);
	from = (const struct pair *)(src + head - apart);
	to = (struct pair *)(dst + head);
	ONCE for (uint32_t i = first; apart && i < n; i += stride)
		store_pair(&to[i], shifted(load_pair(&from[i]), load_pair(&from[i + 1]), apart));
	ONCE for (uint32_t i = first; !apart && i < n; i += TT_MOVE_DEEP * stride)
	{
		struct pair x[TT_MOVE_DEEP];

		UNROLL
		for (uint32_t k = 0; k < TT_MOVE_DEEP; k++)
			if (i + k * stride < n)
				x[k] = load_pair(&from[i + k * stride]);
		UNROLL
		for (uint32_t k = 0; k < TT_MOVE_DEEP; k++)
			if (i + k * stride < n)
				store_pair(&to[i + k * stride], x[k]);
	}
	ONCE for (uint32_t at = first; at < head && at < bytes; at += stride) dst[at] = src[at];
	ONCE for (uint32_t at = head + 16 * n + first; at < bytes; at += stride) dst[at] = src[at];
}

/* ---- the FIFO protocol ----------------------------------------------------------------------- */

/*
 * Round r of a block, counted over all calls: waits until the same block of each peer has completed
 * round r - TT_FIFO_LAG; stages chunk r in slot r of the receivers' FIFO; combines chunk
 * r - TT_FIFO_LAG of the senders, into the output or into the FIFO of results of the ranks that need it;
 * collects the results of chunk r - 2 TT_FIFO_LAG; then announces r + 1 rounds to each peer. Slots are
 * numbered modulo TT_FIFO_SLOTS = 2 TT_FIFO_LAG: a slot is written again when its owner has completed
 * the round that read it. So no call ends with a barrier, and a rank runs ahead of its peers by
 * TT_FIFO_LAG rounds, while their words are on their way. All loads are of the own GPU's memory: links
 * carry writes, which take no request and are waited for once in a round.
 */
struct fifo_move {
	const char *src;
	char *dst;
	uint32_t bytes;
};
struct fifo_call {
	uint32_t base;   /* rounds of the block before this call */
	uint32_t chunks; /* of each block; the last ones may be empty */
	uint32_t rounds;
	uint32_t epoch;
	/* of this round: what is staged, from the next rank on, so that ranks write to different
	 * peers at a time; what is collected */
	struct fifo_move moves[2][TT_DEV_RANKS];
};

DEV uint64_t chunk_at(const struct tt_dev_fifo *f, uint32_t chunk)
{
	return ((uint64_t)chunk * BLOCKS + BLOCK) * f->chunk;
}

DEV uint64_t chunk_bytes(const struct tt_dev_fifo *f, uint32_t chunk)
{
	uint64_t at = chunk_at(f, chunk);

	return at >= f->bytes ? 0 : f->bytes - at < f->chunk ? f->bytes - at : f->chunk;
}

/* Offset and bytes of the part of a chunk that a rank combines in two steps */
DEV uint64_t unit_of(uint64_t bytes, uint32_t nranks)
{
	return ((uint32_t)bytes + nranks * 128 - 1) / (nranks * 128) * 128;
}
DEV uint64_t unit_bytes(uint64_t bytes, uint32_t nranks, uint32_t rank)
{
	uint64_t unit = unit_of(bytes, nranks), at = unit * rank;

	return at >= bytes ? 0 : bytes - at < unit ? bytes - at : unit;
}

DEV char *slot_of(const struct tt_dev_job *j, uint32_t rank, uint32_t round, int result)
{
	uint64_t slot = BLOCK * TT_FIFO_SLOTS + round % TT_FIFO_SLOTS;

	return (char *)j->signals[rank] + (result ? TT_FIFO_RESULT_AT : TT_DEV_STAGED_AT) +
	       slot * TT_FIFO_SLOT_BYTES;
}

DEV void fifo_start(const struct tt_dev_job *j, struct tt_dev_signals *mine, uint32_t epoch,
		    struct fifo_call *c)
{
	uint64_t all = j->fifo.chunk * BLOCKS;

	if (THREAD == 0) {
		c->base = mine->rounds[BLOCK];
		c->epoch = epoch;
		c->chunks = (uint32_t)((j->fifo.bytes + all - 1) / all);
		c->rounds = c->chunks + j->fifo.steps * TT_FIFO_LAG;
	}
	for (uint32_t p = THREAD; p < j->nranks; p += THREADS)
		if (p != j->rank) {
			if (BLOCK == 0)
				put_signature(j, p, epoch);
			if (j->flags & TT_DEV_SCALES)
				*(volatile uint64_t *)&signals_of(j, p)
					 ->scale[epoch & 1][BLOCK][j->rank] = j->scale;
		}
	SYNC();
}

/* The round after i in which a block has work; rounds without work are not announced. */
DEV uint32_t fifo_next(const struct tt_dev_fifo *f, uint32_t chunks, uint32_t i)
{
	i++;
	if (i >= chunks && i < TT_FIFO_LAG)
		i = TT_FIFO_LAG;
	if (f->steps == 2 && i >= chunks + TT_FIFO_LAG && i < 2 * TT_FIFO_LAG)
		i = 2 * TT_FIFO_LAG;
	return i;
}

/* Distance of the senders' chunks, or parts of a chunk, in a slot */
DEV uint64_t apart_in_slot(const struct tt_dev_job *j, uint64_t bytes)
{
	return j->fifo.steps == 2 ? unit_of(bytes, j->nranks) : j->fifo.chunk;
}

/* Move x of those that stage a chunk: to the (x + 1)-th rank behind this one */
DEV struct fifo_move staging_move(const struct tt_dev_job *j, const struct fifo_call *c,
				  uint32_t chunk, uint32_t x)
{
	const struct tt_dev_fifo *f = &j->fifo;
	uint32_t p = (j->rank + 1 + x) % j->nranks;
	uint64_t bytes = chunk < c->chunks && f->receivers >> p & 1 ? chunk_bytes(f, chunk) : 0;
	struct fifo_move m;

	m.src = (const char *)j->in[j->rank] + chunk_at(f, chunk) + (f->parts ? p * f->bytes : 0);
	m.dst = slot_of(j, p, c->base + chunk, 0) + apart_in_slot(j, bytes) * j->rank;
	m.bytes = (uint32_t)bytes;
	if (f->steps == 2) {
		m.src += unit_of(bytes, j->nranks) * p;
		m.bytes = (uint32_t)unit_bytes(bytes, j->nranks, p);
	}
	return m;
}

/* Move p of those that collect a chunk: of rank p */
DEV struct fifo_move collecting_move(const struct tt_dev_job *j, const struct fifo_call *c,
				     uint32_t chunk, uint32_t p)
{
	const struct tt_dev_fifo *f = &j->fifo;
	uint64_t bytes = chunk < c->chunks && f->collects >> p & 1 ? chunk_bytes(f, chunk) : 0;
	struct fifo_move m;

	m.src = slot_of(j, j->rank, c->base + chunk, f->steps == 2) + apart_in_slot(j, bytes) * p;
	m.dst = (char *)j->out[j->rank] + chunk_at(f, chunk) + (f->gathers ? p * f->bytes : 0);
	m.bytes = (uint32_t)bytes;
	if (f->steps == 2) {
		m.dst += unit_of(bytes, j->nranks) * p;
		m.bytes = (uint32_t)unit_bytes(bytes, j->nranks, p);
	}
	return m;
}

/* Destination of results, from the next rank on */
DEV void add_result(const struct tt_dev_job *j, const struct fifo_call *c, uint32_t chunk,
		    uint64_t bytes, uint32_t x, struct combine_task *t)
{
	uint32_t next = j->rank + 1, p = (next + x) % j->nranks, all = (1u << j->nranks) - 1,
		 from_next = (j->fifo.results >> next | j->fifo.results << (j->nranks - next)) &
			     all;

	if (from_next >> x & 1)
		t->dst[count_bits(from_next & ((1u << x) - 1))] =
			slot_of(j, p, c->base + chunk, 1) + unit_of(bytes, j->nranks) * j->rank;
}

/* The task of the chunk that is combined in a round; each thread makes the part of a rank. */
DEV void make_combining_task(const struct tt_dev_job *j, const struct fifo_call *c, uint32_t chunk,
			     const struct tt_dev_record *record, struct combine_task *t)
{
	const struct tt_dev_fifo *f = &j->fifo;
	uint64_t bytes = f->combines && chunk < c->chunks ? chunk_bytes(f, chunk) : 0;

	for (uint32_t p = THREAD; p < j->nranks; p += THREADS) {
		if (f->combines >> p & 1) {
			uint32_t s = count_bits(f->combines & ((1u << p) - 1));

			t->src[s] = slot_of(j, j->rank, c->base + chunk, 0) +
				    apart_in_slot(j, bytes) * p;
			t->scale[s] = record[p].scale;
		}
		if (f->steps == 2)
			add_result(j, c, chunk, bytes, p, t);
	}
	if (THREAD)
		return;
	t->nsrc = count_bits(f->combines);
	t->ndst = f->steps == 2 ? count_bits(f->results) : 1;
	if (f->steps != 2)
		t->dst[0] = (char *)j->out[j->rank] + chunk_at(f, chunk);
	t->bytes = f->steps == 2 ? unit_bytes(bytes, j->nranks, j->rank) : bytes;
	t->flags = j->flags;
	t->divisor = j->divisor;
}

/* Waits for the peers and describes the work of round i of the call, in shared memory. */
DEV void fifo_begin_round(const struct tt_dev_job *j, struct tt_dev_signals *mine,
			  struct fifo_call *c, uint32_t i, struct tt_dev_record *record,
			  struct combine_task *t, int *failed)
{
	const struct tt_dev_fifo *f = &j->fifo;

	for (uint32_t p = THREAD; p < j->nranks; p += THREADS) {
		c->moves[0][p] = staging_move(j, c, i, p);
		c->moves[1][p] = collecting_move(j, c, i - f->steps * TT_FIFO_LAG, p);
		if (p == j->rank)
			continue;
		if (!await_epoch(j, &mine->completed[BLOCK][p], c->base + i - TT_FIFO_LAG + 1, p) ||
		    (BLOCK == 0 && i == TT_FIFO_LAG && !check_signature(j, p, c->epoch)))
			*failed = 1;
		if (i == TT_FIFO_LAG && j->flags & TT_DEV_SCALES)
			record[p].scale =
				*(volatile uint64_t *)&mine->scale[c->epoch & 1][BLOCK][p];
	}
	make_combining_task(j, c, i - TT_FIFO_LAG, record, t);
}

/* Copies what a round stages, then what it collects. Warps share the moves. */
DEV void fifo_move(const struct tt_dev_job *j, const struct fifo_call *c)
{
	uint32_t warp = THREAD / 32, warps = (THREADS + 31) / 32;

	ONCE for (uint32_t phase = 0; phase < 2; phase++)
	{
		const struct fifo_move *m = c->moves[phase];
		uint32_t n = j->nranks, few = n < warps ? n : warps;

		for (uint32_t x = warp % few; x < n; x += few)
			move(m[x].dst, m[x].src, m[x].bytes, warp / few * 32 + THREAD % 32,
			     THREADS < 32 ? THREADS : (warps - warp % few + few - 1) / few * 32);
	}
}

/* Announces round i of the call to the peers: the block's loads and stores of the round are done. */
DEV void fifo_end_round(const struct tt_dev_job *j, const struct fifo_call *c, uint32_t i)
{
	for (uint32_t p = THREAD; p < j->nranks; p += THREADS)
		if (p != j->rank)
			put_release(&signals_of(j, p)->completed[BLOCK][j->rank], c->base + i + 1);
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

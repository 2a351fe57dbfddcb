/*
 * kernel_type.h - the kernel of one type: included by kernels.cu once for each TYPE
 *
 * Macros that the includer defines and this file undefines: TYPE, RAW (an element in memory), VALUE
 * (an operand), ARITHMETIC (the type whose fold, times and over are used), WHOLE (1: an integer,
 * which has bitwise ops), AWAITS (defined: the kernel runs jobs that wait for words; in every kernel that would
 * spill registers).
 */
#define PASTE2(a, b) a##_##b
#define PASTE(a, b) PASTE2(a, b)
#define OF(name) PASTE(name, TYPE)
#define BY(name) PASTE(name, ARITHMETIC)
#define BITS (8 * (uint32_t)sizeof(RAW))

#include "gpu/kernels/kernel_combine.h"
#include "gpu/kernels/kernel_ll.h"

/* Calls f(op, ...) with a constant op. */
#if WHOLE
#define BITWISE(f, ...)               \
	case BAND:                    \
		f(BAND, __VA_ARGS__); \
		break;                \
	case BOR:                     \
		f(BOR, __VA_ARGS__);  \
		break;                \
	case BXOR:                    \
		f(BXOR, __VA_ARGS__); \
		break;
#else
#define BITWISE(f, ...)
#endif
#define WITH_OP(op, f, ...)               \
	switch (op) {                     \
	case PROD:                        \
		f(PROD, __VA_ARGS__);     \
		break;                    \
	case MAX:                         \
		f(MAX, __VA_ARGS__);      \
		break;                    \
	case MIN:                         \
		f(MIN, __VA_ARGS__);      \
		break;                    \
	case ADJUSTED:                    \
		f(ADJUSTED, __VA_ARGS__); \
		break;                    \
		BITWISE(f, __VA_ARGS__)   \
	default:                          \
		f(SUM, __VA_ARGS__);      \
		break;                    \
	}

/* Combines all bytes of a task. Copies go by vectors at any alignment, sums at that of vectors. */
DEV void OF(combine)(int op, const struct combine_task *t, uint32_t first, uint32_t stride)
{
	uint32_t aligned = alignment(t);
	uint64_t n = aligned < 16 || (WHOLE && op == ADJUSTED) ? 0 : t->bytes / 16;

	if (t->nsrc == 1 && op != ADJUSTED && (aligned < 16 || t->ndst == 1)) {
		ONCE for (uint32_t d = 0; d < t->ndst; d++)
			move(t->dst[d], t->src[0], t->bytes, first, stride);
		return;
	}
	if (n)
		WITH_OP(op, OF(sweep), t, n, first, stride)
	OF(elements)(op, t, n * 16, aligned, first, stride);
}

/* The pieces of a job, or the rounds of a call by FIFO. A block shares a piece with all blocks, and has
 * chunks of its own. The task is in shared memory, since its arrays are indexed by variables, which
 * registers cannot be. */
DEV void OF(work)(int op, const struct tt_dev_job *j, struct tt_dev_signals *mine,
		  struct tt_dev_record *record, uint32_t epoch, int *failed)
{
	SHARED struct combine_task t;
	int by_fifo = j->way == TT_DEV_FIFO;
	SHARED struct fifo_call c;

	if (by_fifo)
		fifo_start(j, mine, epoch, &c);
	ONCE for (uint32_t i = 0; i < (by_fifo ? c.rounds : j->npieces);
		  i = by_fifo ? fifo_next(&j->fifo, c.chunks, i) : i + 1)
	{
		uint32_t first = by_fifo ? THREAD : BLOCK * THREADS + THREAD,
			 stride = by_fifo ? THREADS : BLOCKS * THREADS;

		if (by_fifo)
			fifo_begin_round(j, mine, &c, i, record, &t, failed);
		else if (THREAD == 0)
			make_task(j, &j->piece[i], record, &t);
		SYNC();
		if (*failed)
			return;
		OF(combine)(op, &t, first, stride);
		if (by_fifo)
			fifo_move(j, &c);
		SYNC();
		if (by_fifo)
			fifo_end_round(j, &c, i);
	}
	if (by_fifo && THREAD == 0)
		mine->rounds[BLOCK] = c.base + c.rounds;
}

KERNEL(OF(tt))
{
	const struct tt_dev_job *j = JOB;
	struct tt_dev_signals *mine = signals_of(j, j->rank);
	SHARED int failed;
	SHARED struct tt_dev_record record[TT_DEV_RANKS];
	int op = j->flags & (TT_DEV_SCALES | TT_DEV_DIVIDES) ? ADJUSTED : (int)j->op;
	uint32_t epoch = mine->epoch[BLOCK] + 1;
	/* a call whose first job is ALONE counts in block 0's epoch, for its signature */
	int counts = j->way != TT_DEV_ALONE ||
		     (BLOCK == 0 && (j->flags & (TT_DEV_POSTS | TT_DEV_BEGINS)) ==
					    (TT_DEV_POSTS | TT_DEV_BEGINS));

	if (THREAD == 0)
		failed = is_aborted(j);
	SYNC();
#ifdef AWAITS
	await_signals(j);
#endif
	if (BLOCK == 0 && THREAD == 0 && (j->flags & TT_DEV_BEGINS))
		put_count(&((struct tt_dev_report *)j->report)->begun, ++mine->begun);
	if (BLOCK == 0 && (j->flags & TT_DEV_POSTS))
		for (uint32_t p = THREAD; p < j->nranks; p += THREADS)
			if (p != j->rank) {
				post_record(j, p, 0);
				if (counts)
					put_signature(j, p, epoch);
			}
	if (BLOCK == 0 && (j->flags & TT_DEV_CHECKS))
		for (uint32_t p = THREAD; p < j->nranks; p += THREADS)
			if (p != j->rank)
				same_call(j, p, 0);
	if (j->way == TT_DEV_BARRIER && !barrier_start(j, epoch, &failed))
		return;
	for (uint32_t p = THREAD; p < j->nranks; p += THREADS) {
		volatile struct tt_dev_record *c = &mine->record[BLOCK][p];
		int theirs = j->way == TT_DEV_BARRIER && p != j->rank;

		record[p].in = theirs ? c->in : j->in[p];
		record[p].out = theirs ? c->out : j->out[p];
		record[p].scale = theirs ? c->scale : j->scale;
	}
	SYNC();
	if (j->way == TT_DEV_LL)
		OF(low_latency)(op, j, epoch);
	else
		OF(work)(op, j, mine, record, epoch, &failed);
	if (j->way == TT_DEV_BARRIER)
		barrier_end(j, epoch);
	SYNC();
	if (THREAD == 0 && counts)
		mine->epoch[BLOCK]++;
	if (BLOCK == 0 && THREAD == 0 && (j->flags & TT_DEV_ENDS))
		put_count(&((struct tt_dev_report *)j->report)->ended, ++mine->ended);
	if (j->signal_to)
		signal_ranks(j, mine);
}

#undef PASTE2
#undef PASTE
#undef OF
#undef BY
#undef BITS
#undef BITWISE
#undef WITH_OP
#undef TYPE
#undef RAW
#undef VALUE
#undef ARITHMETIC
#undef WHOLE
#undef AWAITS

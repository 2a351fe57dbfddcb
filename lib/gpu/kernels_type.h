/*
 * kernels_type.h - the kernel of one type: included by kernels.cu once for each TYPE
 *
 * Macros that the includer defines and this file undefines: TYPE, RAW (an element in memory), VALUE
 * (an operand), ARITHMETIC (the type whose fold, times and over are used), WHOLE (1: an integer,
 * which has bitwise ops). op is a constant where `sweep` is inlined, and a variable where few bytes
 * are combined.
 */
#define PASTE2(a, b) a##_##b
#define PASTE(a, b) PASTE2(a, b)
#define OF(name) PASTE(name, TYPE)
#define BY(name) PASTE(name, ARITHMETIC)
#define BITS (8 * (uint32_t)sizeof(RAW))

/* Combines one element of all sources. v: 8 bytes of each source; shift: position of the element */
DEV RAW OF(element)(int op, const struct combine_task *t, const uint64_t *v, uint32_t limit,
		    uint32_t shift)
{
	VALUE x = 0;

	UNROLL
	for (uint32_t s = 0; s < TT_DEV_RANKS; s++)
		if (s < limit && s < t->nsrc) {
			VALUE y = OF(widen)((RAW)(v[s] >> shift));

			if (op == ADJUSTED && t->flags & TT_DEV_SCALES)
				y = OF(widen)(OF(narrow)(BY(times)(y, t->scale[s])));
			x = s ? BY(fold)(op, x, y) : y;
		}
	if (op == ADJUSTED && t->flags & TT_DEV_DIVIDES)
		x = BY(over)(OF(widen)(OF(narrow)(x)), t->divisor);
	return OF(narrow)(x);
}

/* Combines 8 bytes of all sources. Not unrolled where they are eight elements: the compiler would
 * take minutes. */
DEV uint64_t OF(unit)(int op, const struct combine_task *t, const uint64_t *v, uint32_t limit)
{
	uint64_t r = 0;

	UNROLL_TO(BITS == 8 ? 1 : 4)
	for (uint32_t shift = 0; shift < 64; shift += BITS)
		r |= (uint64_t)OF(element)(op, t, v, limit, shift) << shift;
	return r;
}

/* Combines `deep` vectors of up to `limit` sources at once, so that enough loads are in flight for
 * any number of sources. */
DEV void OF(vectors)(int op, const struct combine_task *t, uint64_t i, uint32_t stride,
		     const uint32_t limit, const uint32_t deep)
{
	uint64_t a[2][TT_DEV_RANKS], b[2][TT_DEV_RANKS];

	UNROLL
	for (uint32_t k = 0; k < deep; k++) {
		UNROLL
		for (uint32_t s = 0; s < limit; s++)
			if (s < t->nsrc) {
				struct pair x = load_pair(
					&((const struct pair *)t->src[s])[i + k * stride]);

				a[k][s] = x.a;
				b[k][s] = x.b;
			}
	}
	UNROLL
	for (uint32_t k = 0; k < deep; k++) {
		struct pair x;

		x.a = OF(unit)(op, t, a[k], limit);
		x.b = OF(unit)(op, t, b[k], limit);
		UNROLL
		for (uint32_t d = 0; d < TT_DEV_RANKS; d++)
			if (d < t->ndst)
				store_pair(&((struct pair *)t->dst[d])[i + k * stride], x);
	}
}

/* Combines element by element: the remainder, and buffers that are not aligned to vectors. */
DEV void OF(elements)(int op, const struct combine_task *t, uint64_t from, uint32_t aligned,
		      uint32_t first, uint32_t stride)
{
	uint64_t v[TT_DEV_RANKS], step = stride * sizeof(RAW);

	for (uint64_t at = from + (uint64_t)first * sizeof(RAW); at < t->bytes; at += step) {
		RAW x;

		UNROLL
		for (uint32_t s = 0; s < TT_DEV_RANKS; s++)
			if (s < t->nsrc)
				v[s] = aligned >= sizeof(RAW)
					       ? *(const RAW *)(t->src[s] + at)
					       : get_bytes(t->src[s] + at, sizeof(RAW));
		x = OF(element)(op, t, v, TT_DEV_RANKS, 0);
		UNROLL
		for (uint32_t d = 0; d < TT_DEV_RANKS; d++)
			if (d < t->ndst) {
				if (aligned >= sizeof(RAW))
					*(RAW *)(t->dst[d] + at) = x;
				else
					put_bytes(t->dst[d] + at, x, sizeof(RAW));
			}
	}
}

/* Combines the first n vectors. */
DEV void OF(sweep)(int op, const struct combine_task *t, uint64_t n, uint64_t i, uint32_t stride)
{
	for (; t->nsrc <= 4 && i + stride < n; i += 2 * (uint64_t)stride)
		OF(vectors)(op, t, i, stride, 4, 2);
	for (; i < n; i += stride)
		OF(vectors)(op, t, i, stride, TT_DEV_RANKS, 1);
}

/* The LL protocol (as in NCCL): writes this rank's bytes with flags to all peers, waits for theirs
 * and combines. A unit of 8 bytes travels in two words of a line. */
DEV void OF(low_latency)(int op, const struct tt_dev_job *j, uint32_t epoch)
{
	uint64_t first = (uint64_t)BLOCK * TT_LL_SLICE, left = j->piece[0].bytes - first,
		 flag = (uint64_t)epoch << 32;
	uint32_t bytes = left < TT_LL_SLICE ? (uint32_t)left : TT_LL_SLICE, half = epoch & 1;
	const char *in = (const char *)j->in[j->rank] + first;
	char *out = (char *)j->out[j->rank] + first;
	struct combine_task t;

	t.nsrc = j->nranks;
	t.flags = j->flags & TT_DEV_DIVIDES;
	t.divisor = j->divisor;
	for (uint32_t p = THREAD; BLOCK == 0 && p < j->nranks; p += THREADS)
		if (p != j->rank)
			put_signature(j, p, epoch);
	for (uint32_t at = THREAD * 8; at < bytes; at += THREADS * 8) {
		uint32_t unit_bytes = bytes - at < 8 ? bytes - at : 8;
		uint64_t mine = ((uint64_t)in & 7) == 0 && unit_bytes == 8
					? *(const uint64_t *)(in + at)
					: get_bytes(in + at, unit_bytes);

		for (uint32_t p = 0; p < j->nranks; p++)
			if (p != j->rank) {
				uint64_t *line =
					&signals_of(j, p)->line[half][j->rank][BLOCK][at / 4];

				put_relaxed(&line[0], flag | (uint32_t)mine);
				put_relaxed(&line[1], flag | mine >> 32);
			}
	}
	/* before the payload: a peer in another call may send less of it */
	for (uint32_t p = THREAD; BLOCK == 0 && p < j->nranks; p += THREADS)
		if (p != j->rank && !check_signature(j, p, epoch))
			return;
	for (uint32_t at = THREAD * 8; at < bytes; at += THREADS * 8) {
		uint32_t unit_bytes = bytes - at < 8 ? bytes - at : 8;
		uint64_t v[TT_DEV_RANKS], x, low, high;

		UNROLL
		for (uint32_t p = 0; p < TT_DEV_RANKS; p++) {
			uint64_t *line = &signals_of(j, j->rank)->line[half][p][BLOCK][at / 4];
			struct spin_wait w = { 0, 0 };

			if (p >= j->nranks)
				continue;
			if (p == j->rank) {
				v[p] = get_bytes(in + at, unit_bytes);
				continue;
			}
			while ((low = get_relaxed(&line[0])) >> 32 != epoch ||
			       (high = get_relaxed(&line[1])) >> 32 != epoch)
				if (must_give_up(j, &w, p))
					return;
			v[p] = (low & 0xffffffffu) | high << 32;
		}
		x = OF(unit)(op, &t, v, TT_DEV_RANKS);
		if (((uint64_t)out & 7) == 0 && unit_bytes == 8)
			*(uint64_t *)(out + at) = x;
		else
			put_bytes(out + at, x, unit_bytes);
	}
}

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
		uint32_t aligned, first = by_fifo ? THREAD : BLOCK * THREADS + THREAD,
				  stride = by_fifo ? THREADS : BLOCKS * THREADS;
		uint64_t n;

		if (by_fifo)
			fifo_begin_round(j, mine, &c, i, record, &t, failed);
		else if (THREAD == 0)
			make_task(j, &j->piece[i], record, &t);
		SYNC();
		if (*failed)
			return;
		aligned = alignment(&t);
		n = aligned < 16 || (WHOLE && op == ADJUSTED) ? 0 : t.bytes / 16;
		if (n)
			WITH_OP(op, OF(sweep), &t, n, first, stride)
		OF(elements)(op, &t, n * 16, aligned, first, stride);
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

/*
 * kernel_ll.h - the LL protocol (as in NCCL): included by kernel_type.h for each type
 *
 * A rank writes its bytes with flags to all peers, waits for theirs and combines. A unit of 8 bytes travels
 * in two words of a line. Order: payload and epoch are one aligned word of 8 bytes, which is never torn, so
 * they need no other order. A half of the lines is written again two epochs later: by then its writer has
 * received the epoch between from this rank, whose earlier kernel had ended.
 */

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
		uint64_t v[TT_DEV_RANKS], low[TT_DEV_RANKS], high[TT_DEV_RANKS], x;

		/* first poll: the loads of all lines are in flight at once */
		UNROLL
		for (uint32_t p = 0; p < TT_DEV_RANKS; p++) {
			uint64_t *line = &signals_of(j, j->rank)->line[half][p][BLOCK][at / 4];

			if (p < j->nranks && p != j->rank) {
				low[p] = get_relaxed(&line[0]);
				high[p] = get_relaxed(&line[1]);
			}
		}
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
			if (low[p] >> 32 != epoch || high[p] >> 32 != epoch)
				while ((low[p] = get_relaxed(&line[0])) >> 32 != epoch ||
				       (high[p] = get_relaxed(&line[1])) >> 32 != epoch)
					if (must_give_up(j, &w, p))
						return;
			v[p] = (low[p] & 0xffffffffu) | high[p] << 32;
		}
		x = OF(unit)(op, &t, t.nsrc, v, TT_DEV_RANKS);
		if (((uint64_t)out & 7) == 0 && unit_bytes == 8)
			*(uint64_t *)(out + at) = x;
		else
			put_bytes(out + at, x, unit_bytes);
	}
}

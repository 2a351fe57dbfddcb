/*
 * shm_board.c - one small message from each rank of a host group to all the others
 *
 * Called through tt_shm by run. Each rank has two notices on the board; number k goes into notice k % 2:
 *
 *   | payload 56 B | flag | payload 56 B | flag | ...        1..6 lines; a line carries bytes and flag: one transfer
 *
 * All peers read the same lines, so a rank writes once however many there are, and nobody acknowledges: who casts k has
 * seen k-1 of all, and they had read everything of k-2 when they cast that. flag = number and a mix of stamp and length,
 * stored last, as in shm_ring.c.
 */
#include <string.h>

#include "transports/shm_ring.h"

static struct tt_shm_cast_line *notice(struct tt_shm_segment *s, int place, uint64_t number)
{
	return tt_shm_segment_board(s, place)->notice[number & 1];
}

static unsigned lines_of(size_t bytes)
{
	return ((unsigned)bytes + TT_CAST_LINE - 1) / TT_CAST_LINE;
}

void tt_shm_cast(struct tt_endpoint *base, const void *data, size_t bytes, uint64_t number, uint32_t stamp)
{
	struct tt_shm_ep *ep = (struct tt_shm_ep *)base;
	struct tt_shm_cast_line *line = notice(&ep->segment, ep->segment.me, number);
	uint64_t flag = tt_shm_flag(number, bytes, stamp);
	const char *from = data;

	for (unsigned i = 0; i < lines_of(bytes); i++) {
		size_t left = bytes - i * TT_CAST_LINE;

		memcpy(line[i].payload, from + i * TT_CAST_LINE, left < TT_CAST_LINE ? left : TT_CAST_LINE);
		atomic_store_explicit(&line[i].flag, flag, memory_order_release);
	}
	if (tt_unlikely(atomic_load_explicit(&ep->segment.header->sleepers, memory_order_relaxed)))
		tt_shm_wake_all(ep);
}

int tt_shm_seen(struct tt_endpoint *base, int peer, size_t bytes, uint64_t number, uint32_t stamp, const void **ret_data)
{
	struct tt_shm_ep *ep = (struct tt_shm_ep *)base;
	struct tt_shm_cast_line *line = notice(&ep->segment, ep->segment.local_of[peer], number);
	uint64_t expected = tt_shm_flag(number, bytes, stamp), differs = 0, first;
	unsigned n = lines_of(bytes);

	first = atomic_load_explicit(&line[0].flag, memory_order_acquire);
	for (unsigned i = 1; i < n; i++)         /* all are loaded before anything is decided: transfers overlap */
		differs |= atomic_load_explicit(&line[i].flag, memory_order_acquire) ^ expected;
	*ret_data = line;
	if (tt_likely(first == expected))
		return differs == 0;
	if (first >> 32 != expected >> 32)
		return 0;
	return tt_fail(TT_USAGE, "rank %d: small message %llu of rank %d is not the %zu bytes of call %08x that are "
		       "expected: the ranks make different calls", base->world->rank, (unsigned long long)number, peer,
		       bytes, stamp);
}

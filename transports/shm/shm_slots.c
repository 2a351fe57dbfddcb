/*
 * shm_slots.c - shared-memory slots: one post of a rank reaches all other ranks of the host
 *
 * Called through tt_shm by local. Each rank has 128 slots, and pages of 512 KiB together; the post of
 * round k goes into slot k % 128:
 *
 *   | payload 56 B | flag | payload 56 B | flag | ...     up to 336 B: 1..6 lines; a line carries
 *                                                         payload and flag: one transfer
 *   | offset ....... | flag | --> pages, of any rank      more, up to 256 KiB: two transfers in a row
 *
 * All peers read the same lines, so a rank writes once for any number of peers. Where all ranks post,
 * no peer acknowledges: a rank that posts k has polled k-1 of all ranks, and each rank had read all of
 * k-2 before it posted k-1. Where some ranks only read, they release their rounds, once for several
 * small ones. flag = number and a hash of stamp and length, stored last, as in shm_ring.c.
 */
#include <string.h>

#include "mem/peer_lines.h"
#include "transports/shm/shm_ring.h"

static struct tt_shm_slot_line *slot_of(struct tt_shm_segment *s, int local_rank, uint64_t number)
{
	return tt_shm_segment_slot_area(s, local_rank)->slot[number % TT_SLOT_DEPTH];
}

static void put_flag(const struct tt_shm_segment *s, struct tt_shm_slot_line *line, uint64_t flag)
{
	atomic_store_explicit(&line->flag, flag, memory_order_release);
	if (s->demotes)
		tt_demote_line(line);
}

static void write_lines(const struct tt_shm_segment *s, struct tt_shm_slot_line *line,
			const char *from, size_t bytes, uint64_t flag)
{
	for (; bytes > TT_SLOT_LINE; bytes -= TT_SLOT_LINE, from += TT_SLOT_LINE, line++) {
		memcpy(line->payload, from, TT_SLOT_LINE);
		put_flag(s, line, flag);
	}
	memcpy(line->payload, from, bytes);
	put_flag(s, line, flag);
}

void tt_shm_slot_post(struct tt_endpoint *base, const void *data, size_t bytes, uint64_t number,
		      uint32_t stamp)
{
	struct tt_shm_segment *s = &((struct tt_shm_ep *)base)->segment;
	struct tt_shm_slot_line *line = slot_of(s, s->me, number);
	uint64_t flag = tt_shm_flag(number, bytes, stamp);

	if (bytes <= TT_SLOT_SMALL) {
		write_lines(s, line, data, bytes, flag);
	} else {
		line->offset = (uint64_t)((const char *)data - tt_shm_segment_pages(s, 0));
		put_flag(s, line, flag);
	}
	tt_shm_wake_all(s);
}

void *tt_shm_slot_room(struct tt_endpoint *base)
{
	struct tt_shm_segment *s = &((struct tt_shm_ep *)base)->segment;

	return tt_shm_segment_pages(s, s->me);
}

/* A function of its own, so that polls save no registers for its call. */
static __attribute__((noinline, cold)) int differs(const struct tt_endpoint *base, int peer,
						   size_t bytes, uint64_t number, uint32_t stamp)
{
	return tt_fail(
		TT_USAGE,
		"rank %d: slot post %llu of rank %d is not the %zu bytes of call %08x that are expected: the "
		"ranks make different calls",
		base->world->rank, (unsigned long long)number, peer, bytes, stamp);
}

static int in_pages(const struct tt_endpoint *base, int peer, const struct tt_shm_slot_line *line,
		    size_t bytes, const void **ret_data)
{
	const struct tt_shm_segment *s = &((const struct tt_shm_ep *)base)->segment;
	size_t offset = line->offset, end = (size_t)s->nlocal * s->pages_bytes;

	if (tt_unlikely(bytes > end || offset > end - bytes))
		return tt_fail(TT_INTERNAL,
			       "rank %d: rank %d posted an offset outside of its pages",
			       base->world->rank, peer);
	*ret_data = tt_shm_segment_pages(s, 0) + offset;
	return 1;
}

int tt_shm_slot_poll(struct tt_endpoint *base, int peer, size_t bytes, uint64_t number,
		     uint32_t stamp, const void **ret_data)
{
	struct tt_shm_segment *s = &((struct tt_shm_ep *)base)->segment;
	int local_rank = s->local_of[peer];
	struct tt_shm_slot_line *line = slot_of(s, local_rank, number);
	uint64_t expected = tt_shm_flag(number, bytes, stamp), rest = 0,
		 first = atomic_load_explicit(&line->flag, memory_order_acquire);

	*ret_data = line;
	if (tt_unlikely(first != expected))
		return first >> 32 != expected >> 32 ? 0
						     : differs(base, peer, bytes, number, stamp);
	if (bytes > TT_SLOT_SMALL)
		return in_pages(base, peer, line, bytes, ret_data);
	/* all other flags are loaded before the comparison, so that the transfers overlap; none before the first one is
	 * there (shm_ring.c) */
	for (size_t at = TT_SLOT_LINE; at < bytes; at += TT_SLOT_LINE)
		rest |= atomic_load_explicit(&(++line)->flag, memory_order_acquire) ^ expected;
	return rest == 0;
}

void tt_shm_slot_release(struct tt_endpoint *base, uint64_t number, uint16_t stamp)
{
	struct tt_shm_segment *s = &((struct tt_shm_ep *)base)->segment;

	atomic_store_explicit(&tt_shm_segment_slot_area(s, s->me)->released, number << 16 | stamp,
			      memory_order_release);
	tt_shm_wake_all(s);
}

uint64_t tt_shm_slot_released(struct tt_endpoint *base, int peer, uint16_t *ret_stamp)
{
	struct tt_shm_segment *s = &((struct tt_shm_ep *)base)->segment;
	uint64_t released = atomic_load_explicit(
		&tt_shm_segment_slot_area(s, s->local_of[peer])->released, memory_order_acquire);

	*ret_stamp = (uint16_t)released;
	return released >> 16;
}

/* ---- PSCW ------------------------------------------------------------------------------------ */

_Static_assert(sizeof(struct tt_peer_memory) <= TT_SLOT_LINE, "an exposure is one line");

static struct tt_shm_slot_area *area_of(struct tt_endpoint *base, int peer)
{
	struct tt_shm_segment *s = &((struct tt_shm_ep *)base)->segment;

	return tt_shm_segment_slot_area(s, s->local_of[peer]);
}

void tt_shm_pscw_post(struct tt_endpoint *base, const struct tt_peer_memory *mine, uint64_t number,
		      uint32_t stamp)
{
	struct tt_shm_segment *s = &((struct tt_shm_ep *)base)->segment;

	write_lines(s, &tt_shm_segment_slot_area(s, s->me)->exposed, (const char *)mine,
		    sizeof(*mine), tt_shm_flag(number, sizeof(*mine), stamp));
	tt_shm_wake_all(s);
}

int tt_shm_pscw_test_start(struct tt_endpoint *base, int peer, uint64_t number, uint32_t stamp,
			   struct tt_peer_memory *ret)
{
	struct tt_shm_slot_line *line = &area_of(base, peer)->exposed;
	uint64_t expected = tt_shm_flag(number, sizeof(*ret), stamp);
	uint64_t flag = atomic_load_explicit(&line->flag, memory_order_acquire);

	if (flag >> 32 != expected >> 32)
		return 0;
	if (flag != expected)
		return tt_fail(
			TT_USAGE,
			"rank %d: the buffer that rank %d exposes in call %llu is of another "
			"call than this rank's: the ranks make different calls",
			base->world->rank, peer, (unsigned long long)number);
	memcpy(ret, line->payload, sizeof(*ret));
	return 1;
}

void tt_shm_pscw_complete(struct tt_endpoint *base, int peer, uint64_t number)
{
	struct tt_shm_segment *s = &((struct tt_shm_ep *)base)->segment;

	atomic_store_explicit(&tt_shm_segment_slot_area(s, s->me)->completed[s->local_of[peer]],
			      number, memory_order_release);
	tt_shm_wake(s, s->local_of[peer]);
}

bool tt_shm_pscw_test_complete(struct tt_endpoint *base, int peer, uint64_t number)
{
	const struct tt_shm_segment *s = &((struct tt_shm_ep *)base)->segment;

	return atomic_load_explicit(&area_of(base, peer)->completed[s->me], memory_order_acquire) >=
	       number;
}

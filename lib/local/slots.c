/*
 * slots.c - rounds of posts (slots.h): which rounds have the other ranks released? Posts of parts
 *
 * Called by the ways that post, also through tt_slots_ready. A release carries the stamp of its round, since
 * ranks whose calls differ may all take themselves for the root, and then none of them polls a post.
 */
#include "local/slots.h"

int tt_slots_await_release(tuttiComm_t c, size_t bytes, int *ret_missing)
{
	struct tt_comm_rounds *rounds = &c->calls.rounds;
	uint64_t next = rounds->now + 1, least = UINT64_MAX,
		 round = next > TT_SLOT_DEPTH ? next - TT_SLOT_DEPTH : 0;

	if (bytes > TT_SLOT_SMALL && tt_slots_half_is_left(rounds, bytes) &&
	    rounds->half[!rounds->upper] > round)
		round = rounds->half[!rounds->upper];
	for (int r = 0; r < c->nranks; r++) {
		uint64_t released;
		uint16_t stamp;

		if (r == c->rank)
			continue;
		released = c->paths.slots->slot_ops->released(c->paths.slots, r, &stamp);
		if (released < round) {
			*ret_missing = r;
			return 0;
		}
		if (released <= rounds->now && stamp != rounds->stamp[released % TT_SLOT_DEPTH])
			return tt_fail(
				TT_USAGE,
				"rank %d: rank %d released round %llu of slots in another call: "
				"the ranks make different calls",
				c->rank, r, (unsigned long long)released);
		least = released < least ? released : least;
	}
	rounds->finished = least;
	return 1;
}

static void copy(const struct tt_stores_call *call, char *dst, const char *src, size_t bytes)
{
	if (call->nontemporal)
		tt_copy_nontemporal(dst, src, bytes);
	else
		tt_copy_to_peer(dst, src, bytes);
}

/* Each non-temporal copy ends in a fence, so parts without gaps are two copies: before and behind this rank's own. */
void tt_slots_post_parts(tuttiComm_t c, const struct tt_stores_call *call, const char *in,
			 size_t apart, size_t bytes, uint32_t stamp)
{
	size_t posted = bytes * (size_t)c->nranks, own = bytes * (size_t)c->rank,
	       behind = own + bytes;
	char *room = tt_slots_room(c, posted);
	uint64_t began_ns = tt_stores_begin(call);

	if (apart == bytes) {
		copy(call, room, in, own);
		copy(call, room + behind, in + behind, posted - behind);
	} else {
		for (int r = 0; r < c->nranks; r++)
			if (r != c->rank)
				copy(call, room + (size_t)r * bytes, in + (size_t)r * apart, bytes);
	}
	tt_slots_post(c, room, posted, stamp, false);
	tt_stores_end(call, posted - bytes, began_ns);
}

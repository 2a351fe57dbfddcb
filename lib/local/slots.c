/*
 * slots.c - rounds of posts (slots.h): which rounds have the other ranks released?
 *
 * Called through tt_slots_ready by the ways that post.
 */
#include "local/slots.h"

int tt_slots_await_release(tuttiComm_t c, uint64_t round, int *ret_missing)
{
	uint64_t least = UINT64_MAX;

	for (int r = 0; r < c->nranks; r++) {
		uint64_t released;

		if (r == c->rank)
			continue;
		released = c->paths.slots->slot_ops->released(c->paths.slots, r);
		if (released < round) {
			*ret_missing = r;
			return 0;
		}
		least = released < least ? released : least;
	}
	c->calls.rounds.finished = least;
	return 1;
}

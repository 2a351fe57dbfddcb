/* slots.h - shared-memory slots of a communicator: post to all ranks, poll the posts of all ranks.
 * Used by express.c, slot_pair.c and the single copy. */
#ifndef TT_SLOTS_H
#define TT_SLOTS_H

#include "run/op.h"
#include "run/stores.h"

/* Post data where every rank of the communicator can read it. Posts of all ranks are numbered
 * alike; a rank posts only when it has seen the previous post of every other rank. */
static inline void tt_slots_post(tuttiComm_t c, const void *data, size_t bytes, uint32_t stamp,
				 bool nontemporal)
{
	c->paths.slots->slot_ops->post(c->paths.slots, data, bytes, ++c->calls.slot_posts, stamp,
				       nontemporal);
}

/* The current post of one peer: 1 there, *ret_data points at it | 0 not yet | < 0 */
static inline int tt_slots_poll_peer(tuttiComm_t c, int peer, size_t bytes, uint32_t stamp,
				     const void **ret_data)
{
	return c->paths.slots->slot_ops->poll(c->paths.slots, peer, bytes, c->calls.slot_posts,
					      stamp, ret_data);
}

/* The posts of all other ranks, from rank *from on; *from is the first whose post is missing. 1 all
 * there, data[rank] points at each | 0 not yet | < 0 */
static inline int tt_slots_poll(tuttiComm_t c, size_t bytes, uint32_t stamp, const void **data,
				int *from)
{
	for (int r = *from; r < c->nranks; r++) {
		int rc = r == c->rank ? 1 : tt_slots_poll_peer(c, r, bytes, stamp, &data[r]);

		*from = r;
		if (rc <= 0)
			return rc;
	}
	return 1;
}

/* Post data by the stores of `call`. */
static inline void tt_slots_copy(tuttiComm_t c, const struct tt_stores_call *call, const void *data,
				 size_t bytes, uint32_t stamp)
{
	uint64_t began_ns = tt_stores_begin(call);

	tt_slots_post(c, data, bytes, stamp, call->nontemporal);
	tt_stores_end(call, bytes, began_ns);
}

/* The page of this rank's next post, which it writes itself, when the posts of all ranks are there */
static inline char *tt_slots_room(tuttiComm_t c)
{
	return c->paths.slots->slot_ops->room(c->paths.slots, c->calls.slot_posts + 1);
}

/* Two ranks: bytes of the other's current post, a page, are read. */
static inline void tt_slots_own(tuttiComm_t c, const void *data, size_t bytes)
{
	c->paths.slots->slot_ops->own(c->paths.slots, !c->rank, c->calls.slot_posts, data, bytes);
}

/* slot_pair.c. Two ranks: the sum of `in` and the other's current post, a page, goes to out, and to
 * room unless it is NULL; then this rank owns the page's lines. */
void tt_slots_sum_pair(tuttiComm_t c, tt_reduce_fn *reduce, char *out, char *room, const char *in,
		       const char *theirs, size_t bytes, size_t element_bytes);

#endif

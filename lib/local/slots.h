/*
 * slots.h - shared-memory slots of a communicator: rounds in which ranks post for all others
 *
 * Used by express.c, slot_pair.c and the single copy. Rounds are numbered alike on all ranks. A rank
 * begins each round, and then posts or not. Its post overwrites an older one, which all ranks must
 * have finished reading: a rank has finished all rounds before one in which it has posted, and those
 * that it has released.
 */
#ifndef TT_SLOTS_H
#define TT_SLOTS_H

#include <string.h>

#include "mem/copy.h"
#include "mem/peer_lines.h"
#include "run/number.h"
#include "run/op.h"
#include "run/stores.h"

/* rounds of small posts after which a rank that posts nothing itself releases them */
#define TT_SLOT_RELEASE (TT_SLOT_DEPTH / 4)

/* All ranks have finished the rounds before the last full one, and know it of each other. Only rounds
 * that are not full need to know: a full one stores a single number. */
static inline void tt_slots_settle(struct tt_comm_rounds *r)
{
	if (r->full > r->released + 1)
		r->finished = r->released = r->full - 1;
}

/* Pages (a post of more than TT_SLOT_SMALL bytes) follow each other in one half of the room of this rank. The
 * other half is begun when this one is full, or when all ranks have finished the rounds before the last:
 * then two posts, in turn, stay in the caches. */
static inline bool tt_slots_half_is_left(const struct tt_comm_rounds *r, size_t bytes)
{
	return r->full == r->now || r->used + bytes > TT_SLOT_HALF;
}

/* slots.c: tt_slots_ready, when the releases of other ranks decide */
int tt_slots_await_release(tuttiComm_t c, size_t bytes, int *ret_missing);

/* May this rank post `bytes` in the next round? 1 | 0: *ret_missing reads an older post | < 0 */
static inline int tt_slots_ready(tuttiComm_t c, size_t bytes, int *ret_missing)
{
	struct tt_comm_rounds *r = &c->calls.rounds;
	uint64_t next = r->now + 1;

	/* all have posted in this round, so all have finished those before, and the next post
	 * overwrites none of this round */
	if (tt_likely(r->full == r->now))
		return 1;
	tt_slots_settle(r);
	if (tt_likely(next <= r->finished + TT_SLOT_DEPTH &&
		      (bytes <= TT_SLOT_SMALL || !tt_slots_half_is_left(r, bytes) ||
		       r->half[!r->upper] <= r->finished)))
		return 1;
	return tt_slots_await_release(c, bytes, ret_missing);
}

/* Begin a round without a post of this rank. */
static inline void tt_slots_pass(tuttiComm_t c)
{
	c->calls.rounds.now++;
}

/* Two ranks that have posted pages to each other in this round take each other's page over, if a half begins
 * there: its lines are in the reader's cache, and nobody else reads it. */
static inline bool tt_slots_takes_over(tuttiComm_t c, const char *mine)
{
	const struct tt_comm_rounds *r = &c->calls.rounds;

	return c->nranks == 2 && r->now && r->full == r->now && r->read == r->now &&
	       (r->page - mine) % TT_SLOT_HALF == 0;
}

/* Where this rank writes its next post, a page, when tt_slots_ready */
static inline char *tt_slots_room(tuttiComm_t c, size_t bytes)
{
	const struct tt_comm_rounds *r = &c->calls.rounds;
	char *mine = c->paths.slots->slot_ops->room(c->paths.slots);

	if (tt_slots_takes_over(c, mine))
		return r->page;
	if (tt_slots_half_is_left(r, bytes))
		return mine + (r->upper ? 0 : TT_SLOT_HALF);
	return mine + (r->upper ? TT_SLOT_HALF : 0) + r->used;
}

/* Write a page to its place, unless data are there already. */
static inline const void *tt_slots_write(tuttiComm_t c, const void *data, size_t bytes,
					 bool nontemporal)
{
	struct tt_comm_rounds *r = &c->calls.rounds;
	char *mine = c->paths.slots->slot_ops->room(c->paths.slots),
	     *room = tt_slots_room(c, bytes);
	size_t at = (size_t)(room - mine); /* not in this rank's pages: larger */

	if (data != room && nontemporal)
		tt_copy_nontemporal(room, data, bytes);
	else if (data != room && tt_slots_takes_over(c, mine)) /* its lines are here */
		tt_copy(room, data, bytes);
	else if (data != room && c->nranks == 2)
		tt_copy_to_taker(room, data, bytes);
	else if (data != room)
		tt_copy_to_peer(room, data, bytes);
	if (at < 2 * TT_SLOT_HALF)
		r->upper = at >= TT_SLOT_HALF;
	/* a page that was taken over is followed by another post */
	r->used = tt_slots_takes_over(c, mine)
			  ? TT_SLOT_HALF
			  : (uint32_t)((at % TT_SLOT_HALF + bytes + TT_SLOT_PAGE - 1) /
				       TT_SLOT_PAGE * TT_SLOT_PAGE);
	r->half[r->upper] = r->now + 1;
	return room;
}

/* Begin a round with a post: data, where every rank of the communicator can read them. Allowed when
 * tt_slots_ready, or when all ranks have posted in the round before. */
static inline void tt_slots_post(tuttiComm_t c, const void *data, size_t bytes, uint32_t stamp,
				 bool nontemporal)
{
	struct tt_comm_rounds *r = &c->calls.rounds;

	if (bytes > TT_SLOT_SMALL) {
		data = tt_slots_write(c, data, bytes, nontemporal);
		if (tt_has_demote && !c->hosts.crowded && r->full == r->now)
			tt_demote_lines(data, bytes); /* all ranks wait for each other */
	}
	r->now++;
	c->paths.slots->slot_ops->post(c->paths.slots, data, bytes, r->now, stamp);
}

/* Count bytes of a post that other ranks take, once for each of them. */
static inline void tt_slots_count(tuttiComm_t c, size_t bytes)
{
	c->paths.slots->slot_bytes += bytes;
}

/* The current post of one peer: 1 there, *ret_data points at it | 0 not yet | < 0 */
static inline int tt_slots_poll_peer(tuttiComm_t c, int peer, size_t bytes, uint32_t stamp,
				     const void **ret_data)
{
	struct tt_comm_calls *calls = &c->calls;
	int rc = c->paths.slots->slot_ops->poll(c->paths.slots, peer, bytes, calls->rounds.now,
						stamp, ret_data);

	if (bytes > TT_SLOT_SMALL) {
		calls->rounds.read = calls->rounds.now;
		calls->rounds.page = (char *)*ret_data;
	}
	if (rc > 0)
		calls->last_received[peer] = calls->seq;
	return rc;
}

/* The posts of all other ranks, from rank *from on, in a full round: one in which all post and poll;
 * 1 all there, data[rank] points at each | 0 not yet, *from is the first whose post is missing | < 0 */
static inline int tt_slots_poll(tuttiComm_t c, size_t bytes, uint32_t stamp, const void **data,
				int *from)
{
	int rc = 1;

	for (int r = *from; r < c->nranks && rc > 0; r++) {
		if (r == c->rank)
			continue;
		rc = tt_slots_poll_peer(c, r, bytes, stamp, &data[r]);
		*from = r;
	}
	if (rc > 0)
		c->calls.rounds.full = c->calls.rounds.now;
	return rc;
}

/* This rank has finished the current round, in which not all ranks post and poll. Pages are released
 * at once: few of them may fill a half. */
static inline void tt_slots_release(tuttiComm_t c, size_t bytes)
{
	struct tt_comm_rounds *r = &c->calls.rounds;
	uint16_t stamp = (uint16_t)tt_stamp_now(c);

	tt_slots_settle(r);
	r->stamp[r->now % TT_SLOT_DEPTH] = stamp;
	if (bytes <= TT_SLOT_SMALL && r->read <= r->released &&
	    r->now - r->released < TT_SLOT_RELEASE)
		return;
	r->released = r->now;
	c->paths.slots->slot_ops->release(c->paths.slots, r->now, stamp);
}

/* Post data by the stores of `call`. */
static inline void tt_slots_copy(tuttiComm_t c, const struct tt_stores_call *call, const void *data,
				 size_t bytes, uint32_t stamp)
{
	uint64_t began_ns = tt_stores_begin(call);

	tt_slots_post(c, data, bytes, stamp, call->nontemporal);
	tt_stores_end(call, bytes, began_ns);
}

/* slots.c. Post a page of parts, one for each rank, which lie `apart` in `in`. Nobody takes this rank's own, so it is
 * left out. */
void tt_slots_post_parts(tuttiComm_t c, const struct tt_stores_call *call, const char *in,
			 size_t apart, size_t bytes, uint32_t stamp);

/* Half of the bytes, up to a whole line, so to a whole element */
static inline size_t tt_slots_half(size_t bytes)
{
	return (bytes / 2 + TT_LINE - 1) / TT_LINE * TT_LINE;
}

/* slot_pair.c. Two ranks that take each other's pages over: the sum of `in` and the other's current post, a page,
 * goes to out, and to room unless it is NULL. The same with a copy instead. */
void tt_slots_sum_pair(tuttiComm_t c, tt_reduce_fn *reduce, char *out, char *room, const char *in,
		       const char *theirs, size_t bytes, size_t count);
void tt_slots_copy_pair(char *out, const char *theirs, size_t bytes, bool past);

#endif

/*
 * bind.h - a plan bound to a call's bytes: how long blocks are, how they are cut into tiles, how
 * many are in flight
 *
 * Everything here decides message sizes, so both ends of a message must come to the same: agreed
 * facts only. Called by run (operation.c), by comm when it opens transports, and by the simulator,
 * which so walks what run walks.
 */
#ifndef TT_BIND_H
#define TT_BIND_H

#include "plan/plan.h"

/* Which way bytes go between the ranks of a communicator. over_tcp: tcp (or verbs) was asked for,
 * also on one host. */
struct tt_placement_facts {
	int nranks;
	bool one_host, over_tcp;
	int cores;                      /* of the host with the fewest for its ranks; 0: enough */
	uint8_t card;                   /* class (cost.h) of cards in the place of tcp; 0: none */
};

/* Bytes of the largest message; a larger block is cut into tiles of it. */
size_t tt_placement_message_bytes(const struct tt_placement_facts *paths);

/* Calls of so many bytes and ranks that share a host may read each other's buffers instead
 * (local/single_copy.c). */
#define TT_SINGLE_COPY_BYTES (64u << 10)
#define TT_SINGLE_COPY_RANKS 8

struct tt_binding {
	/* unit: bytes from block to block; total: EVEN, bytes of all blocks */
	size_t unit, total;
	size_t tile_bytes;
	/* group: blocks of a message when a step names several; width: tiles of a lane in flight */
	uint32_t ntiles, group, width;
};

/* bytes: of the buffer (EVEN), or of a block (EQUAL). */
void tt_plan_bind(const struct tt_plan *plan, const struct tt_placement_facts *paths, size_t message_bytes,
		  size_t bytes, struct tt_binding *ret_binding);

/* Does the call go over a board in the host's memory instead of by messages (local/express.c)? */
bool tt_plan_on_slots(const struct tt_plan *plan, const struct tt_placement_facts *paths, size_t bytes);

/* Bytes of the message that carries tile `tile` of `nblocks`
 * blocks from `block` on; 0: there is none. */
static inline size_t tt_binding_length(const struct tt_binding *b, enum tt_rule rule,
				       uint32_t plan_blocks, uint32_t block, uint32_t nblocks,
				       uint32_t tile)
{
	size_t first = rule == TT_EVEN ? block % plan_blocks * b->unit : 0,
	       end = first + nblocks * b->unit;
	size_t from = first + tile * b->tile_bytes, to;

	if (end > b->total)
		end = b->total;
	to = b->ntiles == 1 || from + b->tile_bytes > end ? end : from + b->tile_bytes;
	return from < to ? to - from : 0;
}

#endif

/*
 * bind.h - binding of a plan to the bytes of a call: length of blocks, their tiles, tiles in flight
 *
 * The binding decides message sizes, so sender and receiver must compute the same: only facts that
 * all ranks agreed on enter. Called by run (operation.c), by comm when it opens transports, by gpu,
 * and by the simulator, which walks the same tiles as run.
 */
#ifndef TT_BIND_H
#define TT_BIND_H

#include "plan/plan.h"

/* Connectivity of the ranks of a communicator. */
struct tt_connectivity {
	int nranks;
	/* over_tcp: tcp (or verbs) was asked for, also within a host */
	bool one_host, over_tcp;
	int cores;         /* of the host with the fewest for its ranks; 0: enough */
	bool readers_own;  /* of a rank's processor (mem/peer_lines.h) */
	uint8_t nic_class; /* link class (cost.h) of NICs instead of tcp; 0: none */
};

/* Bytes of the largest message; a larger block is cut into tiles of this size. */
size_t tt_connectivity_message_bytes(const struct tt_connectivity *paths);

/* The same in a Send and Recv of bytes. Ranks of one host with a core each overlap their copies: they take a quarter,
 * but not less than TT_P2P_TILE. More tiles than four wait for cells of the ring. */
#define TT_P2P_TILE (16u << 10)
size_t tt_connectivity_p2p_tile(const struct tt_connectivity *paths, size_t message_bytes,
				size_t bytes);

/* Shared-memory slots (local/express.c): most bytes of a post in an allreduce or between two ranks (unless
 * readers_own), in another collective, in another one of ranks that share cores; most ranks. Powers of two, since an
 * algorithm is chosen for a class of sizes. */
#define TT_EXPRESS_BYTES (64u << 10)
#define TT_EXPRESS_OTHER_BYTES (16u << 10)
#define TT_EXPRESS_CROWDED_BYTES (256u << 10)
#define TT_EXPRESS_RANKS 64

/* Single copy (local/single_copy.c): fewest bytes of a call, most ranks of the host. */
#define TT_SINGLE_COPY_BYTES (64u << 10)
#define TT_SINGLE_COPY_RANKS 8

struct tt_binding {
	/* unit: bytes from block to block; total: EVEN, bytes of all blocks */
	size_t unit, total;
	size_t tile_bytes;
	/* group: most blocks in one message; width: tiles of a lane in flight */
	uint32_t ntiles, group, width;
};

/* Bind a plan. bytes: of the buffer (EVEN), or of a block (EQUAL). */
void tt_plan_bind(const struct tt_plan *plan, const struct tt_connectivity *paths,
		  size_t message_bytes, size_t bytes, struct tt_binding *ret_binding);

/* The same with blocks of one length, their mean, though the last blocks may be short or empty: for
 * predictions of many ranks. *ret_changed: are these other lengths? */
void tt_plan_bind_evenly(const struct tt_plan *plan, const struct tt_connectivity *paths,
			 size_t message_bytes, size_t bytes, struct tt_binding *ret_binding,
			 bool *ret_changed);

/* Bytes of scratch memory of a bound plan; distance from scratch block 0, which may have no
 * memory, to the first block with memory. */
static inline size_t tt_binding_scratch(const struct tt_binding *b, const struct tt_plan *plan)
{
	return (plan->scratch_blocks - plan->scratch_first) * b->unit;
}

static inline size_t tt_binding_unused(const struct tt_binding *b, const struct tt_plan *plan)
{
	return plan->scratch_first * b->unit;
}

/* The base of scratch blocks whose memory begins `unused` bytes later, at p; p may be NULL when no
 * block is used. Not in pointer arithmetic, since the base itself may lie outside of any memory. */
static inline char *tt_scratch_base(char *p, size_t unused)
{
	return (char *)((uintptr_t)p - unused);
}

/* Does the call use shared-memory slots instead of messages (local/express.c)? bytes: as for
 * tt_plan_bind */
bool tt_plan_on_slots(const struct tt_plan *plan, const struct tt_connectivity *paths,
		      size_t bytes);

/* Bytes of the message with tile `tile` of `nblocks` blocks from `block` on; 0: no message. */
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

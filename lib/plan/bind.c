/* bind.c - binding of a plan to the bytes of a call (bind.h) */
#include "plan/bind.h"

#define SHM_TILE (64u << 10) /* both directions of a few channels stay in L2 */
/* On crowded hosts (ranks share cores), fewer context switches outweigh overlap. Time of 4 ranks on
 * 2 cores relative to tiles of 128 KiB: allreduce of 1 MiB 0.86, reduce (a chain) 1.05. */
#define CROWDED_TILE (256u << 10)
#define MIXED_TILE (256u << 10) /* bytes in flight that fill a long queue in a switch */
#define TCP_TILE (256u << 10)
/* Fewer and larger sends between two ranks. Time relative to TCP_TILE: ping-pong of 1 MiB 0.65, copies of 4 MiB 0.67 to
 * 0.84, allreduce of 1 MiB 0.84, of 4 MiB 0.94; of 4 MiB among four ranks 1.08. A link has a buffer of one tile. */
#define TCP_PAIR_TILE (1u << 20)

size_t tt_connectivity_message_bytes(const struct tt_connectivity *p)
{
	if (p->over_tcp && !p->nic_class && p->nranks == 2)
		return TCP_PAIR_TILE;
	if (p->over_tcp || !p->one_host)
		return p->over_tcp ? TCP_TILE : MIXED_TILE;
	return p->cores && p->nranks > p->cores ? CROWDED_TILE : SHM_TILE;
}

static size_t round_to_lines(size_t bytes)
{
	return (bytes + TT_LINE - 1) & ~(size_t)(TT_LINE - 1);
}

size_t tt_connectivity_p2p_tile(const struct tt_connectivity *p, size_t message_bytes, size_t bytes)
{
	bool overlap = p->one_host && !p->over_tcp && !(p->cores && p->nranks > p->cores);
	size_t quarter = round_to_lines(bytes / 4);

	if (!overlap || quarter >= message_bytes)
		return message_bytes;
	quarter = quarter < TT_P2P_TILE ? TT_P2P_TILE : quarter;
	return quarter < message_bytes ? quarter : message_bytes;
}

/* Few ranks gain from many tiles in flight, since the copies of both sides overlap; with many
 * peers, or sockets, more tiles only evict each other from the cache. */
static uint32_t tiles_in_flight(const struct tt_connectivity *p, uint32_t nlanes)
{
	uint32_t width = p->over_tcp ? 2 : !p->one_host ? 4 : p->nranks <= 4 ? 8 : 2;

	return width < TT_MAX_LANES / nlanes ? width : TT_MAX_LANES / nlanes;
}

/* Sets tiles, group and width for blocks of b->unit bytes. */
static void cut_into_tiles(const struct tt_plan *plan, const struct tt_connectivity *paths,
			   size_t most, struct tt_binding *b)
{
	b->ntiles = b->unit <= most ? 1 : (uint32_t)((b->unit + most - 1) / most);
	b->tile_bytes = b->ntiles == 1 ? b->unit : most;
	b->group = b->ntiles > 1 || b->unit == 0 ? 1 : (uint32_t)(most / b->unit);
	b->width = plan->nlanes ? tiles_in_flight(paths, plan->nlanes) : 1;
	if (b->width > b->ntiles)
		b->width = b->ntiles;
}

void tt_plan_bind(const struct tt_plan *plan, const struct tt_connectivity *paths, size_t most,
		  size_t bytes, struct tt_binding *b)
{
	bool even = plan->rule == TT_EVEN;

	b->total = even ? bytes : SIZE_MAX;
	b->unit = even ? round_to_lines((bytes + plan->nblocks - 1) / plan->nblocks) : bytes;
	cut_into_tiles(plan, paths, most, b);
}

void tt_plan_bind_evenly(const struct tt_plan *plan, const struct tt_connectivity *paths,
			 size_t most, size_t bytes, struct tt_binding *b, bool *ret_changed)
{
	tt_plan_bind(plan, paths, most, bytes, b);
	*ret_changed = plan->rule == TT_EVEN && plan->nblocks > 1 &&
		       b->unit * plan->nblocks != bytes;
	if (!*ret_changed)
		return;
	b->unit = (bytes + plan->nblocks - 1) / plan->nblocks;
	b->total = b->unit * plan->nblocks;
	cut_into_tiles(plan, paths, most, b);
}

static bool is_crowded(const struct tt_plan *plan, const struct tt_connectivity *p)
{
	return p->cores && plan->nranks > p->cores;
}

/* Two ranks with a core each, whose processors leave the lines shared that both cores have */
static bool two_without_owners(const struct tt_plan *plan, const struct tt_connectivity *p)
{
	return plan->nranks == 2 && !is_crowded(plan, p) && !p->readers_own;
}

/* Most bytes of a post to a slot. Messages of a larger call overlap the copies of writer and reader, which
 * ranks that share a core cannot do: there a post saves copies and switches between ranks, but in a scatter, where
 * the root copies all parts before any rank takes its own. Two ranks with a core each, 64 KiB, times by posts to
 * times by messages: EPYC 9004 1.6; Xeon, broadcast 0.58, reduce 0.71, gather 0.75, scatter 0.68; posts of 256 KiB are
 * slower. */
static size_t most_posted(const struct tt_plan *plan, const struct tt_connectivity *p)
{
	bool crowded = is_crowded(plan, p);

	if (plan->collective == TT_ALLREDUCE || (plan->collective == TT_SCATTER && crowded) ||
	    two_without_owners(plan, p))
		return TT_EXPRESS_BYTES;
	return crowded ? TT_EXPRESS_CROWDED_BYTES : TT_EXPRESS_OTHER_BYTES;
}

bool tt_plan_on_slots(const struct tt_plan *plan, const struct tt_connectivity *p, size_t bytes)
{
	/* of two ranks each posts the other's part only, of which the limit is one here */
	bool all_parts = plan->rule == TT_EQUAL && !two_without_owners(plan, p);
	size_t most = most_posted(plan, p), blocks = all_parts ? plan->in_blocks : 1;

	return plan->slots && p->one_host && !p->over_tcp && plan->nranks > 1 &&
	       p->nranks <= TT_EXPRESS_RANKS && bytes > 0 && bytes <= most / blocks;
}

/*
 * plan.h - an algorithm as data: the steps one rank takes, in lanes, over blocks
 *
 * algorithms/ build plans (builder.h), check.c proves them, print.c prints them, run walks them,
 * the simulator replays them. A plan names ranks and blocks, never addresses, counts, types,
 * sockets or threads.
 *
 * A step:    dst, to  <-  src[0] op src[1] op ...          (op COPY: one source)
 * Every operand is a ref: block b of in, out or scratch, or the wire: the next message of a peer.
 * `dst` is a local block or none, `to` the wire to a peer or none; when both stand, the same bits
 * go to both. So send, receive, copy, reduce and every fused form are one step with one meaning,
 * and one function runs them all.
 *
 * Messages between two ranks are in order per lane: the k-th message
 * that lane L of rank a sends to b in a tile is the k-th that lane L of
 * b takes from a in that tile. Lanes have equal numbers on all ranks.
 *
 * A message on its way lies in dst of the step that sent it, in src[0] if that has no dst: until it
 * is taken, or the transport has copied it, nothing may be written there. A step that takes and
 * sends takes first.
 *
 * A step of several blocks is one message where that is large enough,
 * else as many as it takes, in order.
 *
 * Tiles: run loops every lane over the tiles of the blocks; a step of tile t touches tile t of its
 * blocks only. Lanes advance independently; wait_lane/wait_step orders a step behind a step of
 * another lane in the same tile.
 */
#ifndef TT_PLAN_H
#define TT_PLAN_H

#include "base/base.h"
#include "base/collective.h"

static inline bool tt_collective_rooted(enum tt_collective c)
{
	return c == TT_REDUCE || c == TT_BROADCAST || c == TT_GATHER || c == TT_SCATTER;
}

enum tt_buf { TT_IN, TT_OUT, TT_SCRATCH, TT_WIRE, TT_NONE };
/* buf in the high 3 bits; block, or peer for TT_WIRE */
typedef uint32_t tt_ref;
static inline tt_ref tt_ref_make(enum tt_buf buf, uint32_t index)
{
	return (uint32_t)buf << 29 | index;
}
static inline enum tt_buf tt_ref_buf(tt_ref r) { return (enum tt_buf)(r >> 29); }
static inline uint32_t tt_ref_index(tt_ref r) { return r & 0x1fffffffu; }
#define TT_REF_NONE ((tt_ref)TT_NONE << 29)

enum tt_opcode {
	TT_NOP,         /* only waits */
	TT_COPY,        /* one source */
	TT_COMBINE,     /* nsrc sources combined left to right, rounded once; at most 8 */
	/* not a step of its own: sources 3.. of the COMBINE before it (struct tt_more) */
	TT_MORE
};
/* flags. PASSING: dst is never read again on this rank; need not be stored if `to` takes the bits.
 * TURNS: takes turns with the step behind it; steps so joined are a row. Where blocks are too many
 * for one message, run goes through a row once for the first message of each step, once for the
 * second, and so on. Other lanes wait for a row's last step. */
enum { TT_STEP_PASSING = 1, TT_STEP_INTERLEAVED = 2 };
#define TT_NO_LANE 0xff
#define TT_MAX_LANES 8
/* 16 for each rank of the largest communicator; a plan of more could hardly be proved */
#define TT_MAX_BLOCKS (1u << 20)

/* 32 bytes, no pointers: can be hashed, written to a file, copied to a GPU */
struct tt_step {
	uint8_t op, nsrc, flags;
	uint8_t wait_lane;       /* TT_NO_LANE, or run only after that lane ... */
	/* ... has finished this step (its index in the lane) in the same tile */
	uint32_t wait_step;
	tt_ref dst, to;
	tt_ref src[2];
	uint32_t nblocks;        /* every local operand means this many blocks from its index on */
	uint32_t reserved;
};
struct tt_more {
	uint8_t op, n;
	uint16_t reserved;
	tt_ref src[7];
};
_Static_assert(sizeof(struct tt_step) == 32 && sizeof(struct tt_more) == 32,
	       "steps are flat records");

/* How a call binds blocks to bytes. EVEN: in and out have the same nblocks blocks, an even split of
 * count elements with starts rounded up to 64 bytes (late blocks may be short or empty). EQUAL:
 * every block is count elements. Scratch block i has the length of block i % nblocks. An empty
 * block makes its step vanish on both sides. */
enum tt_rule { TT_EVEN, TT_EQUAL };

/* Topology that all ranks agreed on: who shares a host. */
struct tt_topology {
	int nranks, nhosts;
	const int *host_of;      /* [nranks], hosts numbered 0.. in order of their lowest rank */
	/* The same ranks by groups instead of hosts: the parts of hosts (packages, NUMA nodes,
	 * caches) that ranks are bound to, as if each were a host. NULL: no host is divided. */
	const struct tt_topology *groups;
};

/* What a plan is built for; with the algorithm, the key under which it is kept. */
struct tt_shape {
	enum tt_collective collective;
	int nranks, rank, root;           /* root 0 where there is none */
	const struct tt_topology *topology;
};

struct tt_lane { uint32_t first, nsteps; };      /* both count TT_MORE records too */
struct tt_plan {
	char algorithm[64];               /* full name, "hierarchical:two-shot/ring" */
	enum tt_collective collective;
	int nranks, rank, root;
	enum tt_rule rule;
	/* EVEN: of in and out. EQUAL: in_blocks and out_blocks may differ */
	uint32_t nblocks;
	uint32_t in_blocks, out_blocks, scratch_blocks;
	uint32_t npeers;                  /* ranks this plan sends to or receives from */
	int *peers;                       /* [npeers], ascending */
	uint32_t nlanes, nsteps;
	struct tt_lane lanes[TT_MAX_LANES];
	struct tt_step *steps;
};

/* Blocks of in, out or scratch. */
static inline uint32_t tt_plan_blocks(const struct tt_plan *plan, enum tt_buf buf)
{
	if (buf == TT_IN)
		return plan->in_blocks;
	return buf == TT_OUT ? plan->out_blocks : plan->scratch_blocks;
}

struct tt_algorithm;

/* plan.c: build, compile (fuse) and own. Returns 0 | TT_ARG (algorithm does not apply: says why) |
 * TT_SYSTEM (memory). */
int tt_plan_build(const struct tt_algorithm *algorithm, const char *name,
		  const struct tt_shape *shape, struct tt_plan **ret_plan);
/* The same without fusing: as the author wrote it.
 * For printing and for the checker's own comparison. */
int tt_plan_build_plain(const struct tt_algorithm *algorithm, const char *name,
			const struct tt_shape *shape, struct tt_plan **ret_plan);
void tt_plan_free(struct tt_plan *plan);
/* Source number i of a step, 0 <= i < nsrc; reads the TT_MORE record behind it. */
tt_ref tt_step_source(const struct tt_step *step, int i);

/* compile.c: fuse receive/reduce with the send that follows, drop dead stores. Keeps the expression
 * of every block. */
int tt_plan_compile(struct tt_plan *plan);

/* expand.c: the same plan with single blocks only, as it is walked where every block is a message
 * of its own. */
int tt_plan_expand(const struct tt_plan *plan, struct tt_plan **ret_plan);

/* check.c: prove the plans of all ranks together. 0 | TT_USAGE with the sentence that says which
 * promise fails where. */
int tt_plan_check(struct tt_plan *const *plans, int nranks);

/* print.c: "table" (people), "json", "dot", "goal" (LogGOPSim; message sizes as blocks of 1 byte)
 * to a stdio stream */
struct _IO_FILE;
int tt_plan_print(const struct tt_plan *plan, const char *format, struct _IO_FILE *to);

#endif

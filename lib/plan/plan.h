/*
 * plan.h - an algorithm as data: the steps of one rank, in lanes, over blocks
 *
 * algorithms/ build plans (builder.h), run executes them, the model simulates them, verify proves
 * and prints them. A plan names ranks and blocks, never addresses, counts, types, sockets or
 * threads.
 *
 * A step:    dst, to  <-  src[0] op src[1] op ...          (op COPY: one source)
 * Every operand is a ref: block b of in, out or scratch, or the wire (the next message from a
 * peer). `dst` is a local block or none, `to` is a peer or none; with both, the same bits go to
 * both. Send, receive, copy, reduce and every fused form are one kind of step, so one function runs
 * them all.
 *
 * Messages between two ranks are ordered per lane: in each tile, message k that lane L of rank a
 * sends to b is message k that lane L of b receives from a. Lane numbers agree on all ranks.
 *
 * A message in flight lies in dst of the step that sent it, or in src[0] if the step has no dst.
 * Nothing may write these blocks until the peer has received the message or the transport has
 * copied it. A step that receives and sends receives first.
 *
 * A step of several blocks is one message if that message is large enough, else several messages in
 * order.
 *
 * Tiles: run loops every lane over the tiles of the blocks; a step in tile t touches tile t of its
 * blocks only. Lanes advance independently; wait_lane and wait_step order a step behind a step of
 * another lane in the same tile.
 */
#ifndef TT_PLAN_H
#define TT_PLAN_H

#include "base/base.h"
#include "base/collective.h"
#include "base/counted_bits.h"

static inline bool tt_collective_rooted(enum tt_collective c)
{
	return c == TT_REDUCE || c == TT_BROADCAST || c == TT_GATHER || c == TT_SCATTER;
}

enum tt_buf { TT_IN, TT_OUT, TT_SCRATCH, TT_WIRE, TT_NONE };
/* operand: buf in the high 3 bits; below, the block, or the peer for TT_WIRE */
typedef uint32_t tt_ref;
static inline tt_ref tt_ref_make(enum tt_buf buf, uint32_t index)
{
	return (uint32_t)buf << 29 | index;
}
static inline enum tt_buf tt_ref_buf(tt_ref r)
{
	return (enum tt_buf)(r >> 29);
}
static inline uint32_t tt_ref_index(tt_ref r)
{
	return r & 0x1fffffffu;
}
static inline bool tt_ref_is_local(tt_ref r)
{
	return tt_ref_buf(r) <= TT_SCRATCH;
}
static inline bool tt_ref_is_wire(tt_ref r)
{
	return tt_ref_buf(r) == TT_WIRE;
}
#define TT_REF_NONE ((tt_ref)TT_NONE << 29)

enum tt_opcode {
	TT_NOP,     /* only waits */
	TT_COPY,    /* one source */
	TT_COMBINE, /* 2..8 sources combined left to right, rounded once */
	TT_MORE     /* record with sources 3.. of the COMBINE before it (struct tt_more) */
};
/* Flags of a step.
 * PASSING: no step of this rank reads dst afterwards, so dst need not be stored if `to` takes the
 * bits.
 * INTERLEAVED: the step is interleaved with the next one; steps joined this way are a row. If the
 * blocks are too many for one message, run executes a row once for the first message of each step,
 * once for the second, and so on. Other lanes wait only for the last step of a row. */
enum { TT_STEP_PASSING = 1, TT_STEP_INTERLEAVED = 2 };
#define TT_NO_LANE 0xff
#define TT_MAX_LANES 8
/* 16 for each rank of the largest communicator; larger plans could hardly be proved */
#define TT_MAX_BLOCKS (1u << 20)

/* 32 bytes, no pointers: can be hashed, written to a file, copied to a GPU */
struct tt_step {
	uint8_t op, nsrc, flags;
	uint8_t wait_lane;  /* lane to wait for in the same tile, or TT_NO_LANE */
	uint32_t wait_step; /* step of wait_lane that must be finished (index in that lane) */
	tt_ref dst, to;
	tt_ref src[2];
	uint32_t nblocks; /* blocks of every local operand, from its index on */
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
 * every block is count elements. Scratch block i has the length of block i % nblocks; only blocks from
 * scratch_first on have memory. A step of an empty block is skipped by sender and receiver. */
enum tt_rule { TT_EVEN, TT_EQUAL };

/* Topology, agreed on by all ranks: the host of each rank. */
struct tt_topology {
	int nranks, nhosts;
	/* as of tt_host_number, hosts numbered from 0 in order of their lowest rank */
	const int *host_of;
	const struct tt_counted_bits *host_firsts;
	/* the same ranks, with each part of a host (package, NUMA node, cache) that ranks are bound
	 * to taken for a host; NULL: no host is divided */
	const struct tt_topology *groups;
};

static inline int tt_topology_host(const struct tt_topology *t, int rank)
{
	return tt_host_number(t->host_of, t->host_firsts, rank);
}

/* Shape of a call: with the algorithm, the key of the plan cache. */
struct tt_shape {
	enum tt_collective collective;
	int nranks, rank, root; /* root 0 in collectives without a root */
	const struct tt_topology *topology;
};

struct tt_lane {
	uint32_t first, nsteps;
}; /* in records: TT_MORE records count too */
struct tt_plan {
	char algorithm[64]; /* full name, "hierarchical:two-shot/ring" */
	enum tt_collective collective;
	int nranks, rank, root;
	enum tt_rule rule;
	uint32_t nblocks; /* EVEN: of in and of out; EQUAL: nranks */
	uint32_t in_blocks, out_blocks, scratch_blocks;
	uint32_t scratch_first; /* no step uses scratch blocks below */
	bool slots;             /* as in struct tt_algorithm */
	uint32_t npeers;        /* ranks this plan sends to or receives from */
	int *peers;             /* [npeers], ascending */
	uint32_t nlanes, nsteps;
	struct tt_lane lanes[TT_MAX_LANES];
	struct tt_step *steps;
};

/* Number of blocks of in, out or scratch. */
static inline uint32_t tt_plan_blocks(const struct tt_plan *plan, enum tt_buf buf)
{
	if (buf == TT_IN)
		return plan->in_blocks;
	return buf == TT_OUT ? plan->out_blocks : plan->scratch_blocks;
}

static inline const struct tt_step *tt_lane_step(const struct tt_plan *p, uint32_t lane,
						 uint32_t index)
{
	return &p->steps[p->lanes[lane].first + index];
}

/* Records of a step: 1, or 2 with a TT_MORE record. */
static inline uint32_t tt_step_records(const struct tt_step *s)
{
	return s->nsrc > 2 ? 2 : 1;
}

/* Source i of a step, 0 <= i < nsrc; reads the TT_MORE record behind the step. */
static inline tt_ref tt_step_source(const struct tt_step *step, int i)
{
	return i < 2 ? step->src[i] : ((const struct tt_more *)(step + 1))->src[i - 2];
}

struct tt_algorithm;

/* plan.c: build a plan, then compile it. The caller frees it by tt_plan_free. 0 | TT_ARG (the
 * algorithm does not apply; the error text has the reason) | TT_SYSTEM (memory) | TT_INTERNAL. */
int tt_plan_build(const struct tt_algorithm *algorithm, const char *name,
		  const struct tt_shape *shape, struct tt_plan **ret_plan);
/* Build without compiling: the steps as the algorithm wrote them, for printing and checking. */
int tt_plan_build_plain(const struct tt_algorithm *algorithm, const char *name,
			const struct tt_shape *shape, struct tt_plan **ret_plan);
void tt_plan_free(struct tt_plan *plan);

/* compile.c: fuse a receive or reduce with the send that follows, mark dead stores as PASSING. The
 * expression of every block stays. 0 | TT_SYSTEM */
int tt_plan_compile(struct tt_plan *plan);

#endif

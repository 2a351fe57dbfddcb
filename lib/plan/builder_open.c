/*
 * builder_open.c - opening and closing a builder; parts, groups, first and last location of blocks
 *
 * Called by plan.c (open, close), algorithms/ (parts and groups) and builder.c (input, home).
 */
#include "plan/builder.h"

#include <stdlib.h>
#include <string.h>

enum { FEW = 64 }; /* peers of a short list */

/* ---- first and last locations of blocks ------------------------------------------------------ */

static enum tt_rule rule_of(enum tt_collective c)
{
	return c == TT_ALLREDUCE || c == TT_REDUCE || c == TT_BROADCAST ? TT_EVEN : TT_EQUAL;
}

/* EQUAL collectives number blocks by rank: the contributor or the receiver of the block. */
static bool is_mine(const struct tt_builder *b, uint32_t block)
{
	return block == (uint32_t)b->shape->rank;
}

tt_ref tt_builder_input(const struct tt_builder *b, uint32_t block)
{
	bool root = b->shape->rank == b->shape->root;

	switch (b->shape->collective) {
	case TT_ALLGATHER:
	case TT_GATHER:
		return is_mine(b, block) ? tt_ref_make(TT_IN, 0) : TT_REF_NONE;
	case TT_BROADCAST:
	case TT_SCATTER:
		return root ? tt_ref_make(TT_IN, block) : TT_REF_NONE;
	default:
		return tt_ref_make(TT_IN, block);
	}
}

tt_ref tt_builder_home(const struct tt_builder *b, uint32_t block)
{
	bool root = b->shape->rank == b->shape->root;

	switch (b->shape->collective) {
	case TT_REDUCE_SCATTER:
	case TT_SCATTER:
		return is_mine(b, block) ? tt_ref_make(TT_OUT, 0) : TT_REF_NONE;
	case TT_REDUCE:
	case TT_GATHER:
		return root ? tt_ref_make(TT_OUT, block) : TT_REF_NONE;
	default:
		return tt_ref_make(TT_OUT, block);
	}
}

/* Sets the locations of all values before the first step. */
static void set_inputs(struct tt_builder *b)
{
	enum tt_collective c = b->shape->collective;
	uint32_t rank = (uint32_t)b->shape->rank;
	bool every = tt_builder_input(b, 0) != TT_REF_NONE && c != TT_ALLGATHER && c != TT_GATHER;

	for (uint32_t i = 0; i < b->nblocks; i++)
		b->where[i] = every ? tt_ref_make(TT_IN, i) : TT_REF_NONE;
	if (!every && rank < b->nblocks)
		b->where[rank] = tt_builder_input(b, rank);
}

/* The blocks that have a home: this rank's, all, or none. */
static struct tt_span homes(const struct tt_builder *b)
{
	uint32_t rank = (uint32_t)b->shape->rank;

	switch (b->shape->collective) {
	case TT_REDUCE_SCATTER:
	case TT_SCATTER:
		return (struct tt_span){ rank, 1 };
	default:
		return (struct tt_span){ 0, tt_builder_home(b, 0) == TT_REF_NONE ? 0 : b->nblocks };
	}
}

/* ---- parts and groups ------------------------------------------------------------------------ */

struct tt_span tt_part(const struct tt_builder *b, int i)
{
	int n = (int)b->parts;
	uint32_t part = (uint32_t)((i % n + n) % n);

	return (struct tt_span){ b->first + part * b->per_part, b->per_part };
}

struct tt_span tt_parts(struct tt_builder *b, uint32_t first, uint32_t count)
{
	if (first > b->parts || count > b->parts - first) {
		tt_builder_fail(b, TT_INTERNAL, "parts %u..%u are out of range: the group has %u",
				first, first + count - 1, b->parts);
		return (struct tt_span){ b->first, 0 };
	}
	return (struct tt_span){ b->first + first * b->per_part, count * b->per_part };
}

struct tt_span tt_all(const struct tt_builder *b)
{
	return (struct tt_span){ b->first, b->parts * b->per_part };
}

struct tt_group tt_group_enter(struct tt_builder *b, const int *members, int n, struct tt_span s,
			       uint32_t parts)
{
	struct tt_group outer = { b->rank,    b->n,     b->root,    b->parts,
				  b->members, b->first, b->per_part };

	if (!parts || s.count % parts) {
		tt_builder_fail(b, TT_INTERNAL, "%u blocks cannot be cut into %u parts", s.count,
				parts);
		parts = 1;
	}
	b->rank = -1;
	for (int i = 0; i < n; i++)
		if (members[i] == b->shape->rank)
			b->rank = i;
	if (b->rank < 0)
		tt_builder_fail(b, TT_INTERNAL, "enters a group without this rank");
	b->n = n;
	b->root = 0;
	b->members = members;
	b->parts = parts;
	b->first = s.first;
	b->per_part = s.count / parts;
	return outer;
}

void tt_group_leave(struct tt_builder *b, const struct tt_group *outer)
{
	b->rank = outer->rank;
	b->n = outer->n;
	b->root = outer->root;
	b->parts = outer->parts;
	b->members = outer->members;
	b->first = outer->first;
	b->per_part = outer->per_part;
}

/* ---- open and close -------------------------------------------------------------------------- */

int tt_builder_open(struct tt_builder *b, const struct tt_shape *shape, struct tt_cut cut)
{
	enum tt_collective c = shape->collective;
	uint32_t n = (uint32_t)shape->nranks;

	if (!cut.blocks || !cut.lanes || cut.lanes > TT_MAX_LANES)
		return tt_fail(TT_INTERNAL, "rank %d: a plan cannot have %u blocks and %u lanes",
			       shape->rank, cut.blocks, cut.lanes);
	if (cut.blocks > TT_MAX_BLOCKS)
		return tt_fail(
			TT_INTERNAL,
			"rank %d: a plan cannot have %u blocks, at most %u; cut the buffer into fewer, "
			"large blocks are sent in tiles",
			shape->rank, cut.blocks, TT_MAX_BLOCKS);
	*b = (struct tt_builder){ .rank = shape->rank,
				  .n = shape->nranks,
				  .root = shape->root,
				  .shape = shape,
				  .cut = cut };
	b->nblocks = b->in_blocks = b->out_blocks = rule_of(c) == TT_EVEN ? cut.blocks : n;
	if (c == TT_ALLGATHER || c == TT_GATHER)
		b->in_blocks = 1;
	if (c == TT_REDUCE_SCATTER || c == TT_SCATTER)
		b->out_blocks = 1;
	b->parts = b->nblocks;
	b->per_part = 1;
	b->where = malloc(b->nblocks * sizeof(*b->where));
	b->sent = calloc(b->nblocks, sizeof(*b->sent));
	if (!b->where || !b->sent) {
		free(b->where);
		free(b->sent);
		return tt_fail(TT_SYSTEM, "rank %d: no memory for a plan of %u blocks", shape->rank,
			       b->nblocks);
	}
	set_inputs(b);
	return TT_OK;
}

static int compare_ranks(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;

	return (x > y) - (x < y);
}

/* Sorts the `count` ranks of the list and removes repetitions. Returns the new length. */
static uint32_t sort_peers(int *peers, uint32_t count)
{
	uint32_t kept = 0;

	qsort(peers, count, sizeof(*peers), compare_ranks);
	for (uint32_t i = 0; i < count; i++)
		if (!kept || peers[kept - 1] != peers[i])
			peers[kept++] = peers[i];
	return kept;
}

/* Inserts a peer into a short list, which stays sorted and without repetitions: most plans have a few
 * peers, and qsort takes longer than the rest of the plan. */
static void insert_peer(int *peers, uint32_t *count, int peer)
{
	uint32_t at = *count;

	while (at && peers[at - 1] >= peer)
		at--;
	if (at < *count && peers[at] == peer)
		return;
	memmove(&peers[at + 1], &peers[at], (*count - at) * sizeof(*peers));
	peers[at] = peer;
	++*count;
}

/* Appends a peer to a long list, unless it is one of the last two: rings name the same peers in each
 * step. */
static void note_peer(int *peers, uint32_t *count, tt_ref wire)
{
	int peer = (int)tt_ref_index(wire);

	if (!tt_ref_is_wire(wire))
		return;
	if (*count < FEW)
		insert_peer(peers, count, peer);
	else if (peers[*count - 1] != peer && peers[*count - 2] != peer)
		peers[(*count)++] = peer;
}

/* Lists the peers of all steps, ascending. */
static int list_peers(struct tt_plan *plan)
{
	uint32_t most = 0, count = 0;

	for (uint32_t i = 0; i < plan->nsteps; i++)
		most += plan->steps[i].op == TT_MORE ? 0 : 1u + plan->steps[i].nsrc;
	plan->peers = malloc((most + 1) * sizeof(*plan->peers));
	if (!plan->peers)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for a plan of %u steps", plan->rank,
			       plan->nsteps);
	for (uint32_t i = 0; i < plan->nsteps; i++) {
		const struct tt_step *s = &plan->steps[i];

		if (s->op == TT_MORE)
			continue;
		note_peer(plan->peers, &count, s->to);
		for (int k = 0; k < s->nsrc; k++)
			note_peer(plan->peers, &count, tt_step_source(s, k));
	}
	plan->npeers = count < FEW ? count : sort_peers(plan->peers, count);
	return TT_OK;
}

static int assemble(const struct tt_builder *b, struct tt_plan *plan)
{
	*plan = (struct tt_plan){ .collective = b->shape->collective,
				  .nranks = b->shape->nranks,
				  .rank = b->shape->rank,
				  .root = b->shape->root,
				  .rule = rule_of(b->shape->collective),
				  .nblocks = b->nblocks,
				  .in_blocks = b->in_blocks,
				  .out_blocks = b->out_blocks,
				  .scratch_blocks = b->scratch_blocks,
				  .scratch_first = b->scratch_first,
				  .nlanes = b->cut.lanes };
	for (uint32_t l = 0; l < b->cut.lanes; l++)
		plan->nsteps += b->lanes[l].count;
	plan->steps = malloc((plan->nsteps + 1) * sizeof(*plan->steps));
	if (!plan->steps)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for a plan of %u steps", plan->rank,
			       plan->nsteps);
	for (uint32_t l = 0, at = 0; l < b->cut.lanes; at += b->lanes[l++].count) {
		plan->lanes[l] = (struct tt_lane){ at, b->lanes[l].count };
		if (b->lanes[l].count)
			memcpy(plan->steps + at, b->lanes[l].steps,
			       b->lanes[l].count * sizeof(*plan->steps));
	}
	return list_peers(plan);
}

int tt_builder_close(struct tt_builder *b, struct tt_plan **ret_plan)
{
	struct tt_plan *plan = NULL;
	struct tt_span all = homes(b);

	if (!b->error) {
		b->lane = 0;
		tt_step_copy(b, all);
		for (uint32_t i = all.first; i < all.first + all.count; i++)
			if (b->where[i] == TT_REF_NONE)
				tt_builder_fail(b, TT_INTERNAL, "block %u has no value at the end",
						i);
	}
	if (!b->error && !(plan = malloc(sizeof(*plan))))
		tt_builder_fail(b, TT_SYSTEM, "no memory for a plan");
	if (!b->error && (b->error = assemble(b, plan))) {
		tt_plan_free(plan);
		plan = NULL;
	}
	for (uint32_t l = 0; l < TT_MAX_LANES; l++)
		free(b->lanes[l].steps);
	free(b->where);
	free(b->sent);
	if (!b->error)
		*ret_plan = plan;
	return b->error;
}

/*
 * check_run.c - symbolic run: every rank's steps on expressions, with the least buffering of any
 * transport
 *
 * The rules of the run are the strictest that hold for all transports:
 *   - between two ranks, a lane has at most one message in flight;
 *   - a message stays in flight until the receiver's step receives it; until then nothing may write
 *     the sender's blocks (dst, or the source if the step has no dst); the sender's lane continues;
 *   - a step that receives and sends receives first, which makes room for its senders, and sends
 *     as soon as the channel is free.
 * A step runs when all its conditions hold, and no other step can make a condition false again. So
 * if this one order of steps terminates, every order does, with the same values (check_order.c
 * excludes races).
 *
 * More buffers, or copies at once, only remove waits. One condition is not modeled: run receives
 * nothing before it has a slot for the result (transports that reserve). With two slots that adds
 * no wait: message k has room as soon as k - 2 is received, and here k - 2 is received before an
 * earlier step of the lane sends k - 1. So a link needs two slots, or one for transports that post.
 *
 * One tile stands for any number of tiles, run in sequence or interleaved: a step waits only for
 * its own tile or an earlier one (the lane, the one message), and each tile receives all messages
 * that it sends.
 *
 * Called by check.c, after check_steps.c and check_messages.c, out of place and in place.
 */
#include "verify/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reason that a lane cannot run its next step, and the rank and lane that must advance first. */
enum why { FREE, AT_END, NO_MESSAGE, NO_ROOM, WAITS, IN_FLIGHT };
struct blocker {
	enum why why;
	int rank;
	uint32_t lane, cell;
};

struct symbolic_run {
	struct tt_check *c;
	int *queue; /* ring buffer of ranks that may advance, each once */
	bool *queued;
	int head, length;
	size_t payload; /* blocks of c->payload in use */
};

/* ---- may a step run? ------------------------------------------------------------------------- */

/* The message in flight that still reads a cell, and its receiver. */
static struct blocker reader_of(const struct tt_check *c, int rank, uint32_t cell)
{
	const struct tt_plan *p = c->plans[rank];

	for (uint32_t i = 0; i < p->npeers; i++) {
		for (uint32_t lane = 0; lane < c->nlanes; lane++) {
			const struct tt_check_channel *ch = tt_check_channel(c, rank, p->peers[i],
									     lane);

			if (ch->full && cell - ch->from < ch->nblocks)
				return (struct blocker){ IN_FLIGHT, p->peers[i], lane, cell };
		}
	}
	return (struct blocker){ IN_FLIGHT, rank, 0, cell };
}

static struct blocker blocker_of(const struct tt_check *c, int rank, uint32_t lane)
{
	const struct tt_plan *p = c->plans[rank];
	const struct tt_check_rank *r = &c->ranks[rank];

	if (r->at[lane] >= p->lanes[lane].nsteps)
		return (struct blocker){ AT_END, rank, lane, 0 };
	const struct tt_step *s = tt_lane_step(p, lane, r->at[lane]);

	if (r->result[lane]) {
		int to = (int)tt_ref_index(s->to);

		return (struct blocker){ tt_check_channel(c, rank, to, lane)->full ? NO_ROOM : FREE,
					 to, lane, 0 };
	}
	if (s->wait_lane != TT_NO_LANE && r->at[s->wait_lane] <= s->wait_step)
		return (struct blocker){ WAITS, rank, s->wait_lane, 0 };
	for (int i = 0; i < s->nsrc; i++) {
		tt_ref ref = tt_step_source(s, i);
		int from = (int)tt_ref_index(ref);

		if (tt_ref_is_wire(ref) && !tt_check_channel(c, from, rank, lane)->full)
			return (struct blocker){ NO_MESSAGE, from, lane, 0 };
	}
	for (uint32_t k = 0; s->dst != TT_REF_NONE && k < s->nblocks; k++)
		if (r->in_flight[tt_check_cell(r, s->dst) + k])
			return reader_of(c, rank, tt_check_cell(r, s->dst) + k);
	return (struct blocker){ FREE, rank, lane, 0 };
}

/* ---- running one step ------------------------------------------------------------------------ */

static int read_cell(const struct tt_check *c, int rank, uint32_t lane, uint32_t cell,
		     tt_expr *ret_value)
{
	const struct tt_check_rank *r = &c->ranks[rank];
	char name[24];

	*ret_value = r->value[cell];
	if (*ret_value == TT_EXPR_NOTHING)
		return tt_check_fail(rank, lane, r->at[lane], "reads %s, which nothing wrote%s",
				     tt_check_cell_name(r, cell, name), c->placement);
	if (*ret_value == TT_EXPR_PASSED)
		return tt_check_fail(rank, lane, r->at[lane],
				     "reads %s, which lane %u step %u only passed on%s",
				     tt_check_cell_name(r, cell, name), r->writer[cell] & 7,
				     r->writer[cell] >> 3, c->placement);
	return TT_OK;
}

/* Received messages must be as long as the step's own blocks; blocks read and blocks written must
 * be the same or disjoint. */
static int check_sizes(const struct tt_check *c, int rank, uint32_t lane, const struct tt_step *s)
{
	const struct tt_check_rank *r = &c->ranks[rank];
	uint32_t class = tt_ref_index(s->dst != TT_REF_NONE ? s->dst : s->src[0]) % c->classes;

	for (int i = 0; i < s->nsrc; i++) {
		tt_ref ref = tt_step_source(s, i);
		int from = (int)tt_ref_index(ref);

		if (tt_ref_is_local(ref)) {
			uint32_t x = tt_check_cell(r, ref),
				 y = s->dst != TT_REF_NONE ? tt_check_cell(r, s->dst) : x;

			if (x != y && x < y + s->nblocks && y < x + s->nblocks)
				return tt_check_fail(
					rank, lane, r->at[lane],
					"reads and writes blocks that overlap partly%s",
					c->placement);
			continue;
		}
		const struct tt_check_channel *ch = tt_check_channel(c, from, rank, lane);

		if (ch->nblocks != s->nblocks)
			return tt_check_fail(rank, lane, r->at[lane],
					     "takes %u blocks from rank %d, which sends %u",
					     s->nblocks, from, ch->nblocks);
		if (ch->class != class)
			return tt_check_fail(
				rank, lane, r->at[lane],
				"takes a message as long as block %u from rank %d, which sends one as long as block %u",
				class, from, ch->class);
	}
	return TT_OK;
}

static int combine(const struct tt_check *c, int rank, uint32_t lane, const tt_expr *child,
		   uint32_t n, tt_expr *ret_value)
{
	uint32_t what;
	int rc = tt_expr_combine(c->exprs, child, n, ret_value, &what);

	if (rc == TT_EXPR_TWICE)
		return tt_check_fail(rank, lane, c->ranks[rank].at[lane],
				     "combines rank %u's block %u twice%s", what,
				     tt_expr_block(c->exprs, child[0]), c->placement);
	if (rc == TT_EXPR_MIXED)
		return tt_check_fail(rank, lane, c->ranks[rank].at[lane],
				     "combines block %u with block %u%s",
				     tt_expr_block(c->exprs, child[0]), what, c->placement);
	return rc;
}

/* Value of block k of a step. */
static int value_of(const struct tt_check *c, int rank, uint32_t lane, const struct tt_step *s,
		    uint32_t k, tt_expr *ret_value)
{
	tt_expr child[8];
	int rc;

	for (int i = 0; i < s->nsrc; i++) {
		tt_ref ref = tt_step_source(s, i);

		if (tt_ref_is_wire(ref))
			child[i] =
				tt_check_channel(c, (int)tt_ref_index(ref), rank, lane)->values[k];
		else if ((rc = read_cell(c, rank, lane, tt_check_cell(&c->ranks[rank], ref) + k,
					 &child[i])))
			return rc;
	}
	*ret_value = child[0];
	return s->op == TT_COPY ? TT_OK : combine(c, rank, lane, child, s->nsrc, ret_value);
}

static void wake(struct symbolic_run *run, int rank)
{
	if (run->queued[rank])
		return;
	run->queued[rank] = true;
	run->queue[(run->head + run->length++) % run->c->nranks] = rank;
}

/* Receives the message of a source: frees the channel, and releases the sender's blocks. */
static void take(struct symbolic_run *run, int from, int rank, uint32_t lane)
{
	struct tt_check_channel *ch = tt_check_channel(run->c, from, rank, lane);

	for (uint32_t k = 0; k < ch->nblocks; k++)
		run->c->ranks[from].in_flight[ch->from + k]--;
	ch->full = false;
	wake(run, from);
}

/* First half of a step: receive the messages, combine, write dst. The result is stored until the
 * second half can send it. */
static int run_step(struct symbolic_run *run, int rank, uint32_t lane, const struct tt_step *s)
{
	struct tt_check *c = run->c;
	struct tt_check_rank *r = &c->ranks[rank];
	tt_expr *result = NULL;
	int rc = s->op == TT_NOP ? TT_OK : check_sizes(c, rank, lane, s);

	if (rc || s->op == TT_NOP)
		return rc;
	if (s->to != TT_REF_NONE) {
		result = c->payload + run->payload;
		run->payload += s->nblocks;
	}
	for (uint32_t k = 0; k < s->nblocks; k++) {
		tt_expr value;

		if ((rc = value_of(c, rank, lane, s, k, &value)))
			return rc;
		if (result)
			result[k] = value;
		if (s->dst == TT_REF_NONE)
			continue;
		uint32_t cell = tt_check_cell(r, s->dst) + k;

		r->value[cell] = s->flags & TT_STEP_PASSING ? TT_EXPR_PASSED : value;
		r->writer[cell] = r->at[lane] << 3 | lane;
	}
	for (int i = 0; i < s->nsrc; i++)
		if (tt_ref_is_wire(tt_step_source(s, i)))
			take(run, (int)tt_ref_index(tt_step_source(s, i)), rank, lane);
	r->result[lane] = result;
	return TT_OK;
}

/* Second half of a step: send the result. */
static void send(struct symbolic_run *run, int rank, uint32_t lane, const struct tt_step *s)
{
	struct tt_check_rank *r = &run->c->ranks[rank];
	int to = (int)tt_ref_index(s->to);
	struct tt_check_channel *ch = tt_check_channel(run->c, rank, to, lane);
	tt_ref from = s->dst != TT_REF_NONE ? s->dst : s->src[0];

	ch->full = true;
	ch->nblocks = s->nblocks;
	ch->class = tt_ref_index(from) % run->c->classes;
	ch->values = r->result[lane];
	r->result[lane] = NULL;
	ch->from = tt_check_cell(r, from);
	for (uint32_t k = 0; k < s->nblocks; k++)
		r->in_flight[ch->from + k]++;
	wake(run, to);
}

/* Runs the lanes of a rank until all are blocked or at their end. */
static int run_rank(struct symbolic_run *run, int rank)
{
	struct tt_check_rank *r = &run->c->ranks[rank];
	const struct tt_plan *p = run->c->plans[rank];
	bool moved = true;

	while (moved) {
		moved = false;
		for (uint32_t lane = 0; lane < p->nlanes; lane++) {
			while (blocker_of(run->c, rank, lane).why == FREE) {
				const struct tt_step *s = tt_lane_step(p, lane, r->at[lane]);
				int rc = TT_OK;

				if (r->result[lane])
					send(run, rank, lane, s);
				else
					rc = run_step(run, rank, lane, s);
				if (rc)
					return rc;
				if (!r->result[lane])
					r->at[lane] += tt_step_records(s);
				moved = true;
			}
		}
	}
	return TT_OK;
}

/* ---- deadlock, and the whole run ------------------------------------------------------------- */

/* Text of a blocker: "its lane 2", "a message of rank 1" ... */
static int blocker_text(const struct tt_check_rank *r, const struct blocker *b, char *text,
			size_t bytes)
{
	char name[24];

	switch (b->why) {
	case WAITS:
		return snprintf(text, bytes, "its lane %u", b->lane);
	case NO_MESSAGE:
		return snprintf(text, bytes, "a message of rank %d", b->rank);
	case NO_ROOM:
		return snprintf(text, bytes, "rank %d to take its message", b->rank);
	default:
		return snprintf(text, bytes, "rank %d to take the message from %s", b->rank,
				tt_check_cell_name(r, b->cell, name));
	}
}

/* Follows the wait-for graph from one blocked lane into a cycle, and reports the cycle. */
static int deadlock(const struct tt_check *c, int rank, uint32_t lane)
{
	char text[900];
	size_t used = 0;
	int steps = c->nranks * (int)c->nlanes, start_rank;
	uint32_t start_lane;

	for (int i = 0; i < steps; i++) { /* walk into the cycle, */
		struct blocker b = blocker_of(c, rank, lane);

		rank = b.rank;
		lane = b.lane;
	}
	start_rank = rank;
	start_lane = lane;
	do { /* and once around it */
		struct blocker b = blocker_of(c, rank, lane);
		int n = snprintf(text + used, sizeof(text) - used,
				 "%srank %d lane %u step %u waits for ", used ? "; " : "", rank,
				 lane, c->ranks[rank].at[lane]);

		used += (size_t)n;
		if (used >= sizeof(text) - 120)
			break;
		used += (size_t)blocker_text(&c->ranks[rank], &b, text + used, sizeof(text) - used);
		rank = b.rank;
		lane = b.lane;
	} while ((rank != start_rank || lane != start_lane) && used < sizeof(text) - 120);
	return tt_fail(TT_USAGE, "deadlock%s: %s", c->placement, text);
}

/* State before the first step: every rank has its own input blocks. */
static void reset(struct tt_check *c)
{
	for (int rank = 0; rank < c->nranks; rank++) {
		struct tt_check_rank *r = &c->ranks[rank];
		const struct tt_plan *p = c->plans[rank];

		memset(r->value, 0, r->ncells * sizeof(*r->value));
		memset(r->writer, 0xff, r->ncells * sizeof(*r->writer));
		memset(r->in_flight, 0, r->ncells * sizeof(*r->in_flight));
		memset(r->at, 0, sizeof(r->at));
		memset(r->result, 0, sizeof(r->result));
		for (uint32_t b = 0; tt_check_has(p, TT_IN) && b < p->in_blocks; b++)
			r->value[r->base[TT_IN] + b] = tt_expr_leaf(c->exprs, rank, b);
	}
	for (size_t i = 0; i < c->nchannels; i++)
		c->channels[i].full = false;
}

static int finish(const struct tt_check *c)
{
	for (int rank = 0; rank < c->nranks; rank++)
		for (uint32_t lane = 0; lane < c->plans[rank]->nlanes; lane++)
			if (blocker_of(c, rank, lane).why != AT_END)
				return deadlock(c, rank, lane);
	return TT_OK;
}

int tt_check_run(struct tt_check *c)
{
	struct symbolic_run run = { .c = c,
				    .queue = calloc((size_t)c->nranks, sizeof(*run.queue)),
				    .queued = calloc((size_t)c->nranks, sizeof(*run.queued)) };
	int rc = TT_OK;

	if (!run.queue || !run.queued)
		rc = tt_fail(TT_SYSTEM, "no memory to check plans of %d ranks", c->nranks);
	else
		reset(c);
	for (int rank = 0; rank < c->nranks && !rc; rank++)
		wake(&run, rank);
	while (run.length && !rc) {
		int rank = run.queue[run.head];

		run.head = (run.head + 1) % c->nranks;
		run.length--;
		run.queued[rank] = false;
		rc = run_rank(&run, rank);
	}
	if (!rc)
		rc = finish(c);
	free(run.queue);
	free(run.queued);
	return rc;
}

/*
 * check_run.c - the symbolic run: every rank's steps on expressions, with as little buffering as a
 * transport may have
 *
 * The rule of the run is the strictest that holds for all transports:
 *   - between two ranks, a lane has at most one message on its way;
 *   - a message is gone from the sender only when the receiver's step takes it, and until then
 *     nothing may write the blocks it is read from (those of dst, or of the source where there is
 *     no dst); the lane goes on;
 *   - a step that takes and sends takes first, which makes room for its senders, and sends when
 *     there is room.
 * A step goes on when all it waits for is there, and nothing another step does can take that away
 * again. So if this one order of steps comes to its end, every order does, with the same values
 * (check_order.c excludes races).
 *
 * More buffers, or copies at once, only drop waits. One thing is left: run takes
 * nothing before it has a slot to write the result into (transports that reserve).
 * With two slots that is no new wait: there is room for message k as soon as k - 2
 * is taken, and here k - 2 is taken before k - 1 is sent, which an earlier step of
 * the lane does. So a link needs two slots, or one that is posted.
 *
 * One tile stands for any number of them, run one behind the other or interleaved: what a step
 * waits for lies in its own tile or an earlier one (the lane, the one message), and each tile alone
 * takes all messages it sends.
 *
 * Called by check.c, after check_steps.c and check_messages.c, for both placements.
 */
#include "verify/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Why a lane cannot run its next step, and which lane of which rank must move first. */
enum why { FREE, AT_END, NO_MESSAGE, NO_ROOM, WAITS, HELD };
struct blocker { enum why why; int rank; uint32_t lane, cell; };

struct run {
	struct tt_check *c;
	int *queue;                      /* ring of ranks that may move; each at most once */
	bool *queued;
	int head, length;
	size_t payload;                  /* blocks of c->payload in use */
};

/* ---- may a step run? ------------------------------------------------------------------------- */

/* The message that may still be read from a cell: to whom it goes. */
static struct blocker held_by(const struct tt_check *c, int rank, uint32_t cell)
{
	const struct tt_plan *p = c->plans[rank];

	for (uint32_t i = 0; i < p->npeers; i++) {
		for (uint32_t lane = 0; lane < c->nlanes; lane++) {
			const struct tt_check_channel *ch =
				tt_check_channel(c, rank, p->peers[i], lane);

			if (ch->full && cell - ch->from < ch->nblocks)
				return (struct blocker){ HELD, p->peers[i], lane, cell };
		}
	}
	return (struct blocker){ HELD, rank, 0, cell };
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
		if (r->held[tt_check_cell(r, s->dst) + k])
			return held_by(c, rank, tt_check_cell(r, s->dst) + k);
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

/* What a step takes must be as long as its own blocks;
 * what it reads and writes must be the same or apart. */
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
				return tt_check_fail(rank, lane, r->at[lane],
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
			return tt_check_fail(rank, lane, r->at[lane],
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

/* The value of block k of a step. */
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

static void wake(struct run *run, int rank)
{
	if (run->queued[rank])
		return;
	run->queued[rank] = true;
	run->queue[(run->head + run->length++) % run->c->nranks] = rank;
}

/* The message of a source is taken: room for the next, and its blocks may be written again. */
static void take(struct run *run, int from, int rank, uint32_t lane)
{
	struct tt_check_channel *ch = tt_check_channel(run->c, from, rank, lane);

	for (uint32_t k = 0; k < ch->nblocks; k++)
		run->c->ranks[from].held[ch->from + k]--;
	ch->full = false;
	wake(run, from);
}

/* First half: take the messages, combine, write dst. The result is kept until it can be sent. */
static int run_step(struct run *run, int rank, uint32_t lane, const struct tt_step *s)
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

/* Second half: send the result. */
static void send(struct run *run, int rank, uint32_t lane, const struct tt_step *s)
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
		r->held[ch->from + k]++;
	wake(run, to);
}

/* Runs a rank's lanes as far as they go. */
static int run_rank(struct run *run, int rank)
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

/* ---- the whole ------------------------------------------------------------------------------- */

/* "its lane 2", "a message of rank 1" ...: what a lane waits for. */
static int say_blocker(const struct tt_check_rank *r, const struct blocker *b, char *text,
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
		return snprintf(text, bytes, "rank %d to take what was sent from %s", b->rank,
				tt_check_cell_name(r, b->cell, name));
	}
}

/* Follows from one stuck lane what it waits for, until that comes round; says the round. */
static int deadlock(const struct tt_check *c, int rank, uint32_t lane)
{
	char text[900];
	size_t used = 0;
	int steps = c->nranks * (int)c->nlanes, start_rank;
	uint32_t start_lane;

	for (int i = 0; i < steps; i++) {                    /* walk into the round ... */
		struct blocker b = blocker_of(c, rank, lane);

		rank = b.rank;
		lane = b.lane;
	}
	start_rank = rank;
	start_lane = lane;
	do {                                                 /* ... and once around */
		struct blocker b = blocker_of(c, rank, lane);
		int n = snprintf(text + used, sizeof(text) - used,
				 "%srank %d lane %u step %u waits for ", used ? "; " : "", rank,
				 lane, c->ranks[rank].at[lane]);

		used += (size_t)n;
		if (used >= sizeof(text) - 120)
			break;
		used += (size_t)say_blocker(&c->ranks[rank], &b, text + used, sizeof(text) - used);
		rank = b.rank;
		lane = b.lane;
	} while ((rank != start_rank || lane != start_lane) && used < sizeof(text) - 120);
	return tt_fail(TT_USAGE, "deadlock%s: %s", c->placement, text);
}

/* Every rank's own blocks before the first step. */
static void reset(struct tt_check *c)
{
	for (int rank = 0; rank < c->nranks; rank++) {
		struct tt_check_rank *r = &c->ranks[rank];
		const struct tt_plan *p = c->plans[rank];

		memset(r->value, 0, r->ncells * sizeof(*r->value));
		memset(r->writer, 0xff, r->ncells * sizeof(*r->writer));
		memset(r->held, 0, r->ncells * sizeof(*r->held));
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
	struct run run = { .c = c, .queue = calloc((size_t)c->nranks, sizeof(*run.queue)),
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

/*
 * check_order.c - data races: steps of a rank that access one block, one writing, are ordered
 *
 * Only lanes and waits order steps, never timing or the steps of other ranks. Each step has a
 * vector clock: the number of steps of each lane that are finished whenever the step starts. Steps
 * are visited in one order that lanes and waits allow. Each block has its last write and the reads
 * since then; the clock of an access must be past these. If no such order exists, the waits form a
 * cycle.
 *
 * Called by check.c, out of place and in place: in place, blocks of in and out share memory.
 */
#include "verify/check.h"

#include <stdlib.h>
#include <string.h>

struct clock {
	uint32_t done[TT_MAX_LANES];
};

struct touched {
	uint32_t written;            /* 1 + step of the last write, 0 none */
	uint32_t writer;             /* lane of the last write */
	uint32_t read[TT_MAX_LANES]; /* [lane] 1 + its last step that has read since, 0 none */
};

struct order {
	const struct tt_check *c;
	const struct tt_plan *plan;
	const struct tt_check_rank *r;
	struct clock *clock;  /* [nsteps] clock at the start of each step */
	struct touched *cell; /* [ncells] */
};

static int race(const struct order *o, uint32_t lane, uint32_t step, uint32_t cell, bool write,
		uint32_t other_lane, uint32_t other_step, bool other_write)
{
	char name[24];

	return tt_check_fail(o->plan->rank, lane, step,
			     "%s %s, but nothing orders it behind lane %u step %u, which %s it%s",
			     write ? "writes" : "reads", tt_check_cell_name(o->r, cell, name),
			     other_lane, other_step, other_write ? "writes" : "reads",
			     o->c->placement);
}

static int touch(const struct order *o, const struct clock *now, uint32_t lane, uint32_t step,
		 uint32_t cell, bool write)
{
	struct touched *t = &o->cell[cell];

	if (t->written > now->done[t->writer])
		return race(o, lane, step, cell, write, t->writer, t->written - 1, true);
	if (!write) {
		t->read[lane] = step + 1;
		return TT_OK;
	}
	for (uint32_t l = 0; l < o->plan->nlanes; l++)
		if (l != lane && t->read[l] > now->done[l])
			return race(o, lane, step, cell, true, l, t->read[l] - 1, false);
	memset(t->read, 0, sizeof(t->read));
	t->written = step + 1;
	t->writer = lane;
	return TT_OK;
}

static int touch_all(const struct order *o, const struct clock *now, uint32_t lane, uint32_t step)
{
	const struct tt_step *s = tt_lane_step(o->plan, lane, step);
	int rc;

	for (int i = 0; i < s->nsrc; i++) {
		tt_ref ref = tt_step_source(s, i);

		for (uint32_t k = 0; tt_ref_is_local(ref) && k < s->nblocks; k++)
			if ((rc = touch(o, now, lane, step, tt_check_cell(o->r, ref) + k, false)))
				return rc;
	}
	for (uint32_t k = 0; s->dst != TT_REF_NONE && k < s->nblocks; k++)
		if ((rc = touch(o, now, lane, step, tt_check_cell(o->r, s->dst) + k, true)))
			return rc;
	return TT_OK;
}

/* Clock at the start of a step: the clocks of its lane and of the step it waits for, merged. */
static struct clock *clock_of(const struct order *o, uint32_t lane, uint32_t step, uint32_t before)
{
	const struct tt_step *s = tt_lane_step(o->plan, lane, step);
	struct clock *now = &o->clock[o->plan->lanes[lane].first + step];

	memset(now, 0, sizeof(*now));
	if (step)
		*now = o->clock[o->plan->lanes[lane].first + before];
	now->done[lane] = step;
	if (s->wait_lane == TT_NO_LANE)
		return now;
	const struct clock *other = &o->clock[o->plan->lanes[s->wait_lane].first + s->wait_step];

	for (uint32_t l = 0; l < o->plan->nlanes; l++)
		if (now->done[l] < other->done[l])
			now->done[l] = other->done[l];
	if (now->done[s->wait_lane] <= s->wait_step)
		now->done[s->wait_lane] = s->wait_step + 1;
	return now;
}

static int cycle(const struct order *o, const uint32_t *at)
{
	for (uint32_t lane = 0; lane < o->plan->nlanes; lane++) {
		if (at[lane] >= o->plan->lanes[lane].nsteps)
			continue;
		const struct tt_step *s = tt_lane_step(o->plan, lane, at[lane]);

		return tt_check_fail(o->plan->rank, lane, at[lane],
				     "waits for lane %u step %u, which waits for this lane in turn",
				     s->wait_lane, s->wait_step);
	}
	return TT_OK;
}

static int order_rank(const struct order *o)
{
	uint32_t at[TT_MAX_LANES] = { 0 }, before[TT_MAX_LANES] = { 0 };
	bool moved = true;

	while (moved) {
		moved = false;
		for (uint32_t lane = 0; lane < o->plan->nlanes; lane++) {
			while (at[lane] < o->plan->lanes[lane].nsteps) {
				const struct tt_step *s = tt_lane_step(o->plan, lane, at[lane]);

				if (s->wait_lane != TT_NO_LANE && at[s->wait_lane] <= s->wait_step)
					break;
				int rc = touch_all(o, clock_of(o, lane, at[lane], before[lane]),
						   lane, at[lane]);

				if (rc)
					return rc;
				before[lane] = at[lane];
				at[lane] += tt_step_records(s);
				moved = true;
			}
		}
	}
	return cycle(o, at);
}

int tt_check_order(const struct tt_check *c)
{
	uint32_t steps = 0, cells = 0;
	int rc = TT_OK;

	for (int r = 0; r < c->nranks; r++) {
		steps = c->plans[r]->nsteps > steps ? c->plans[r]->nsteps : steps;
		cells = c->ranks[r].ncells > cells ? c->ranks[r].ncells : cells;
	}
	struct order o = { .c = c,
			   .clock = calloc(steps + 1, sizeof(*o.clock)),
			   .cell = calloc(cells + 1, sizeof(*o.cell)) };

	if (!o.clock || !o.cell)
		rc = tt_fail(TT_SYSTEM, "no memory to check plans of %u steps and %u blocks", steps,
			     cells);
	for (int r = 0; r < c->nranks && !rc; r++) {
		o.plan = c->plans[r];
		o.r = &c->ranks[r];
		if (o.plan->nlanes < 2)
			/* one lane orders all its steps; check_steps.c has checked its waits */
			continue;
		memset(o.cell, 0, o.r->ncells * sizeof(*o.cell));
		rc = order_rank(&o);
	}
	free(o.clock);
	free(o.cell);
	return rc;
}

/*
 * plan_place.c - the rows of a plan's steps in a picture: the time of each, if every step takes one row
 *
 * Called by cmd_plan.c. A step is below the step before it in its lane, the step that it waits for, and
 * the senders of its messages. Message k from rank a to rank b in a lane is message k that b takes from
 * a there.
 */
#include <stdlib.h>

#include "perf/commands/plan_picture.h"
#include "verify/walk.h"

static int count_steps(const struct tt_plan *p)
{
	int n = 0;

	for (uint32_t lane = 0; lane < p->nlanes; lane++)
		for (uint32_t i = 0; i < p->lanes[lane].nsteps;
		     i += tt_step_records(tt_lane_step(p, lane, i)))
			n++;
	return n;
}

static void append(struct tool_picture *pic, int rank)
{
	const struct tt_plan *p = pic->plans[rank];

	for (uint32_t lane = 0; lane < p->nlanes; lane++)
		for (uint32_t i = 0; i < p->lanes[lane].nsteps;
		     i += tt_step_records(tt_lane_step(p, lane, i)))
			pic->drawn[pic->n++] = (struct tool_drawn){ tt_lane_step(p, lane, i), rank,
								    (int)lane, i, -1 };
	if ((int)p->nlanes > pic->nlanes)
		pic->nlanes = (int)p->nlanes;
}

static bool sends_to(const struct tool_drawn *d, int rank)
{
	return d->step->to != TT_REF_NONE && (int)tt_ref_index(d->step->to) == rank;
}

const struct tool_drawn *tool_picture_sender(const struct tool_picture *p,
					     const struct tool_drawn *d, int from)
{
	int before = 0;

	for (const struct tool_drawn *o = p->drawn; o < d; o++)
		before += o->rank == d->rank && o->lane == d->lane && tt_step_takes(o->step, from);
	for (const struct tool_drawn *o = p->drawn; o < p->drawn + p->n; o++)
		if (o->rank == from && o->lane == d->lane && sends_to(o, d->rank) && !before--)
			return o;
	return NULL;
}

static const struct tool_drawn *find(const struct tool_picture *p, int rank, int lane,
				     uint32_t index)
{
	const struct tool_drawn *o = p->drawn;

	while (o->rank != rank || o->lane != lane || o->index != index)
		o++;
	return o;
}

/* The latest of the rows above and that of d; -1: that one has no row yet */
static int below(int row, const struct tool_drawn *d)
{
	return row < 0 || !d || d->row < 0 ? -1 : d->row >= row ? d->row + 1 : row;
}

/* -1: the row of some step before d is not known yet */
static int row_of(const struct tool_picture *p, const struct tool_drawn *d)
{
	const struct tt_step *s = d->step;
	int row = 0;

	if (d > p->drawn && d[-1].rank == d->rank && d[-1].lane == d->lane)
		row = below(row, &d[-1]);
	if (s->wait_lane != TT_NO_LANE)
		row = below(row, find(p, d->rank, s->wait_lane, s->wait_step));
	for (int i = 0; i < s->nsrc; i++)
		if (tt_ref_is_wire(tt_step_source(s, i)))
			row = below(row,
				    tool_picture_sender(p, d,
							(int)tt_ref_index(tt_step_source(s, i))));
	return row;
}

static int place(struct tool_picture *p)
{
	int placed = 0, before;

	do {
		before = placed;
		for (int i = 0; i < p->n; i++) {
			struct tool_drawn *d = &p->drawn[i];

			if (d->row >= 0 || (d->row = row_of(p, d)) < 0)
				continue;
			placed++;
			p->nrows = d->row >= p->nrows ? d->row + 1 : p->nrows;
		}
	} while (placed < p->n && placed > before);
	return placed == p->n ? 0 : tt_fail(TT_INTERNAL, "a step of the plan waits forever");
}

int tool_picture_make(struct tt_plan *const *plans, const struct tt_topology *topology,
		      struct tool_picture *ret_picture)
{
	struct tool_picture p = { .plans = plans,
				  .topology = topology,
				  .nranks = topology->nranks };
	int n = 0, rc;

	for (int r = 0; r < p.nranks; r++)
		n += count_steps(plans[r]);
	p.drawn = malloc((size_t)(n + 1) * sizeof(*p.drawn));
	if (!p.drawn)
		return tt_fail(TT_SYSTEM, "no memory for a picture of %d steps", n);
	for (int r = 0; r < p.nranks; r++)
		append(&p, r);
	rc = place(&p);
	if (rc)
		free(p.drawn);
	else
		*ret_picture = p;
	return rc;
}

void tool_picture_free(struct tool_picture *p)
{
	free(p->drawn);
}

/*
 * plan_picture.c - a plan as SVG: a column for each rank, time downward, an arrow for each message
 *
 * Called by cmd_plan.c and plan_html.c with the rows of plan_place.c.
 */
#include <math.h>
#include <string.h>

#include "perf/commands/plan_picture.h"
#include "tools/svg.h"

enum { LEFT = 40, TOP = 66, LANE = 64, GAP = 70, ROW = 54, RADIUS = 12 };

static double width_of_rank(const struct tool_picture *p)
{
	return p->nlanes * LANE + GAP;
}

static double x_of(const struct tool_picture *p, const struct tool_drawn *d)
{
	return LEFT + d->rank * width_of_rank(p) + GAP / 2.0 + (d->lane + 0.5) * LANE;
}

static double y_of(const struct tool_drawn *d)
{
	return TOP + 30 + d->row * ROW;
}

static double right_of(const struct tool_picture *p)
{
	return LEFT + p->nranks * width_of_rank(p);
}

static void draw_columns(const struct tool_picture *p, FILE *to)
{
	double bottom = TOP + 10 + p->nrows * ROW;

	for (int r = 0; r < p->nranks; r++) {
		double left = LEFT + r * width_of_rank(p);

		if (p->topology->nhosts > 1)
			tool_svg_text(to, left + width_of_rank(p) / 2, TOP - 38,
				      "text-anchor='middle' fill='#777'", "host %d",
				      p->topology->host_of[r]);
		tool_svg_text(to, left + width_of_rank(p) / 2, TOP - 18,
			      "text-anchor='middle' font-size='14' font-weight='600'", "rank %d",
			      r);
		for (int lane = 0; lane < p->nlanes; lane++) {
			double x = left + GAP / 2.0 + (lane + 0.5) * LANE;

			tool_svg_line(to, x, TOP, x, bottom, "stroke='#ccc'");
		}
	}
}

/* A line to (x, y) with a head */
static void draw_arrow(double x1, double y1, double x, double y, FILE *to)
{
	double dx = x - x1, dy = y - y1, most = dx < 0 ? -dx : dx, scale;

	most = dy > most ? dy : most;
	scale = most > 0 ? 7 / most : 0;
	dx *= scale;
	dy *= scale;
	tool_svg_line(to, x1, y1, x, y, "stroke='#555'");
	fprintf(to, "<path d='M%.5g,%.5g L%.5g,%.5g L%.5g,%.5g z' fill='#555'/>\n", x, y,
		x - dx - dy / 2, y - dy + dx / 2, x - dx + dy / 2, y - dy - dx / 2);
}

/* Moves (x, y), the center of a circle, to its edge towards (to_x, to_y). */
static void leave_circle(double *x, double *y, double to_x, double to_y)
{
	double dx = to_x - *x, dy = to_y - *y, share = RADIUS / sqrt(dx * dx + dy * dy);

	*x += share * dx;
	*y += share * dy;
}

/* From the last rank of a ring to the first, or back, the arrow leaves at one side of the picture and comes
 * in at the other. */
static void draw_message(const struct tool_picture *p, const struct tool_drawn *from,
			 const struct tool_drawn *d, FILE *to)
{
	double x1 = x_of(p, from), y1 = y_of(from), x = x_of(p, d), y = y_of(d) - RADIUS - 1;
	double middle = y1 + (y - y1) * 0.4, out, in;
	int apart = d->rank - from->rank;

	if (p->nranks < 3 || (apart != p->nranks - 1 && apart != 1 - p->nranks)) {
		leave_circle(&x1, &y1, x, y);
		draw_arrow(x1, y1, x, y, to);
		return;
	}
	out = apart < 0 ? right_of(p) : LEFT;
	in = apart < 0 ? LEFT : right_of(p);
	leave_circle(&x1, &y1, out, middle);
	tool_svg_line(to, x1, y1, out, middle, "stroke='#555'");
	draw_arrow(in, middle, x, y, to);
}

/* The first block that the step stores, sends or reads */
static uint32_t block_of(const struct tt_step *s)
{
	if (s->dst != TT_REF_NONE)
		return tt_ref_index(s->dst);
	for (int i = 0; i < s->nsrc; i++)
		if (!tt_ref_is_wire(tt_step_source(s, i)))
			return tt_ref_index(tt_step_source(s, i));
	return 0;
}

static void draw_step(const struct tool_picture *p, const struct tool_drawn *d, FILE *to)
{
	const struct tt_step *s = d->step;
	uint32_t block = block_of(s);
	const char *color = tool_svg_color((int)block);
	double x = x_of(p, d), y = y_of(d);
	char fill[64];

	if (s->op == TT_NOP)
		return;
	for (int i = 0; i < s->nsrc; i++) {
		tt_ref source = tt_step_source(s, i);

		if (tt_ref_is_wire(source))
			draw_message(p, tool_picture_sender(p, d, (int)tt_ref_index(source)), d,
				     to);
	}
	snprintf(fill, sizeof(fill), "fill='%s' text-anchor='middle'",
		 s->op == TT_COMBINE ? "white" : color);
	fprintf(to, "<circle cx='%.5g' cy='%.5g' r='%d' fill='%s' stroke='%s' stroke-width='2'/>\n",
		x, y, RADIUS, s->op == TT_COMBINE ? color : "white", color);
	tool_svg_text(to, x, y + 4, fill, "%u", block);
	if (s->nblocks > 1)
		tool_svg_text(to, x + RADIUS + 3, y + 4, "font-size='10' fill='#777'", "to %u",
			      block + s->nblocks - 1);
}

static void draw_legend(const struct tool_picture *p, double y, FILE *to)
{
	const struct tt_plan *first = p->plans[0];

	tool_svg_text(
		to, LEFT, y, "fill='#555'",
		"%s %s, n = %d. A circle is a step, its number a block. Filled: the rank combines.",
		first->algorithm, tt_collective_name(first->collective), p->nranks);
	tool_svg_text(to, LEFT, y + 18, "fill='#555'",
		      "Hollow: the rank sends or stores the block. An arrow is a message.");
}

void tool_picture_svg(const struct tool_picture *p, FILE *to)
{
	double bottom = TOP + 10 + p->nrows * ROW, width = right_of(p) + LEFT;

	tool_svg_open(to, width < 620 ? 620 : width, bottom + 60);
	draw_columns(p, to);
	for (int row = 0; row < p->nrows; row++) {
		fprintf(to, "<g data-row='%d'>\n", row);
		for (int i = 0; i < p->n; i++)
			if (p->drawn[i].row == row)
				draw_step(p, &p->drawn[i], to);
		fputs("</g>\n", to);
	}
	draw_legend(p, bottom + 26, to);
	tool_svg_close(to);
}

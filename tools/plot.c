/*
 * plot.c - plots of lines with axes, grid and legend, as SVG (svg.h)
 *
 * An axis begins and ends at a tick; it maps values to pixels.
 */
#include "tools/svg.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 800, LEFT = 70, RIGHT = 540, TOP = 40, HEIGHT = 320, ROW = 18 };
enum { CHARACTER = 7 }; /* width of a character of a name, at most on average */
enum { MOST_TICKS = 10 };
#define RING "r='6' fill='none' stroke-width='2'"

/* ---- axes ------------------------------------------------------------------------------------ */

/* An axis with its range, from tick `first` to tick `last`, at the pixels `at` to `at + length`. */
struct ruler {
	const struct tool_axis *axis;
	double unit; /* distance of ticks on a linear axis */
	int first, last, every;
	double at, length;
};

static int modulo(int a, int b)
{
	return (a % b + b) % b;
}

/* Returns the value of tick i: i units; 2^i; or 1, 2, 5, 10, 20, 50 ... */
static double tick(const struct ruler *r, int i)
{
	static const double digit[] = { 1, 2, 5 };

	if (r->axis->scale == TOOL_SCALE_LINEAR)
		return i * r->unit;
	if (r->axis->scale == TOOL_SCALE_BYTES)
		return ldexp(1, i);
	return digit[modulo(i, 3)] * pow(10, (i - modulo(i, 3)) / 3.0);
}

static bool shows(const struct tool_axis *axis, double value)
{
	return isfinite(value) && (axis->scale == TOOL_SCALE_LINEAR ? value >= 0 : value > 0);
}

static bool shows_point(const struct tool_plot *plot, const struct tool_series *s, int i)
{
	return shows(&plot->x, s->x[i]) && shows(&plot->y, s->y[i]);
}

/* Returns the smallest and the largest value that are shown, or 1 and 1 without any. */
static void find_range(const struct tool_plot *plot, bool is_x, double *ret_from, double *ret_to)
{
	double from = INFINITY, to = 0;

	for (int k = 0; k < plot->nseries; k++)
		for (int i = 0; i < plot->series[k].npoints; i++) {
			const struct tool_series *s = &plot->series[k];
			double value = is_x ? s->x[i] : s->y[i];

			if (!shows_point(plot, s, i))
				continue;
			from = fmin(from, value);
			to = fmax(to, value);
		}
	*ret_from = from > to ? 1 : from;
	*ret_to = from > to ? 1 : to;
}

/* Returns 1, 2 or 5 times a power of 10, so that `to` is at most MOST_TICKS of them. */
static double linear_unit(double to)
{
	double power = to > 0 ? pow(10, floor(log10(to / MOST_TICKS))) : 1;
	double want = to / MOST_TICKS / power;

	return power * (want <= 1 ? 1 : want <= 2 ? 2 : want <= 5 ? 5 : 10);
}

/* Ticks of a logarithmic axis: all while they fit, else every n-th; of 1, 2, 5 only the 1. */
static void thin_out(struct ruler *r)
{
	r->every = (r->last - r->first + MOST_TICKS - 1) / MOST_TICKS;
	if (r->axis->scale != TOOL_SCALE_LOG || r->every == 1)
		return;
	r->every = (r->every + 2) / 3 * 3;
	r->first -= modulo(r->first, 3);
}

static struct ruler make_ruler(const struct tool_plot *plot, bool is_x)
{
	struct ruler r = { .axis = is_x ? &plot->x : &plot->y,
			   .every = 1,
			   .at = is_x ? LEFT : TOP + HEIGHT,
			   .length = is_x ? RIGHT - LEFT : -HEIGHT };
	double from, to;

	find_range(plot, is_x, &from, &to);
	r.unit = linear_unit(to);
	if (r.axis->scale == TOOL_SCALE_BYTES)
		r.first = ilogb(from);
	if (r.axis->scale == TOOL_SCALE_LOG)
		r.first = 3 * (int)floor(log10(from)) - 1;
	while (r.axis->scale == TOOL_SCALE_LOG && tick(&r, r.first + 1) <= from)
		r.first++;
	for (r.last = r.first + 1; tick(&r, r.last) < to;)
		r.last++;
	thin_out(&r);
	return r;
}

static double pixel(const struct ruler *r, double value)
{
	double from = tick(r, r->first), to = tick(r, r->last);
	double share = r->axis->scale == TOOL_SCALE_LINEAR ? (value - from) / (to - from)
							   : log(value / from) / log(to / from);

	return r->at + share * r->length;
}

static const char *tick_text(const struct tool_axis *axis, double value, char text[32])
{
	static const char *const unit[] = { "", "K", "M", "G", "T", "P" };
	int i = 0;

	for (; axis->scale == TOOL_SCALE_BYTES && value >= 1024 && i < 5; i++)
		value /= 1024;
	snprintf(text, 32, "%.6g%s", value, unit[i]);
	return text;
}

static void draw_axes(FILE *to, const struct ruler *x, const struct ruler *y)
{
	char text[32];

	for (int i = x->first; i <= x->last; i += x->every) {
		double at = pixel(x, tick(x, i));

		tool_svg_line(to, at, TOP, at, TOP + HEIGHT, "stroke='#ddd'");
		tool_svg_text(to, at, TOP + HEIGHT + 16, "text-anchor='middle'", "%s",
			      tick_text(x->axis, tick(x, i), text));
	}
	for (int i = y->first; i <= y->last; i += y->every) {
		double at = pixel(y, tick(y, i));

		tool_svg_line(to, LEFT, at, RIGHT, at, "stroke='#ddd'");
		tool_svg_text(to, LEFT - 6, at + 4, "text-anchor='end'", "%s",
			      tick_text(y->axis, tick(y, i), text));
	}
	tool_svg_line(to, LEFT, TOP + HEIGHT, RIGHT, TOP + HEIGHT, "stroke='#222'");
	tool_svg_line(to, LEFT, TOP, LEFT, TOP + HEIGHT, "stroke='#222'");
	tool_svg_text(to, (LEFT + RIGHT) / 2.0, TOP + HEIGHT + 36, "text-anchor='middle'", "%s",
		      x->axis->label);
	tool_svg_text(to, LEFT, TOP - 8, "text-anchor='middle'", "%s", y->axis->label);
}

/* ---- series ---------------------------------------------------------------------------------- */

/* Returns the stroke of series k: lines of the same color differ by their dashes. */
static const char *stroke(enum tool_mark mark, int k)
{
	if (mark == TOOL_MARK_DASHED)
		return "stroke-width='1.5' stroke-dasharray='5,4'";
	return k / TOOL_SVG_COLORS % 2 ? "stroke-width='2' stroke-dasharray='9,2'"
				       : "stroke-width='2'";
}

/* Writes one polyline for each run of points without a gap and without a step back. */
static void draw_line(FILE *to, const struct tool_plot *plot, int k, const struct ruler *x,
		      const struct ruler *y)
{
	const struct tool_series *s = &plot->series[k];
	bool open = false;

	for (int i = 0; i < s->npoints; i++) {
		bool shown = shows_point(plot, s, i);

		if (open && shown && s->x[i] <= s->x[i - 1]) {
			fputs("'/>\n", to);
			open = false;
		}
		if (shown && !open)
			fprintf(to, "<polyline fill='none' %s points='", stroke(s->mark, k));
		if (shown)
			fprintf(to, "%s%.5g,%.5g", open ? " " : "", pixel(x, s->x[i]),
				pixel(y, s->y[i]));
		else if (open)
			fputs("'/>\n", to);
		open = shown;
	}
	fputs(open ? "'/>\n" : "", to);
}

static void draw_point(FILE *to, const struct tool_series *s, int i, const struct ruler *x,
		       const struct ruler *y)
{
	char text[32];

	fprintf(to, "<circle cx='%.5g' cy='%.5g' %s><title>", pixel(x, s->x[i]), pixel(y, s->y[i]),
		s->mark == TOOL_MARK_RINGS ? RING : "r='2.5' stroke='none'");
	tool_svg_escape(to, s->name);
	fprintf(to, ": %s, ", tick_text(x->axis, s->x[i], text));
	fprintf(to, "%s</title></circle>\n", tick_text(y->axis, s->y[i], text));
}

static void draw_series(FILE *to, const struct tool_plot *plot, int k, const struct ruler *x,
			const struct ruler *y)
{
	const struct tool_series *s = &plot->series[k];

	fprintf(to, "<g stroke='%s' fill='%s'>\n", tool_svg_color(k), tool_svg_color(k));
	if (s->mark != TOOL_MARK_RINGS)
		draw_line(to, plot, k, x, y);
	for (int i = 0; i < s->npoints; i++)
		if (s->mark != TOOL_MARK_DASHED && shows_point(plot, s, i))
			draw_point(to, s, i, x, y);
	fputs("</g>\n", to);
}

static void draw_legend(FILE *to, const struct tool_plot *plot)
{
	for (int k = 0; k < plot->nseries; k++) {
		const struct tool_series *s = &plot->series[k];
		double y = TOP + 8 + k * ROW;

		fprintf(to, "<g stroke='%s'>", tool_svg_color(k));
		if (s->mark == TOOL_MARK_RINGS)
			fprintf(to, "<circle cx='%d' cy='%.5g' %s/>\n", RIGHT + 27, y, RING);
		else
			tool_svg_line(to, RIGHT + 14, y, RIGHT + 40, y, stroke(s->mark, k));
		fputs("</g>\n", to);
		tool_svg_text(to, RIGHT + 46, y + 4, "", "%s", s->name);
	}
}

/* Returns the width of the picture: that of the plot and of the longest name beside it. */
static double width_of(const struct tool_plot *plot)
{
	size_t longest = 0;

	for (int k = 0; k < plot->nseries; k++)
		if (strlen(plot->series[k].name) > longest)
			longest = strlen(plot->series[k].name);
	return fmax(WIDTH, RIGHT + 46 + CHARACTER * (double)longest);
}

void tool_plot_write(FILE *to, const struct tool_plot *plot)
{
	struct ruler x = make_ruler(plot, true), y = make_ruler(plot, false);
	double legend = TOP + 8 + plot->nseries * ROW;

	tool_svg_open(to, width_of(plot), fmax(TOP + HEIGHT + 50, legend));
	tool_svg_text(to, WIDTH / 2.0, 18, "text-anchor='middle' font-weight='600'", "%s",
		      plot->title);
	draw_axes(to, &x, &y);
	for (int k = 0; k < plot->nseries; k++)
		draw_series(to, plot, k, &x, &y);
	draw_legend(to, plot);
	tool_svg_close(to);
}

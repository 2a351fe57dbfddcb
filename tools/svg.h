/*
 * svg.h - pictures as SVG: the elements, and plots of lines over logarithmic or linear axes
 *
 * svg.c writes elements, plot.c plots. A picture is complete in itself: it has no links, ids or
 * scripts, so that it is a file of its own or a part of an HTML page, beside others. Called by
 * `tutti simulate`, `tutti plan` and the reports of the benchmarks. Errors of the stream stay in
 * ferror(to). Thread: any, one per stream.
 */
#ifndef TOOL_SVG_H
#define TOOL_SVG_H

#include <stdio.h>

#include "base/base.h"

/* ---- elements (svg.c) ------------------------------------------------------------------------ */

/* Writes text for an element or attribute of XML or HTML: & < > " ' as entities; a byte that XML or
 * UTF-8 does not allow as U+FFFD. */
void tool_svg_escape(FILE *to, const char *text);

/* Opens a picture of that many pixels with a white background; closes the picture. */
void tool_svg_open(FILE *to, double width, double height);
void tool_svg_close(FILE *to);

/* A text at (x, y), its baseline. attributes: more of the element, such as "fill='#222'" or
 * "text-anchor='end'"; "" for none. The text is escaped. */
void tool_svg_text(FILE *to, double x, double y, const char *attributes, const char *format, ...)
	TT_PRINTF(5, 6);
void tool_svg_line(FILE *to, double x1, double y1, double x2, double y2, const char *attributes);

/* Color number i of a palette that color-blind readers can tell apart; repeats after TOOL_SVG_COLORS. */
enum { TOOL_SVG_COLORS = 10 };
const char *tool_svg_color(int i);

/* ---- plots (plot.c) -------------------------------------------------------------------------- */

enum tool_scale {
	TOOL_SCALE_LINEAR, /* from 0 */
	TOOL_SCALE_LOG,    /* powers of 10 */
	TOOL_SCALE_BYTES   /* powers of 2: 8, 4K, 64M */
};

struct tool_axis {
	const char *label; /* with the unit: "time (us)" */
	enum tool_scale scale;
};

enum tool_mark {
	TOOL_MARK_LINE,   /* a line through the points */
	TOOL_MARK_DASHED, /* a dashed line, such as a limit of the machine */
	TOOL_MARK_RINGS   /* a ring around each point, such as the algorithm that a call uses */
};

/* One row of the legend. A point that its axes cannot show (not finite, or not positive on a
 * logarithmic axis) is a gap in the line. */
struct tool_series {
	const char *name;
	enum tool_mark mark;
	int npoints;
	const double *x, *y; /* [npoints]; where x does not ascend, a new line begins */
};

struct tool_plot {
	const char *title;
	struct tool_axis x, y;
	int nseries;
	const struct tool_series
		*series; /* [nseries]; series i has color i; dashed where it repeats */
};

/* Writes the plot as one picture, with axes, grid and legend. Pointing at a point shows its series and
 * values. The axes enclose all points that they can show. */
void tool_plot_write(FILE *to, const struct tool_plot *plot);

#endif

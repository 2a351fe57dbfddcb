/*
 * test_svg.c - pictures as SVG: Python's XML parser reads them, and their points are where their
 * values are
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/svg.h"

TestSuite(svg, .timeout = 60);

/* ---- text ------------------------------------------------------------------------------------ */

static void escapes(const char *text, const char *expected)
{
	char *written = NULL;
	size_t bytes;
	FILE *to = open_memstream(&written, &bytes);

	tool_svg_escape(to, text);
	fclose(to);
	cr_expect_str_eq(written, expected, "\"%s\" is written as \"%s\"", text, written);
	free(written);
}

Test(svg, text_is_escaped)
{
	escapes("a < b && \"c\" > 'd'", "a &lt; b &amp;&amp; &quot;c&quot; &gt; &#39;d&#39;");
	escapes("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x8e\xb5", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x8e\xb5");
}

#define BAD "\xef\xbf\xbd"
Test(svg, bytes_that_xml_does_not_allow_become_the_replacement_character)
{
	escapes("a\x01z\x1b", "a" BAD "z" BAD);
	escapes("\xff", BAD);
	escapes("\xc3", BAD);                              /* ends early */
	escapes("\xc0\xaf", BAD BAD);                      /* '/' in two bytes */
	escapes("\xe0\x80\xaf", BAD BAD BAD);              /* in three */
	escapes("\xed\xa0\x80", BAD BAD BAD);              /* half of a UTF-16 pair */
	escapes("\xef\xbf\xbf", BAD BAD BAD);              /* U+FFFF */
	escapes("\xf4\x90\x80\x80x", BAD BAD BAD BAD "x"); /* beyond U+10FFFF */
}

/* ---- plots ----------------------------------------------------------------------------------- */

/* Writes the plot to a file; has python3 parse it as XML and run the statements: `root` is the picture,
 * `all(tag)` its elements of that tag. */
static void check_plot(const struct tool_plot *plot, const char *statements)
{
	char name[] = "/tmp/tutti-svg-XXXXXX", *command = NULL;
	int fd = mkstemp(name);
	FILE *to = fdopen(fd, "w");

	if (system("command -v python3 >/dev/null"))
		cr_skip_test("no python3");
	tool_plot_write(to, plot);
	cr_assert_eq(fclose(to), 0);
	cr_assert_gt(
		asprintf(
			&command,
			"python3 - %s <<'END'\n"
			"import sys, xml.etree.ElementTree as tree\n"
			"root = tree.parse(sys.argv[1]).getroot()\n"
			"all = lambda tag: list(root.iter('{http://www.w3.org/2000/svg}' + tag))\n"
			"all_in = lambda values, a, b: min(values) > a - .1 and max(values) < b + .1\n"
			"texts = [t.text for t in all('text')]\n"
			"points = [[[float(v) for v in xy.split(',')] for xy in l.get('points').split()] "
			"for l in all('polyline')]\n"
			"%s\nEND\n",
			name, statements),
		0);
	cr_expect_eq(system(command), 0);
	free(command);
	remove(name);
}

static const double sizes[] = { 8, 64, 512, 4096 };
static const double times[] = { 1, 10, 100, 1000 };

Test(svg, a_power_law_on_logarithmic_axes_is_evenly_spaced)
{
	const struct tool_series line = { "a", TOOL_MARK_LINE, 4, sizes, times };
	const struct tool_plot plot = {
		"t", { "size (B)", TOOL_SCALE_BYTES }, { "time (us)", TOOL_SCALE_LOG }, 1, &line
	};

	check_plot(
		&plot,
		"(a, b, c, d), = points\n"
		"assert abs((b[0] - a[0]) - (d[0] - c[0])) < .1 and b[0] > a[0]\n"
		"assert abs((b[1] - a[1]) - (d[1] - c[1])) < .1 and b[1] < a[1]\n"
		"assert {'8', '16', '4K', '1', '10', '1000', 'size (B)', 'time (us)'} <= set(texts)\n"
		"assert 'a: 512, 100' in [t.text for t in all('title')]");
}

Test(svg, a_linear_axis_begins_at_zero)
{
	static const double y[] = { 3, 6, 9, 12 };
	const struct tool_series line = { "a", TOOL_MARK_DASHED, 4, sizes, y };
	const struct tool_plot plot = {
		"t", { "x", TOOL_SCALE_BYTES }, { "GB/s", TOOL_SCALE_LINEAR }, 1, &line
	};

	check_plot(&plot, "(a, b, c, d), = points\n"
			  "assert abs((b[1] - a[1]) - (d[1] - c[1])) < .1\n"
			  "zero = a[1] + (a[1] - b[1])\n"
			  "frame = [l for l in all('line') if l.get('stroke') == '#222'][0]\n"
			  "assert abs(zero - float(frame.get('y1'))) < .1\n"
			  "assert {'0', '2', '12'} <= set(texts)");
}

Test(svg, values_that_an_axis_cannot_show_are_gaps)
{
	const double y[] = { 1, NAN, 100, 1000 }, z[] = { 5, 0, -1, INFINITY };
	const struct tool_series lines[] = { { "gap", TOOL_MARK_LINE, 4, sizes, y },
					     { "short", TOOL_MARK_RINGS, 4, sizes, z },
					     { "empty", TOOL_MARK_LINE, 0, NULL, NULL } };
	const struct tool_plot plot = {
		"t", { "x", TOOL_SCALE_BYTES }, { "y", TOOL_SCALE_LOG }, 3, lines
	};

	check_plot(&plot, "assert [len(p) for p in points] == [1, 2], points\n"
			  "assert len(all('title')) == 3 + 1\n"
			  "assert {'gap', 'short', 'empty'} <= set(texts)");
}

Test(svg, a_plot_without_points_is_a_picture)
{
	const struct tool_plot plot = { .title = "nothing < \x02",
					.x = { "x", TOOL_SCALE_BYTES },
					.y = { "y", TOOL_SCALE_LINEAR } };

	check_plot(&plot, "assert texts[0] == 'nothing < \\ufffd' and not points");
}

/* every tick lies in the frame, ticks have distinct texts, and points lie between the outer ticks */
Test(svg, axes_enclose_every_range)
{
	static const double ranges[][2] = { { 1e-9, 1e9 }, { 3, 3 },       { 999, 1001 },
					    { 0.002, 7 },  { 1, 1 << 30 }, { 0.1, 0.3 } };

	for (size_t i = 0; i < sizeof(ranges) / sizeof(*ranges); i++)
		for (int scale = TOOL_SCALE_LINEAR; scale <= TOOL_SCALE_BYTES; scale++) {
			const struct tool_series line = { "a", TOOL_MARK_LINE, 2, ranges[i],
							  ranges[i] };
			const struct tool_plot plot = { "t",
							{ "x", (enum tool_scale)scale },
							{ "y", (enum tool_scale)scale },
							1,
							&line };

			check_plot(
				&plot,
				"grid = [l for l in all('line') if l.get('stroke') == '#ddd']\n"
				"xs = [float(l.get('x1')) for l in grid if l.get('x1') == l.get('x2')]\n"
				"ys = [float(l.get('y1')) for l in grid if l.get('y1') == l.get('y2')]\n"
				"frame = [l for l in all('line') if l.get('stroke') == '#222']\n"
				"left, right = float(frame[0].get('x1')), float(frame[0].get('x2'))\n"
				"top, bottom = float(frame[1].get('y1')), float(frame[1].get('y2'))\n"
				"assert 2 <= len(xs) <= 11 and 2 <= len(ys) <= 11, (xs, ys)\n"
				"assert all_in(xs, left, right) and all_in(ys, top, bottom)\n"
				"for x, y in points[0]: assert all_in([x], left, right) and all_in([y], top, bottom)\n"
				"labels = texts[1:1 + len(xs)]\n"
				"assert len(set(labels)) == len(labels), labels");
		}
}

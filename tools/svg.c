/* svg.c - elements of SVG pictures (svg.h) */
#include "tools/svg.h"

#include <stdarg.h>
#include <string.h>

/* ---- text ------------------------------------------------------------------------------------ */

/* Returns the length of the UTF-8 character at s, 0 if it is none, or one that XML 1.0 does not
 * allow. Source: RFC 3629, section 4; XML 1.0, section 2.2. */
static int character(const unsigned char *s)
{
	int n = *s < 0x80 ? 1 : *s < 0xc2 ? 0 : *s < 0xe0 ? 2 : *s < 0xf0 ? 3 : *s < 0xf5 ? 4 : 0;
	uint32_t c = n == 1 ? *s : *s & (0xffu >> (n + 1));

	for (int i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3fu);
	}
	if ((n == 3 && c < 0x800) || (n == 4 && (c < 0x10000 || c > 0x10ffff)))
		return 0;
	if ((c < ' ' && !strchr("\t\n\r", (int)c)) || (c >= 0xd800 && c < 0xe000) || c == 0xfffe ||
	    c == 0xffff)
		return 0;
	return n;
}

static const char *entity(char c)
{
	switch (c) {
	case '&':
		return "&amp;";
	case '<':
		return "&lt;";
	case '>':
		return "&gt;";
	case '"':
		return "&quot;";
	case '\'':
		return "&#39;";
	default:
		return NULL;
	}
}

void tool_svg_escape(FILE *to, const char *text)
{
	for (int n; *text; text += n ? n : 1) {
		n = character((const unsigned char *)text);
		if (!n)
			fputs("\xef\xbf\xbd", to);
		else if (entity(*text))
			fputs(entity(*text), to);
		else
			fwrite(text, 1, (size_t)n, to);
	}
}

/* ---- elements -------------------------------------------------------------------------------- */

void tool_svg_open(FILE *to, double width, double height)
{
	fprintf(to,
		"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %.5g %.5g' width='%.5g' height='%.5g' "
		"font-family='system-ui, sans-serif' font-size='12' fill='#222'>\n"
		"<rect width='100%%' height='100%%' fill='white'/>\n",
		width, height, width, height);
}

void tool_svg_close(FILE *to)
{
	fputs("</svg>\n", to);
}

void tool_svg_text(FILE *to, double x, double y, const char *attributes, const char *format, ...)
{
	char text[512];
	va_list list;

	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	fprintf(to, "<text x='%.5g' y='%.5g' %s>", x, y, attributes);
	tool_svg_escape(to, text);
	fputs("</text>\n", to);
}

void tool_svg_line(FILE *to, double x1, double y1, double x2, double y2, const char *attributes)
{
	fprintf(to, "<line x1='%.5g' y1='%.5g' x2='%.5g' y2='%.5g' %s/>\n", x1, y1, x2, y2,
		attributes);
}

/* Source of the palette: Tol 2021, "muted", and black. */
const char *tool_svg_color(int i)
{
	static const char *const color[] = {
		"#332288", "#cc6677", "#117733", "#88ccee", "#882255",
		"#44aa99", "#999933", "#aa4499", "#ddaa33", "#222222"
	};

	_Static_assert(sizeof(color) / sizeof(*color) == TOOL_SVG_COLORS, "colors");
	return color[(unsigned)i % TOOL_SVG_COLORS];
}

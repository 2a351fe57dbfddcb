/* json_read.c - read a JSON text into a tree (json_read.h): recursive descent, texts decoded in place */
#include "tools/json_read.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define DEEPEST 64

struct reader {
	char *begin, *at;
	int depth;
	const char *fault;
};

static struct tool_json *read_value(struct reader *r);

static struct tool_json *fail(struct reader *r, const char *fault)
{
	if (!r->fault)
		r->fault = fault;
	return NULL;
}

static void skip_blanks(struct reader *r)
{
	r->at += strspn(r->at, " \t\r\n");
}

static bool take(struct reader *r, char c)
{
	skip_blanks(r);
	if (*r->at != c)
		return false;
	r->at++;
	return true;
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* Four hexadecimal digits; -1: other characters */
static int read_hex(const char *digits)
{
	int value = 0;

	for (int i = 0; i < 4; i++) {
		if (!isxdigit((unsigned char)digits[i]))
			return -1;
		value = value * 16 + (isdigit((unsigned char)digits[i])
					      ? digits[i] - '0'
					      : tolower((unsigned char)digits[i]) - 'a' + 10);
	}
	return value;
}

/* \uXXXX at *from, or two of them for a character above U+FFFF; half a pair is U+FFFD. */
static bool decode_unicode(char **from, char **to)
{
	int c = read_hex(*from), low;

	if (c < 0)
		return false;
	*from += 4;
	if (c >= 0xd800 && c < 0xe000) {
		low = c < 0xdc00 && (*from)[0] == '\\' && (*from)[1] == 'u' ? read_hex(*from + 2)
									    : -1;
		if (low >= 0xdc00 && low < 0xe000) {
			*from += 6;
			c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
		} else {
			c = 0xfffd;
		}
	}
	if (c >= 0x10000) {
		*(*to)++ = (char)(0xf0 | c >> 18);
		*(*to)++ = (char)(0x80 | (c >> 12 & 0x3f));
	} else if (c >= 0x800) {
		*(*to)++ = (char)(0xe0 | c >> 12);
	}
	if (c >= 0x800)
		*(*to)++ = (char)(0x80 | (c >> 6 & 0x3f));
	else if (c >= 0x80)
		*(*to)++ = (char)(0xc0 | c >> 6);
	*(*to)++ = (char)(c < 0x80 ? c : 0x80 | (c & 0x3f));
	return true;
}

static bool decode_escape(char **from, char **to)
{
	static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
	const char *found = **from ? strchr(names, **from) : NULL;

	if (*(*from)++ == 'u')
		return decode_unicode(from, to);
	if (found)
		*(*to)++ = values[found - names];
	return found != NULL;
}

/* The text behind its first quote, decoded in place, which never makes it longer */
static char *read_text(struct reader *r)
{
	char *text = r->at, *to = r->at, *from = r->at;

	while (*from != '"') {
		if ((unsigned char)*from < ' ') {
			fail(r, "a text without its closing quote");
			return NULL;
		}
		if (*from != '\\') {
			*to++ = *from++;
		} else {
			from++;
			if (!decode_escape(&from, &to)) {
				fail(r, "an unknown escape in a text");
				return NULL;
			}
		}
	}
	*to = '\0';
	r->at = from + 1;
	return text;
}

/* ---- values ---------------------------------------------------------------------------------- */

static struct tool_json *make(struct reader *r, enum tool_json_kind kind)
{
	struct tool_json *v = calloc(1, sizeof(*v));

	if (!v)
		return fail(r, "no memory");
	v->kind = kind;
	return v;
}

static bool read_key(struct reader *r, const char **ret_key)
{
	if (!take(r, '"')) {
		fail(r, "a member without a name");
		return false;
	}
	*ret_key = read_text(r);
	if (*ret_key && !take(r, ':'))
		fail(r, "a name without a colon");
	return !r->fault;
}

/* The children of an array or object up to its closing bracket */
static struct tool_json *read_children(struct reader *r, struct tool_json *parent, char end)
{
	struct tool_json **last = &parent->first;
	bool more = !take(r, end);

	while (more) {
		const char *key = NULL;

		if (end == '}' && !read_key(r, &key))
			break;
		*last = read_value(r);
		if (!*last)
			break;
		(*last)->key = key;
		last = &(*last)->next;
		more = take(r, ',');
		if (!more && !take(r, end))
			fail(r, "a value without a comma or a bracket behind it");
	}
	if (!r->fault)
		return parent;
	tool_json_free(parent);
	return NULL;
}

static struct tool_json *read_word(struct reader *r)
{
	static const struct {
		const char *word;
		enum tool_json_kind kind;
		double number;
	} words[] = { { "null", TOOL_JSON_NULL, 0 },
		      { "true", TOOL_JSON_BOOL, 1 },
		      { "false", TOOL_JSON_BOOL, 0 } };

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		struct tool_json *v;

		if (strncmp(r->at, words[i].word, strlen(words[i].word)) != 0)
			continue;
		v = make(r, words[i].kind);
		r->at += strlen(words[i].word);
		if (v)
			v->number = words[i].number;
		return v;
	}
	return fail(r, "no value");
}

/* strtod reads more than JSON: hexadecimal, inf, a leading plus or point */
static struct tool_json *read_number(struct reader *r)
{
	const char *digits = r->at + (*r->at == '-');
	struct tool_json *v;
	char *end;

	if (!isdigit((unsigned char)*digits) || ((digits[1] | 0x20) == 'x'))
		return fail(r, "no number");
	v = make(r, TOOL_JSON_NUMBER);
	if (!v)
		return NULL;
	v->number = strtod(r->at, &end);
	r->at = end;
	return v;
}

static struct tool_json *read_value(struct reader *r)
{
	struct tool_json *v = NULL;

	if (r->depth == DEEPEST)
		return fail(r, "too many brackets in each other");
	r->depth++;
	if (take(r, '"')) {
		v = make(r, TOOL_JSON_TEXT);
		if (v && !(v->text = read_text(r))) {
			free(v);
			v = NULL;
		}
	} else if (take(r, '{')) {
		v = make(r, TOOL_JSON_OBJECT);
		v = v ? read_children(r, v, '}') : NULL;
	} else if (take(r, '[')) {
		v = make(r, TOOL_JSON_ARRAY);
		v = v ? read_children(r, v, ']') : NULL;
	} else if (*r->at == '-' || isdigit((unsigned char)*r->at)) {
		v = read_number(r);
	} else {
		v = read_word(r);
	}
	r->depth--;
	return v;
}

struct tool_json *tool_json_read(char *text)
{
	struct reader r = { .begin = text, .at = text };
	struct tool_json *tree = read_value(&r);
	int line = 1;

	skip_blanks(&r);
	if (tree && !*r.at)
		return tree;
	tool_json_free(tree);
	for (const char *c = text; c < r.at; c++)
		line += *c == '\n';
	tt_fail(TT_ARG, "line %d: %s", line, r.fault ? r.fault : "more than one value");
	return NULL;
}

void tool_json_free(struct tool_json *tree)
{
	struct tool_json *next;

	for (; tree; tree = next) {
		next = tree->next;
		tool_json_free(tree->first);
		free(tree);
	}
}

/* ---- look-ups -------------------------------------------------------------------------------- */

const struct tool_json *tool_json_get(const struct tool_json *object, const char *key)
{
	const struct tool_json *m = object && object->kind == TOOL_JSON_OBJECT ? object->first
									       : NULL;

	while (m && strcmp(m->key, key) != 0)
		m = m->next;
	return m;
}

const char *tool_json_text(const struct tool_json *object, const char *key, const char *otherwise)
{
	const struct tool_json *m = tool_json_get(object, key);

	return m && m->kind == TOOL_JSON_TEXT ? m->text : otherwise;
}

double tool_json_number(const struct tool_json *object, const char *key, double otherwise)
{
	const struct tool_json *m = tool_json_get(object, key);

	return m && m->kind == TOOL_JSON_NUMBER ? m->number : otherwise;
}

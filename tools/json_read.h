/*
 * json_read.h - read a JSON text (RFC 8259) into a tree
 *
 * For files that the benchmarks wrote, by `tutti report`. Called in one thread at a time per tree.
 */
#ifndef TOOL_JSON_READ_H
#define TOOL_JSON_READ_H

#include "base/base.h"

enum tool_json_kind {
	TOOL_JSON_NULL,
	TOOL_JSON_BOOL, /* number: 0 or 1 */
	TOOL_JSON_NUMBER,
	TOOL_JSON_TEXT,
	TOOL_JSON_ARRAY,
	TOOL_JSON_OBJECT
};

struct tool_json {
	enum tool_json_kind kind;
	const char *key;  /* of a member of an object, else NULL */
	const char *text; /* UTF-8; a NUL in it ends it */
	double number;
	struct tool_json *first, *next; /* child; sibling */
};

/* The tree of text, which it changes and refers to: text must live as long. NULL: no memory, or no JSON;
 * the sentence is the thread's last error, with the line of the fault. */
struct tool_json *tool_json_read(char *text);
void tool_json_free(struct tool_json *tree);

/* The member of an object; NULL: there is none, or it is none. object may be NULL. */
const struct tool_json *tool_json_get(const struct tool_json *object, const char *key);
/* The member's text or number, or the value `otherwise` */
const char *tool_json_text(const struct tool_json *object, const char *key, const char *otherwise);
double tool_json_number(const struct tool_json *object, const char *key, double otherwise);

#endif

/*
 * test_json_read.c - JSON texts as trees: values, escapes, and the sentences of faults
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/json_read.h"

TestSuite(json_read, .timeout = 60);

static char text[65536];

static struct tool_json *read_text(const char *json)
{
	snprintf(text, sizeof(text), "%s", json);
	tt_error_clear();
	return tool_json_read(text);
}

static void expect_fault(const char *json, const char *fault)
{
	cr_expect_null(read_text(json), "%s", json);
	cr_expect_str_eq(tt_error_text(), fault, "%s: %s", json, tt_error_text());
}

Test(json_read, a_tree_has_members_texts_and_numbers)
{
	struct tool_json *t = read_text(" {\"a\": [1, -2.5e3, \"x\\ty\"], \"b\": {\"c\": true},\r\n"
					"\t\"d\": null, \"e\": \"\", \"f\": []} \n");
	const struct tool_json *a = tool_json_get(t, "a");

	cr_assert_not_null(t, "%s", tt_error_text());
	cr_assert_eq(a->kind, TOOL_JSON_ARRAY);
	cr_expect_eq(a->first->number, 1);
	cr_expect_eq(a->first->next->number, -2500);
	cr_expect_str_eq(a->first->next->next->text, "x\ty");
	cr_expect_null(a->first->next->next->next);
	cr_expect_eq(tool_json_get(tool_json_get(t, "b"), "c")->kind, TOOL_JSON_BOOL);
	cr_expect_eq(tool_json_get(tool_json_get(t, "b"), "c")->number, 1);
	cr_expect_eq(tool_json_get(t, "d")->kind, TOOL_JSON_NULL);
	cr_expect_str_eq(tool_json_text(t, "e", "none"), "");
	cr_expect_null(tool_json_get(t, "f")->first);
	cr_expect_null(tool_json_get(t, "g"));
	cr_expect_null(tool_json_get(a, "g"));
	cr_expect_str_eq(tool_json_text(t, "d", "none"), "none");
	cr_expect_eq(tool_json_number(NULL, "a", 7), 7);
	tool_json_free(t);
}

Test(json_read, escapes_become_utf_8)
{
	struct tool_json *t = read_text(
		"[\"\\u0041\\u00e9\\u20ac\\ud83d\\ude00\\\"\\/\\\\\", \"\\ud800!\"]");

	cr_assert_not_null(t, "%s", tt_error_text());
	cr_expect_str_eq(t->first->text, "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"/\\");
	cr_expect_str_eq(t->first->next->text, "\xef\xbf\xbd!");
	tool_json_free(t);
}

Test(json_read, a_fault_is_a_sentence_with_its_line)
{
	expect_fault("", "line 1: no value");
	expect_fault("{\n\"a\": 1,\n}", "line 3: a member without a name");
	expect_fault("{\"a\" 1}", "line 1: a name without a colon");
	expect_fault("[1\n2]", "line 2: a value without a comma or a bracket behind it");
	expect_fault("[1", "line 1: a value without a comma or a bracket behind it");
	expect_fault("[1,]", "line 1: no value");
	expect_fault("\"a\nb\"", "line 1: a text without its closing quote");
	expect_fault("\"a", "line 1: a text without its closing quote");
	expect_fault("\"\\x\"", "line 1: an unknown escape in a text");
	expect_fault("\"\\", "line 1: an unknown escape in a text");
	expect_fault("\"\\u12g4\"", "line 1: an unknown escape in a text");
	expect_fault("\"\\u12", "line 1: an unknown escape in a text");
	expect_fault("1 2", "line 1: more than one value");
	expect_fault("+1", "line 1: no value");
	expect_fault("-inf", "line 1: no number");
	expect_fault("0x10", "line 1: no number");
	expect_fault("nul", "line 1: no value");
}

Test(json_read, brackets_in_each_other_are_bounded)
{
	char *deep = text;
	struct tool_json *t;

	memset(deep, '[', 63);
	memset(deep + 63, ']', 63);
	deep[126] = '\0';
	t = tool_json_read(deep);
	cr_expect_not_null(t, "%s", tt_error_text());
	tool_json_free(t);
	memset(deep, '[', 60000);
	deep[60000] = '\0';
	cr_expect_null(tool_json_read(deep));
	cr_expect_str_eq(tt_error_text(), "line 1: too many brackets in each other");
}

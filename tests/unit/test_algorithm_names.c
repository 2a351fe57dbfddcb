/*
 * test_algorithm_names.c - names of algorithms: in the manual, found, refused, chosen
 */
#include <criterion/criterion.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/choose.h"
#include "tests/support/plan_all.h"

TestSuite(algorithm_names, .timeout = 120);

/* ---- the manual ------------------------------------------------------------------------------ */

/* The text of tutti_algorithms(7), with spaces for line breaks. The caller frees the text. */
static char *manual(void)
{
	const char *top = getenv("top_srcdir");
	char path[4096], *text = calloc(1, 1 << 16);

	snprintf(path, sizeof(path), "%s/man/tutti_algorithms.7", top ? top : ".");
	FILE *f = fopen(path, "r");

	cr_assert(f && text, "%s", path);
	cr_assert_gt(fread(text, 1, (1 << 16) - 1, f), 0);
	fclose(f);
	for (char *p = text; *p; p++)
		*p = *p == '\n' ? ' ' : *p;
	return text;
}

/* Start of the section of a collective; the next .Sh ends the section. */
static const char *section(const char *text, enum tt_collective c)
{
	char head[40];
	int used = snprintf(head, sizeof(head), ".Sh %s ", tt_collective_name(c));

	for (int i = 4; i < used; i++)
		head[i] = (char)toupper(head[i]);
	return strstr(text, head);
}

Test(algorithm_names, every_algorithm_and_its_source_are_in_the_manual)
{
	char *text = manual(), item[80], source[80];

	for (int i = 0; tt_algorithms[i]; i++) {
		const struct tt_algorithm *a = tt_algorithms[i];
		const char *from = section(text, a->collective),
			   *to = from ? strstr(from + 4, ".Sh ") : NULL, *found;

		cr_assert(from && to, "no section for %s", tt_collective_name(a->collective));
		snprintf(item, sizeof(item), ".It Cm %s ", a->name);
		found = strstr(from, item);
		cr_expect(found && found < to, "%s %s is not in the manual",
			  tt_collective_name(a->collective), a->name);
		snprintf(source, sizeof(source), "%.*s", (int)strcspn(a->source, "0123456789") + 4,
			 a->source);
		found = found ? strstr(found, source) : NULL;
		cr_expect(found && found < to, "%s %s: source \"%s\" is not in the manual",
			  tt_collective_name(a->collective), a->name, source);
	}
	free(text);
}

/* ---- names and choice ------------------------------------------------------------------------ */

Test(algorithm_names, every_algorithm_is_found_by_name_and_has_help_and_a_source)
{
	char name[64], names[512];

	for (int i = 0; tt_algorithms[i]; i++) {
		const struct tt_algorithm *a = tt_algorithms[i];

		cr_expect_eq(tt_algorithm_find(a->collective, a->name), a);
		snprintf(name, sizeof(name), ", %s", a->name);
		cr_expect(strstr(tt_algorithm_names(a->collective, names), name),
			  "%s is not among%s", a->name, names);
		cr_expect(a->help && *a->help && a->source && *a->source,
			  "%s has no help or source", a->name);
	}
}

/* text with the list of all algorithm names in place of @, in a static buffer. */
static const char *with_names(const char *text)
{
	static char whole[1024];
	char names[512];
	int before = (int)strcspn(text, "@");

	if (!text[before])
		return text;
	tt_algorithm_names(TT_ALLREDUCE, names);
	snprintf(whole, sizeof(whole), "%.*s%s%s", before, text, names + strlen(", "),
		 text + before + 1);
	return whole;
}

Test(algorithm_names, an_unknown_name_is_refused_with_the_wrong_part_and_the_valid_names)
{
	static const struct { const char *name, *why;
	} wrong[] = {
		{ "", "\"\"; use auto, @" },
		{ "rings", "\"rings\"; use auto, @" },
		{ "rin", "\"rin\"; use auto, @" },
		{ "direct", "\"direct\"; use auto, @" },
		{ "ring:", "\"ring:\": ring has no variants" },
		{ "ring:x", "\"ring:x\": ring has no variants" },
		{ "reduce-to-one:twice",
		  "no \"twice\" of reduce-to-one; use reduce-to-one or reduce-to-one:rotate" },
		{ "hierarchical:",
		  "use hierarchical:INNER/OUTER, as in hierarchical:two-shot/ring, of @" },
		{ "hierarchical:ring",
		  "use hierarchical:INNER/OUTER, as in hierarchical:two-shot/ring, of @" },
		{ "hierarchical:ring/foo", "\"foo\" cannot be its outer algorithm; use any of @" },
		{ "hierarchical:foo/ring", "\"foo\" cannot be its inner algorithm; use any of @" },
		{ "hierarchical:ring/", "\"\" cannot be its outer algorithm" },
		{ "hierarchical:/ring", "\"\" cannot be its inner algorithm" },
		{ "hierarchical:ring/hierarchical",
		  "\"hierarchical\" cannot be its outer algorithm; use any of @"
		  " but hierarchical" },
		{ "hierarchical:ring/tree/ring", "\"tree/ring\" cannot be its outer" },
		{ "hierarchical:hierarchical:ring/tree/ring",
		  "\"hierarchical:ring\" cannot be its inner" },
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		cr_expect_null(tt_algorithm_find(TT_ALLREDUCE, wrong[i].name), "\"%s\" was found",
			       wrong[i].name);
		cr_expect(strstr(tt_error_text(), with_names(wrong[i].why)), "%s", tt_error_text());
	}
}

static const char *choose(const char *name, enum tt_collective c, int n, size_t bytes,
			  const struct tt_topology *t, bool tcp)
{
	static char text[64];
	const struct tt_shape shape = { .collective = c, .nranks = n, .topology = t };
	const struct tt_call_facts size = { .bytes = bytes, .over_tcp = tcp };
	const struct tt_algorithm *a = NULL;

	strcpy(text, "refused");
	if (!tt_plan_choose(name, &shape, &size, &a, text))
		cr_expect_eq(tt_algorithm_find(c, text), a);
	return text;
}

Test(algorithm_names, the_plan_has_the_name_of_the_chosen_algorithm)
{
	static const char *const names[] = { "auto",
					     "ring",
					     "hierarchical",
					     "reduce-to-one",
					     "reduce-to-one:rotate",
					     "hierarchical:tree/one-shot" };
	int host_of[6] = { 0, 0, 0, 1, 1, 1 };
	struct tt_topology t = topology_of(6, host_of);

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		const char *name = choose(names[i], TT_ALLREDUCE, 6, 1 << 20, &t, true);

		build_all(tt_algorithm_find(TT_ALLREDUCE, name), name, 6, 0, &t);
		cr_expect_str_eq(plans[0]->algorithm, name);
		free_all(6);
	}
	cr_expect_str_eq(choose("hierarchical", TT_ALLREDUCE, 6, 1, &t, true),
			 "hierarchical:two-shot/ring");
}

Test(algorithm_names, a_name_of_another_collective_means_auto_but_an_unknown_name_is_refused)
{
	cr_expect_str_eq(choose("ring", TT_ALLTOALL, 4, 1, NULL, false), "direct");
	cr_expect_str_eq(choose("hierarchical:tree/ring", TT_GATHER, 4, 1, NULL, false), "direct");
	cr_expect_str_eq(choose("reduce-to-one:rotate", TT_REDUCE, 4, 1 << 30, NULL, false),
			 choose("auto", TT_REDUCE, 4, 1 << 30, NULL, false));
	cr_expect_str_eq(choose("direct", TT_ALLREDUCE, 4, 1, NULL, false), "refused");
	cr_expect_str_eq(choose("nonsense", TT_ALLTOALL, 4, 1, NULL, false), "refused");
	cr_expect(strstr(tt_error_text(), "nonsense") && strstr(tt_error_text(), "use auto, ring"),
		  "%s", tt_error_text());
	cr_expect_str_eq(choose("ring", TT_SENDRECV, 4, 1, NULL, false), "refused");
}

/* Every shape gets an algorithm; a large allreduce of several hosts gets hierarchical. */
Test(algorithm_names, every_call_gets_an_algorithm)
{
	int host_of[MOST];

	for (int c = 0; c < TT_SENDRECV; c++)
		for (int n = 1; n <= MOST; n += n < 9 ? 1 : n / 4)
			for (int hosts = 1; hosts <= n; hosts += n - 1 ? n - 1 : 1)
				for (size_t bytes = 0; bytes < (size_t)1 << 40;
				     bytes = 5 * bytes + 1) {
					for (int r = 0; r < n; r++)
						host_of[r] = r % hosts;
					struct tt_topology t = topology_of(n, host_of);

					cr_expect_str_neq(choose("auto", (enum tt_collective)c, n,
								 bytes, &t, hosts > 1),
							  "refused");
				}
	for (int r = 0; r < 8; r++)
		host_of[r] = r / 4;
	struct tt_topology two = topology_of(8, host_of);

	cr_expect(!strncmp(choose("auto", TT_ALLREDUCE, 8, 64 << 20, &two, true),
			   "hierarchical:", 13));
}

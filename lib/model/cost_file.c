/*
 * cost_file.c - text form of a cost table: one constant per line, its unit in its name, and factors
 *
 *   # anything                                            a comment, also behind a value
 *   shm.latency_ns 90.5
 *   factor allreduce ring shm 4 65536 1.12                collective algorithm class nranks bytes
 *   factor
 *
 * Called by comm (TUTTI_TUNING at rank 0), the tools and the tests. Every unknown line is an error:
 * otherwise a misspelled constant would silently keep its built-in value.
 */
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "algorithms/algorithms.h"
#include "model/cost.h"

enum { MOST_BYTES = 4 << 20 };

#define CORE(field) offsetof(struct tt_cost, core.field)
#define LINK(n, field)                                                        \
	(offsetof(struct tt_cost, link) + (n) * sizeof(struct tt_link_cost) + \
	 offsetof(struct tt_link_cost, field))
#define LINK_ROWS(n, class)                                                                        \
	{ class ".latency_ns", "from the sender's last store until a polling receiver sees it",    \
	  LINK(n, latency_ps), TT_NS },                                                            \
		{ class ".send_ns", "CPU time of the sender for each message", LINK(n, send_ps),   \
		  TT_NS },                                                                         \
		{ class ".recv_ns", "CPU time of the receiver for each message", LINK(n, recv_ps), \
		  TT_NS },                                                                         \
		{ class ".send_gbps",                                                              \
		  "bytes/ns that a core can send, beside copying and reducing; 0: no cost",        \
		  LINK(n, send_fs), TT_GBPS },                                                     \
		{ class ".recv_gbps",                                                              \
		  "bytes/ns that a core can receive, beside copying and reducing; 0: no cost",     \
		  LINK(n, recv_fs), TT_GBPS },                                                     \
		{ class ".link_gbps", "bytes/ns of one direction of one link; 0: no limit",        \
		  LINK(n, link_fs), TT_GBPS },                                                     \
		{ class ".host_gbps",                                                              \
		  "bytes/ns of all links of a host together, each direction; 0: no limit",         \
		  LINK(n, host_fs), TT_GBPS },                                                     \
		{ class ".large_bytes", "longer messages take large_ns more",                      \
		  LINK(n, large_bytes), TT_BYTES },                                                \
	{                                                                                          \
		class ".large_ns", "added latency of messages above large_bytes",                  \
			LINK(n, large_ps), TT_NS                                                   \
	}
#define WINDOW_ROW(n, class)                                                                 \
	{                                                                                    \
		class ".window", "most unread messages of a link", LINK(n, window), TT_COUNT \
	}

const struct tt_cost_row tt_cost_table[] = {
	{ "core.call_ns", "time of each call", CORE(call_ps), TT_NS },
	{ "core.step_ns", "time of each message of a step", CORE(step_ps), TT_NS },
	{ "core.switch_ns", "context switch, if a host has more ranks than cores", CORE(switch_ps),
	  TT_NS },
	{ "core.copy_gbps", "bytes/ns copied in cache", CORE(copy_fs), TT_GBPS },
	{ "core.reduce_gbps", "bytes/ns of an operand combined with another in cache",
	  CORE(reduce_fs), TT_GBPS },
	{ "core.far_copy_gbps", "bytes/ns copied out of cache", CORE(far_copy_fs), TT_GBPS },
	{ "core.far_reduce_gbps", "bytes/ns of an operand combined out of cache",
	  CORE(far_reduce_fs), TT_GBPS },
	{ "core.memory_gbps", "bytes/ns out of cache, all cores of a host together; 0: no limit",
	  CORE(memory_fs), TT_GBPS },
	{ "core.cache_bytes", "size of a core's own caches", CORE(cache_bytes), TT_BYTES },
	LINK_ROWS(TT_LINK_SHM, "shm"),
	WINDOW_ROW(TT_LINK_SHM, "shm"),
	LINK_ROWS(TT_LINK_TCP, "tcp"),
	WINDOW_ROW(TT_LINK_TCP, "tcp"),
	LINK_ROWS(TT_LINK_HOSTS, "hosts"),
	WINDOW_ROW(TT_LINK_HOSTS, "hosts"),
	LINK_ROWS(TT_LINK_SLOTS, TT_LINK_SLOTS_NAME),
	LINK_ROWS(TT_LINK_VERBS, "verbs"),
	WINDOW_ROW(TT_LINK_VERBS, "verbs"),
	LINK_ROWS(TT_LINK_SOFT, "soft"),
	WINDOW_ROW(TT_LINK_SOFT, "soft"),
	LINK_ROWS(TT_LINK_GROUPS, "groups"),
	WINDOW_ROW(TT_LINK_GROUPS, "groups"),
};
const size_t tt_cost_rows = sizeof(tt_cost_table) / sizeof(tt_cost_table[0]);

/* ---- values ---------------------------------------------------------------------------------- */

/* Reads a number with a decimal point, in any locale. -1: not a number. */
static double number(const char *text)
{
	locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
	char *end;
	double v;

	if (!c)
		return -1;
	v = strtod_l(text, &end, c);
	freelocale(c);
	return end == text || *end || !isfinite(v) ? -1 : v;
}

/* Converts a text to the unit of the table. The bounds are wide, but no product in the model
 * overflows within them. */
static bool read_value(enum tt_cost_unit unit, const char *text, uint64_t *ret_value)
{
	double v = number(text);

	/* above the bounds of every unit, and above the range of the conversions below */
	if (v < 0 || v > 1e15)
		return false;
	switch (unit) {
	case TT_NS:
		*ret_value = (uint64_t)llround(v * 1000);
		return v <= 1e10;
	case TT_GBPS:
		*ret_value = v > 0 ? (uint64_t)llround(1e6 / (v < 1e-6 ? 1e-6 : v)) : 0;
		return v == 0 || (v >= 1e-4 && v <= 1e6);
	case TT_BYTES:
		*ret_value = (uint64_t)v;
		return v >= 1 && v <= 1e15;
	default:
		*ret_value = (uint64_t)v;
		return v >= 2 && v <= 1e6 && v == floor(v);
	}
}

static const char *domain_of(enum tt_cost_unit unit)
{
	static const char *const text[] = { "nanoseconds from 0 to 1e10",
					    "GB/s from 0.0001 to 1000000, or 0",
					    "bytes from 1 to 1e15",
					    "a whole number from 2 to 1000000" };

	return text[unit];
}

static double value_of(const struct tt_cost_row *row, const struct tt_cost *cost)
{
	uint64_t v = *(const uint64_t *)((const char *)cost + row->offset);

	return row->unit == TT_NS     ? (double)v / 1000
	       : row->unit != TT_GBPS ? (double)v
	       : v                    ? 1e6 / (double)v
				      : 0;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Position of a line, for error texts. */
struct text_position {
	const char *file;
	int line;
};

static int read_names(const struct text_position *at, char **word, struct tt_factor *f)
{
	const struct tt_algorithm *a = NULL;
	char names[16 * TT_LINK_CLASSES];
	size_t known = 0;
	int c = 0, link = 0;

	while (c < TT_SENDRECV && strcmp(word[1], tt_collective_name((enum tt_collective)c)))
		c++;
	if (c == TT_SENDRECV)
		return tt_fail(
			TT_ARG,
			"%s: line %d: \"%s\" is not a collective; use allreduce, reduce, ...",
			at->file, at->line, word[1]);
	a = tt_algorithm_find((enum tt_collective)c, word[2]);
	if (!a)
		return tt_fail(TT_ARG,
			       "%s: line %d: %s has no algorithm \"%s\"; `tutti info` lists them",
			       at->file, at->line, word[1], word[2]);
	for (; link < TT_LINK_CLASSES && strcmp(word[3], tt_link_class_name[link]); link++)
		known += (size_t)snprintf(names + known, sizeof(names) - known, "%s%s",
					  link ? ", " : "", tt_link_class_name[link]);
	if (link == TT_LINK_CLASSES)
		return tt_fail(TT_ARG, "%s: line %d: \"%s\" is not a link class; use one of %s",
			       at->file, at->line, word[3], names);
	f->algorithm = tt_algorithm_number(a);
	f->link = (uint8_t)link;
	return 0;
}

static int read_factor(const struct text_position *at, char **word, int nwords,
		       struct tt_cost *cost)
{
	struct tt_factor f, *more;
	double n, bytes, factor;
	int rc;

	if (nwords != 7)
		return tt_fail(
			TT_ARG,
			"%s: line %d: the form of a factor is: factor COLLECTIVE ALGORITHM CLASS NRANKS BYTES FACTOR",
			at->file, at->line);
	if ((rc = read_names(at, word, &f)))
		return rc;
	n = number(word[4]);
	bytes = number(word[5]);
	factor = number(word[6]);
	if (!(n >= 1 && n <= 65535) || !(bytes >= 0 && bytes <= 1e15) ||
	    !(factor >= 0.001 && factor <= 1000))
		return tt_fail(
			TT_ARG,
			"%s: line %d: use 1 to 65535 ranks, bytes, and a factor from 0.001 to 1000, not %s %s "
			"%s",
			at->file, at->line, word[4], word[5], word[6]);
	if (cost->nfactors == TT_FACTORS_MOST)
		return tt_fail(TT_ARG, "%s: line %d: more than %d factors", at->file, at->line,
			       TT_FACTORS_MOST);
	f.nranks = (uint16_t)n;
	f.bytes = (uint64_t)bytes;
	f.permille = (uint32_t)lround(factor * 1000);
	more = realloc(cost->factors, (cost->nfactors + 1) * sizeof(f));
	if (!more)
		return tt_fail(TT_SYSTEM, "%s: no memory for %u factors", at->file,
			       cost->nfactors + 1);
	cost->factors = more;
	cost->factors[cost->nfactors++] = f;
	return 0;
}

static int read_constant(const struct text_position *at, char **word, int nwords,
			 struct tt_cost *cost)
{
	const struct tt_cost_row *row = tt_cost_table, *end = tt_cost_table + tt_cost_rows;

	while (row < end && strcmp(row->name, word[0]))
		row++;
	if (row == end)
		return tt_fail(
			TT_ARG,
			"%s: line %d: unknown constant \"%.60s\"; `tutti tune --print` lists them",
			at->file, at->line, word[0]);
	if (nwords != 2 ||
	    !read_value(row->unit, word[1], (uint64_t *)((char *)cost + row->offset)))
		return tt_fail(TT_ARG, "%s: line %d: %s is one number: %s", at->file, at->line,
			       row->name, domain_of(row->unit));
	return 0;
}

static int read_line(const struct text_position *at, char *line, struct tt_cost *cost)
{
	char *word[9] = { NULL }, *rest = NULL;
	int n = 0;

	line[strcspn(line, "#")] = '\0';
	for (char *w = strtok_r(line, " \t\r", &rest); w && n < 8;
	     w = strtok_r(NULL, " \t\r", &rest))
		word[n++] = w;
	if (!n)
		return 0;
	return strcmp(word[0], "factor") ? read_constant(at, word, n, cost)
					 : read_factor(at, word, n, cost);
}

/* ---- whole tables ---------------------------------------------------------------------------- */

void tt_cost_free(struct tt_cost *cost)
{
	if (cost)
		free(cost->factors);
	free(cost);
}

static int parse(char *text, size_t bytes, const char *name, struct tt_cost *cost)
{
	struct text_position at = { name, 0 };
	char *line, *rest = text;
	int rc = 0;

	if (strlen(text) != bytes)
		return tt_fail(TT_ARG, "%s: not a text file: byte %zu is zero", name, strlen(text));
	while (!rc && (line = strsep(&rest, "\n"))) {
		at.line++;
		rc = read_line(&at, line, cost);
	}
	if (!rc && cost->nfactors)
		qsort(cost->factors, cost->nfactors, sizeof(*cost->factors), tt_factor_compare);
	return rc;
}

int tt_cost_parse(const char *text, size_t bytes, const char *name, struct tt_cost **ret_cost)
{
	struct tt_cost *cost = malloc(sizeof(*cost));
	char *copy = malloc(bytes + 1);
	int rc = TT_SYSTEM;

	if (!cost || !copy) {
		free(cost);
		free(copy);
		return tt_fail(TT_SYSTEM, "%s: no memory for a cost table", name);
	}
	if (bytes)
		memcpy(copy, text, bytes);
	copy[bytes] = '\0';
	*cost = tt_cost_builtin;
	rc = parse(copy, bytes, name, cost);
	free(copy);
	if (rc)
		tt_cost_free(cost);
	else
		*ret_cost = cost;
	return rc;
}

int tt_cost_read(const char *path, struct tt_cost **ret_cost)
{
	FILE *f = fopen(path, "re");
	char *text = f ? malloc(MOST_BYTES + 1) : NULL;
	size_t bytes;
	int rc;

	if (!f)
		return tt_fail(TT_ARG,
			       "%s: cannot be opened: %m; `tutti tune -o FILE` writes such a file",
			       path);
	if (!text) {
		fclose(f);
		return tt_fail(TT_SYSTEM, "%s: no memory to read it", path);
	}
	bytes = fread(text, 1, MOST_BYTES + 1, f);
	if (ferror(f))
		rc = tt_fail(TT_ARG,
			     "%s: cannot be read: %m; `tutti tune -o FILE` writes such a file",
			     path);
	else if (bytes > MOST_BYTES)
		rc = tt_fail(TT_ARG, "%s: larger than %d bytes; not a cost table", path,
			     MOST_BYTES);
	else
		rc = tt_cost_parse(text, bytes, path, ret_cost);
	fclose(f);
	free(text);
	return rc;
}

void tt_cost_print(const struct tt_cost *cost, FILE *to)
{
	for (size_t i = 0; i < tt_cost_rows; i++)
		fprintf(to, "%-22s %-12.6g # %s\n", tt_cost_table[i].name,
			value_of(&tt_cost_table[i], cost), tt_cost_table[i].help);
	if (cost->nfactors)
		fprintf(to,
			"# measured / predicted:  collective algorithm class nranks bytes factor\n");
	for (uint32_t i = 0; i < cost->nfactors; i++) {
		const struct tt_factor *f = &cost->factors[i];
		const struct tt_algorithm *a = tt_algorithms[f->algorithm];

		fprintf(to, "factor %s %s %s %u %llu %.3f\n", tt_collective_name(a->collective),
			a->name, tt_link_class_name[f->link], f->nranks,
			(unsigned long long)f->bytes, f->permille / 1000.0);
	}
}

size_t tt_cost_pack(const struct tt_cost *cost, void *to, size_t room)
{
	size_t bytes = sizeof(*cost) + cost->nfactors * sizeof(*cost->factors);

	if (bytes > room)
		return bytes;
	memcpy(to, cost, sizeof(*cost));
	((struct tt_cost *)to)->factors = NULL;
	if (cost->nfactors)
		memcpy((char *)to + sizeof(*cost), cost->factors,
		       cost->nfactors * sizeof(*cost->factors));
	return bytes;
}

static int check_factors(const struct tt_cost *cost)
{
	uint32_t algorithms = 0;

	while (tt_algorithms[algorithms])
		algorithms++;
	for (uint32_t i = 0; i < cost->nfactors; i++) {
		const struct tt_factor *f = &cost->factors[i];

		if (f->algorithm >= algorithms || f->link >= TT_LINK_CLASSES)
			return tt_fail(
				TT_REMOTE,
				"factor %u of the cost table of rank 0 is of algorithm %u of %u and link class %u "
				"of %d: another version of Tutti?",
				i, f->algorithm, algorithms, f->link, TT_LINK_CLASSES);
	}
	return 0;
}

int tt_cost_unpack(const void *from, size_t bytes, struct tt_cost **ret_cost)
{
	struct tt_cost *cost = malloc(sizeof(*cost));
	size_t factors;

	if (!cost)
		return tt_fail(TT_SYSTEM, "no memory for a cost table");
	if (bytes < sizeof(*cost)) {
		free(cost);
		return tt_fail(TT_SYSTEM, "the cost table of %zu bytes is from another build",
			       bytes);
	}
	memcpy(cost, from, sizeof(*cost));
	factors = cost->nfactors * sizeof(*cost->factors);
	cost->factors = bytes == sizeof(*cost) + factors ? malloc(factors + 1) : NULL;
	if (!cost->factors) {
		tt_cost_free(cost);
		return tt_fail(TT_SYSTEM,
			       "no memory for a cost table, or rank 0's is from another build");
	}
	memcpy(cost->factors, (const char *)from + sizeof(*cost), factors);
	if (check_factors(cost)) {
		tt_cost_free(cost);
		return TT_REMOTE;
	}
	*ret_cost = cost;
	return 0;
}

int tt_cost_copy(const struct tt_cost *cost, struct tt_cost **ret_cost)
{
	size_t bytes = tt_cost_pack(cost, NULL, 0);
	void *packed = malloc(bytes);
	int rc;

	if (!packed)
		return tt_fail(TT_SYSTEM, "no memory for a cost table");
	tt_cost_pack(cost, packed, bytes);
	rc = tt_cost_unpack(packed, bytes, ret_cost);
	free(packed);
	return rc;
}

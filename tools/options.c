/*
 * options.c - parse a command line by a table of options; print the table as help (options.h)
 *
 * Called by the main functions of the tools. getopt_long splits the arguments; options.c parses
 * values, checks ranges and words the errors.
 */
#include "tools/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tutti.h"

enum { VERSION = 255, LONG_ONLY = 256 };

int tool_parse_size(const char *text, uint64_t *ret_bytes)
{
	static const char suffixes[] = "kmgt";
	size_t digits = strspn(text, "0123456789.");
	long double value;
	char *end;

	if (digits == 0)
		return -1;
	value = strtold(text, &end);
	if (end != text + digits)
		return -1;
	if (*end) {
		const char *s = strchr(suffixes, *end | 0x20), *unit = s ? end + 1 : end;

		if (*unit && strcasecmp(unit, "B") && (!s || strcasecmp(unit, "iB")))
			return -1;
		for (const char *c = suffixes; s && c <= s; c++)
			value *= 1024;
	}
	if (value > 0x1p62L)
		return -1;
	*ret_bytes = (uint64_t)value;
	return 0;
}

int tool_parse_number(const char **text, int min, int max)
{
	char *end;
	long value = strtol(*text, &end, 10);

	if (end == *text || **text < '0' || **text > '9' || value < min || value > max)
		return -1;
	*text = end;
	return (int)value;
}

/* Compares text with the |-separated spellings in word[0..length). */
static bool spells(const char *word, size_t length, const char *text)
{
	size_t n = strlen(text);

	for (const char *p = word; p <= word + length;) {
		size_t part = strcspn(p, "| ");

		if (part == n && n > 0 && strncmp(p, text, n) == 0)
			return true;
		p += part + 1;
	}
	return false;
}

int tool_find_word(const char *words, const char *text)
{
	int number = 0;

	for (const char *p = words; *p; number++) {
		size_t length = strcspn(p, " ");

		if (spells(p, length, text))
			return number;
		p += length;
		p += strspn(p, " ");
	}
	return -1;
}

int tool_refuse(const char *tool, const char *format, ...)
{
	va_list args;

	fprintf(stderr, "%s: ", tool);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	return 2;
}

int tool_edit_distance(const char *a, const char *b)
{
	int row[64], na = (int)strlen(a), nb = (int)strlen(b);

	if (nb >= 64)
		return na > nb ? na : nb;
	for (int j = 0; j <= nb; j++)
		row[j] = j;
	for (int i = 1; i <= na; i++) {
		int diagonal = row[0];

		row[0] = i;
		for (int j = 1; j <= nb; j++) {
			int best = diagonal + (a[i - 1] != b[j - 1]);

			diagonal = row[j];
			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			row[j] = best;
		}
	}
	return row[nb];
}

/* ---- one value ------------------------------------------------------------------------------- */

static bool in_range(const struct tool_option *o, double value)
{
	if (o->min == 0 && o->max == 0)
		return value >= 0;
	return value >= o->min && value <= o->max;
}

static const char *read_int(const struct tool_option *o, const char *text, int64_t *field)
{
	int word = o->words ? tool_find_word(o->words, text) : -1;
	char *end;
	long long value;

	if (word >= 0) {
		*field = -1 - word;
		return NULL;
	}
	errno = 0;
	value = strtoll(text, &end, 10);
	if (end == text || *end)
		return "not a whole number";
	if (errno)
		return "out of range";
	*field = value;
	return in_range(o, (double)value) ? NULL : "out of range";
}

static const char *read_real(const struct tool_option *o, const char *text, double *field)
{
	char *end;

	*field = strtod(text, &end);
	if (end == text || *end || *field != *field)
		return "not a number";
	return in_range(o, *field) ? NULL : "out of range";
}

/* Returns NULL, or the reason why text is no value of the option. */
static const char *read_value(const struct tool_option *o, const char *text, void *values)
{
	char *field = (char *)values + o->offset;

	switch (o->kind) {
	case TOOL_OPT_FLAG:
		*(bool *)field = true;
		return NULL;
	case TOOL_OPT_INT:
		return read_int(o, text, (int64_t *)field);
	case TOOL_OPT_REAL:
		return read_real(o, text, (double *)field);
	case TOOL_OPT_SIZE:
		if (tool_parse_size(text, (uint64_t *)field))
			return "not a size";
		return in_range(o, (double)*(uint64_t *)field) ? NULL : "out of range";
	case TOOL_OPT_TEXT:
		*(const char **)field = text;
		return *text ? NULL : "empty";
	case TOOL_OPT_CHOICE:
		*(int *)field = tool_find_word(o->words, text);
		return *(int *)field >= 0 ? NULL : "unknown word";
	}
	return "unknown kind of option";
}

static void set_defaults(const struct tool_option *options, void *values)
{
	static const size_t bytes[] = {
		[TOOL_OPT_FLAG] = sizeof(bool),     [TOOL_OPT_INT] = sizeof(int64_t),
		[TOOL_OPT_SIZE] = sizeof(uint64_t), [TOOL_OPT_REAL] = sizeof(double),
		[TOOL_OPT_TEXT] = sizeof(char *),   [TOOL_OPT_CHOICE] = sizeof(int),
	};

	for (const struct tool_option *o = options; o->name; o++) {
		memset((char *)values + o->offset, 0, bytes[o->kind]);
		if (o->fallback)
			read_value(o, o->fallback, values);
	}
}

/* ---- help and error messages ----------------------------------------------------------------- */

/* Prints the values that the option accepts. */
static void print_domain(const struct tool_option *o, FILE *to)
{
	switch (o->kind) {
	case TOOL_OPT_INT:
	case TOOL_OPT_REAL:
		if (o->min == 0 && o->max == 0)
			fprintf(to, "a number, 0 or more");
		else
			fprintf(to, "%.16g to %.16g", o->min, o->max);
		if (o->words)
			fprintf(to, ", or %s", o->words);
		break;
	case TOOL_OPT_SIZE:
		fprintf(to, "bytes, or with K, M, G, such as 1.5M or 1GiB");
		break;
	case TOOL_OPT_CHOICE:
		fprintf(to, "one of: %s", o->words);
		break;
	default:
		fprintf(to, "use --%s %s", o->name, o->argument);
	}
}

static void print_help(const struct tool_usage *usage)
{
	printf("usage: %s [options]%s%s\n%s\n\n", usage->tool, usage->operands ? " " : "",
	       usage->operands ? usage->operands : "", usage->help);
	for (const struct tool_option *o = usage->options; o->name; o++) {
		char left[64];
		const char *line = o->help;

		snprintf(left, sizeof(left), "%c%c%s--%s%s%s", o->short_name ? '-' : ' ',
			 o->short_name ? o->short_name : ' ', o->short_name ? ", " : "  ", o->name,
			 o->argument ? " " : "", o->argument ? o->argument : "");
		for (bool first = true; line; first = false) {
			int length = (int)strcspn(line, "\n");

			printf("  %-30s  %.*s", first ? left : "", length, line);
			line = line[length] ? line + length + 1 : NULL;
			if (!line && o->fallback)
				printf(" (%s)", o->fallback);
			printf("\n");
		}
	}
	printf("  %-30s  print this list; defaults are in parentheses\n", "-h, --help");
	printf("  %-30s  print the version\n", "    --version");
}

void tool_print_version(const char *tool)
{
	int code = 0;

	tuttiGetVersion(&code);
	printf("%s %d.%d.%d\n", tool, code / 10000, code / 100 % 100, code % 100);
}

static int complain(const struct tool_usage *usage, const struct tool_option *o, const char *text,
		    const char *what)
{
	fprintf(stderr, "%s: --%s%s%s: ", usage->tool, o->name, *text ? " " : "", text);
	if (o->refusal) {
		fprintf(stderr, "%s\n", o->refusal);
		return 2;
	}
	fprintf(stderr, "%s; ", what);
	print_domain(o, stderr);
	fprintf(stderr, "\n");
	return 2;
}

/* Reports an argument that getopt does not know; suggests the long option with the smallest edit
 * distance below 3 (words of up to 6 characters: below 2). */
static int complain_unknown(const struct tool_usage *usage, const char *text, int short_name)
{
	const struct tool_option *nearest = NULL;
	int best = (int)strlen(text) > 6 ? 3 : 2;

	if (short_name && short_name < LONG_ONLY) {
		fprintf(stderr, "%s: -%c: unknown option; %s --help lists them\n", usage->tool,
			short_name, usage->tool);
		return 2;
	}
	for (const struct tool_option *o = usage->options; o->name; o++) {
		char word[64];
		int distance;

		snprintf(word, sizeof(word), "%.*s", (int)strcspn(text + 2, "="), text + 2);
		distance = tool_edit_distance(word, o->name);
		if (distance < best) {
			best = distance;
			nearest = o;
		}
	}
	if (nearest)
		fprintf(stderr, "%s: %s: unknown option; did you mean --%s?\n", usage->tool, text,
			nearest->name);
	else
		fprintf(stderr, "%s: %s: unknown option; %s --help lists them\n", usage->tool, text,
			usage->tool);
	return 2;
}

/* ---- the command line ------------------------------------------------------------------------ */

/* Converts the table into getopt's forms. getopt returns an option's short name as value, or
 * LONG_ONLY + the row's number. */
static void make_tables(const struct tool_option *options, char *shorts, struct option *longs)
{
	int n = 0;

	*shorts++ = ':';
	*shorts++ = 'h';
	for (; options[n].name; n++) {
		const struct tool_option *o = &options[n];

		longs[n] = (struct option){ o->name, o->kind != TOOL_OPT_FLAG, NULL,
					    LONG_ONLY + n };
		if (!o->short_name)
			continue;
		*shorts++ = o->short_name;
		if (o->kind != TOOL_OPT_FLAG)
			*shorts++ = ':';
	}
	longs[n++] = (struct option){ "help", 0, NULL, 'h' };
	longs[n++] = (struct option){ "version", 0, NULL, VERSION };
	longs[n] = (struct option){ NULL, 0, NULL, 0 };
	*shorts = '\0';
}

static const struct tool_option *find_option(const struct tool_option *options, int value)
{
	if (value >= LONG_ONLY)
		return &options[value - LONG_ONLY];
	for (const struct tool_option *o = options; o->name; o++)
		if (o->short_name == value)
			return o;
	return NULL;
}

static char *none[1], **arguments = none; /* beside the options */

static int count_words(const char *text)
{
	int n = text && *text;

	for (; text && *text; text++)
		n += *text == ' ';
	return n;
}

static int read_all(const struct tool_usage *usage, int argc, char **argv, const char *shorts,
		    const struct option *longs, void *values)
{
	int value, most;

	set_defaults(usage->options, values);
	opterr = 0;
	optind = 0;
	while ((value = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
		const struct tool_option *o;
		const char *wrong;

		if (value == 'h') {
			print_help(usage);
			return 1;
		}
		if (value == VERSION) {
			tool_print_version(usage->tool);
			return 1;
		}
		if (value == '?')
			return complain_unknown(usage, argv[optind - 1], optopt);
		o = find_option(usage->options, value == ':' ? optopt : value);
		if (value == ':')
			return complain(usage, o, "", "needs a value");
		wrong = read_value(o, optarg, values);
		if (wrong)
			return complain(usage, o, optarg, wrong);
	}
	arguments = argv + optind;
	most = count_words(usage->operands);
	if (argc - optind > most) {
		fprintf(stderr, "%s: %s: unexpected argument; %s --help lists the options\n",
			usage->tool, arguments[most], usage->tool);
		return 2;
	}
	return 0;
}

int tool_options_read(const struct tool_usage *usage, int argc, char **argv, void *values)
{
	struct option *longs;
	char *shorts;
	size_t n = 0;
	int rc;

	while (usage->options[n].name)
		n++;
	longs = calloc(n + 3, sizeof(*longs)); /* --help, --version and the end */
	shorts = malloc(2 * n + 3);            /* a colon each; ":h" and the end */
	if (!longs || !shorts) {
		fprintf(stderr, "%s: no memory for %zu options\n", usage->tool, n);
		rc = 2;
	} else {
		make_tables(usage->options, shorts, longs);
		rc = read_all(usage, argc, argv, shorts, longs, values);
	}
	free(longs);
	free(shorts);
	return rc;
}

char **tool_arguments(void)
{
	return arguments;
}

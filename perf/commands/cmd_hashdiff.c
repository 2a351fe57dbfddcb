/*
 * cmd_hashdiff.c - `tutti hashdiff`: first step, bucket and element in which two trainings differ
 *
 * Called by the table in tutti_main.c. Reads two files of tutti-train --hashes (tools/hashes.h).
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf/commands/cmd.h"
#include "tools/hashes.h"

/* One of the two files, and its current step. */
struct hash_log {
	const char *path;
	FILE *file;
	struct tool_hashes_header head;
	uint64_t buckets;
	struct tool_hashes_step step;
	uint64_t before; /* step of the record before; 0: none */
	bool ended;
	uint64_t *hash;
	float *value; /* parameters of the last step that recorded them */
};

static int damaged(const struct hash_log *l)
{
	fprintf(stderr,
		"tutti hashdiff: %s: the file ends in the middle of the record after step %" PRIu64
		"; run that training again\n",
		l->path, l->before);
	return 2;
}

static int open_log(struct hash_log *l, const char *path)
{
	l->path = path;
	l->file = fopen(path, "re");
	if (!l->file) {
		fprintf(stderr, "tutti hashdiff: %s: %s\n", path, strerror(errno));
		return 2;
	}
	if (fread(&l->head, sizeof(l->head), 1, l->file) != 1 ||
	    l->head.magic != TOOL_HASHES_MAGIC || !l->head.bucket ||
	    l->head.parameters > UINT64_C(1) << 34) {
		fprintf(stderr, "tutti hashdiff: %s: not a file of tutti-train --hashes\n", path);
		return 2;
	}
	l->buckets = tool_hashes_buckets(l->head.parameters, l->head.bucket);
	l->hash = calloc(l->buckets + 1, sizeof(*l->hash));
	l->value = calloc(l->head.parameters + 1, sizeof(*l->value));
	if (l->hash && l->value)
		return 0;
	fprintf(stderr, "tutti hashdiff: no memory for %" PRIu64 " parameters\n",
		l->head.parameters);
	return 2;
}

static void close_log(struct hash_log *l)
{
	if (l->file)
		fclose(l->file);
	free(l->hash);
	free(l->value);
}

/* Reads the next step, or sets ended. Returns 0 | 2: damaged file, error printed. */
static int next_step(struct hash_log *l)
{
	size_t bytes;

	l->before = l->step.step;
	bytes = fread(&l->step, 1, sizeof(l->step), l->file);
	l->ended = !bytes;
	if (l->ended)
		return 0;
	if (bytes != sizeof(l->step))
		return damaged(l);
	if (fread(l->hash, sizeof(*l->hash), l->buckets, l->file) != l->buckets)
		return damaged(l);
	if (!l->step.values)
		return 0;
	if (fread(l->value, sizeof(*l->value), l->head.parameters, l->file) != l->head.parameters)
		return damaged(l);
	return 0;
}

/* Maps a float to an integer in the order of floats, so that differences count ulps. */
static int64_t ordered(float value)
{
	int32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits < 0 ? (int64_t)INT32_MIN - bits : bits;
}

static void show_element(const struct hash_log *a, const struct hash_log *b, uint64_t bucket)
{
	uint64_t first = bucket * a->head.bucket, last = first + a->head.bucket;

	last = last < a->head.parameters ? last : a->head.parameters;
	for (uint64_t i = first; i < last; i++) {
		int64_t ulps = ordered(a->value[i]) - ordered(b->value[i]);

		if (!memcmp(&a->value[i], &b->value[i], sizeof(float)))
			continue;
		printf("element   %" PRIu64 ": %.9g in %s, %.9g in %s: %" PRId64 " ulp apart\n", i,
		       (double)a->value[i], a->path, (double)b->value[i], b->path,
		       ulps < 0 ? -ulps : ulps);
		return;
	}
}

static int show(const struct hash_log *a, const struct hash_log *b, uint64_t bucket)
{
	uint64_t differ = 0;

	for (uint64_t i = 0; i < a->buckets; i++)
		differ += a->hash[i] != b->hash[i];
	printf("step      %" PRIu64 " is the first that differs\n", a->step.step);
	printf("bucket    %" PRIu64 ": parameters %" PRIu64 " to %" PRIu64 " (%" PRIu64
	       " of %" PRIu64 " buckets differ)\n",
	       bucket, bucket * a->head.bucket, (bucket + 1) * a->head.bucket - 1, differ,
	       a->buckets);
	if (a->step.values && b->step.values)
		show_element(a, b, bucket);
	else
		printf("element   unknown; run both trainings again with --hash-values %" PRIu64
		       "\n",
		       a->step.step);
	return 1;
}

static void show_missing(const struct hash_log *l, uint64_t first, uint64_t last)
{
	printf("missing   step%s %" PRIu64, first == last ? "" : "s", first);
	if (first != last)
		printf(" to %" PRIu64, last);
	printf(" in %s\n", l->path);
}

/* Passes over the steps that one of the files lacks, up to the next one of both, or the end of a file. Returns 0 |
 * 2: error printed */
static int align(struct hash_log *a, struct hash_log *b)
{
	while (!a->ended && !b->ended && a->step.step != b->step.step) {
		struct hash_log *behind = a->step.step < b->step.step ? a : b;
		struct hash_log *ahead = behind == a ? b : a;
		uint64_t first = behind->step.step, last = first;

		if (first <= ahead->before) {
			fprintf(stderr,
				"tutti hashdiff: step %" PRIu64
				" of %s does not match step %" PRIu64
				" of %s; use files of the same training\n",
				a->step.step, a->path, b->step.step, b->path);
			return 2;
		}
		while (!behind->ended && behind->step.step < ahead->step.step) {
			last = behind->step.step;
			if (next_step(behind))
				return 2;
		}
		show_missing(ahead, first, last);
	}
	return 0;
}

/* At the end of a file: no step differs. */
static int show_end(const struct hash_log *a, const struct hash_log *b, uint64_t steps)
{
	if (!steps && (!a->ended || !b->ended || a->before || b->before)) {
		fprintf(stderr,
			"tutti hashdiff: %s and %s have no step in common; use files of the same training\n",
			a->path, b->path);
		return 2;
	}
	printf("no step differs; %" PRIu64 " were compared", steps);
	if (a->ended != b->ended)
		printf("; %s has more steps", a->ended ? b->path : a->path);
	putchar('\n');
	return 0;
}

static int compare(struct hash_log *a, struct hash_log *b)
{
	for (uint64_t steps = 0;; steps++) {
		if (next_step(a) || next_step(b) || align(a, b))
			return 2;
		if (a->ended || b->ended)
			return show_end(a, b, steps);
		for (uint64_t i = 0; i < a->buckets; i++)
			if (a->hash[i] != b->hash[i])
				return show(a, b, i);
	}
}

int tool_cmd_hashdiff(int argc, char **argv)
{
	struct hash_log a = { 0 }, b = { 0 };
	int rc;

	if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		printf("usage: tutti hashdiff A B\nPrints the first step, bucket and element in which two trainings differ. A and B are\n"
		       "files that tutti-train wrote by its option hashes.\n"
		       "Exit status: 0 no difference, 1 a difference, 2 the files cannot be compared.\n");
		return 0;
	}
	if (argc != 3) {
		fprintf(stderr,
			"tutti hashdiff: two files are needed; tutti-train --hashes FILE writes them\n");
		return 2;
	}
	rc = open_log(&a, argv[1]);
	if (!rc)
		rc = open_log(&b, argv[2]);
	if (!rc && (a.head.parameters != b.head.parameters || a.head.bucket != b.head.bucket)) {
		fprintf(stderr,
			"tutti hashdiff: %" PRIu64 " parameters in %s, %" PRIu64
			" in %s; use files of the same model\n",
			a.head.parameters, a.path, b.head.parameters, b.path);
		rc = 2;
	}
	if (!rc)
		rc = compare(&a, &b);
	close_log(&a);
	close_log(&b);
	return rc;
}

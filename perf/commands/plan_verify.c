/*
 * plan_verify.c - prove the algorithms of the table (plan_verify.h)
 *
 * Called by cmd_plan.c, calls plan_prove.c. An algorithm with an argument is proved thoroughly with
 * its default; with every other one it takes, at fewer placements and, above 20, for multiples of 8
 * ranks only.
 *
 * A row is an algorithm with one argument. Threads, one a processor, take rows one after the other;
 * they are printed in the order of the table.
 */
#include "perf/commands/plan_verify.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "algorithms/algorithms.h"
#include "comm/comm.h"

/* ---- all of it ------------------------------------------------------------------------------- */

struct row {
	const struct tt_algorithm *algorithm;
	char argument[64];
	enum tool_thoroughness how;
	char *text;                          /* once it is proved */
	size_t bytes;
	int passed, failed;
	bool done, lost;                     /* lost: no memory for its text */
};

struct work {
	const struct tool_verify *what;
	struct row *rows;
	int nrows, room;
	pthread_mutex_t lock;                /* guards: */
	int next, printed;
};

static void progress(const struct tool_verdict *v, int n)
{
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r%-14s %-32s %d ranks \033[K",
			tt_collective_name(v->algorithm->collective), v->name, n);
}

static void prove_row(const struct tool_verify *what, struct row *row)
{
	struct tool_verdict v = { .algorithm = row->algorithm,
			     .out = open_memstream(&row->text, &row->bytes) };
	uint64_t start = tt_now_ns();

	row->lost = !v.out;
	if (row->lost)
		return;
	tt_algorithm_full_name(row->algorithm, row->argument, v.name);
	for (int n = 1; n <= TOOL_VERIFY_MAX; n++) {
		if (!what->n[n] || (row->how == TOOL_SOME_PLACEMENTS && n > 20 && n % 8))
			continue;
		progress(&v, n);
		tool_prove_ranks(&v, n, row->how);
	}
	fprintf(v.out, "%-14s %-32s %5d passed  %3d failed",
		tt_collective_name(row->algorithm->collective), v.name, v.passed, v.failed);
	if (v.refused)
		fprintf(v.out, "  %4d refused (%s)", v.refused, v.why);
	fprintf(v.out, "  %.1f s\n", (double)(tt_now_ns() - start) / 1e9);
	row->lost = fclose(v.out);
	row->passed = v.passed;
	row->failed = v.failed;
}

/* Those that are done, up to the first that is not; locked. */
static void print_rows(struct work *w)
{
	if (isatty(STDERR_FILENO))
		fputs("\r\033[K", stderr);
	for (; w->printed < w->nrows && w->rows[w->printed].done; w->printed++)
		fputs(w->rows[w->printed].lost ? "no memory\n" : w->rows[w->printed].text, stdout);
	fflush(stdout);
}

static void *prove_rows(void *arg)
{
	struct work *w = arg;

	pthread_mutex_lock(&w->lock);
	while (w->next < w->nrows) {
		struct row *row = &w->rows[w->next++];

		pthread_mutex_unlock(&w->lock);
		prove_row(w->what, row);
		pthread_mutex_lock(&w->lock);
		row->done = true;
		print_rows(w);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

/* This thread is one of those that prove. */
static void prove_all(struct work *w)
{
	enum { MOST = 64 };
	pthread_t threads[MOST];
	struct tt_cores cores;
	int n = 0, wanted;

	tt_cores_mine(&cores);
	wanted = tt_cores_count(&cores, 1) - 1;
	wanted = wanted < MOST ? wanted : MOST;
	wanted = wanted < w->nrows - 1 ? wanted : w->nrows - 1;
	while (n < wanted && !pthread_create(&threads[n], NULL, prove_rows, w))
		n++;
	prove_rows(w);
	while (n > 0)
		pthread_join(threads[--n], NULL);
}

/* ---- which rows ------------------------------------------------------------------------------ */

static bool add_row(struct work *w, const struct tt_algorithm *a, const char *argument,
		    enum tool_thoroughness how)
{
	if (w->nrows == w->room) {
		int room = w->room ? 2 * w->room : 64;
		struct row *more = realloc(w->rows, (size_t)room * sizeof(*more));

		if (!more)
			return false;
		w->rows = more;
		w->room = room;
	}
	w->rows[w->nrows] = (struct row){ .algorithm = a, .how = how };
	snprintf(w->rows[w->nrows++].argument, sizeof(w->rows->argument), "%s", argument);
	return true;
}

/* Every other argument the row takes: names of the table, alone or two joined by '/'. */
static bool add_arguments(struct work *w, const struct tt_algorithm *a)
{
	bool added = true;

	for (int i = 0; a->takes && tt_algorithms[i]; i++) {
		for (int k = -1; k < 0 || tt_algorithms[k]; k++) {
			const char *inner = tt_algorithms[i]->name,
				   *outer = k < 0 ? "" : tt_algorithms[k]->name;
			char argument[64];
			bool again = false;

			for (int e = 0; e < i; e++)
				again |= !strcmp(tt_algorithms[e]->name, inner);
			for (int e = 0; e < k; e++)
				again |= !strcmp(tt_algorithms[e]->name, outer);
			if (snprintf(argument, sizeof(argument), "%s%s%s", inner, *outer ? "/" : "",
				     outer) >= (int)sizeof(argument))
				continue;
			if (!again && a->takes(argument) &&
			    (!a->argument || strcmp(argument, a->argument)))
				added &= add_row(w, a, argument, TOOL_SOME_PLACEMENTS);
		}
	}
	return added;
}

static bool wanted(const struct tool_verify *what, const struct tt_algorithm *a)
{
	size_t length = what->algorithm ? strcspn(what->algorithm, ":") : 0;

	if (what->collective && strcmp(what->collective, tt_collective_name(a->collective)))
		return false;
	return !what->algorithm ||
	       (strlen(a->name) == length && !strncmp(a->name, what->algorithm, length));
}

static const char *names_of(const char *collective, char names[512])
{
	int c = 0;

	while (collective && c < TT_COLLECTIVES &&
	       strcmp(tt_collective_name((enum tt_collective)c), collective))
		c++;
	return tt_algorithm_names(collective ? (enum tt_collective)c : TT_COLLECTIVES, names);
}

/* 0 | 1 no memory | 2 no such algorithm, or argument of it */
static int collect(struct work *w)
{
	const struct tool_verify *what = w->what;
	bool named = what->algorithm && strchr(what->algorithm, ':'), added = true;
	char names[512];

	for (int i = 0; tt_algorithms[i]; i++) {
		const struct tt_algorithm *a = tt_algorithms[i];
		const char *argument;

		if (!wanted(what, a))
			continue;
		if (tt_algorithm_argument(a, what->algorithm ? what->algorithm : a->name,
					  &argument)) {
			fprintf(stderr, "tutti plan: %s\n", tt_error_text());
			return 2;
		}
		added &= add_row(w, a, argument, TOOL_ALL_PLACEMENTS) &&
			 (named || add_arguments(w, a));
	}
	if (!added) {
		fprintf(stderr, "tutti plan: no memory for a list of algorithms\n");
		return 1;
	}
	if (!w->nrows) {
		fprintf(stderr, "tutti plan: no algorithm %s%s%s; there are%s\n",
			what->algorithm ? what->algorithm : "", what->collective ? " for " : "",
			what->collective ? what->collective : "",
			names_of(what->collective, names) + 1);
		return 2;
	}
	return 0;
}

int tool_plan_verify(const struct tool_verify *what)
{
	struct work w = { .what = what, .lock = PTHREAD_MUTEX_INITIALIZER };
	int passed = 0, failed = 0, rc = collect(&w);

	if (!rc)
		prove_all(&w);
	for (int i = 0; i < w.nrows; i++) {
		passed += w.rows[i].passed;
		failed += w.rows[i].failed + w.rows[i].lost;
		free(w.rows[i].text);
	}
	free(w.rows);
	if (rc)
		return rc;
	printf("%d passed, %d failed\n", passed, failed);
	return failed ? 1 : 0;
}

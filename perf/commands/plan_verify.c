/*
 * plan_verify.c - proves the algorithms of the table (plan_verify.h)
 *
 * Called by cmd_plan.c, calls plan_prove.c. An algorithm with its default argument is proved for all
 * placements. With every other argument, the algorithm is proved for fewer placements and, above 20
 * ranks, for multiples of 8 ranks only.
 *
 * A row is an algorithm with one argument. One thread per processor takes rows from the queue; rows
 * are printed in the order of the table.
 */
#include "perf/commands/plan_verify.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "algorithms/algorithms.h"
#include "comm/comm.h"
#include "tools/plural.h"

/* ---- proof of all rows ----------------------------------------------------------------------- */

struct proof_row {
	const struct tt_algorithm *algorithm;
	char argument[64];
	enum tool_thoroughness how;
	char *text; /* output of the proof */
	size_t bytes;
	int passed, failed;
	bool done, lost; /* lost: no memory for text */
};

struct proof_queue {
	const struct tool_verify *request;
	struct proof_row *rows;
	int nrows, room;
	pthread_mutex_t lock; /* guards next, printed and done of the rows */
	int next, printed;    /* number of the next row to prove, to print */
};

static void progress(const struct tool_verdict *v, int n)
{
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r%-14s %-32s %d rank%s \033[K",
			tt_collective_name(v->algorithm->collective), v->name, n, tool_s(n));
}

static void prove_row(const struct tool_verify *request, struct proof_row *row)
{
	struct tool_verdict v = { .algorithm = row->algorithm,
				  .out = open_memstream(&row->text, &row->bytes) };
	uint64_t start = tt_now_ns();

	row->lost = !v.out;
	if (row->lost)
		return;
	tt_algorithm_full_name(row->algorithm, row->argument, v.name);
	for (int n = 1; n <= TOOL_VERIFY_MAX; n++) {
		if (!request->n[n] || (row->how == TOOL_SOME_PLACEMENTS && n > 20 && n % 8))
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

/* Prints finished rows up to the first unfinished one. The caller holds lock. */
static void print_rows(struct proof_queue *w)
{
	if (isatty(STDERR_FILENO))
		fputs("\r\033[K", stderr);
	for (; w->printed < w->nrows && w->rows[w->printed].done; w->printed++)
		fputs(w->rows[w->printed].lost ? "no memory\n" : w->rows[w->printed].text, stdout);
	fflush(stdout);
}

static void *prove_rows(void *arg)
{
	struct proof_queue *w = arg;

	pthread_mutex_lock(&w->lock);
	while (w->next < w->nrows) {
		struct proof_row *row = &w->rows[w->next++];

		pthread_mutex_unlock(&w->lock);
		prove_row(w->request, row);
		pthread_mutex_lock(&w->lock);
		row->done = true;
		print_rows(w);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

/* Proves all rows by one thread per processor; the calling thread is one of them. */
static void prove_all(struct proof_queue *w)
{
	enum { MOST = 64 };
	pthread_t threads[MOST];
	struct tt_cores cores;
	int n = 0, wanted;

	tt_cores_mine(&cores);
	wanted = tt_cores_count(&cores) - 1;
	wanted = wanted < MOST ? wanted : MOST;
	wanted = wanted < w->nrows - 1 ? wanted : w->nrows - 1;
	while (n < wanted && !pthread_create(&threads[n], NULL, prove_rows, w))
		n++;
	prove_rows(w);
	while (n > 0)
		pthread_join(threads[--n], NULL);
}

/* ---- list of rows ---------------------------------------------------------------------------- */

static bool add_row(struct proof_queue *w, const struct tt_algorithm *a, const char *argument,
		    enum tool_thoroughness how)
{
	if (w->nrows == w->room) {
		int room = w->room ? 2 * w->room : 64;
		struct proof_row *more = realloc(w->rows, (size_t)room * sizeof(*more));

		if (!more)
			return false;
		w->rows = more;
		w->room = room;
	}
	w->rows[w->nrows] = (struct proof_row){ .algorithm = a, .how = how };
	snprintf(w->rows[w->nrows++].argument, sizeof(w->rows->argument), "%s", argument);
	return true;
}

/* Adds a row for every other argument of the algorithm: a name of the table, or two joined by '/'. */
static bool add_arguments(struct proof_queue *w, const struct tt_algorithm *a)
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

static bool wanted(const struct tool_verify *request, const struct tt_algorithm *a)
{
	size_t length = request->algorithm ? strcspn(request->algorithm, ":") : 0;

	if (request->collective && strcmp(request->collective, tt_collective_name(a->collective)))
		return false;
	return !request->algorithm ||
	       (strlen(a->name) == length && !strncmp(a->name, request->algorithm, length));
}

static const char *names_of(const char *collective, char names[512])
{
	int c = 0;

	while (collective && c < TT_COLLECTIVES &&
	       strcmp(tt_collective_name((enum tt_collective)c), collective))
		c++;
	return tt_algorithm_names(collective ? (enum tt_collective)c : TT_COLLECTIVES, names);
}

/* Lists the rows. Returns 0 | 1 no memory | 2 no such algorithm or argument. */
static int collect(struct proof_queue *w)
{
	const struct tool_verify *request = w->request;
	bool named = request->algorithm && strchr(request->algorithm, ':'), added = true;
	char names[512];

	for (int i = 0; tt_algorithms[i]; i++) {
		const struct tt_algorithm *a = tt_algorithms[i];
		const char *argument;

		if (!wanted(request, a))
			continue;
		if (tt_algorithm_argument(a, request->algorithm ? request->algorithm : a->name,
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
		fprintf(stderr, "tutti plan: no algorithm %s%s%s; the algorithms are%s\n",
			request->algorithm ? request->algorithm : "",
			request->collective ? " for " : "",
			request->collective ? request->collective : "",
			names_of(request->collective, names) + 1);
		return 2;
	}
	return 0;
}

int tool_plan_verify(const struct tool_verify *request)
{
	struct proof_queue w = { .request = request, .lock = PTHREAD_MUTEX_INITIALIZER };
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

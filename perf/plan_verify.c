/*
 * plan_verify.c - prove the algorithms of the table (plan_verify.h)
 *
 * For each algorithm and number of ranks: every root (up to 8 ranks; then 0, 1 and the last), and,
 * where the plan depends on who shares a host, many placements (placements.h). Each time the plans
 * are proved as the author wrote them, as they are run (compiled), and as they are run where every
 * block is a message of its own (expanded); tt_plan_check_forms also holds them against each other.
 * An algorithm with an argument is proved thoroughly with its default; with every other one it
 * takes, at fewer placements and, above 20, for multiples of 8 ranks only.
 *
 * A row is an algorithm with one argument. Threads, one a processor, take rows one after the other;
 * they are printed in the order of the table.
 */
#include "perf/plan_verify.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "algorithms/algorithm.h"
#include "comm/comm.h"
#include "perf/placements.h"
#include "plan/check.h"

enum { SHOWN = 3 };                          /* failures of an algorithm printed in full */

struct verdict {
	FILE *out;                           /* the row's lines */
	const struct tt_algorithm *algorithm;
	char name[64];
	int passed, failed, refused;
	char why[200];                       /* the first refusal */
};

/* ---- one proof ------------------------------------------------------------------------------- */

typedef int build_fn(const struct tt_algorithm *, const char *, const struct tt_shape *,
		     struct tt_plan **);

static void free_plans(struct tt_plan **plans, int n)
{
	for (int r = 0; r < n; r++) {
		tt_plan_free(plans[r]);
		plans[r] = NULL;
	}
}

/* The plans of all ranks. 0 | TT_ARG refused | < 0; nothing is left on failure. */
static int build(const struct verdict *v, build_fn *fn, const struct tt_topology *topology,
		 int root, struct tt_plan **ret_plans)
{
	for (int r = 0; r < topology->nranks; r++) {
		struct tt_shape shape = { .collective = v->algorithm->collective,
					  .nranks = topology->nranks, .rank = r, .root = root,
					  .topology = topology };
		int rc = fn(v->algorithm, v->name, &shape, &ret_plans[r]);

		if (rc)
			free_plans(ret_plans, r);
		if (r && rc == TT_ARG)
			return tt_fail(TT_USAGE, "rank %d refuses what rank 0 accepts: %s", r,
				       tt_error_text());
		if (rc)
			return rc;
	}
	return TT_OK;
}

/* The plans with every block a message of its own. */
static int expand(struct tt_plan *const *plans, int n, struct tt_plan **ret_plans)
{
	for (int r = 0; r < n; r++) {
		int rc = tt_plan_expand(plans[r], &ret_plans[r]);

		if (rc) {
			free_plans(ret_plans, r);
			return rc;
		}
	}
	return TT_OK;
}

static bool has_long_steps(struct tt_plan *const *plans, int n)
{
	for (int r = 0; r < n; r++)
		for (uint32_t lane = 0; lane < plans[r]->nlanes; lane++)
			for (uint32_t i = 0; i < plans[r]->lanes[lane].nsteps;) {
				const struct tt_step *s = tt_lane_step(plans[r], lane, i);

				if (s->nblocks > 1)
					return true;
				i += tt_step_records(s);
			}
	return false;
}

static void complain(const struct verdict *v, const struct tt_placement *p, int root,
		     const char *form)
{
	char placement[100];

	fprintf(v->out, "%s %s, %d ranks, root %d, %s, %s: %s\n",
		tt_collective_name(v->algorithm->collective), v->name, p->topology.nranks, root,
		tt_placement_text(p, placement, sizeof(placement)), form, tt_error_text());
}

static void prove(struct verdict *v, const struct tt_placement *p, int root)
{
	static const char *const form_name[] = { "as written", "compiled", "expanded" };
	struct tt_plan *plans[3][TT_MAX_PLACED] = { { NULL } };
	struct tt_plan *const *const forms[] = { plans[0], plans[1], plans[2] };
	int n = p->topology.nranks, nforms = 2, form = 0;
	int rc = build(v, tt_plan_build_plain, &p->topology, root, plans[0]);

	if (rc == TT_ARG) {
		if (!v->refused++)
			snprintf(v->why, sizeof(v->why), "%s", tt_error_text());
		return;
	}
	if (!rc)
		rc = build(v, tt_plan_build, &p->topology, root, plans[1]);
	if (!rc && has_long_steps(plans[1], n)) {
		rc = expand(plans[1], n, plans[2]);
		nforms = 3;
	}
	if (!rc)
		rc = tt_plan_check_forms(forms, nforms, n, &form);
	if (rc && v->failed++ < SHOWN)
		complain(v, p, root, form_name[form]);
	v->passed += !rc;
	for (int i = 0; i < 3; i++)
		free_plans(plans[i], n);
}

/* ---- what is to be proved for one number of ranks -------------------------------------------- */

static bool same_plan(const struct tt_plan *a, const struct tt_plan *b)
{
	return a->nsteps == b->nsteps && a->nlanes == b->nlanes && a->nblocks == b->nblocks &&
	       !memcmp(a->lanes, b->lanes, a->nlanes * sizeof(*a->lanes)) &&
	       !memcmp(a->steps, b->steps, a->nsteps * sizeof(*a->steps));
}

/* Does the plan look at who shares a host? Told by comparing one host with two halves, and with two
 * hosts dealt out. */
static bool sees_hosts(const struct verdict *v, int n)
{
	struct tt_plan *flat[TT_MAX_PLACED] = { NULL }, *split[TT_MAX_PLACED] = { NULL };
	int halves[2] = { n - n / 2, n / 2 };
	bool differs = n < 4;                /* few placements: take them all */

	for (int dealt = 0; dealt < 2 && !differs; dealt++) {
		struct tt_placement one, two;

		tt_placement_dealt(n, 1, &one);
		if (dealt)
			tt_placement_dealt(n, 2, &two);
		else
			tt_placement_consecutive(halves, 2, &two);
		int first = build(v, tt_plan_build_plain, &one.topology, 0, flat);
		int second = build(v, tt_plan_build_plain, &two.topology, 0, split);

		differs = first != second;
		for (int r = 0; r < n && !first && !second; r++)
			differs |= !same_plan(flat[r], split[r]);
		free_plans(flat, n);
		free_plans(split, n);
	}
	return differs;
}

static void prove_ranks(struct verdict *v, int n, enum tt_thoroughness how)
{
	bool hosts = sees_hosts(v, n), rooted = tt_collective_rooted(v->algorithm->collective);
	struct tt_placement p;

	for (uint32_t k = 0; (k == 0 || hosts) && tt_placement_number(n, how, k, &p); k++) {
		prove(v, &p, 0);
		for (int root = 1; root < (rooted ? n : 1); root++)
			if (n <= 8 || root == 1 || root == n - 1)
				prove(v, &p, root);
	}
}

/* ---- all of it ------------------------------------------------------------------------------- */

struct row {
	const struct tt_algorithm *algorithm;
	char argument[64];
	enum tt_thoroughness how;
	char *text;                          /* once it is proved */
	size_t bytes;
	int passed, failed;
	bool done, lost;                     /* lost: no memory for its text */
};

struct work {
	const struct tt_verify *what;
	struct row *rows;
	int nrows, room;
	pthread_mutex_t lock;                /* guards: */
	int next, printed;
};

static void progress(const struct verdict *v, int n)
{
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r%-14s %-32s %d ranks \033[K",
			tt_collective_name(v->algorithm->collective), v->name, n);
}

static void prove_row(const struct tt_verify *what, struct row *row)
{
	struct verdict v = { .algorithm = row->algorithm,
			     .out = open_memstream(&row->text, &row->bytes) };
	uint64_t start = tt_now_ns();

	row->lost = !v.out;
	if (row->lost)
		return;
	tt_algorithm_full_name(row->algorithm, row->argument, v.name);
	for (int n = 1; n <= TT_VERIFY_MAX; n++) {
		if (!what->n[n] || (row->how == TT_SOME_PLACEMENTS && n > 20 && n % 8))
			continue;
		progress(&v, n);
		prove_ranks(&v, n, row->how);
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
		    enum tt_thoroughness how)
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
				added &= add_row(w, a, argument, TT_SOME_PLACEMENTS);
		}
	}
	return added;
}

static bool wanted(const struct tt_verify *what, const struct tt_algorithm *a)
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
	const struct tt_verify *what = w->what;
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
		added &= add_row(w, a, argument, TT_ALL_PLACEMENTS) &&
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

int tt_plan_verify(const struct tt_verify *what)
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

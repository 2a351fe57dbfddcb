/*
 * survival_rank.c - the process of a rank: joins, calls until an error, leaves
 *
 * Called by survival_scene.c in a forked process. A rank compares its descriptors and threads before
 * the join with those after it has left.
 */
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/descriptors.h"
#include "tests/survival/survival.h"

#define SETTLE_MS 10000 /* for the kernel to end a thread that was joined */

uint64_t scene_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void scene_pause_us(unsigned us)
{
	nanosleep(&(struct timespec){ .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000L },
		  NULL);
}

void scene_problem(struct scene_rank *w, const char *format, ...)
{
	char *text = w->report->problem;
	size_t have = strlen(text), room = sizeof(w->report->problem) - have;
	va_list args;

	if (have && room > 3)
		have += (size_t)snprintf(text + have, room, "; ");
	va_start(args, format);
	vsnprintf(text + have, sizeof(w->report->problem) - have, format, args);
	va_end(args);
}

tuttiResult_t scene_failed(struct scene_rank *w, tuttiResult_t rc, const char *text)
{
	w->report->code = rc;
	snprintf(w->report->text, sizeof(w->report->text), "%s", text);
	return rc;
}

void scene_call(struct scene_rank *w, const char *name)
{
	snprintf(w->report->doing, sizeof(w->report->doing), "%s", name);
	w->begin_ns = scene_now_ns();
}

/* Ranks that this rank can count on: survivors; in a cut, those of its side. */
static int count_peers(const struct scene_rank *w)
{
	int n = 0;

	for (int r = 0; r < w->s->n; r++)
		n += w->s->kind == SCENE_CUT || !w->s->victim[r];
	return n;
}

void scene_meet(struct scene_rank *w)
{
	snprintf(w->report->doing, sizeof(w->report->doing), SCENE_WAITS);
	w->sh->finished++;
	while (w->sh->finished < count_peers(w))
		scene_pause_us(500);
}

/* ---- what is left ---------------------------------------------------------------------------- */

static void list_descriptors(char *text, size_t bytes)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *e;
	size_t have = 0;
	char name[128];

	while (dir && (e = readdir(dir)) && have + 1 < bytes) {
		ssize_t n = readlinkat(dirfd(dir), e->d_name, name, sizeof(name) - 1);

		if (n > 0)
			have += (size_t)snprintf(text + have, bytes - have, " %.*s", (int)n, name);
	}
	if (dir)
		closedir(dir);
}

static void compare(struct scene_rank *w, int descriptors, int threads)
{
	uint64_t until = scene_now_ns() + SETTLE_MS * 1000000ull;
	char text[800] = "";

	while ((count_descriptors() > descriptors || count_threads() > threads) &&
	       scene_now_ns() < until)
		scene_pause_us(1000);
	if (count_threads() > threads)
		scene_problem(w, "%d threads are left of %d", count_threads(), threads);
	if (count_descriptors() <= descriptors)
		return;
	list_descriptors(text, sizeof(text));
	scene_problem(w, "%d descriptors are left of %d:%s", count_descriptors(), descriptors,
		      text);
}

/* ---- a rank ---------------------------------------------------------------------------------- */

static void set_environment(const struct scene *s, int rank)
{
	char host[16];

	if (s->kind == SCENE_CUT)
		snprintf(host, sizeof(host), "side%d", s->victim[rank]);
	else
		snprintf(host, sizeof(host), "host%d", s->hosts ? rank * s->hosts / s->n : 0);
	if (s->hosts || s->kind == SCENE_CUT)
		setenv("TUTTI_HOST_ID", host, 1);
	setenv("TUTTI_WAIT", s->wait, 1);
	setenv("TUTTI_CMA", s->cma, 1);
	setenv("TUTTI_SHRINK", s->shrink, 1);
}

static bool join(struct scene_rank *w)
{
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	tuttiResult_t rc;

	config.timeout_ms = w->s->timeout_ms;
	config.transport = !strcmp(w->s->transport, "mixed") ? "auto" : w->s->transport;
	config.algo = w->s->algo;
	scene_call(w, "join");
	rc = tuttiCommInitRankConfig(&w->comm, w->s->n, w->sh->id, w->rank, &config);
	if (rc)
		scene_failed(w, rc, tuttiGetLastError(NULL));
	else
		w->sh->njoined++;
	w->report->joined = !rc;
	return !rc;
}

/* Victims that live on (stopped, then woken) end with any error. */
static bool is_judged(const struct scene_rank *w)
{
	return !w->s->victim[w->rank] || w->s->kind == SCENE_CUT;
}

static void call_until_error(struct scene_rank *w)
{
	const struct scene_phase *phase = &scene_phases[w->s->phase];
	tuttiResult_t rc = tuttiSuccess;

	while (!phase->joining && w->sh->njoined < w->s->n && !w->sh->late_join)
		scene_pause_us(200);
	if (w->sh->late_join)
		return;
	for (uint64_t i = 0; !rc && !w->ended; i++) {
		rc = phase->round(w, i);
		w->report->rounds++;
	}
	if (!is_judged(w))
		return;
	if (rc)
		scene_judge_error(w);
	if (w->comm)
		scene_judge_states(w);
}

static void leave(struct scene_rank *w)
{
	uint64_t begin = scene_now_ns();

	scene_call(w, "destroy");
	if (w->stream)
		tuttiStreamDestroy(w->stream);
	tuttiCommDestroy(w->before);
	tuttiCommDestroy(w->comm);
	if (w->comm)
		w->report->leave_ms = (double)(scene_now_ns() - begin) * 1e-6;
}

_Noreturn void scene_rank_main(struct scene_shared *sh, int rank)
{
	struct scene_rank w = {
		.s = &sh->scene, .sh = sh, .report = &sh->rank[rank], .rank = rank
	};
	int descriptors = count_descriptors() - sh->reserved, threads = count_threads();

	set_environment(w.s, rank);
	w.in = malloc(SCENE_ELEMENTS * sizeof(int));
	w.out = malloc(SCENE_ELEMENTS * sizeof(int));
	sh->ready++;
	while (!sh->go)
		scene_pause_us(200);
	if (join(&w))
		call_until_error(&w);
	else if (!scene_phases[w.s->phase].joining)
		sh->late_join = true;
	else if (is_judged(&w))
		scene_judge_error(&w);
	leave(&w);
	if (!is_judged(&w)) /* a woken victim may find anything, but leaves nothing behind */
		w.report->problem[0] = '\0';
	compare(&w, descriptors, threads);
	free(w.in);
	free(w.out);
	free(w.state);
	w.report->done = true;
	_exit(0);
}

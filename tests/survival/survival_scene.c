/*
 * survival_scene.c - the process of a scene: starts the ranks, injects the fault, waits for the
 * survivors, and finds what is left
 *
 * Called by survival.c in a forked process that adopts every process whose parent dies, so no
 * descendant of a rank escapes the check. When the process is killed, the kernel kills the ranks.
 */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/descriptors.h"
#include "tests/survival/survival.h"

#define TICK_US 1000
#define JOIN_S 120 /* the longest time for anything without a deadline of its own */

struct staging {
	struct scene_shared *sh;
	const struct scene *s;
	struct scene_networks nets;
	pid_t pids[SCENE_RANKS]; /* 0: has ended */
	uint64_t ticked_ns;      /* end of the latest sleep, 0: none */
	struct scene_watch watch;
};

static void problem(struct staging *g, const char *text, int rank)
{
	size_t have = strlen(g->sh->problem);

	if (rank >= 0)
		snprintf(g->sh->problem + have, sizeof(g->sh->problem) - have, "rank %d %s; ", rank,
			 text);
	else
		snprintf(g->sh->problem + have, sizeof(g->sh->problem) - have, "%s; ", text);
}

/* Sleeps, and measures by how much the sleep overran; from the sleep before, since this process may
 * also be delayed while it is awake. */
static void tick(struct staging *g)
{
	uint64_t begin = g->ticked_ns ? g->ticked_ns : scene_now_ns(), took;

	scene_pause_us(TICK_US);
	g->ticked_ns = scene_now_ns();
	took = g->ticked_ns - begin - TICK_US * 1000u;
	if (took > g->sh->delay_ns)
		g->sh->delay_ns = took;
	scene_watch_turns(&g->watch, g->pids, g->s->n, g->ticked_ns, g->sh);
}

/* ---- start ----------------------------------------------------------------------------------- */

/* A fake libibverbs that this process has opened is the one that the library finds by name. */
static bool open_fake(struct staging *g)
{
	if (strcmp(g->s->transport, "verbs"))
		return true;
	if (!dlopen(FAKE_VERBS, RTLD_NOW | RTLD_GLOBAL)) {
		problem(g, dlerror(), -1);
		return false;
	}
	return true;
}

static bool prepare(struct staging *g, const char *folder)
{
	char path[200];
	int root_side = g->s->kind == SCENE_CUT && g->s->victim[0];

	prctl(PR_SET_CHILD_SUBREAPER, 1);
	setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
	if (!open_fake(g))
		return false;
	g->nets = (struct scene_networks){ { -1, -1 }, { -1, -1 } };
	if (g->sh->has_networks && !scene_isolate(g->s->kind == SCENE_CUT, &g->nets)) {
		problem(g, "no networks for this scene", -1);
		return false;
	}
	snprintf(path, sizeof(path), "%s/verbs-fake", g->sh->has_networks ? "/tmp" : folder);
	setenv("TUTTI_TEST_VERBS", path, 1);
	scene_enter(&g->nets, root_side);
	g->sh->reserved = -count_descriptors();
	if (tuttiGetUniqueId(&g->sh->id)) {
		problem(g, tuttiGetLastError(NULL), -1);
		return false;
	}
	g->sh->reserved += count_descriptors();
	return true;
}

static void start(struct staging *g)
{
	for (int r = 0; r < g->s->n; r++) {
		pid_t parent = getpid(), pid = fork();

		if (pid < 0) {
			problem(g, strerror(errno), r);
			exit(1);
		}
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (getppid() != parent)
				_exit(1);
			scene_enter(&g->nets, g->s->kind == SCENE_CUT && g->s->victim[r]);
			scene_rank_main(g->sh, r);
		}
		g->pids[r] = pid;
		g->sh->rank[r].pid = pid;
	}
}

/* ---- ends ------------------------------------------------------------------------------------ */

static bool is_victim(const struct staging *g, int r)
{
	return g->s->victim[r] && g->s->kind != SCENE_CUT;
}

/* Collects ranks that have ended; a survivor ends by itself, with status 0. */
static int reap(struct staging *g)
{
	int status, left = 0;
	char text[128];

	for (int r = 0; r < g->s->n; r++) {
		if (g->pids[r] && waitpid(g->pids[r], &status, WNOHANG) == g->pids[r]) {
			g->pids[r] = 0;
			snprintf(text, sizeof(text), "ended by signal %d in %s",
				 WIFSIGNALED(status) ? WTERMSIG(status) : 0, g->sh->rank[r].doing);
			if (WIFSIGNALED(status) &&
			    !(is_victim(g, r) && WTERMSIG(status) == SIGKILL))
				problem(g, text, r);
			else if (WIFEXITED(status) && !g->sh->rank[r].done)
				problem(g, "exited before its end", r);
		}
		left += g->pids[r] && !is_victim(g, r);
	}
	return left;
}

static void kill_all(struct staging *g)
{
	for (int r = 0; r < g->s->n; r++)
		if (g->pids[r])
			kill(g->pids[r], SIGKILL);
	for (int r = 0; r < g->s->n; r++)
		if (g->pids[r])
			waitpid(g->pids[r], NULL, 0);
}

/* Names the ranks that hang and wait for others (waiting), or those that hang by themselves. */
static void name_hanging_ranks(struct staging *g, const char *when, bool waiting)
{
	char text[160];

	for (int r = 0; r < g->s->n; r++) {
		const struct scene_report *w = &g->sh->rank[r];

		if (!g->pids[r] || w->done || !strcmp(w->doing, SCENE_WAITS) != waiting)
			continue;
		snprintf(text, sizeof(text), "(pid %d) hangs %s, in %s, round %llu",
			 (int)g->pids[r], when, w->doing, (unsigned long long)w->rounds);
		problem(g, text, r);
	}
}

static void name_hanging(struct staging *g, const char *when)
{
	name_hanging_ranks(g, when, false);
	name_hanging_ranks(g, when, true);
}

/* ---- the fault ------------------------------------------------------------------------------- */

static bool await(struct staging *g, atomic_int *count, int want)
{
	uint64_t until = scene_now_ns() + JOIN_S * 1000000000ull;

	while (*count < want && !g->sh->late_join && scene_now_ns() < until) {
		reap(g);
		tick(g);
	}
	return *count >= want;
}

static void wait_us(struct staging *g, unsigned us)
{
	uint64_t until = scene_now_ns() + us * 1000ull;

	while (scene_now_ns() + TICK_US * 1000u < until)
		tick(g);
	while (scene_now_ns() < until)
		;
}

static void strike(struct staging *g)
{
	const struct scene *s = g->s;
	int struck = 0;

	wait_us(g, s->delay_us);
	g->sh->fault_ns = scene_now_ns();
	if (s->kind == SCENE_CUT && !scene_cut_link(&g->nets, s->cut))
		problem(g, "the link cannot be cut", -1);
	for (int k = 0; k < s->n && s->kind != SCENE_CUT; k++) {
		int r = (k + (int)(s->seed % (unsigned)s->n)) % s->n;

		if (!s->victim[r])
			continue;
		if (struck++)
			wait_us(g, s->spread_us / (unsigned)(s->nvictims - 1));
		kill(g->pids[r], s->kind == SCENE_KILL ? SIGKILL : SIGSTOP);
	}
	g->sh->faulted = true;
}

/* The longest time in which a scene may end: some deadlines one after the other. */
static uint64_t limit_ns(const struct staging *g)
{
	uint64_t deadline = g->s->kind == SCENE_KILL ? 45000 : 10 * (uint64_t)g->s->timeout_ms;

	return (30000 + deadline) * 1000000ull + 200 * g->sh->delay_ns;
}

static void await_survivors(struct staging *g)
{
	uint64_t begin = scene_now_ns();

	while (reap(g) && scene_now_ns() < begin + limit_ns(g))
		tick(g);
	if (reap(g))
		name_hanging(g, "after the fault");
}

/* Stopped victims end by themselves once they continue. */
static void wake(struct staging *g)
{
	uint64_t begin = scene_now_ns();
	int left;

	for (int r = 0; r < g->s->n; r++)
		if (g->pids[r])
			kill(g->pids[r], SIGCONT);
	do {
		left = 0;
		tick(g);
		reap(g);
		for (int r = 0; r < g->s->n; r++)
			left += g->pids[r] != 0;
	} while (left && scene_now_ns() < begin + limit_ns(g));
	if (left)
		name_hanging(g, "after it continued");
}

/* ---- all ------------------------------------------------------------------------------------- */

static void find_left(struct staging *g)
{
	char text[300];
	pid_t pid;

	while ((pid = waitpid(-1, NULL, WNOHANG)) >= 0) {
		if (pid == 0)
			problem(g, "a process is left", -1);
		if (pid == 0)
			break;
	}
	if (!g->sh->has_networks)
		return;
	scene_find_left(&g->nets, text, sizeof(text));
	if (text[0]) {
		problem(g, "left behind:", -1);
		problem(g, text, -1);
	}
}

void scene_run(struct scene_shared *sh)
{
	struct staging *g = &(struct staging){ .sh = sh, .s = &sh->scene };
	uint64_t begin = scene_now_ns();
	char folder[] = "/tmp/survivalXXXXXX", path[64];

	signal(SIGINT, SIG_IGN); /* main ends scenes */
	if (!sh->has_networks && !mkdtemp(folder)) {
		problem(g, strerror(errno), -1);
		return;
	}
	if (prepare(g, folder)) {
		start(g);
		await(g, &sh->ready, sh->scene.n);
		sh->go = true;
		if (scene_phases[g->s->phase].joining || await(g, &sh->njoined, sh->scene.n))
			strike(g);
		await_survivors(g);
		if (sh->scene.wake && !sh->problem[0] && !sh->late_join)
			wake(g);
		if (!strcmp(g->s->shrink, "majority") && scene_sides(sh) == 3)
			problem(g, "both sides of the cut go on, under shrink=majority", -1);
		kill_all(g);
		find_left(g);
	}
	snprintf(path, sizeof(path), "%s/verbs-fake", folder);
	unlink(path);
	rmdir(folder);
	sh->wall_s = (double)(scene_now_ns() - begin) * 1e-9;
}

/*
 * survival_machine.c - the longest time for which a rank could run, and the machine did not run it
 *
 * Called by the process of a scene, which may run meanwhile: a kernel may not run some processes for seconds, while
 * the sleeps of others end in time (docs/results/survival.md). The kernel counts the time for which a thread waits for a
 * processor when the thread gets one. So a count that has grown by more than the time since the look before it is of
 * one wait.
 */
#include <stdio.h>
#include <string.h>

#include "tests/survival/survival.h"

#define LOOK_NS 500000000ull

static bool read_line(pid_t pid, const char *name, char *line, int bytes)
{
	char path[64];
	FILE *file;
	bool got;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	file = fopen(path, "r");
	got = file && fgets(line, bytes, file);
	if (file)
		fclose(file);
	return got;
}

static bool is_runnable(pid_t pid)
{
	char line[512],
		*end = read_line(pid, "stat", line, sizeof(line)) ? strrchr(line, ')') : NULL;

	return end && !strncmp(end, ") R", 3);
}

/* The time of the wait that has ended since the look before, or that lasts; of the main thread. */
static uint64_t waited_ns(struct scene_turns *t, pid_t pid, uint64_t now)
{
	unsigned long long ran, waited, turns;
	struct scene_turns before = *t;
	char line[128];

	if (!read_line(pid, "schedstat", line, sizeof(line)) ||
	    sscanf(line, "%llu %llu %llu", &ran, &waited, &turns) != 3)
		return 0;
	if (before.since_ns && turns == before.turns)
		return is_runnable(pid) ? now - before.since_ns : 0;
	*t = (struct scene_turns){ .turns = turns, .waited_ns = waited, .since_ns = now };
	return before.since_ns ? waited - before.waited_ns : 0;
}

void scene_watch_turns(struct scene_watch *w, const pid_t *pids, int n, uint64_t now,
		       struct scene_shared *sh)
{
	if (now < w->due_ns)
		return;
	w->due_ns = now + LOOK_NS;
	for (int r = 0; r < n; r++) {
		uint64_t ns = pids[r] ? waited_ns(&w->rank[r], pids[r], now) : 0;

		if (ns > sh->unrun_ns)
			sh->unrun_ns = ns;
	}
}

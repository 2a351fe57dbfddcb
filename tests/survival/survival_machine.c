/*
 * survival_machine.c - the longest time for which a rank could run, and the machine did not run it
 *
 * Called by the process of a scene, which may run meanwhile: a kernel may not run some processes for seconds, while
 * the sleeps of others end in time (docs/results/survival.md). The kernel counts the time for which a thread waits for a
 * processor when the thread gets one. So a count that has grown by more than the time since the look before has the end of
 * a wait that began before that look.
 */
#include <inttypes.h>
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

/* The time of one wait of the main thread that has ended since the look before, or that lasts; 0: none is known. Waits
 * that ended count only if they took longer than the time between the looks: shorter ones may be several. One lasts since
 * a look if the thread could run then and now, and has not run between them. */
static uint64_t waited_ns(struct scene_turns *t, pid_t pid)
{
	struct scene_turns before = *t, look = { .begin_ns = scene_now_ns() };
	char line[128];
	uint64_t grown;

	if (!read_line(pid, "schedstat", line, sizeof(line)) ||
	    sscanf(line, "%" SCNu64 " %" SCNu64 " %" SCNu64, &look.ran_ns, &look.waited_ns,
		   &look.turns) != 3)
		return 0;
	look.runnable = is_runnable(pid);
	look.since_ns = scene_now_ns();
	*t = look;
	if (!before.begin_ns)
		return 0;
	grown = look.waited_ns - before.waited_ns;
	if (look.turns != before.turns)
		return grown > look.since_ns - before.begin_ns ? grown : 0;
	if (!look.runnable || !before.runnable || look.ran_ns != before.ran_ns)
		return 0;
	t->since_ns = before.since_ns;
	return look.begin_ns - before.since_ns;
}

void scene_watch_turns(struct scene_watch *w, const pid_t *pids, int n, uint64_t now,
		       struct scene_shared *sh)
{
	if (now < w->due_ns)
		return;
	w->due_ns = now + LOOK_NS;
	for (int r = 0; r < n; r++) {
		uint64_t ns = pids[r] ? waited_ns(&w->rank[r], pids[r]) : 0;

		if (ns > sh->unrun_ns)
			sh->unrun_ns = ns;
	}
}

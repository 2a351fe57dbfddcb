/*
 * spawn.h - start the ranks of a tool as local processes, and wait for them
 *
 * Called by the main functions of perf/ and trainer/ for --np. The parent only forks and waits. The
 * parent must not have created a thread or a communicator before (tuttiGetUniqueId is allowed).
 */
#ifndef TOOL_SPAWN_H
#define TOOL_SPAWN_H

#include <stdbool.h>
#include <stdint.h>

struct tool_spawn {
	const char *tool; /* name of the tool, for messages */
	int processes;
	int ranks_each;                      /* ranks per process; process p: p * ranks_each ... */
	int (*main)(int process, void *ctx); /* main of the child; returns the exit status */
	void *ctx;
	bool lenient; /* report a death by signal, but keep the others */
};

/*
 * Forks the processes and waits for all of them.
 *   Returns  0 if all processes exit with 0, 2 if one exits with 2, else the exit status of the
 *            first failed process (1 for a death by signal, reported on stderr). Ranks that still run 5 s after a failure
 *            are killed. Lenient: a death by signal is no failure, unless all processes die.
 *   Signals  INT, TERM and HUP are forwarded; after the ranks have ended, the parent dies of the
 *            same signal. The parent dies of PIPE if a rank writes to a closed pipe. If the parent
 *            is killed, the kernel kills the ranks (PR_SET_PDEATHSIG).
 */
int tool_spawn(const struct tool_spawn *launch);

/* Is this process one of several that a launcher started? With --np each of them would start a job of its
 * own: rank 0 prints that, once. */
bool tool_is_launched_twice(const char *tool, int64_t np);

/* Binds the calling thread to processor number `index` of the allowed ones. Order: the first
 * hardware thread of each core, then the second ones; the index wraps around. Returns the
 * processor's number, or -1: the kernel refused. */
int tool_pin(int index);

#endif

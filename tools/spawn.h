/*
 * spawn.h - start ranks of a tool as processes of this host, and wait for them
 *
 * Called by the mains of perf/ and trainer/ for --np. The parent only launches and waits: it must
 * not have made a thread or a communicator before (an id of tuttiGetUniqueId is fine).
 */
#ifndef TOOL_LAUNCH_H
#define TOOL_LAUNCH_H

#include <stdbool.h>

struct tool_spawn {
	const char *tool;                       /* its name, for messages */
	int processes;
	int ranks_each;                         /* process p: ranks p * ranks_each and so on */
	int (*main)(int process, void *ctx);    /* in the child; gives its exit status */
	void *ctx;
	bool lenient;                           /* a death by signal is told, and ends no others */
};

/*
 * Forks the processes and waits for all of them.
 *   Returns  0 when all ended with 0, else the exit status of the first that failed (1 for one that
 *            died of a signal; which and how goes to stderr). Ranks that outlive a failed one by
 *            5 s are killed. Lenient: a death by signal is no failure, unless all die.
 *   Signals  INT, TERM and HUP are passed on; when the ranks are gone the parent dies of the same
 *            signal, as it does of PIPE when a rank writes to a reader that has gone away. A parent
 *            that is killed takes its ranks with it.
 */
int tool_spawn(const struct tool_spawn *launch);

/* Binds the calling thread to the index-th processor it may use: one of each core first, then the
 * second hardware threads; starts over when there are fewer. Returns the processor's number, or -1
 * when the kernel refused. */
int tool_pin(int index);

#endif

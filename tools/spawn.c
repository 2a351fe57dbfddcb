/*
 * spawn.c - fork the ranks of a tool, forward signals, collect exit statuses (spawn.h)
 *
 * Called by the main functions of perf/ and trainer/. The parent has no signal handlers: signals are
 * blocked and fetched by sigtimedwait.
 */
#include "tools/spawn.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "launch/launch.h"
#include "tools/options.h"

enum { GRACE_MS = 5000, GRACE_SIGNAL_MS = 3000 };

struct process_fleet {
	const struct tool_spawn *launch;
	pid_t *pids; /* [processes]; 0: ended */
	int alive;
	int status;          /* exit status of the first failed process, or of a later 2 */
	int ended;           /* number of processes that called exit */
	int signal;          /* signal that ends ranks and parent; SIGKILL: ranks only; 0: none */
	uint64_t kill_at_ns; /* time at which the remaining ranks are killed; 0: never */
	sigset_t watched, before;
};

static void print_ranks(const struct process_fleet *f, int process)
{
	int first = process * f->launch->ranks_each, last = first + f->launch->ranks_each - 1;

	if (first == last)
		fprintf(stderr, "%s: rank %d: ", f->launch->tool, first);
	else
		fprintf(stderr, "%s: ranks %d to %d: ", f->launch->tool, first, last);
}

static void send_all(const struct process_fleet *f, int signal)
{
	for (int i = 0; i < f->launch->processes; i++)
		if (f->pids[i])
			kill(f->pids[i], signal);
}

/* Stops all ranks before the first one ends, so that no rank reports the deaths of the others. */
static void freeze_all(const struct process_fleet *f)
{
	siginfo_t how;

	send_all(f, SIGSTOP);
	for (int i = 0; i < f->launch->processes; i++)
		if (f->pids[i])
			waitid(P_PID, (id_t)f->pids[i], &how, WSTOPPED | WEXITED | WNOWAIT);
}

static void kill_within(struct process_fleet *f, uint32_t ms)
{
	uint64_t at = tt_deadline_ns(ms);

	if (!f->kill_at_ns || at < f->kill_at_ns)
		f->kill_at_ns = at;
}

/* A terminal sends its signal to the whole process group, and a rank may die of the signal before
 * the parent receives it: wait up to 100 ms for the parent's own copy. */
static bool is_for_all(const struct process_fleet *f, int signal)
{
	struct timespec moment = { .tv_nsec = 100 * 1000 * 1000 };
	sigset_t only;

	sigemptyset(&only);
	sigaddset(&only, signal);
	return sigismember(&f->watched, signal) && sigtimedwait(&only, NULL, &moment) == signal;
}

static void take_signal(struct process_fleet *f, int signal)
{
	f->signal = signal;
	freeze_all(f);
	send_all(f, signal == SIGPIPE ? SIGKILL : signal);
	send_all(f, SIGCONT);
	kill_within(f, GRACE_SIGNAL_MS);
}

static void note_end(struct process_fleet *f, int process, int how)
{
	int status = WIFEXITED(how) ? WEXITSTATUS(how) : !f->launch->lenient;

	f->pids[process] = 0;
	f->alive--;
	f->ended += WIFEXITED(how);
	if (WIFSIGNALED(how) && !f->signal && is_for_all(f, WTERMSIG(how)))
		take_signal(f, WTERMSIG(how));
	if (WIFSIGNALED(how) && !f->signal) {
		print_ranks(f, process);
		fprintf(stderr, "died of signal %d (%s)\n", WTERMSIG(how),
			strsignal(WTERMSIG(how)));
	}
	if (status && !f->status)
		kill_within(f, GRACE_MS);
	/* the process with the wrong setting may end after those that failed for it */
	if (!f->status || status == 2)
		f->status = status;
}

static void reap(struct process_fleet *f)
{
	for (int i = 0; i < f->launch->processes; i++) {
		int how;

		if (f->pids[i] && waitpid(f->pids[i], &how, WNOHANG) == f->pids[i])
			note_end(f, i, how);
	}
}

static void wait_all(struct process_fleet *f)
{
	while (f->alive) {
		struct timespec pause = { .tv_nsec = 200 * 1000 * 1000 };
		int signal = sigtimedwait(&f->watched, NULL, &pause);

		if (signal > 0 && signal != SIGCHLD)
			take_signal(f, signal);
		reap(f);
		if (f->alive && f->kill_at_ns && tt_now_ns() > f->kill_at_ns) {
			for (int i = 0; i < f->launch->processes && !f->signal; i++) {
				if (!f->pids[i])
					continue;
				print_ranks(f, i);
				fprintf(stderr, "still running %d s after a rank failed: killed\n",
					GRACE_MS / 1000);
			}
			send_all(f, SIGKILL);
			f->signal = f->signal ? f->signal : SIGKILL; /* deaths reported above */
			f->kill_at_ns = 0;
		}
	}
}

/* SIGPIPE handler of a rank, whose output has no reader: the parent ends all ranks, this one too. */
static void end_with_parent(int signal)
{
	kill(getppid(), signal);
	for (;;)
		pause();
}

/* Child: die with the parent, unblock signals, run the rank's main. */
static _Noreturn void run_child(struct process_fleet *f, int process, pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	signal(SIGPIPE, end_with_parent);
	sigprocmask(SIG_SETMASK, &f->before, NULL);
	free(f->pids);
	exit(f->launch->main(process, f->launch->ctx));
}

static void start_all(struct process_fleet *f)
{
	pid_t parent = getpid();

	fflush(NULL);
	for (int i = 0; i < f->launch->processes; i++) {
		pid_t pid = fork();

		if (pid == 0)
			run_child(f, i, parent);
		if (pid < 0) {
			print_ranks(f, i);
			fprintf(stderr,
				"fork: %s; use a smaller --np, or raise the limit of processes\n",
				strerror(errno));
			f->status = 1;
			send_all(f, SIGKILL);
			f->signal = SIGKILL;
			return;
		}
		f->pids[i] = pid;
		f->alive++;
	}
}

int tool_spawn(const struct tool_spawn *launch)
{
	struct process_fleet f = { .launch = launch };

	f.pids = calloc((size_t)launch->processes, sizeof(*f.pids));
	if (!f.pids) {
		fprintf(stderr, "%s: no memory for %d processes\n", launch->tool,
			launch->processes);
		return 1;
	}
	sigemptyset(&f.watched);
	sigaddset(&f.watched, SIGCHLD);
	sigaddset(&f.watched, SIGINT);
	sigaddset(&f.watched, SIGTERM);
	sigaddset(&f.watched, SIGHUP);
	sigaddset(&f.watched, SIGPIPE);
	sigprocmask(SIG_BLOCK, &f.watched, &f.before);
	start_all(&f);
	setvbuf(stderr, NULL, _IOLBF, BUFSIZ); /* one write per line: ranks share this stderr */
	wait_all(&f);
	fflush(stderr);
	free(f.pids);
	if (f.signal && f.signal != SIGKILL) {
		signal(f.signal, SIG_DFL);
		raise(f.signal);
	}
	sigprocmask(SIG_SETMASK, &f.before, NULL);
	return f.ended || f.status ? f.status : 1;
}

/* ---- pinning --------------------------------------------------------------------------------- */

/* Counts the hardware threads of cpu's core with a smaller number; 0: first thread of the core. */
static int sibling_number(int cpu)
{
	char path[96], text[256] = "";
	int number = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
		 cpu);
	f = fopen(path, "r");
	if (!f)
		return 0;
	if (!fgets(text, sizeof(text), f))
		text[0] = '\0';
	fclose(f);
	for (char *p = text; *p >= '0' && *p <= '9';) {
		int first = (int)strtol(p, &p, 10), last = first;

		if (*p == '-')
			last = (int)strtol(p + 1, &p, 10);
		for (int c = first; c <= last && c < cpu; c++)
			number++;
		if (*p == ',')
			p++;
	}
	return number;
}

int tool_pin(int index)
{
	cpu_set_t allowed, one;
	int order[CPU_SETSIZE], n = 0, cpu;

	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		return -1;
	for (int number = 0; n < CPU_COUNT(&allowed); number++)
		for (int c = 0; c < CPU_SETSIZE; c++)
			if (CPU_ISSET(c, &allowed) && sibling_number(c) == number)
				order[n++] = c;
	cpu = order[index % n];
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	return sched_setaffinity(0, sizeof(one), &one) ? -1 : cpu;
}

bool tool_is_launched_twice(const char *tool, int64_t np)
{
	struct tt_env env;
	struct tt_job launched;

	if (tt_env_read(&env) || tt_launch_detect(&env, &launched) ||
	    !strcmp(launched.launcher, "alone") || launched.nranks == 1)
		return false;
	if (launched.rank == 0)
		tool_refuse(
			tool,
			"--np %lld under a launcher (%s, %d processes): leave out one of the two",
			(long long)np, launched.launcher, launched.nranks);
	return true;
}

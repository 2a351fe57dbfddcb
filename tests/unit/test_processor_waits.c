/*
 * test_processor_waits.c - waits of a process for a processor, as scenes of dead ranks measure them
 *
 * All processes share one core. Two spinners starve a third of the policy SCHED_IDLE.
 */
#include <criterion/criterion.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/survival/survival.h"

#define LOOK_NS 500000000ull
#define CLOCKS_NS \
	10000000ull /* the kernel's clock of waits may differ by as much from the system's */

uint64_t scene_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static struct scene_watch watch;
static struct scene_shared shared;
static int wake[2]; /* a sleeper reads a byte */
static pid_t spinners[2];

enum job { SPIN, SLEEP };

/* A process on the first core that this one may use. */
static pid_t start(enum job job, int policy)
{
	cpu_set_t all, core;
	int first = 0;
	char byte;
	pid_t pid;

	cr_assert(!sched_getaffinity(0, sizeof(all), &all));
	while (!CPU_ISSET(first, &all))
		first++;
	CPU_ZERO(&core);
	CPU_SET(first, &core);
	pid = fork();
	cr_assert(pid >= 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sched_setaffinity(0, sizeof(core), &core);
	sched_setscheduler(0, policy,
			   &(struct sched_param){ .sched_priority = policy == SCHED_FIFO });
	if (job == SLEEP && read(wake[0], &byte, 1) != 1)
		_exit(1);
	for (;;)
		;
}

static void stop(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void fill_the_core(void)
{
	for (int i = 0; i < 2; i++)
		spinners[i] = start(SPIN, SCHED_OTHER);
}

static void empty_the_core(void)
{
	for (int i = 0; i < 2; i++)
		stop(spinners[i]);
}

/* Looks at pid from now on, at least `looks` times, until a wait is known if `until_known`. */
static void look(pid_t pid, int looks, bool until_known)
{
	for (uint64_t due = watch.due_ns; looks > 0 || (until_known && !shared.unrun_ns);) {
		scene_watch_turns(&watch, &pid, 1, scene_now_ns(), &shared);
		looks -= watch.due_ns != due;
		due = watch.due_ns;
		usleep(10000);
	}
}

/* The time for which the kernel has made pid wait, when it has stopped. */
static uint64_t all_waits_ns(pid_t pid)
{
	unsigned long long ran, waited = 0;
	char path[64];
	FILE *file;

	kill(pid, SIGSTOP);
	waitpid(pid, NULL, WUNTRACED);
	snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)pid);
	file = fopen(path, "r");
	cr_assert(file && fscanf(file, "%llu %llu", &ran, &waited) == 2);
	fclose(file);
	return waited;
}

static bool counts_waits(void)
{
	return !access("/proc/self/schedstat", R_OK);
}

static void begin(void)
{
	if (!counts_waits())
		cr_skip_test("the kernel does not count waits for a processor");
	memset(&watch, 0, sizeof(watch));
	cr_assert(!pipe(wake));
}

Test(processor_waits, a_starved_process_waits, .timeout = 60)
{
	uint64_t began_ns = scene_now_ns();
	pid_t pid;

	begin();
	fill_the_core();
	pid = start(SPIN, SCHED_IDLE);
	look(pid, 1, true);
	cr_expect(shared.unrun_ns >= LOOK_NS);
	cr_expect(shared.unrun_ns <= scene_now_ns() - began_ns);
	cr_expect(shared.unrun_ns <= all_waits_ns(pid) + CLOCKS_NS);
	stop(pid);
	empty_the_core();
}

Test(processor_waits, sleep_is_no_wait, .timeout = 60)
{
	uint64_t woken_ns;
	pid_t pid;

	begin();
	pid = start(SLEEP, SCHED_IDLE);
	look(pid, 4, false);
	cr_expect_eq(shared.unrun_ns, 0);
	fill_the_core();
	usleep(300000); /* asleep since the look before */
	woken_ns = scene_now_ns();
	cr_assert(write(wake[1], "", 1) == 1);
	watch.due_ns = 0;
	look(pid, 1, false);
	cr_expect(shared.unrun_ns <= scene_now_ns() - woken_ns, "%.0f ms",
		  1e-6 * (double)shared.unrun_ns);
	stop(pid);
	empty_the_core();
}

/* SCHED_FIFO, if permitted: nothing preempts it for as long as several looks. */
Test(processor_waits, run_time_is_no_wait, .timeout = 60)
{
	pid_t pid;
	uint64_t all_ns;

	begin();
	pid = start(SPIN, SCHED_FIFO);
	look(pid, 4, false);
	all_ns = all_waits_ns(pid);
	cr_expect(shared.unrun_ns <= all_ns + CLOCKS_NS, "%.0f of %.0f ms",
		  1e-6 * (double)shared.unrun_ns, 1e-6 * (double)all_ns);
	stop(pid);
}

/* Three spinners wait for each other in turns of milliseconds, so each waits for two thirds of the time. */
Test(processor_waits, several_short_waits_are_no_long_one, .timeout = 60)
{
	pid_t pid;

	begin();
	fill_the_core();
	pid = start(SPIN, SCHED_OTHER);
	look(pid, 4, false);
	cr_expect(!shared.unrun_ns || shared.unrun_ns >= LOOK_NS, "%.0f ms",
		  1e-6 * (double)shared.unrun_ns);
	stop(pid);
	empty_the_core();
}

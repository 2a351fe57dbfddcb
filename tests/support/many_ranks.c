/*
 * many_ranks.c - many processes of one host, from the join to the life after a death:
 * many_ranks NRANKS [stop]
 *
 * Each rank is a program that begins without another's memory, as launchers start them. All ranks
 * join at once, allreduce, split in two and allreduce in a loop, until the last rank is killed (stop:
 * stopped); the others shrink, and allreduce once more. Prints milliseconds of the slowest rank in
 * each step, and what a rank has, and has used, after its first allreduce: mean and most of all ranks.
 * TUTTI_TRANSPORT and TUTTI_TIMEOUT_MS apply. For people: the program checks no time. Exit status:
 * 0, or 1 when a rank fails where it must not.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "tests/support/descriptors.h"
#include "tutti.h"

#define MOST 4096

enum many_step { JOIN, FIRST, SPLIT, NOTICE, SHRINK, AFTER, STEPS };

static const char *const step_name[STEPS] = { "join",   "first allreduce", "split",
					      "notice", "shrink",          "allreduce after it" };

/* what a rank has more than before its join, and what it has used since */
enum many_cost { DESCRIPTORS, THREADS, MEMORY, PROCESSOR, COSTS };

static const char *const cost_name[COSTS] = { "descriptors", "threads", "kB of memory",
					      "us of processor time" };

static struct many_ranks {
	tuttiUniqueId id;
	_Atomic int started;             /* ranks that could join */
	_Atomic int ready;               /* ranks that have split */
	_Atomic uint64_t killed_ns;      /* 0: not yet */
	_Atomic uint64_t slowest[STEPS]; /* ns */
	_Atomic long most[COSTS], all[COSTS];
} * job;

static void note(enum many_step step, uint64_t began_ns)
{
	uint64_t took = tt_now_ns() - began_ns, was = job->slowest[step];

	while (was < took && !atomic_compare_exchange_weak(&job->slowest[step], &was, took))
		;
}

static long processor_us(void)
{
	struct timespec used;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return used.tv_sec * 1000000 + used.tv_nsec / 1000;
}

static void count_costs(long cost[COSTS])
{
	cost[PROCESSOR] = processor_us();
	cost[DESCRIPTORS] = count_descriptors();
	cost[THREADS] = count_threads();
	cost[MEMORY] = own_kilobytes();
}

static void note_costs(const long before[COSTS])
{
	long cost[COSTS];

	count_costs(cost);
	for (int i = 0; i < COSTS; i++) {
		long more = cost[i] - before[i], was = job->most[i];

		job->all[i] += more;
		while (was < more && !atomic_compare_exchange_weak(&job->most[i], &was, more))
			;
	}
}

static int allreduce(tuttiComm_t comm)
{
	float one = 1, sum;

	return tuttiAllReduce(&one, &sum, 1, tuttiFloat, tuttiSum, comm, NULL);
}

static int failed(int rank, enum many_step step)
{
	fprintf(stderr, "rank %d: %s: %s\n", rank, step_name[step], tuttiGetLastError(NULL));
	return 1;
}

static int rank_main(int n, int rank)
{
	tuttiComm_t comm, half, survivors;
	long costs[COSTS];
	uint64_t began;

	count_costs(costs);
	job->started++;
	while (job->started < n)
		usleep(1000);
	began = tt_now_ns();
	if (tuttiCommInitRank(&comm, n, job->id, rank))
		return failed(rank, JOIN);
	note(JOIN, began);
	began = tt_now_ns();
	if (allreduce(comm))
		return failed(rank, FIRST);
	note(FIRST, began);
	note_costs(costs);
	began = tt_now_ns();
	if (tuttiCommSplit(comm, rank % 2, rank, &half, NULL))
		return failed(rank, SPLIT);
	note(SPLIT, began);
	job->ready++;
	while (!allreduce(comm))
		;
	if (!job->killed_ns)
		return failed(rank, NOTICE);
	note(NOTICE, job->killed_ns);
	began = tt_now_ns();
	if (tuttiCommShrink(comm, NULL, 0, &survivors, NULL, TUTTI_SHRINK_DEFAULT))
		return failed(rank, SHRINK);
	note(SHRINK, began);
	began = tt_now_ns();
	if (allreduce(survivors))
		return failed(rank, AFTER);
	note(AFTER, began);
	tuttiCommDestroy(half);
	tuttiCommDestroy(comm);
	tuttiCommDestroy(survivors);
	return 0;
}

/* The job in the memory behind a descriptor, which exec keeps. */
static bool map_job(int fd)
{
	job = mmap(NULL, sizeof(*job), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return job != MAP_FAILED;
}

static pid_t start_rank(const char *program, const char *n, int rank, int fd)
{
	char rank_text[16], fd_text[16];
	pid_t pid = fork();

	if (pid)
		return pid;
	snprintf(rank_text, sizeof(rank_text), "%d", rank);
	snprintf(fd_text, sizeof(fd_text), "%d", fd);
	execl(program, program, "rank", n, rank_text, fd_text, NULL);
	_exit(127);
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 0, running, status, fd, bad = 0;
	bool stop = argc > 2 && !strcmp(argv[2], "stop");
	static pid_t pid[MOST];

	if (argc == 5 && map_job(atoi(argv[4])))
		return rank_main(atoi(argv[2]), atoi(argv[3]));
	if (n < 2 || n > MOST || argc > 3 || (argc > 2 && !stop)) {
		fprintf(stderr, "many_ranks NRANKS [stop]: 2 to %d ranks\n", MOST);
		return 2;
	}
	fd = memfd_create("many_ranks", 0);
	if (fd < 0 || ftruncate(fd, sizeof(*job)) || !map_job(fd) || tuttiGetUniqueId(&job->id))
		return failed(-1, JOIN);
	for (int r = 0; r < n; r++) {
		pid[r] = start_rank(argv[0], argv[1], r, fd);
		if (pid[r] < 0) {
			perror("many_ranks: fork");
			while (r--)
				kill(pid[r], SIGKILL);
			return 1;
		}
	}
	for (running = n; job->ready < n && running == n;) {
		usleep(1000);
		running -= waitpid(-1, &status, WNOHANG) > 0;
	}
	job->killed_ns = tt_now_ns();
	kill(pid[n - 1], stop && running == n ? SIGSTOP : SIGKILL);
	for (int r = 0; r < n - 1; r++)
		bad |= waitpid(pid[r], &status, 0) == pid[r] && status;
	kill(pid[n - 1], SIGKILL);
	if (bad || running < n)
		return 1;
	printf("%d ranks:", n);
	for (int i = 0; i < STEPS; i++)
		printf("%s %s %.0f", i ? "," : "", step_name[i], (double)job->slowest[i] / 1e6);
	printf(" ms\n");
	for (int i = 0; i < COSTS; i++)
		printf("%s %s: mean %.1f, most %ld", i ? ";" : "a rank has", cost_name[i],
		       (double)job->all[i] / n, job->most[i]);
	printf("\n");
	return 0;
}

/*
 * ranks.c - see ranks.h
 */
#include "tests/support/ranks.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct ranks_thread {
	struct ranks *r;
	rank_fn *fn;
	int rank, result;
};

/* of a thread that is a rank, and of a process that is one */
static __thread int thread_rank = -1;
static int process_rank = -1;

int ranks_rank(void)
{
	return thread_rank >= 0 ? thread_rank : process_rank;
}

static int run_rank(struct ranks *r, rank_fn *fn, int rank)
{
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	tuttiComm_t comm = NULL;
	int result;

	thread_rank = rank;
	config.transport = r->transport;
	config.algo = r->algo;
	config.timeout_ms = r->timeout_ms;
	if (!r->no_join && tuttiCommInitRankConfig(&comm, r->n, r->id, rank, &config)) {
		fprintf(stderr, "rank %d: join: %s\n", rank, tuttiGetLastError(NULL));
		return 1;
	}
	result = fn(&comm, rank, r->n, r->arg);
	if (comm)
		tuttiCommDestroy(comm);
	return result;
}

static void *thread_main(void *arg)
{
	struct ranks_thread *o = arg;

	o->result = run_rank(o->r, o->fn, o->rank);
	return NULL;
}

static int run_threads(struct ranks *r, rank_fn *fn)
{
	struct ranks_thread *args = calloc((size_t)r->n, sizeof(*args));
	pthread_t *threads = calloc((size_t)r->n, sizeof(*threads));
	int failed = 0;

	for (int i = 0; i < r->n; i++) {
		args[i] = (struct ranks_thread){ .r = r, .fn = fn, .rank = i };
		if (pthread_create(&threads[i], NULL, thread_main, &args[i]))
			abort();
	}
	for (int i = 0; i < r->n; i++) {
		pthread_join(threads[i], NULL);
		failed += args[i].result != 0;
	}
	free(threads);
	free(args);
	return failed;
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double ranks_pause(void)
{
	struct timespec pause = { .tv_nsec = 500000 };
	double began = now_s(), s;

	nanosleep(&pause, NULL);
	s = now_s() - began;
	return s < 0.01 ? s : 0.01;
}

/* Waits for all processes; kills the remaining ones after the limit. Returns the number of
 * failures. */
static int reap(pid_t *pids, int n, int limit_s)
{
	double spent = 0;
	int failed = 0, left = n;
	bool killed = false;

	while (left > 0) {
		int status;
		pid_t p;

		for (int i = 0; i < n; i++) {
			if (!pids[i] || (p = waitpid(pids[i], &status, WNOHANG)) == 0)
				continue;
			if (p < 0 || !WIFEXITED(status) || WEXITSTATUS(status)) {
				fprintf(stderr, "rank %d: %s %d\n", i,
					p > 0 && WIFSIGNALED(status) ? "signal" : "exit",
					p > 0 && WIFSIGNALED(status) ? WTERMSIG(status)
								     : WEXITSTATUS(status));
				failed++;
			}
			pids[i] = 0;
			left--;
		}
		if (left && spent > limit_s && !killed) {
			fprintf(stderr, "%d of %d ranks did not end within %d s\n", left, n,
				limit_s);
			killed = true;
			for (int i = 0; i < n; i++)
				if (pids[i])
					kill(pids[i], SIGKILL);
		}
		spent += ranks_pause();
	}
	return failed;
}

static int run_processes(struct ranks *r, rank_fn *fn)
{
	pid_t pids[1024] = { 0 }, parent = getpid();

	fflush(NULL);
	for (int i = 0; i < r->n; i++) {
		pids[i] = fork();
		if (pids[i] < 0)
			abort();
		if (pids[i])
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		process_rank = i;
		_exit(run_rank(r, fn, i) != 0);
	}
	return reap(pids, r->n, r->limit_s ? r->limit_s : 60);
}

int ranks_run(struct ranks *r, rank_fn *fn)
{
	if (tuttiGetUniqueId(&r->id)) {
		fprintf(stderr, "id: %s\n", tuttiGetLastError(NULL));
		return r->n;
	}
	return r->threads ? run_threads(r, fn) : run_processes(r, fn);
}

bool ranks_on_two_cores(void)
{
	cpu_set_t all, two;

	CPU_ZERO(&two);
	if (sched_getaffinity(0, sizeof(all), &all))
		return false;
	for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&two) < 2; cpu++)
		if (CPU_ISSET(cpu, &all))
			CPU_SET(cpu, &two);
	return !sched_setaffinity(0, sizeof(two), &two);
}

unsigned long long random_of(unsigned long long seed, unsigned long long index)
{
	unsigned long long z = (seed + 1) * 0x9e3779b97f4a7c15ull + index * 0xd1b54a32d192ed03ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

const char *ranks_network(void)
{
	const char *name = getenv("TUTTI_TEST_TRANSPORT");

	return name ? name : "tcp";
}

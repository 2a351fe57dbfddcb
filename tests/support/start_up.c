/*
 * start_up.c - cost of joining: start_up NRANKS...  The ranks are threads of this process
 *
 * Called by start_up.sh, and by people. Prints one line for each number of ranks: time until the
 * last rank has joined, frames and bytes that a rank sends on control connections (mean, maximum),
 * descriptors and memory of a rank. Times are printed, never checked. Exit status: 0, or 1 when a
 * join fails or a count grows faster than its bound: the mean of frames by two per level of the
 * tree, the maximum (of rank 0, which sends every rank its parent) by 1.5 times the factor of
 * ranks, descriptors by one per rank.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "comm/comm.h"
#include "control/control_internal.h"
#include "tests/support/descriptors.h"

struct figures {
	double ms, frames, bytes, descriptors, kib;
	uint64_t most;
};

static struct start {
	pthread_barrier_t barrier;
	tuttiUniqueId id;
	int n;
	_Atomic int failed;
	struct start_up_rank {
		pthread_t thread;
		int rank;
		tuttiComm_t comm;
		uint64_t joined_ns, frames, bytes;
	} * ranks;
} start;

static void *run_rank(void *arg)
{
	struct start_up_rank *s = arg;
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;

	config.transport = "tcp";
	config.timeout_ms = 600000; /* start_up.sh has a limit of its own */
	pthread_barrier_wait(&start.barrier);
	if (tuttiCommInitRankConfig(&s->comm, start.n, start.id, s->rank, &config)) {
		if (!start.failed++)
			fprintf(stderr, "rank %d: %s\n", s->rank, tuttiGetLastError(NULL));
		s->comm = NULL;
	} else {
		s->joined_ns = tt_now_ns();
		tt_control_lock(s->comm->ctl);
		s->frames = s->comm->ctl->ep->sent.frames;
		s->bytes = s->comm->ctl->ep->sent.bytes;
		tt_control_unlock(s->comm->ctl);
	}
	pthread_barrier_wait(&start.barrier); /* all have joined */
	pthread_barrier_wait(&start.barrier); /* descriptors and memory are counted */
	tuttiCommDestroy(s->comm);
	return NULL;
}

static double resident_kib(void)
{
	double pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	if (f && fscanf(f, "%*f %lf", &pages) != 1)
		pages = 0;
	if (f)
		fclose(f);
	return pages * 4;
}

static void begin(int n)
{
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 256 * 1024);
	pthread_barrier_init(&start.barrier, NULL, (unsigned)n + 1);
	for (int r = 0; r < n; r++) {
		start.ranks[r].rank = r;
		if (pthread_create(&start.ranks[r].thread, &attr, run_rank, &start.ranks[r])) {
			fprintf(stderr, "only %d threads can run_rank made\n", r);
			exit(1);
		}
	}
}

static int measure(int n, struct figures *f)
{
	int descriptors = count_descriptors();
	double kib = resident_kib();
	uint64_t began_ns, last_ns = 0;

	start.n = n;
	start.failed = 0;
	start.ranks = calloc((size_t)n, sizeof(*start.ranks));
	if (!start.ranks || tuttiGetUniqueId(&start.id))
		return 1;
	begin(n);
	began_ns = tt_now_ns();
	pthread_barrier_wait(&start.barrier);
	pthread_barrier_wait(&start.barrier);
	*f = (struct figures){ .descriptors = (double)(count_descriptors() - descriptors) / n,
			       .kib = (resident_kib() - kib) / n };
	for (int r = 0; r < n; r++) {
		const struct start_up_rank *s = &start.ranks[r];

		last_ns = s->joined_ns > last_ns ? s->joined_ns : last_ns;
		f->frames += (double)s->frames / n;
		f->bytes += (double)s->bytes / n;
		f->most = s->frames > f->most ? s->frames : f->most;
	}
	f->ms = (double)(last_ns - began_ns) / 1e6;
	pthread_barrier_wait(&start.barrier);
	for (int r = 0; r < n; r++)
		pthread_join(start.ranks[r].thread, NULL);
	pthread_barrier_destroy(&start.barrier);
	free(start.ranks);
	return start.failed != 0;
}

/* The tree has one more level for each factor TT_FANOUT of ranks. 1: a count grew too fast. */
static int judge(int small, const struct figures *a, int large, const struct figures *b)
{
	int levels = 0, wrong = 0;

	for (int n = small; n < large; n *= TT_FANOUT)
		levels++;
	wrong |= b->frames > a->frames + 2 * levels;
	wrong |= (double)b->most > (double)a->most * large / small * 1.5;
	wrong |= b->descriptors > a->descriptors + 1;
	if (wrong)
		fprintf(stderr, "from %d to %d ranks the counts grow faster than their bounds\n",
			small, large);
	return wrong;
}

int main(int argc, char **argv)
{
	struct figures before = { 0 }, now;
	struct rlimit limit;
	int last = 0, rc = 0;

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	for (int i = 1; i < argc && !rc; i++) {
		int n = atoi(argv[i]);

		if ((rlim_t)n * 16 > limit.rlim_cur) {
			printf("%d ranks need %d descriptors, the limit is %llu: left out\n", n,
			       n * 16, (unsigned long long)limit.rlim_cur);
			return last ? 0 : 77;
		}
		rc = measure(n, &now);
		printf("%4d ranks: %.0f ms until all have joined; a rank sends %.1f frames, at most %llu, and %.0f bytes; has %.1f "
		       "descriptors, %.0f KiB\n",
		       n, now.ms, now.frames, (unsigned long long)now.most, now.bytes,
		       now.descriptors, now.kib);
		if (!rc && last)
			rc = judge(last, &before, n, &now);
		before = now;
		last = n;
	}
	return rc;
}

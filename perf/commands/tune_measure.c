/*
 * tune_measure.c - ranks that run every allreduce algorithm at every size, in turn, so that a busy
 * moment hits all alike
 *
 * Called by cmd_tune.c. A batch is some calls one behind the other; a figure is nearly the least of
 * the batches of a half: other work on the machine makes batches longer, never shorter. Rank 0's
 * clock counts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "algorithms/algorithms.h"
#include "base/base.h"
#include "tools/spawn.h"
#include "comm/comm.h"
#include "perf/commands/tune.h"

enum { BATCH_BYTES = 256 << 10, MOST_CALLS = 32 };
/* so many times slower than the best: not measured again */
#define HOPELESS 6

/* Of one run; rank 0 writes the figures, the parent reads them. */
struct board {
	int rank;                                /* of this process, where a launcher started it */
	int np, nhosts, nalgorithms;
	uint8_t card;
	uint8_t algorithm[TOOL_TUNE_ALGORITHMS];
	double us[TOOL_TUNE_ALGORITHMS][TOOL_TUNE_SIZES][2];
};

struct job {
	const struct tool_tune_run *run;
	struct board *board;
	tuttiUniqueId id;
	int cores;
};

struct rank {
	const struct job *job;
	int rank, np;
	tuttiComm_t base, comm[TOOL_TUNE_ALGORITHMS];
	char *in, *out;
	double us[TOOL_TUNE_ALGORITHMS][2][TOOL_TUNE_REPEATS];
	int done[TOOL_TUNE_ALGORITHMS][2];
};

static int failed(const struct rank *r, const char *what)
{
	fprintf(stderr, "tutti tune: rank %d: %s: %s\n", r->rank, what, tuttiGetLastError(NULL));
	return 1;
}

/* Not timed: links are connected, plans built, ways of large calls tried (lib/local/single_copy_choice.c). */
#define WARM_CALLS 6

static int calls_of(uint64_t bytes)
{
	uint64_t n = BATCH_BYTES / (bytes ? bytes : 1);

	return n < 2 ? 1 : n > MOST_CALLS ? MOST_CALLS : (int)n;
}

/* One batch; every call reads an input that its rank has just written. */
static int batch(struct rank *r, int a, uint64_t bytes, double *ret_us)
{
	int calls = calls_of(bytes);
	size_t stride = (bytes + 63) / 64 * 64;
	uint64_t start;

	memset(r->in, 0, stride * (size_t)calls);
	if (tuttiBarrier(r->base, NULL))
		return failed(r, "barrier");
	start = tt_now_ns();
	for (int i = 0; i < calls; i++)
		if (tuttiAllReduce(r->in + (size_t)i * stride, r->out, bytes / 4, tuttiFloat,
				   tuttiSum, r->comm[a], NULL))
			return failed(r, "allreduce");
	*ret_us = (double)(tt_now_ns() - start) / 1000 / calls;
	return 0;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double least(double *us, int n)
{
	qsort(us, (size_t)n, sizeof(*us), by_size);
	return n ? us[(n - 1) / 16] : -1;
}

/* Rank 0 decides which algorithms are worth another batch; the others hear it. */
static int agree_on(struct rank *r, uint8_t *go)
{
	double best = 0;

	for (int a = 0; a < r->job->board->nalgorithms; a++)
		if (r->done[a][0] && (!best || r->us[a][0][0] < best))
			best = r->us[a][0][0];
	for (int a = 0; a < r->job->board->nalgorithms; a++)
		go[a] = !r->done[a][0] || !r->done[a][1] || r->us[a][0][0] < HOPELESS * best;
	return tuttiBcast(go, TOOL_TUNE_ALGORITHMS, tuttiUint8, 0, r->base, NULL) ? failed(r, "bcast")
										: 0;
}

static int measure_size(struct rank *r, int s)
{
	const struct tool_tune_run *run = r->job->run;
	struct board *b = r->job->board;
	uint8_t go[TOOL_TUNE_ALGORITHMS] = { 0 };
	double us;

	memset(r->done, 0, sizeof(r->done));
	for (int a = 0; a < b->nalgorithms; a++)
		for (int calls = 0; calls < WARM_CALLS; calls += calls_of(run->bytes[s]))
			if (batch(r, a, run->bytes[s], &us))
				return 1;
	for (int k = 0; k < 2 * run->repeats; k++) {
		if (agree_on(r, go))
			return 1;
		for (int i = 0; i < b->nalgorithms; i++) {
			int a = (i + k / 2) % b->nalgorithms;

			if (!go[a])
				continue;
			if (batch(r, a, run->bytes[s], &us))
				return 1;
			r->us[a][k % 2][r->done[a][k % 2]++] = us;
		}
	}
	for (int a = 0; a < b->nalgorithms && r->rank == 0; a++)
		for (int half = 0; half < 2; half++)
			b->us[a][s][half] = least(r->us[a][half], r->done[a][half]);
	return 0;
}

static int split_all(struct rank *r)
{
	for (int a = 0; a < r->job->board->nalgorithms; a++) {
		tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;

		config.algo = tt_algorithms[r->job->board->algorithm[a]]->name;
		if (tuttiCommSplit(r->base, 0, r->rank, &r->comm[a], &config))
			return failed(r, "split");
		if (r->comm[a]->npaths > 1) {            /* one run measures one way: tcp */
			r->comm[a]->npaths = 1;
			r->comm[a]->card = TT_NO_NIC;
		}
	}
	return 0;
}

static int measure_all(struct rank *r)
{
	const struct tool_tune_run *run = r->job->run;
	size_t most = BATCH_BYTES;
	int rc = 0;

	for (int s = 0; s < run->nsizes; s++)
		most = run->bytes[s] > most ? run->bytes[s] : most;
	most += MOST_CALLS * 64;
	r->in = aligned_alloc(4096, (most + 4095) / 4096 * 4096);
	r->out = aligned_alloc(4096, (most + 4095) / 4096 * 4096);
	if (!r->in || !r->out) {
		fprintf(stderr, "tutti tune: rank %d: no memory for buffers of %zu bytes\n",
			r->rank, most);
		rc = 1;
	} else {
		memset(r->out, 0, most);
		rc = split_all(r);
	}
	for (int s = 0; s < run->nsizes && !rc; s++)
		rc = measure_size(r, s);
	for (int a = 0; a < TOOL_TUNE_ALGORITHMS; a++)
		if (r->comm[a])
			rc ? tuttiCommAbort(r->comm[a]) : tuttiCommDestroy(r->comm[a]);
	free(r->in);
	free(r->out);
	return rc;
}

static int rank_main(const struct job *job, int rank, int np)
{
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	struct rank *r = calloc(1, sizeof(*r));
	int rc;

	if (!r)
		return 1;
	config.transport = job->run->transport;
	r->job = job;
	rc = np ? tuttiCommInitRankConfig(&r->base, np, job->id, rank, &config)
		: tuttiCommInitEnv(&r->base, &config);
	if (rc)
		return failed(r, "init");
	tuttiCommUserRank(r->base, &r->rank);
	tuttiCommCount(r->base, &r->np);
	job->board->np = r->np;
	job->board->rank = r->rank;
	job->board->nhosts = r->base->topology.nhosts;
	job->board->card = r->base->npaths == 1 ? r->base->card : TT_NO_NIC;
	rc = measure_all(r);
	rc ? tuttiCommAbort(r->base) : tuttiCommDestroy(r->base);
	free(r);
	return rc;
}

static int launched(int process, void *ctx)
{
	const struct job *job = ctx;

	if (job->run->np <= job->cores)
		tool_pin(process);
	return rank_main(job, process, job->run->np);
}

static void list_algorithms(struct board *b, int nranks)
{
	for (int i = 0; tt_algorithms[i]; i++) {
		const struct tt_algorithm *a = tt_algorithms[i];
		const struct tt_shape shape = { .collective = TT_ALLREDUCE,
						.nranks = nranks ? nranks : 2 };

		if (a->collective == TT_ALLREDUCE && !a->variants &&
		    b->nalgorithms < TOOL_TUNE_ALGORITHMS && !(a->refuses && a->refuses(&shape)))
			b->algorithm[b->nalgorithms++] = (uint8_t)i;
	}
}

static int keep(struct tool_tune *t, int r, const struct board *b)
{
	struct tool_tune_run *run = &t->runs[r];
	int more = b->nalgorithms * run->nsizes;
	struct tool_tune_sample *s = realloc(t->samples, (size_t)(t->nsamples + more) * sizeof(*s));

	if (!s) {
		fprintf(stderr, "tutti tune: no memory for %d figures\n", t->nsamples + more);
		return 1;
	}
	t->samples = s;
	run->np = b->np;
	run->nhosts = b->nhosts;
	run->card = b->card;
	for (int i = 0; i < run->nsizes; i++)
		for (int a = 0; a < b->nalgorithms; a++)
			if (b->us[a][i][0] > 0 && b->us[a][i][1] > 0)
				t->samples[t->nsamples++] =
					(struct tool_tune_sample){ r,
								 b->algorithm[a],
								 run->bytes[i],
								 { b->us[a][i][0],
								   b->us[a][i][1] } };
	return 0;
}

int tool_tune_measure(struct tool_tune *t, int number, bool *ret_speaks)
{
	struct tool_tune_run *run = &t->runs[number];
	struct board *b =
		mmap(NULL, sizeof(*b), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct job job = { .run = run, .board = b, .cores = t->cores };
	struct tool_spawn launch = { .tool = "tutti tune", .processes = run->np, .ranks_each = 1,
				    .main = launched, .ctx = &job };
	int rc;

	if (b == MAP_FAILED) {
		fprintf(stderr, "tutti tune: no memory\n");
		return 1;
	}
	list_algorithms(b, run->np);
	if (run->np) {
		rc = tuttiGetUniqueId(&job.id) ? failed(&(struct rank){ 0 }, "unique id")
					       : tool_spawn(&launch);
		*ret_speaks = true;
	} else {
		rc = rank_main(&job, 0, 0);
		*ret_speaks = b->rank == 0;
	}
	if (!rc && *ret_speaks)
		rc = keep(t, number, b);
	munmap(b, sizeof(*b));
	return rc;
}

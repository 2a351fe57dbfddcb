/*
 * tune_measure.c - measures every allreduce algorithm at every size; the algorithms are interleaved,
 * so that noise of the host affects all of them equally
 *
 * Called by cmd_tune.c. A batch is a sequence of calls. A figure is a low quantile (1/16) of the
 * batches of a half, since other work on the host makes batches longer, never shorter. Times are
 * taken by rank 0's clock.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "algorithms/algorithms.h"
#include "base/base.h"
#include "tools/spawn.h"
#include "comm/comm.h"
#include "perf/bench/bench.h"
#include "perf/commands/tune.h"

enum { BATCH_BYTES = 256 << 10, MOST_CALLS = 32 };
/* an algorithm HOPELESS times slower than the best is not measured again */
#define HOPELESS 6

/* Shared page of one run: rank 0 writes the figures, the parent reads them. */
struct tune_page {
	int rank; /* rank of this process in a launched job */
	int np, nhosts, nalgorithms;
	uint8_t nic;
	uint8_t algorithm[TOOL_TUNE_ALGORITHMS];
	double us[TOOL_TUNE_ALGORITHMS][TOOL_TUNE_SIZES][2];
};

struct tune_job {
	const struct tool_tune_run *run;
	struct tune_page *page;
	tuttiUniqueId id;
	int cores;
};

struct tune_rank {
	const struct tune_job *job;
	int rank, np;
	tuttiComm_t base, comm[TOOL_TUNE_ALGORITHMS];
	char *in, *out;
	double us[TOOL_TUNE_ALGORITHMS][2][TOOL_TUNE_REPEATS];
	int done[TOOL_TUNE_ALGORITHMS][2];
};

static int failed(const struct tune_rank *r, const char *what)
{
	fprintf(stderr, "tutti tune: rank %d: %s: %s\n", r->rank, what, tuttiGetLastError(NULL));
	return 1;
}

/* warm-up calls, not timed: connect links, build plans, let lib/local/single_copy_choice.c decide */
#define WARM_CALLS 6

static int calls_of(uint64_t bytes)
{
	uint64_t n = BATCH_BYTES / (bytes ? bytes : 1);

	return n < 2 ? 1 : n > MOST_CALLS ? MOST_CALLS : (int)n;
}

/* Runs and times one batch; every call reads an input that its rank has just written. */
static int batch(struct tune_rank *r, int a, uint64_t bytes, double *ret_us)
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

/* Returns the 1/16 quantile; -1: no values. */
static double low_quantile(double *us, int n)
{
	bench_sort(us, (size_t)n);
	return n ? us[(n - 1) / 16] : -1;
}

/* Rank 0 selects the algorithms of the next batch and broadcasts the selection. */
static int agree_on(struct tune_rank *r, uint8_t *go)
{
	double best = 0;

	for (int a = 0; a < r->job->page->nalgorithms; a++)
		if (r->done[a][0] && (!best || r->us[a][0][0] < best))
			best = r->us[a][0][0];
	for (int a = 0; a < r->job->page->nalgorithms; a++)
		go[a] = !r->done[a][0] || !r->done[a][1] || r->us[a][0][0] < HOPELESS * best;
	return tuttiBcast(go, TOOL_TUNE_ALGORITHMS, tuttiUint8, 0, r->base, NULL)
		       ? failed(r, "bcast")
		       : 0;
}

static int measure_size(struct tune_rank *r, int s)
{
	const struct tool_tune_run *run = r->job->run;
	struct tune_page *b = r->job->page;
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
			b->us[a][s][half] = low_quantile(r->us[a][half], r->done[a][half]);
	return 0;
}

static int split_all(struct tune_rank *r)
{
	for (int a = 0; a < r->job->page->nalgorithms; a++) {
		tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;

		config.algo = tt_algorithms[r->job->page->algorithm[a]]->name;
		if (tuttiCommSplit(r->base, 0, r->rank, &r->comm[a], &config))
			return failed(r, "split");
		if (r->comm[a]->paths.npaths > 1) { /* a run measures one path: tcp */
			r->comm[a]->paths.npaths = 1;
			r->comm[a]->paths.nic_class = TT_NO_NIC;
		}
	}
	return 0;
}

static int measure_all(struct tune_rank *r)
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

static int rank_main(const struct tune_job *job, int rank, int np)
{
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	struct tune_rank *r = calloc(1, sizeof(*r));
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
	job->page->np = r->np;
	job->page->rank = r->rank;
	job->page->nhosts = r->base->hosts.topology.nhosts;
	job->page->nic = r->base->paths.npaths == 1 ? r->base->paths.nic_class : TT_NO_NIC;
	rc = measure_all(r);
	rc ? tuttiCommAbort(r->base) : tuttiCommDestroy(r->base);
	free(r);
	return rc;
}

static int child_main(int process, void *ctx)
{
	const struct tune_job *job = ctx;

	if (job->run->np <= job->cores)
		tool_pin(process);
	return rank_main(job, process, job->run->np);
}

static void list_algorithms(struct tune_page *b, int nranks)
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

static int append_samples(struct tool_tune *t, int r, const struct tune_page *b)
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
	run->nic = b->nic;
	for (int i = 0; i < run->nsizes; i++)
		for (int a = 0; a < b->nalgorithms; a++)
			if (b->us[a][i][0] > 0 && b->us[a][i][1] > 0)
				t->samples[t->nsamples++] = (struct tool_tune_sample){
					r,
					b->algorithm[a],
					run->bytes[i],
					{ b->us[a][i][0], b->us[a][i][1] }
				};
	return 0;
}

int tool_tune_measure(struct tool_tune *t, int number, bool *ret_reports)
{
	struct tool_tune_run *run = &t->runs[number];
	struct tune_page *b = mmap(NULL, sizeof(*b), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct tune_job job = { .run = run, .page = b, .cores = t->cores };
	struct tool_spawn launch = { .tool = "tutti tune",
				     .processes = run->np,
				     .ranks_each = 1,
				     .main = child_main,
				     .ctx = &job };
	int rc;

	if (b == MAP_FAILED) {
		fprintf(stderr, "tutti tune: no memory\n");
		return 1;
	}
	list_algorithms(b, run->np);
	if (run->np) {
		rc = tuttiGetUniqueId(&job.id) ? failed(&(struct tune_rank){ 0 }, "unique id")
					       : tool_spawn(&launch);
		*ret_reports = true;
	} else {
		rc = rank_main(&job, 0, 0);
		*ret_reports = b->rank == 0;
	}
	if (!rc && *ret_reports)
		rc = append_samples(t, number, b);
	munmap(b, sizeof(*b));
	return rc;
}

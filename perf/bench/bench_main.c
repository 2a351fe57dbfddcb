/*
 * bench_main.c - main function of all benchmarks; the program's name selects the collective
 *
 *   process      --np N: the parent starts N processes and waits (spawn.c); else one process
 *   thread       -t threads per process
 *   rank         -g ranks per thread (bench_thread.c)
 */
#include <libgen.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "perf/bench/bench.h"
#include "tools/options.h"
#include "tools/plural.h"
#include "tools/spawn.h"
#include "tools/output.h"

struct bench_job {
	const struct bench_collective *bench;
	const char *tool;
	struct bench_options options;
	tuttiUniqueId id;
	bool env;   /* one rank per process, joined by the environment */
	int nranks; /* number of all ranks; unset if env */
	int first;  /* first rank of this process */
};

/* ---- a thread -------------------------------------------------------------------------------- */

/* Returns 0 right | 1 wrong or failed | 2 the options are impossible for these ranks. */
static int run_thread(struct bench_thread *t)
{
	struct bench_totals totals;
	bool have_totals = false;
	int rc = bench_thread_open(t);

	if (!rc)
		rc = bench_sweep(t);
	if (!rc) {
		rc = bench_thread_totals(t, &totals);
		have_totals = !rc;
	}
	if (t->report && bench_report_close(t->report, have_totals ? &totals : NULL,
					    rc ? tuttiGetLastError(NULL) : NULL))
		t->wrong = true;
	bench_thread_close(t, rc == 1);
	return rc ? rc : t->wrong;
}

struct bench_worker {
	pthread_t id;
	struct bench_thread thread;
	int rc;
};

static void *worker_main(void *arg)
{
	struct bench_worker *w = arg;

	w->rc = run_thread(&w->thread);
	return NULL;
}

/* ---- a process ------------------------------------------------------------------------------- */

static struct bench_thread thread_of(const struct bench_job *job, int number)
{
	int each = (int)job->options.ranks_each;

	return (struct bench_thread){ .options = &job->options,
				      .bench = job->bench,
				      .tool = job->tool,
				      .id = job->id,
				      .env = job->env,
				      .nranks = job->nranks,
				      .first = job->first + number * each,
				      .nown = each };
}

/* Runs the threads; returns the first status that is not 0. */
static int run_threads(const struct bench_job *job)
{
	int n = (int)job->options.threads, started = 0, rc = 0;
	struct bench_worker *threads = calloc((size_t)n, sizeof(*threads));

	if (!threads) {
		fprintf(stderr, "rank %d: no memory for %d threads\n", job->first, n);
		return 1;
	}
	for (; started < n; started++) {
		threads[started].thread = thread_of(job, started);
		if (pthread_create(&threads[started].id, NULL, worker_main, &threads[started])) {
			fprintf(stderr,
				"rank %d: only %d of %d threads can be started; use a smaller -t\n",
				job->first, started, n);
			exit(1); /* started threads would wait for missing ranks */
		}
	}
	for (int i = 0; i < started; i++) {
		pthread_join(threads[i].id, NULL);
		rc = rc ? rc : threads[i].rc;
	}
	free(threads);
	return rc;
}

static int run_process(const struct bench_job *job)
{
	struct bench_thread only = thread_of(job, 0);

	return job->options.threads > 1 ? run_threads(job) : run_thread(&only);
}

static int launched_main(int process, void *ctx)
{
	struct bench_job job = *(const struct bench_job *)ctx;

	job.first = process * (int)(job.options.threads * job.options.ranks_each);
	return run_process(&job);
}

/* ---- start of the ranks ---------------------------------------------------------------------- */

/* Prints the error. Returns bench_status. */
static int fail(const struct bench_job *job, const char *what, tuttiResult_t rc)
{
	const char *text = tuttiGetLastError(NULL);

	fprintf(stderr, "%s: %s: %s\n", job->tool, what, text);
	return bench_status(rc);
}

static int launch(struct bench_job *job)
{
	struct tool_spawn launch = { .tool = job->tool,
				     .processes = (int)job->options.np,
				     .main = launched_main,
				     .ctx = job,
				     .ranks_each = (int)(job->options.threads *
							 job->options.ranks_each) };
	tuttiResult_t rc;

	job->nranks = launch.processes * launch.ranks_each;
	rc = tuttiGetUniqueId(&job->id);
	if (rc)
		return fail(job, "unique id", rc);
	return tool_spawn(&launch);
}

/* A launcher started one process per TUTTI_NRANKS, and each process holds several ranks: the
 * processes join a first communicator, broadcast an id, and all ranks join by that id. */
static int join_by_processes(struct bench_job *job)
{
	int each = (int)(job->options.threads * job->options.ranks_each);
	int process = 0, processes = 1, status;
	int64_t most[2] = { each, -each }; /* greatest, and least times -1, of all processes */
	tuttiResult_t rc;
	tuttiComm_t comm;

	rc = tuttiCommInitEnv(&comm, NULL);
	if (rc)
		return fail(job, "init", rc);
	tuttiCommUserRank(comm, &process);
	tuttiCommCount(comm, &processes);
	rc = process == 0 ? tuttiGetUniqueId(&job->id) : tuttiSuccess;
	if (!rc)
		rc = tuttiBcast(&job->id, sizeof(job->id), tuttiInt8, 0, comm, NULL);
	if (!rc)
		rc = tuttiAllReduce(most, most, 2, tuttiInt64, tuttiMax, comm, NULL);
	if (rc) {
		status = fail(job, "unique id", rc);
		tuttiCommAbort(comm);
		return status;
	}
	tuttiCommDestroy(comm);
	if (most[0] != -most[1])
		return tool_refuse(
			job->tool,
			"process %d has %d rank%s, others have %lld to %lld; give all the same -t and -g",
			process, each, tool_s(each), (long long)-most[1], (long long)most[0]);
	job->nranks = processes * each;
	job->first = process * each;
	return run_process(job);
}

static int run(struct bench_job *job)
{
	bool several = job->options.threads * job->options.ranks_each > 1;

	if (job->options.np > 0)
		return tool_is_launched_twice(job->tool, job->options.np) ? 2 : launch(job);
	if (several)
		return join_by_processes(job);
	job->env = true;
	return run_process(job);
}

int main(int argc, char **argv)
{
	struct bench_job job = { .tool = basename(argv[0]) };
	int rc;

	tool_output_begin();
	job.bench = bench_of_tool(job.tool);
	if (!job.bench) {
		fprintf(stderr,
			"%s: unknown program name; use allreduce_perf, or another collective's name and _perf\n",
			job.tool);
		return 2;
	}
	rc = bench_options_read(job.bench, job.tool, argc, argv, &job.options);
	if (rc)
		return rc == 1 ? tool_output_end(job.tool, 0) : rc;
	if (job.options.cuda)
		tool_cuda_device_prepare();
	/* At level warn, the library names the ranks that have not joined yet. */
	setenv("TUTTI_LOG", "warn", 0);
	return run(&job);
}

/*
 * bench_main.c - the main of all benchmarks: allreduce_perf and its sisters differ in their name only
 *
 *   process      the parent starts --np processes and waits (spawn.c), or is itself the one
 *                process
 *   thread       -t threads in each
 *   crew         the -g ranks that a thread drives (bench_thread.c)
 */
#include <libgen.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "perf/bench/bench.h"
#include "tools/spawn.h"
#include "tools/output.h"

struct job {
	const struct bench_collective *bench;
	const char *tool;
	struct bench_options line;
	tuttiUniqueId id;
	bool env;                        /* one rank a process, joined by its environment */
	int nranks;                      /* when not env */
	int first;                       /* of this process */
};

/* ---- a thread -------------------------------------------------------------------------------- */

/* 0 right, 1 wrong or failed, 2 the line asks for something impossible */
static int run_crew(struct bench_thread *c)
{
	struct bench_totals totals;
	bool know = false;
	int rc = bench_thread_open(c);

	if (!rc)
		rc = bench_sweep(c);
	if (!rc) {
		rc = bench_thread_totals(c, &totals);
		know = !rc;
	}
	if (c->report &&
	    bench_report_close(c->report, know ? &totals : NULL, rc ? tuttiGetLastError(NULL) : NULL))
		c->wrong = true;
	bench_thread_close(c, rc == 1);
	return rc ? rc : c->wrong;
}

struct thread {
	pthread_t id;
	struct bench_thread crew;
	int rc;
};

static void *thread_main(void *arg)
{
	struct thread *t = arg;

	t->rc = run_crew(&t->crew);
	return NULL;
}

/* ---- a process ------------------------------------------------------------------------------- */

static struct bench_thread crew_of(const struct job *job, int thread)
{
	int each = (int)job->line.ranks_each;

	return (struct bench_thread){ .line = &job->line, .bench = job->bench, .tool = job->tool,
				 .id = job->id, .env = job->env, .nranks = job->nranks,
				 .first = job->first + thread * each, .nseats = each };
}

/* Threads of one process fail together; the first status that is not 0 counts. */
static int run_threads(const struct job *job)
{
	int n = (int)job->line.threads, started = 0, rc = 0;
	struct thread *threads = calloc((size_t)n, sizeof(*threads));

	if (!threads) {
		fprintf(stderr, "rank %d: no memory for %d threads\n", job->first, n);
		return 1;
	}
	for (; started < n; started++) {
		threads[started].crew = crew_of(job, started);
		if (pthread_create(&threads[started].id, NULL, thread_main, &threads[started])) {
			fprintf(stderr,
				"rank %d: only %d of %d threads can be started; use a smaller -t\n",
				job->first, started, n);
			exit(1);                 /* the others wait for ranks that will never be */
		}
	}
	for (int i = 0; i < started; i++) {
		pthread_join(threads[i].id, NULL);
		rc = rc ? rc : threads[i].rc;
	}
	free(threads);
	return rc;
}

static int run_process(const struct job *job)
{
	struct bench_thread crew = crew_of(job, 0);

	return job->line.threads > 1 ? run_threads(job) : run_crew(&crew);
}

static int launched_main(int process, void *ctx)
{
	struct job job = *(const struct job *)ctx;

	job.first = process * (int)(job.line.threads * job.line.ranks_each);
	return run_process(&job);
}

/* ---- who starts the ranks -------------------------------------------------------------------- */

/* Settings that the library refuses are a bad line, all else is a failure. */
static int fail(const struct job *job, const char *what, tuttiResult_t rc)
{
	const char *text = tuttiGetLastError(NULL);

	fprintf(stderr, "%s: %s: %s\n", job->tool, what, text);
	return rc == tuttiInvalidArgument ? 2 : 1;
}

static int launch(struct job *job)
{
	struct tool_spawn launch = { .tool = job->tool, .processes = (int)job->line.np,
				    .main = launched_main, .ctx = job,
				    .ranks_each = (int)(job->line.threads * job->line.ranks_each) };
	tuttiResult_t rc;

	job->nranks = launch.processes * launch.ranks_each;
	rc = tuttiGetUniqueId(&job->id);
	if (rc)
		return fail(job, "unique id", rc);
	return tool_spawn(&launch);
}

/* A launcher started one process for each of TUTTI_NRANKS, but each is to hold several ranks: the
 * processes join, agree on an id, and all ranks join by that. */
static int join_by_processes(struct job *job)
{
	int each = (int)(job->line.threads * job->line.ranks_each);
	int process = 0, processes = 1, status;
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
	if (rc) {
		status = fail(job, "unique id", rc);
		tuttiCommAbort(comm);
		return status;
	}
	tuttiCommDestroy(comm);
	job->nranks = processes * each;
	job->first = process * each;
	return run_process(job);
}

static int run(struct job *job)
{
	bool several = job->line.threads * job->line.ranks_each > 1;

	if (job->line.np > 0)
		return launch(job);
	if (several)
		return join_by_processes(job);
	job->env = true;
	return run_process(job);
}

int main(int argc, char **argv)
{
	struct job job = { .tool = basename(argv[0]) };
	int rc;

	tool_output_begin();
	job.bench = bench_of_tool(job.tool);
	if (!job.bench) {
		fprintf(stderr,
			"%s: this program must be called allreduce_perf, or by another collective's name and _perf\n",
			job.tool);
		return 2;
	}
	rc = bench_options_read(job.bench, job.tool, argc, argv, &job.line);
	if (rc)
		return rc == 1 ? tool_output_end(job.tool, 0) : rc;
	if (job.line.cuda)
		tool_cuda_device_prepare();
	/* The library then says who is missing while ranks join. */
	setenv("TUTTI_LOG", "warn", 0);
	return run(&job);
}

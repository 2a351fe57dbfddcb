/*
 * bench_thread.c - the ranks of one thread: communicators, exchange of figures, error reports
 *
 * Called by bench_main.c (open, close), measure.c and sweep.c (gather, barrier, complain). Each rank
 * has a base communicator to exchange figures, and one communicator per measured algorithm, whose
 * counters and timeouts cover measured calls only.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "algorithms/algorithms.h"
#include "mem/reduce.h"
#include "perf/bench/bench.h"
#include "tools/host.h"
#include "tools/spawn.h"
#include "tools/options.h"

static void complain(const struct bench_thread *t, const struct bench_rank *r, tuttiComm_t comm,
		     const char *what, tuttiResult_t result)
{
	const char *text = tuttiGetLastError(comm);
	char prefix[80];
	/* before init by the environment, only the library's message has the rank's number */
	int rank = t->env && !r->base ? -1 : r->rank, named, length = 0;

	if (sscanf(text, "rank %d: %n", &named, &length) == 1 && length)
		rank = named;
	text += length;
	if (rank < 0)
		snprintf(prefix, sizeof(prefix), "%s: ", t->tool);
	else
		snprintf(prefix, sizeof(prefix), "rank %d: ", rank);
	fprintf(stderr, "%s%s: %s\n", prefix, what, *text ? text : tuttiGetErrorString(result));
}

/* Aborted by a rank that says no more? */
static bool is_aborted(tuttiComm_t comm)
{
	const char *text = tuttiGetLastError(comm);

	return strstr(text, "aborted the communicator") && !strstr(text, "which had failed there");
}

/* A rank whose call fails aborts all its communicators. Another one of them may say why, even if
 * this rank's calls there succeeded. NULL: none does */
static tuttiComm_t find_cause(const struct bench_thread *t, const struct bench_rank *r,
			      tuttiComm_t failed)
{
	tuttiResult_t rc;

	for (int a = -1; is_aborted(failed) && a < (r->comms ? t->algos : 0); a++) {
		tuttiComm_t comm = a < 0 ? r->base : r->comms[a];

		if (comm && !tuttiCommGetAsyncError(comm, &rc) && rc && !is_aborted(comm))
			return comm;
	}
	return NULL;
}

int bench_thread_complain(struct bench_thread *t, int algo, const char *what, tuttiResult_t result)
{
	for (int i = 0; i < t->nown; i++) {
		const struct bench_rank *r = &t->ranks[i];
		tuttiComm_t failed = algo < 0 ? r->base : r->comms[algo],
			    cause = find_cause(t, r, failed);

		complain(t, r, cause ? cause : failed,
			 cause && algo < 0 ? "after its measured calls" : what, result);
	}
	return 1;
}

/* ---- exchange of figures --------------------------------------------------------------------- */

int bench_thread_gather(struct bench_thread *t, const void *mine, size_t bytes, void *all)
{
	tuttiResult_t rc = tuttiSuccess, end = tuttiSuccess;
	size_t total = bytes * (size_t)t->nranks;
	char *rest = t->nown > 1 ? malloc(total * (size_t)(t->nown - 1)) : NULL;

	if (t->nown > 1 && !rest) {
		fprintf(stderr, "rank %d: no memory for the figures of %d ranks\n", t->first,
			t->nranks);
		return 1;
	}
	if (t->nown > 1)
		rc = tuttiGroupStart();
	for (int i = 0; i < t->nown && !rc; i++)
		rc = tuttiAllGather((const char *)mine + (size_t)i * bytes,
				    i ? rest + (size_t)(i - 1) * total : all, bytes, tuttiInt8,
				    t->ranks[i].base, NULL);
	if (t->nown > 1)
		end = tuttiGroupEnd();
	free(rest);
	rc = rc ? rc : end;
	return rc ? bench_thread_complain(t, -1, "exchange of figures", rc) : 0;
}

int bench_thread_barrier(struct bench_thread *t)
{
	tuttiResult_t rc = tuttiSuccess, end = tuttiSuccess;

	if (t->nown > 1)
		rc = tuttiGroupStart();
	for (int i = 0; i < t->nown && !rc; i++)
		rc = tuttiBarrier(t->ranks[i].base, NULL);
	if (t->nown > 1)
		end = tuttiGroupEnd();
	rc = rc ? rc : end;
	return rc ? bench_thread_complain(t, -1, "barrier", rc) : 0;
}

/* ---- communicators --------------------------------------------------------------------------- */

static tuttiConfig_t make_config(const struct bench_thread *t, const char *algo, const char *name)
{
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;

	config.timeout_ms = (int)(t->options->timeout_s * 1000);
	config.transport = t->options->transport;
	config.algo = algo;
	config.name = name;
	return config;
}

int bench_status(tuttiResult_t rc)
{
	return !rc ? 0 : rc == tuttiInvalidArgument || rc == tuttiInvalidUsage ? 2 : 1;
}

/* After a join or a split; the cause is this thread's, since an abort by another rank may break the
 * parent meanwhile. Returns 0, or bench_status. */
static int init_error(const struct bench_thread *t, const char *what, tuttiResult_t rc)
{
	for (int i = 0; rc && i < t->nown; i++)
		complain(t, &t->ranks[i], NULL, what, rc);
	return bench_status(rc);
}

static int create_base(struct bench_thread *t)
{
	tuttiConfig_t config = make_config(t, "auto", "perf");
	tuttiResult_t rc = tuttiSuccess, end = tuttiSuccess;

	if (t->env) {
		rc = tuttiCommInitEnv(&t->ranks[0].base, &config);
		if (rc)
			return init_error(t, "init", rc);
		tuttiCommCount(t->ranks[0].base, &t->nranks);
		tuttiCommUserRank(t->ranks[0].base, &t->first);
		t->ranks[0].rank = t->first;
		t->ranks[0].nranks = t->nranks;
		return 0;
	}
	if (t->nown > 1)
		rc = tuttiGroupStart();
	for (int i = 0; i < t->nown && !rc; i++)
		rc = tuttiCommInitRankConfig(&t->ranks[i].base, t->nranks, t->id, t->first + i,
					     &config);
	if (t->nown > 1)
		end = tuttiGroupEnd();
	return init_error(t, "init", rc ? rc : end);
}

/* Leaves the communicator of all ranks for one of the group. */
static int split_base(struct bench_thread *t)
{
	int each = (int)(t->options->threads * t->options->ranks_each);
	tuttiConfig_t config = make_config(t, "auto", "group");
	tuttiResult_t rc = tuttiSuccess, end = tuttiSuccess;

	t->group = bench_split_color(&t->options->split, t->first / each);
	if (t->nown > 1)
		rc = tuttiGroupStart();
	for (int i = 0; i < t->nown && !rc; i++)
		rc = tuttiCommSplit(t->ranks[i].base, t->group, t->ranks[i].rank,
				    &t->ranks[i].group, &config);
	if (t->nown > 1)
		end = tuttiGroupEnd();
	if (rc || end)
		return init_error(t, "split by NCCL_TESTS_SPLIT", rc ? rc : end);
	for (int i = 0; i < t->nown; i++) {
		struct bench_rank *r = &t->ranks[i];

		tuttiCommDestroy(r->base);
		r->base = r->group;
		r->group = NULL;
		tuttiCommUserRank(r->base, &r->rank);
		tuttiCommCount(r->base, &r->nranks);
	}
	t->first = t->ranks[0].rank;
	t->nranks = t->ranks[0].nranks;
	return 0;
}

/* Makes the rank's device current: a communicator takes the device current at its creation. */
static void set_device(const struct bench_rank *r)
{
	if (r->gpu.cu)
		r->gpu.cu->ctx_set(r->gpu.ctx);
}

/* Creates the communicators of algorithm number algo. */
static int split(struct bench_thread *t, int algo, const char *name)
{
	tuttiConfig_t config = make_config(t, name, name ? name : "measured");
	tuttiResult_t rc = tuttiSuccess, end = tuttiSuccess;

	if (t->nown > 1)
		rc = tuttiGroupStart();
	for (int i = 0; i < t->nown && !rc; i++) {
		set_device(&t->ranks[i]);
		rc = tuttiCommSplit(t->ranks[i].base, 0, t->ranks[i].rank, &t->ranks[i].comms[algo],
				    &config);
	}
	if (t->nown > 1)
		end = tuttiGroupEnd();
	return init_error(t, "split", rc ? rc : end);
}

/* Returns NULL, or the reason why the algorithm does not apply to these ranks; equal on all. */
static const char *refusal(struct bench_thread *t, int algo)
{
	const char *collective = tt_collective_name(t->bench->collective);
	char text[160];

	if (t->bench->collective == TT_SENDRECV)
		return NULL;
	if (!tuttiCommDescribe(t->ranks[0].comms[algo], collective, 1, tuttiFloat32, text,
			       sizeof(text)))
		return NULL;
	return tuttiGetLastError(t->ranks[0].comms[algo]);
}

static void destroy_comms(struct bench_thread *t, int algo)
{
	for (int i = 0; i < t->nown; i++) {
		tuttiCommDestroy(t->ranks[i].comms[algo]);
		t->ranks[i].comms[algo] = NULL;
	}
}

/* --algo all: every algorithm of the table that applies to these ranks. */
static int split_all(struct bench_thread *t)
{
	for (int i = 0; tt_algorithms[i]; i++) {
		const struct tt_algorithm *a = tt_algorithms[i];
		const char *reason;
		int rc;

		if (a->collective != t->bench->collective)
			continue;
		rc = split(t, t->algos, a->name);
		if (rc)
			return rc;
		reason = refusal(t, t->algos);
		if (reason) {
			if (t->report)
				bench_report_note(a->name, reason);
			destroy_comms(t, t->algos);
			continue;
		}
		snprintf(t->algo_names[t->algos++], sizeof(t->algo_names[0]), "%s", a->name);
	}
	return 0;
}

static int split_one(struct bench_thread *t)
{
	bool none = t->bench->collective == TT_SENDRECV;
	const char *name = none ? NULL : bench_options_setting(t->options->algo, "TUTTI_ALGO"),
		   *reason;
	int rc = split(t, 0, name);

	if (rc)
		return rc;
	snprintf(t->algo_names[0], sizeof(t->algo_names[0]), "%s", name ? name : "auto");
	t->algos = 1;
	reason = refusal(t, 0);
	if (!reason)
		return 0;
	fprintf(stderr, "rank %d: --algo %s: %s\n", t->first, t->algo_names[0], reason);
	return 2;
}

static int create_measured(struct bench_thread *t)
{
	bool all = t->options->algo && !strcmp(t->options->algo, "all") &&
		   t->bench->collective != TT_SENDRECV;
	size_t most = 1;

	for (size_t i = 0; tt_algorithms[i]; i++)
		most++;
	t->algo_names = calloc(most, sizeof(*t->algo_names));
	for (int i = 0; i < t->nown; i++) {
		t->ranks[i].comms = calloc(most, sizeof(tuttiComm_t));
		t->ranks[i].mulsum = calloc(most, sizeof(tuttiRedOp_t));
		t->ranks[i].handles = calloc(2 * most, sizeof(void *));
		if (!t->algo_names || !t->ranks[i].comms || !t->ranks[i].mulsum ||
		    !t->ranks[i].handles) {
			fprintf(stderr, "rank %d: no memory for communicators\n", t->first + i);
			return 1;
		}
	}
	return all ? split_all(t) : split_one(t);
}

/* ---- open ------------------------------------------------------------------------------------ */

static int open_rank(struct bench_thread *t, struct bench_rank *r)
{
	set_device(r);
	if (bench_rank_make(r, t->options, t->bench, t->algos))
		return 1;
	if (t->options->null_stream)
		return 0;
	r->stream = r->cu_stream;
	if (!r->gpu.cu && tuttiStreamCreate(&r->stream))
		return bench_thread_complain(t, -1, "stream", tuttiSystemError);
	return 0;
}

int bench_thread_open(struct bench_thread *t)
{
	int rc;

	t->ranks = calloc((size_t)t->nown, sizeof(*t->ranks));
	if (!t->ranks) {
		fprintf(stderr, "rank %d: no memory for %d ranks\n", t->first, t->nown);
		return 1;
	}
	for (int i = 0; i < t->nown; i++) {
		t->ranks[i].rank = t->first + i;
		t->ranks[i].nranks = t->nranks;
	}
	rc = create_base(t);
	t->reports = t->first == 0;
	if (!rc && t->options->split.how)
		rc = split_base(t);
	if (!rc)
		rc = bench_thread_exchange_records(t);
	if (rc)
		return rc;
	if (t->options->root >= t->nranks) {
		if (t->reports)
			fprintf(stderr, "%s: -r %lld: no such rank; the ranks are 0 to %d\n",
				t->tool, (long long)t->options->root, t->nranks - 1);
		return 2;
	}
	if (t->options->pin && tool_pin(bench_thread_local_index(t)) < 0)
		fprintf(stderr, "rank %d: --pin: %s; continues unbound\n", t->first,
			strerror(errno));
	if (t->records[0].reports && !t->options->cuda && bench_limits_measure(t))
		return 1;
	if (t->reports && !(t->report = bench_report_open(t)))
		return 1;
	t->us_per_tick = bench_us_per_tick();
	rc = create_measured(t);
	for (int i = 0; i < t->nown && !rc; i++)
		rc = open_rank(t, &t->ranks[i]);
	return rc;
}

int bench_thread_totals(struct bench_thread *t, struct bench_totals *ret_totals)
{
	struct bench_totals *mine = calloc((size_t)t->nown, sizeof(*mine));
	struct bench_totals *all = calloc((size_t)t->nranks, sizeof(*all)),
			    sum = { .shm_bytes = 0 };
	int rc = 1;

	if (!mine || !all) {
		fprintf(stderr, "rank %d: no memory for the totals of %d ranks\n", t->first,
			t->nranks);
		goto free_tables;
	}
	for (int i = 0; i < t->nown; i++) {
		mine[i].buffer_bytes = bench_rank_bytes(t->options, t->bench);
		for (int a = 0; a < t->algos; a++) {
			tuttiCounters_t n = { .size = sizeof(n) };

			tuttiCommGetCounters(t->ranks[i].comms[a], &n);
			mine[i].shm_bytes += n.sent_bytes_shm;
			mine[i].tcp_bytes += n.sent_bytes_tcp;
			mine[i].verbs_bytes += n.sent_bytes_verbs;
			mine[i].library_bytes += n.memory_bytes;
		}
	}
	rc = bench_thread_gather(t, mine, sizeof(*mine), all);
	for (int r = 0; r < t->nranks; r++) {
		sum.shm_bytes += all[r].shm_bytes;
		sum.tcp_bytes += all[r].tcp_bytes;
		sum.verbs_bytes += all[r].verbs_bytes;
		if (all[r].library_bytes > sum.library_bytes)
			sum.library_bytes = all[r].library_bytes;
		if (all[r].buffer_bytes > sum.buffer_bytes)
			sum.buffer_bytes = all[r].buffer_bytes;
	}
	if (!rc)
		*ret_totals = sum;
free_tables:
	free(mine);
	free(all);
	return rc;
}

/* ---- close ----------------------------------------------------------------------------------- */

static void close_rank(struct bench_thread *t, struct bench_rank *r, bool failed)
{
	tuttiResult_t (*end)(tuttiComm_t comm) = failed ? tuttiCommAbort : tuttiCommDestroy;

	set_device(r);
	if (!failed)
		bench_rank_free(r, t->algos);
	if (r->stream && !r->gpu.cu && !failed)
		tuttiStreamDestroy(r->stream);
	for (int i = 0; r->comms && i < t->algos; i++) {
		if (r->comms[i])
			end(r->comms[i]);
		r->comms[i] = NULL;
	}
	if (r->group)
		end(r->group);
	if (r->base)
		end(r->base);
	if (failed)
		bench_rank_free(r, 0);
	if (r->cu_stream)
		r->gpu.cu->stream_destroy(r->cu_stream);
	free(r->comms);
	free(r->mulsum);
	free(r->handles);
}

void bench_thread_close(struct bench_thread *t, bool failed)
{
	for (int i = 0; t->ranks && i < t->nown; i++)
		close_rank(t, &t->ranks[i], failed);
	free(t->ranks);
	free(t->records);
	free(t->gpus);
	free(t->algo_names);
}

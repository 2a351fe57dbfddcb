/*
 * bench_thread.c - the ranks that one thread drives: joining, knowing the others, agreeing, leaving
 *
 * Called by bench_main.c (open, close), measure.c and sweep.c (gather, meet, complain). There is one
 * communicator for agreeing, and one more for each algorithm that is measured: counters and
 * deadlines of those show measured calls only.
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

static void complain(const struct bench_thread *c, const struct bench_rank *s, tuttiComm_t comm,
		     const char *what, tuttiResult_t result)
{
	const char *text = tuttiGetLastError(comm);
	char prefix[80];
	/* which rank it is to be, only the library may know yet */
	int rank = c->env && !s->base ? -1 : s->rank, said, length = 0;

	if (sscanf(text, "rank %d: %n", &said, &length) == 1 && length)
		rank = said;
	text += length;
	if (rank < 0)
		snprintf(prefix, sizeof(prefix), "%s: ", c->tool);
	else
		snprintf(prefix, sizeof(prefix), "rank %d: ", rank);
	fprintf(stderr, "%s%s: %s\n", prefix, what, *text ? text : tuttiGetErrorString(result));
}

static bool is_aborted(tuttiComm_t comm)
{
	return strstr(tuttiGetLastError(comm), "aborted the communicator");
}

/* Ranks abort all their communicators when one has failed. So where the one for agreeing was
 * aborted, the cause may stand in a measured one, though this rank was through with its calls. */
static tuttiComm_t find_cause(const struct bench_thread *c, const struct bench_rank *s)
{
	tuttiResult_t rc;

	for (int a = 0; s->comms && a < c->algos && is_aborted(s->base); a++)
		if (s->comms[a] && !tuttiCommGetAsyncError(s->comms[a], &rc) && rc &&
		    !is_aborted(s->comms[a]))
			return s->comms[a];
	return NULL;
}

int bench_thread_complain(struct bench_thread *c, int algo, const char *what, tuttiResult_t result)
{
	for (int i = 0; i < c->nseats; i++) {
		const struct bench_rank *s = &c->seats[i];
		tuttiComm_t cause = algo < 0 ? find_cause(c, s) : NULL;

		if (cause)
			complain(c, s, cause, "after its measured calls", result);
		else
			complain(c, s, algo < 0 ? s->base : s->comms[algo], what, result);
	}
	return 1;
}

/* ---- agreeing -------------------------------------------------------------------------------- */

int bench_thread_gather(struct bench_thread *c, const void *mine, size_t bytes, void *all)
{
	tuttiResult_t rc = tuttiSuccess, end = tuttiSuccess;
	size_t total = bytes * (size_t)c->nranks;
	char *rest = c->nseats > 1 ? malloc(total * (size_t)(c->nseats - 1)) : NULL;

	if (c->nseats > 1 && !rest) {
		fprintf(stderr, "rank %d: no memory for the figures of %d ranks\n", c->first,
			c->nranks);
		return 1;
	}
	if (c->nseats > 1)
		rc = tuttiGroupStart();
	for (int i = 0; i < c->nseats && !rc; i++)
		rc = tuttiAllGather((const char *)mine + (size_t)i * bytes,
				    i ? rest + (size_t)(i - 1) * total : all, bytes, tuttiInt8,
				    c->seats[i].base, NULL);
	if (c->nseats > 1)
		end = tuttiGroupEnd();
	free(rest);
	rc = rc ? rc : end;
	return rc ? bench_thread_complain(c, -1, "exchange of figures", rc) : 0;
}

int bench_thread_barrier(struct bench_thread *c)
{
	tuttiResult_t rc = tuttiSuccess, end = tuttiSuccess;

	if (c->nseats > 1)
		rc = tuttiGroupStart();
	for (int i = 0; i < c->nseats && !rc; i++)
		rc = tuttiBarrier(c->seats[i].base, NULL);
	if (c->nseats > 1)
		end = tuttiGroupEnd();
	rc = rc ? rc : end;
	return rc ? bench_thread_complain(c, -1, "barrier", rc) : 0;
}

/* ---- joining --------------------------------------------------------------------------------- */

static tuttiConfig_t make_config(const struct bench_thread *c, const char *algo, const char *name)
{
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;

	config.timeout_ms = (int)(c->line->timeout_s * 1000);
	config.transport = c->line->transport;
	config.algo = algo;
	config.name = name;
	return config;
}

/* 0, or 2: settings that the library refuses are a bad line, all else is a failure. */
static int init_error(struct bench_thread *c, int algo, const char *what, tuttiResult_t rc)
{
	if (!rc)
		return 0;
	bench_thread_complain(c, algo, what, rc);
	return rc == tuttiInvalidArgument ? 2 : 1;
}

static int join(struct bench_thread *c)
{
	tuttiConfig_t config = make_config(c, "auto", "perf");
	tuttiResult_t rc = tuttiSuccess, end = tuttiSuccess;

	if (c->env) {
		rc = tuttiCommInitEnv(&c->seats[0].base, &config);
		if (rc)
			return init_error(c, -1, "init", rc);
		tuttiCommCount(c->seats[0].base, &c->nranks);
		tuttiCommUserRank(c->seats[0].base, &c->first);
		c->seats[0].rank = c->first;
		c->seats[0].nranks = c->nranks;
		return 0;
	}
	if (c->nseats > 1)
		rc = tuttiGroupStart();
	for (int i = 0; i < c->nseats && !rc; i++)
		rc = tuttiCommInitRankConfig(&c->seats[i].base, c->nranks, c->id, c->first + i,
					     &config);
	if (c->nseats > 1)
		end = tuttiGroupEnd();
	return init_error(c, -1, "init", rc ? rc : end);
}

/* A rank's communicators have the device that is current when they are made. */
static void enter(const struct bench_rank *s)
{
	if (s->gpu.cu)
		s->gpu.cu->ctx_set(s->gpu.ctx);
}

/* The communicators of algorithm number algo. */
static int split(struct bench_thread *c, int algo, const char *name)
{
	tuttiConfig_t config = make_config(c, name, name ? name : "measured");
	tuttiResult_t rc = tuttiSuccess, end = tuttiSuccess;

	if (c->nseats > 1)
		rc = tuttiGroupStart();
	for (int i = 0; i < c->nseats && !rc; i++) {
		enter(&c->seats[i]);
		rc = tuttiCommSplit(c->seats[i].base, 0, c->seats[i].rank, &c->seats[i].comms[algo],
				    &config);
	}
	if (c->nseats > 1)
		end = tuttiGroupEnd();
	return init_error(c, -1, "split", rc ? rc : end);
}

/* Does the algorithm apply to these ranks? All get the same answer. */
static const char *refusal(struct bench_thread *c, int algo)
{
	const char *collective = tt_collective_name(c->bench->collective);
	char text[160];

	if (c->bench->collective == TT_SENDRECV)
		return NULL;
	if (!tuttiCommDescribe(c->seats[0].comms[algo], collective, 1, tuttiFloat32, text,
			       sizeof(text)))
		return NULL;
	return tuttiGetLastError(c->seats[0].comms[algo]);
}

static void leave(struct bench_thread *c, int algo)
{
	for (int i = 0; i < c->nseats; i++) {
		tuttiCommDestroy(c->seats[i].comms[algo]);
		c->seats[i].comms[algo] = NULL;
	}
}

/* --algo all: every one of the table that applies to these ranks. */
static int split_all(struct bench_thread *c)
{
	for (int i = 0; tt_algorithms[i]; i++) {
		const struct tt_algorithm *a = tt_algorithms[i];
		const char *reason;
		int rc;

		if (a->collective != c->bench->collective)
			continue;
		rc = split(c, c->algos, a->name);
		if (rc)
			return rc;
		reason = refusal(c, c->algos);
		if (reason) {
			if (c->report)
				bench_report_note(a->name, reason);
			leave(c, c->algos);
			continue;
		}
		snprintf(c->algo_names[c->algos++], sizeof(c->algo_names[0]), "%s", a->name);
	}
	return 0;
}

static int split_one(struct bench_thread *c)
{
	bool none = c->bench->collective == TT_SENDRECV;
	const char *name = none ? NULL : bench_options_setting(c->line->algo, "TUTTI_ALGO"), *reason;
	int rc = split(c, 0, name);

	if (rc)
		return rc;
	snprintf(c->algo_names[0], sizeof(c->algo_names[0]), "%s", name ? name : "auto");
	c->algos = 1;
	reason = refusal(c, 0);
	if (!reason)
		return 0;
	fprintf(stderr, "rank %d: --algo %s: %s\n", c->first, c->algo_names[0], reason);
	return 2;
}

static int join_measured(struct bench_thread *c)
{
	bool all = c->line->algo && !strcmp(c->line->algo, "all") &&
		   c->bench->collective != TT_SENDRECV;
	size_t most = 1;

	for (size_t i = 0; tt_algorithms[i]; i++)
		most++;
	c->algo_names = calloc(most, sizeof(*c->algo_names));
	for (int i = 0; i < c->nseats; i++) {
		c->seats[i].comms = calloc(most, sizeof(tuttiComm_t));
		c->seats[i].mulsum = calloc(most, sizeof(tuttiRedOp_t));
		c->seats[i].handles = calloc(2 * most, sizeof(void *));
		if (!c->algo_names || !c->seats[i].comms || !c->seats[i].mulsum ||
		    !c->seats[i].handles) {
			fprintf(stderr, "rank %d: no memory\n", c->first + i);
			return 1;
		}
	}
	return all ? split_all(c) : split_one(c);
}

/* ---- opening --------------------------------------------------------------------------------- */

static int open_seat(struct bench_thread *c, struct bench_rank *s)
{
	enter(s);
	if (bench_rank_make(s, c->line, c->bench, c->algos))
		return 1;
	if (c->line->null_stream)
		return 0;
	s->stream = s->own;
	if (!s->gpu.cu && tuttiStreamCreate(&s->stream))
		return bench_thread_complain(c, -1, "stream", tuttiSystemError);
	return 0;
}

int bench_thread_open(struct bench_thread *c)
{
	int rc;

	c->seats = calloc((size_t)c->nseats, sizeof(*c->seats));
	if (!c->seats) {
		fprintf(stderr, "rank %d: no memory\n", c->first);
		return 1;
	}
	for (int i = 0; i < c->nseats; i++) {
		c->seats[i].rank = c->first + i;
		c->seats[i].nranks = c->nranks;
	}
	rc = join(c);
	if (!rc)
		rc = bench_thread_exchange_records(c);
	if (rc)
		return rc;
	if (c->line->root >= c->nranks) {
		if (c->first == 0)
			fprintf(stderr, "%s: -r %lld: there are only %d ranks\n", c->tool,
				(long long)c->line->root, c->nranks);
		return 2;
	}
	if (c->line->pin && tool_pin(bench_thread_local_index(c)) < 0)
		fprintf(stderr, "rank %d: --pin: %s; going on unbound\n", c->first,
			strerror(errno));
	if (c->first == 0 && !(c->report = bench_report_open(c)))
		return 1;
	c->us_per_tick = bench_us_per_tick();
	rc = join_measured(c);
	for (int i = 0; i < c->nseats && !rc; i++)
		rc = open_seat(c, &c->seats[i]);
	return rc;
}

int bench_thread_totals(struct bench_thread *c, struct bench_totals *ret_totals)
{
	struct bench_totals *mine = calloc((size_t)c->nseats, sizeof(*mine));
	struct bench_totals *all = calloc((size_t)c->nranks, sizeof(*all)), sum = { .shm_bytes = 0 };
	int rc = 1;

	if (!mine || !all) {
		fprintf(stderr, "rank %d: no memory for the totals of %d ranks\n", c->first,
			c->nranks);
		goto free_tables;
	}
	for (int i = 0; i < c->nseats; i++) {
		mine[i].buffer_bytes = bench_rank_bytes(c->line, c->bench);
		for (int a = 0; a < c->algos; a++) {
			tuttiCounters_t n = { .size = sizeof(n) };

			tuttiCommGetCounters(c->seats[i].comms[a], &n);
			mine[i].shm_bytes += n.sent_bytes_shm;
			mine[i].tcp_bytes += n.sent_bytes_tcp;
			mine[i].verbs_bytes += n.sent_bytes_verbs;
			mine[i].library_bytes += n.memory_bytes;
		}
	}
	rc = bench_thread_gather(c, mine, sizeof(*mine), all);
	for (int r = 0; r < c->nranks; r++) {
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

/* ---- leaving --------------------------------------------------------------------------------- */

static void close_seat(struct bench_thread *c, struct bench_rank *s, bool failed)
{
	tuttiResult_t (*end)(tuttiComm_t comm) = failed ? tuttiCommAbort : tuttiCommDestroy;

	enter(s);
	if (!failed)
		bench_rank_free(s, c->algos);
	if (s->stream && !s->gpu.cu && !failed)
		tuttiStreamDestroy(s->stream);
	for (int i = 0; s->comms && i < c->algos; i++) {
		if (s->comms[i])
			end(s->comms[i]);
		s->comms[i] = NULL;
	}
	if (s->base)
		end(s->base);
	if (failed)
		bench_rank_free(s, 0);
	if (s->own)
		s->gpu.cu->stream_destroy(s->own);
	free(s->comms);
	free(s->mulsum);
	free(s->handles);
}

void bench_thread_close(struct bench_thread *c, bool failed)
{
	for (int i = 0; c->seats && i < c->nseats; i++)
		close_seat(c, &c->seats[i], failed);
	free(c->seats);
	free(c->cards);
	free(c->gpus);
	free(c->algo_names);
}

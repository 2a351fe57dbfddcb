/*
 * simulated_job.c - what the ranks of a schedule do, the faults, and what must hold
 *
 * All ranks join, run some operations that the seed draws, and leave. A rank whose operation fails
 * shrinks with the others and goes on in the new communicator, or gives up. After each call:
 *
 *   - it has returned in time: a death within 2 s, anything else at the deadline and a little more
 *   - a success has the right data; an error has its reason in a fault, and a sentence
 *   - a rank that is reported dead was harmed, a rank that is reported left has left
 *   - messages come once and in order; one quorum operation has one mask and one result everywhere
 *   - members of a new communicator agree on who they are; it has the majority of its parent
 *
 * and at the end no thread and no descriptor of a process is left.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/simulation/simulation.h"
#include "tutti.h"

#define RANKS 20
#define MOST_EPOCHS 4
#define TIMEOUT_NS (10 * SIM_SECOND) /* TUTTI_TIMEOUT_MS */
#define SLACK_NS (3 * SIM_SECOND)    /* delays, and answers of others at the deadline */
#define NOTICE_NS (2 * SIM_SECOND)   /* tuttiCommRankState(3): a death is known within 2 s */
#define END_NS (900 * SIM_SECOND)
#define RECORDS 256
#define SENTENCES 3 /* printed for a schedule */

enum faults { NONE, KILLS, STOPS, CUTS, LOSSES, MEMORY, GARBLES, FAULTS };

static const char *const fault_names[FAULTS] = {
	"no fault", "kills", "stops", "cuts", "lost connections", "no memory", "garbled bytes",
};

struct worker {
	struct sim_process process;
	bool harmed;   /* it, or its network */
	bool disturbs; /* fails the others' calls: aborts, or has given up */
	bool joined;
	uint64_t left_ns; /* its first departure from a communicator */
};

/* A communicator, as one rank sees it */
struct world {
	tuttiComm_t comm;
	int shrinks;  /* before it */
	uint64_t key; /* equal on all its members, different from others */
	int rank, n;
	int member[RANKS]; /* processes */
	bool known;        /* member is */
	int sent[RANKS], received[RANKS];
};

/* The result of a quorum operation, by communicator and number */
struct record {
	uint64_t key, sequence, mask;
	int64_t value;
};

struct sim_job {
	uint64_t seed;
	int n;
	enum faults faults;
	struct worker worker[RANKS];
	tuttiUniqueId id;
	bool has_id;
	bool misused;           /* by calls that do not fit */
	uint64_t first_kill_ns; /* SIM_NEVER: none yet */
	struct record records[RECORDS];
	int nrecords;
	int failed; /* sentences */
};

/* ---- failures of the schedule ------------------------------------------------------------------ */

static void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void fail(const char *format, ...)
{
	va_list args;

	if (sim->job->failed++ >= SENTENCES)
		return;
	fprintf(stderr, "seed %llu (%d processes, %s), %.6f s", (unsigned long long)sim->job->seed,
		sim->job->n, fault_names[sim->job->faults], 1e-9 * (double)sim->now_ns);
	if (sim->process)
		fprintf(stderr, ", process %d", sim->process->number);
	fprintf(stderr, ": ");
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\n");
}

/* Draws that all ranks make alike: by the seed, the communicator and the number of the operation */
static uint32_t common(uint64_t key, int index, int what, uint32_t n)
{
	uint64_t z = sim->job->seed * 0x9e3779b97f4a7c15ull ^ key * 0xbf58476d1ce4e5b9ull ^
		     (uint64_t)(index * 16 + what) * 0x94d049bb133111ebull;

	z = (z ^ z >> 31) * 0xd6e8feb86659fd93ull;
	z = (z ^ z >> 32) * 0xd6e8feb86659fd93ull;
	return (uint32_t)((z >> 32) * n >> 32);
}

/* ---- verdicts ---------------------------------------------------------------------------------- */

static bool any_harmed(void)
{
	if (sim->job->misused)
		return true;
	for (int i = 0; i < sim->job->n; i++)
		if (sim->job->worker[i].harmed || sim->job->worker[i].disturbs)
			return true;
	return false;
}

static void check_states(const struct world *w)
{
	/* a rank without memory may have closed a connection itself */
	for (int r = 0; w->known && !sim->job->worker[sim->process->number].harmed && r < w->n;
	     r++) {
		const struct worker *other = &sim->job->worker[w->member[r]];
		tuttiRankState_t state;

		if (tuttiCommRankState(w->comm, r, &state))
			fail("the state of rank %d cannot be asked for", r);
		else if (state == tuttiRankDead && !other->harmed && !other->disturbs &&
			 !other->left_ns)
			fail("rank %d (process %d) is reported dead and is not", r, w->member[r]);
		else if (state == tuttiRankLeft && other->joined && !other->left_ns)
			fail("rank %d (process %d) is reported left and is not", r, w->member[r]);
	}
}

/* The moment from which a death explains an error of a call that began at began_ns */
static uint64_t reason_ns(uint64_t began_ns)
{
	return sim->job->first_kill_ns == SIM_NEVER || sim->job->first_kill_ns < began_ns
		       ? began_ns
		       : sim->job->first_kill_ns;
}

/* A call has returned rc. */
static void check_call(const struct world *w, const char *what, tuttiResult_t rc, uint64_t began_ns,
		       uint64_t limit_ns)
{
	struct worker *me = &sim->job->worker[sim->process->number];
	const char *text = tuttiGetLastError(w ? w->comm : NULL);

	sim_trace("process %d: %s: %s%s%s", sim->process->number, what, tuttiGetErrorString(rc),
		  rc ? ": " : "", rc ? text : "");
	if (sim->now_ns - began_ns > limit_ns && !me->harmed)
		fail("%s took %.3f s: %s", what, 1e-9 * (double)(sim->now_ns - began_ns), text);
	if (!rc)
		return;
	if (!text[0])
		fail("%s: error %d without a sentence", what, rc);
	if (!any_harmed())
		fail("%s failed without a fault: %s", what, text);
	if (sim->job->faults == KILLS && rc == tuttiTimeout)
		fail("%s timed out beside a death: %s", what, text);
	if (sim->job->faults == KILLS && sim->now_ns - reason_ns(began_ns) > limit_ns)
		fail("%s noticed a death after %.3f s: %s", what,
		     1e-9 * (double)(sim->now_ns - reason_ns(began_ns)), text);
	if (w)
		check_states(w);
}

/* ---- operations -------------------------------------------------------------------------------- */

static int64_t value_of(int process, int index)
{
	return (int64_t)(process + 1) * 1000 + index;
}

static int64_t sum_of(const struct world *w, int index)
{
	int64_t sum = 0;

	for (int r = 0; r < w->n; r++)
		sum += value_of(w->member[r], index);
	return sum;
}

static void check_values(const char *what, bool over_tcp, const int64_t *got, size_t count,
			 int64_t expected)
{
	/* the transport is encrypted from rank to rank, control and messages from host to host */
	if (sim->job->faults == GARBLES && !(sim->encrypts && over_tcp))
		return;
	for (size_t i = 0; i < count; i++)
		if (got[i] != expected) {
			fail("%s: element %zu is %lld, not %lld", what, i, (long long)got[i],
			     (long long)expected);
			return;
		}
}

static tuttiResult_t allreduce(struct world *w, int index)
{
	static const size_t counts[] = { 1, 7, 600, 5000, 40000 };
	size_t count = counts[common(w->key, index, 1, 5)];
	int64_t *data = sim_alloc(count * sizeof(*data));
	uint64_t began = sim->now_ns;
	tuttiResult_t rc;

	for (size_t i = 0; i < count; i++)
		data[i] = value_of(w->member[w->rank], index);
	rc = tuttiAllReduce(data, data, count, tuttiInt64, tuttiSum, w->comm, NULL);
	check_call(w, "allreduce", rc, began, TIMEOUT_NS + SLACK_NS);
	if (!rc)
		check_values("allreduce", true, data, count, sum_of(w, index));
	free(data);
	return rc;
}

static tuttiResult_t broadcast(struct world *w, int index)
{
	int root = (int)common(w->key, index, 1, (uint32_t)w->n);
	size_t count = common(w->key, index, 2, 2) ? 3 : 3000;
	int64_t *data = sim_alloc(count * sizeof(*data));
	uint64_t began = sim->now_ns;
	tuttiResult_t rc;

	for (size_t i = 0; i < count; i++)
		data[i] = value_of(w->member[w->rank], index);
	rc = tuttiBcast(data, count, tuttiInt64, root, w->comm, NULL);
	check_call(w, "broadcast", rc, began, TIMEOUT_NS + SLACK_NS);
	if (!rc)
		check_values("broadcast", true, data, count, value_of(w->member[root], index));
	free(data);
	return rc;
}

static tuttiResult_t barrier(struct world *w, int index)
{
	uint64_t began = sim->now_ns;
	tuttiResult_t rc = tuttiBarrier(w->comm, NULL);

	(void)index;
	check_call(w, "barrier", rc, began, TIMEOUT_NS + SLACK_NS);
	return rc;
}

/* One send and one receive in a ring, in one group */
static tuttiResult_t exchange(struct world *w, int index)
{
	int next = (w->rank + 1) % w->n, before = (w->rank + w->n - 1) % w->n;
	int64_t out = value_of(w->member[w->rank], index), in = 0;
	uint64_t began = sim->now_ns;
	tuttiResult_t rc;

	if (w->n == 1)
		return tuttiSuccess;
	tuttiGroupStart();
	tuttiSend(&out, 1, tuttiInt64, next, w->comm, NULL);
	tuttiRecv(&in, 1, tuttiInt64, before, w->comm, NULL);
	rc = tuttiGroupEnd();
	check_call(w, "send and receive", rc, began, TIMEOUT_NS + SLACK_NS);
	if (!rc)
		check_values("receive", true, &in, 1, value_of(w->member[before], index));
	return rc;
}

/* A message of rank r, in turns: a break does not end a receive, but the others may shrink already. */
static tuttiResult_t receive(struct world *w, void *data, size_t bytes, int r)
{
	tuttiResult_t rc = tuttiInProgress, broken = tuttiSuccess;

	for (int turn = 0; rc == tuttiInProgress && !broken && turn < 50; turn++) {
		uint64_t began = sim->now_ns;

		rc = tuttiMsgRecv(data, bytes, r, 5, 200, w->comm, NULL);
		check_call(w, "receive a message", rc == tuttiInProgress ? 0 : rc, began,
			   SIM_SECOND + SLACK_NS);
		tuttiCommGetAsyncError(w->comm, &broken);
	}
	return rc == tuttiInProgress && broken ? broken : rc;
}

/* Messages to every rank; then as many are received from every rank that lives. */
static tuttiResult_t messages(struct world *w, int index)
{
	int each = 1 + (int)common(w->key, index, 1, 4);
	size_t bytes = common(w->key, index, 2, 3) ? 16 : 100000;
	int *data = sim_alloc(bytes);
	tuttiResult_t rc = tuttiSuccess;
	uint64_t began;

	for (int i = 0; i < each; i++)
		for (int r = 0; r < w->n; r++) {
			data[0] = w->rank;
			data[1] = w->sent[r]++;
			began = sim->now_ns;
			rc = tuttiMsgSend(data, bytes, r, 5, 0, w->comm);
			/* a time-out begins with each byte that the peer accepts */
			check_call(w, "message", rc, began, 2 * TIMEOUT_NS + SLACK_NS);
		}
	for (int r = 0; r < w->n; r++) {
		tuttiResult_t got = tuttiSuccess;

		for (int i = 0; i < each && !got; i++) {
			got = receive(w, data, bytes, r);
			if (got == tuttiInProgress && !any_harmed())
				fail("message %d of rank %d did not come", w->received[r], r);
			if (got)
				continue;
			/* one that its sender could not send is missing */
			if (sim->job->faults != GARBLES &&
			    (data[0] != r || data[1] < w->received[r] ||
			     (data[1] > w->received[r] && !any_harmed())))
				fail("message %d of rank %d came for message %d of rank %d",
				     data[1], data[0], w->received[r], r);
			w->received[r] = data[1] + 1;
		}
		rc = rc ? rc : got;
	}
	free(data);
	return rc;
}

static void check_record(const struct record *mine)
{
	if (sim->job->faults == GARBLES)
		return;
	for (int i = 0; i < sim->job->nrecords; i++) {
		const struct record *r = &sim->job->records[i];

		if (r->key != mine->key || r->sequence != mine->sequence)
			continue;
		if (r->mask != mine->mask || r->value != mine->value)
			fail("quorum operation %llu: mask %llx and value %lld here, %llx and %lld "
			     "at another rank",
			     (unsigned long long)mine->sequence, (unsigned long long)mine->mask,
			     (long long)mine->value, (unsigned long long)r->mask,
			     (long long)r->value);
		return;
	}
	if (sim->job->nrecords < RECORDS)
		sim->job->records[sim->job->nrecords++] = *mine;
}

static tuttiResult_t quorum(struct world *w, int index)
{
	tuttiQuorum_t q = TUTTI_QUORUM_INITIALIZER;
	int64_t mine = value_of(w->member[w->rank], 0), sum = 0, expected = 0;
	int k = 1 + (int)common(w->key, index, 1, (uint32_t)w->n);
	uint64_t began = sim->now_ns;
	tuttiResult_t rc = tuttiAllReduceQuorum(&mine, &sum, 1, tuttiInt64, tuttiSum, k, 50,
						w->comm, NULL, &q);

	check_call(w, "quorum allreduce", rc, began, TIMEOUT_NS + SLACK_NS);
	if (rc)
		return rc;
	for (int r = 0; r < w->n; r++)
		if (q.mask[0] >> r & 1)
			expected += value_of(w->member[r], 0);
	check_values("quorum allreduce", false, &sum, 1, expected);
	check_record(&(struct record){ w->key, q.sequence, q.mask[0], sum });
	return barrier(w, index); /* rank 0, which computes the sum, may not leave before */
}

static void add_member(struct world *w, int rank, int process)
{
	w->member[rank] = process;
	w->key = (w->key ^ (uint64_t)process) * 0x9e3779b97f4a7c15ull;
	w->key ^= w->key >> 29;
}

/* Learn who the members are: each contributes its process number. */
static tuttiResult_t introduce(struct world *w)
{
	uint64_t began = sim->now_ns;
	tuttiResult_t rc;
	int32_t me = sim->process->number, all[RANKS];

	tuttiCommCount(w->comm, &w->n);
	tuttiCommUserRank(w->comm, &w->rank);
	rc = tuttiAllGather(&me, all, 1, tuttiInt32, w->comm, NULL);
	check_call(w, "allgather", rc, began, TIMEOUT_NS + SLACK_NS);
	for (int r = 0; r < w->n && !rc; r++) {
		if (all[r] < 0 || all[r] >= sim->job->n || (r && all[r] <= all[r - 1])) {
			if (sim->job->faults != GARBLES)
				fail("rank %d of a communicator is process %d", r, all[r]);
			return tuttiRemoteError;
		}
		add_member(w, r, all[r]);
	}
	w->known = !rc;
	return rc;
}

static void leave(struct world *w)
{
	uint64_t began = sim->now_ns;
	struct worker *me = &sim->job->worker[sim->process->number];
	uint32_t how = sim_random(3);
	tuttiResult_t rc;

	if (!me->left_ns)
		me->left_ns = sim->now_ns;
	if (how == 0 && !tuttiCommFinalize(w->comm))
		sim_trace("process %d has finalized", sim->process->number);
	me->disturbs |= how == 1;
	rc = how == 1 ? tuttiCommAbort(w->comm) : tuttiCommDestroy(w->comm);
	check_call(NULL, how == 1 ? "abort" : "destroy", rc, began, TIMEOUT_NS + SLACK_NS);
}

/* One rank calls something else: that is everybody's error at the next operation at the latest. */
static tuttiResult_t mismatch(struct world *w, int index)
{
	int wrong = (int)common(w->key, index, 3, (uint32_t)w->n);
	tuttiResult_t rc;

	if (w->n == 1)
		return tuttiSuccess;
	sim->job->misused = true;
	rc = w->rank == wrong ? barrier(w, index) : allreduce(w, index);
	rc = rc ? rc : barrier(w, index);
	if (!rc)
		fail("calls that do not fit are no error");
	return rc;
}

/* All ranks wait for each other: found by their statuses, long before the time-out. */
static tuttiResult_t deadlock(struct world *w, int index)
{
	int next = (w->rank + 1) % w->n;
	uint64_t began = sim->now_ns;
	int64_t in;
	tuttiResult_t rc;

	(void)index;
	if (w->n == 1)
		return tuttiSuccess;
	sim->job->misused = true;
	rc = tuttiRecv(&in, 1, tuttiInt64, next, w->comm, NULL);
	check_call(w, "deadlock", rc, began, TIMEOUT_NS + SLACK_NS);
	if (!rc)
		fail("a receive without a send is no error");
	if (sim->job->faults == NONE && rc == tuttiTimeout)
		fail("a deadlock is not found: %s", tuttiGetLastError(w->comm));
	return rc;
}

/* Split in two, use the half, leave it. */
static tuttiResult_t split(struct world *w, int index)
{
	struct world half = { .key = w->key * 7 + (uint64_t)index };
	int color = (int)common(w->key, index, 4 + w->rank, 3);
	uint64_t began = sim->now_ns;
	tuttiResult_t rc = tuttiCommSplit(w->comm, color - 1, w->rank, &half.comm, NULL);

	check_call(w, "split", rc, began, TIMEOUT_NS + SLACK_NS);
	if (rc || !half.comm)
		return rc;
	rc = introduce(&half);
	for (int i = 0; i < 2 && !rc; i++)
		rc = i ? barrier(&half, i) : allreduce(&half, i);
	if (!sim->job->worker[sim->process->number].left_ns)
		sim->job->worker[sim->process->number].left_ns = sim->now_ns;
	began = sim->now_ns;
	check_call(NULL, "destroy a half", tuttiCommDestroy(half.comm), began,
		   TIMEOUT_NS + SLACK_NS);
	return rc;
}

static tuttiResult_t (*const operations[])(struct world *, int) = {
	allreduce, allreduce, broadcast, barrier, exchange, messages, quorum, split,
};

static tuttiResult_t run_epoch(struct world *w)
{
	uint32_t noperations = sizeof(operations) / sizeof(operations[0]);
	int n = 1 + (int)common(w->key, 0, 0, 5);
	tuttiResult_t rc = tuttiSuccess;

	for (int i = 0; i < n && !rc; i++) {
		if (sim_random(4) == 0) /* this rank computes */
			sim_sleep(sim->job, sim->now_ns + sim_random_scale(1000, 20 * SIM_MS));
		switch (common(w->key, i, 5, 60)) {
		case 0:
			rc = mismatch(w, i);
			break;
		case 1:
			rc = deadlock(w, i);
			break;
		default:
			rc = operations[common(w->key, i, 0, noperations)](w, i);
		}
	}
	return rc;
}

/* ---- a rank ------------------------------------------------------------------------------------ */

static tuttiResult_t shrink(struct world *w)
{
	struct world next = { .shrinks = w->shrinks + 1, .key = ((uint64_t)w->shrinks + 1) << 32 };
	uint64_t began = sim->now_ns;
	bool aborts = sim_random(2);
	tuttiResult_t rc;

	sim->job->worker[sim->process->number].disturbs |= aborts;
	rc = tuttiCommShrink(w->comm, NULL, 0, &next.comm, NULL,
			     aborts ? TUTTI_SHRINK_ABORT : TUTTI_SHRINK_DEFAULT);
	check_call(w, "shrink", rc, began, (2 + 3 * (uint64_t)sim->job->n / 2) * TIMEOUT_NS);
	if (rc)
		return rc;
	tuttiCommCount(next.comm, &next.n);
	if (2 * next.n <= w->n)
		fail("a shrink of %d ranks left %d, no majority", w->n, next.n);
	rc = introduce(&next);
	sim->job->worker[sim->process->number].left_ns = began = sim->now_ns;
	check_call(NULL, "destroy the old communicator", tuttiCommDestroy(w->comm), began,
		   TIMEOUT_NS + SLACK_NS);
	*w = next;
	return rc;
}

static tuttiResult_t join(struct worker *me, struct world *w)
{
	uint64_t began;
	tuttiResult_t rc;

	sim_sleep(me, sim->now_ns + sim_random_scale(1000, 40 * SIM_MS));
	if (me->process.number == 0) {
		rc = tuttiGetUniqueId(&sim->job->id);
		if (rc)
			return rc;
		sim->job->has_id = true;
		sim_wake(&sim->job->has_id);
	}
	while (!sim->job->has_id && !sim_sleep(&sim->job->has_id, sim->now_ns + TIMEOUT_NS))
		return tuttiTimeout; /* process 0 has died */
	began = sim->now_ns;
	rc = tuttiCommInitRank(&w->comm, sim->job->n, sim->job->id, me->process.number);
	/* before the end of the join rank 0 only waits for ranks that did not come */
	check_call(NULL, "join", rc == tuttiTimeout && any_harmed() ? 0 : rc, began,
		   TIMEOUT_NS + SLACK_NS);
	return rc;
}

static void rank_main(void *arg)
{
	struct worker *me = arg;
	struct world w = { .n = sim->job->n };
	tuttiResult_t rc = join(me, &w);
	int epoch = 0;

	if (rc || !w.comm) {
		me->disturbs = true;
		return;
	}
	me->joined = true;
	for (int r = 0; r < w.n; r++)
		add_member(&w, r, r);
	w.rank = me->process.number;
	w.known = true;
	for (; epoch < MOST_EPOCHS; epoch++) {
		rc = rc ? rc : run_epoch(&w);
		if (!rc && common(w.key, 0, 2, 3))
			break; /* else shrink without a failure */
		rc = shrink(&w);
		if (rc && !w.comm)
			break;
		if (rc && rc != tuttiRemoteError)
			break;
	}
	me->disturbs |= rc != tuttiSuccess;
	leave(&w);
	if (me->process.ndescriptors || me->process.nthreads != 1)
		fail("%d descriptors and %d threads are left", me->process.ndescriptors,
		     me->process.nthreads - 1);
}

/* ---- faults ------------------------------------------------------------------------------------ */

static void kill_one(void *arg)
{
	sim_kill(arg);
}

/* Called by the simulation at every kill. */
void sim_killed(const struct sim_process *p)
{
	sim->job->worker[p->number].harmed = true;
	if (sim->job->first_kill_ns == SIM_NEVER)
		sim->job->first_kill_ns = sim->now_ns;
}

static void stop_one(void *arg)
{
	struct sim_process *p = arg;

	p->stopped = !p->ended && !p->dead;
	sim_trace("process %d is stopped", p->number);
}

static void continue_one(void *arg)
{
	struct sim_process *p = arg;

	p->stopped = false;
	sim_trace("process %d continues", p->number);
}

static void plan_kills(void)
{
	int victims = 1 + (int)sim_random((uint32_t)sim->job->n - 1);

	while (victims--) {
		struct sim_process *p =
			&sim->job->worker[sim_random((uint32_t)sim->job->n)].process;

		if (sim_random(4))
			p->kill_at = sim_random_scale(16, 8192);
		else
			sim_at(sim_random_scale(SIM_MS, 400 * SIM_MS), kill_one, p);
	}
}

static void plan_stops(void)
{
	int victims = 1 + (int)sim_random((uint32_t)sim->job->n - 1);

	while (victims--) {
		struct worker *w = &sim->job->worker[sim_random((uint32_t)sim->job->n)];
		uint64_t when = sim_random_scale(SIM_MS, 200 * SIM_MS);

		w->harmed = true;
		sim_at(when, stop_one, &w->process);
		if (sim_random(2))
			sim_at(when + sim_random_scale(SIM_MS, 60 * SIM_SECOND), continue_one,
			       &w->process);
	}
}

struct cut {
	unsigned side; /* hosts of one side */
	bool forth, back;
};

static void change_cut(const struct cut *c, bool cut)
{
	for (int a = 0; a < sim->job->n; a++)
		for (int b = 0; b < sim->job->n; b++) {
			bool in_a = c->side >> a & 1, in_b = c->side >> b & 1;

			if (in_a != in_b && (in_a ? c->forth : c->back))
				sim_network_cut(a, b, cut);
		}
}

static void cut_now(void *arg)
{
	change_cut(arg, true);
}

static void repair(void *arg)
{
	change_cut(arg, false);
}

static void plan_cut(void)
{
	struct cut *c = sim_alloc(sizeof(*c));
	uint64_t when = sim_random_scale(SIM_MS, 200 * SIM_MS);
	uint32_t way = sim_random(4);

	c->side = 1 + sim_random((1u << sim->job->n) - 2);
	c->forth = way != 0;
	c->back = way != 1;
	for (int i = 0; i < sim->job->n; i++)
		sim->job->worker[i].harmed = true;
	sim_at(when, cut_now, c);
	if (sim_random(2))
		sim_at(when + sim_random_scale(SIM_MS, 60 * SIM_SECOND), repair, c);
}

static void lose_one(void *arg)
{
	int a, b;

	(void)arg;
	if (sim_network_lose(&a, &b))
		sim->job->worker[a].harmed = sim->job->worker[b].harmed = true;
}

static void plan_faults(void)
{
	switch (sim->job->faults) {
	case KILLS:
		plan_kills();
		break;
	case STOPS:
		plan_stops();
		break;
	case CUTS:
		plan_cut();
		break;
	case LOSSES:
		for (int i = sim_random(3) ? 1 : 3; i; i--)
			sim_at(sim_random_scale(SIM_MS, 400 * SIM_MS), lose_one, NULL);
		break;
	case GARBLES:
		/* what a compromised rank says is not true, but harms no process */
		sim->job->worker[sim_random((uint32_t)sim->job->n)].process.garbles = (uint32_t)
			sim_random_scale(4, 512);
		for (int i = 0; i < sim->job->n; i++)
			sim->job->worker[i].harmed = true;
		break;
	case MEMORY: {
		struct worker *w = &sim->job->worker[sim_random((uint32_t)sim->job->n)];

		w->harmed = true;
		w->process.fail_at = sim_random_scale(1, 2048);
		break;
	}
	default:
		break;
	}
}

/* ---- a schedule -------------------------------------------------------------------------------- */

int sim_job(const struct sim_plan *plan)
{
	struct sim_job *job;

	sim_begin(plan->seed, plan->trace);
	job = sim->job = sim_alloc(sizeof(*job));
	sim->encrypts = sim_random(4) == 0;
	job->seed = plan->seed;
	/* mostly a tree of one level */
	job->n = sim_random(8) ? 2 + (int)sim_random(7) : 9 + (int)sim_random(RANKS - 8);
	job->faults = (enum faults)sim_random(FAULTS);
	job->first_kill_ns = SIM_NEVER;
	for (int i = 0; i < job->n; i++) {
		job->worker[i].process.number = job->worker[i].process.host = i;
		sim_process_begin(&job->worker[i].process, rank_main, &job->worker[i]);
	}
	plan_faults();
	sim_memory_begin();
	if (!sim_run(END_NS)) {
		for (int i = 0; i < job->n; i++)
			if (job->worker[i].process.stopped)
				sim_kill(&job->worker[i].process);
		if (!sim_run(2 * END_NS)) {
			fail("threads wait or work for ever:");
			sim_threads_print();
		}
	}
	return job->failed > 0;
}

/*
 * survival_recovery.c - phases that outlive a death: messages, quorum allreduce, shrink; and abort
 *
 * A death breaks neither messages nor quorums, so a rank notices it by a receive or a mask, then by a
 * barrier, whose error names the dead.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/survival/survival.h"

#define COUNT 200

static bool is_peer(const struct scene_rank *w, int other)
{
	return other != w->rank && !scene_may_name(w, other);
}

/* The communicator is broken for collectives: the error of a barrier names the dead. */
static void judge_barrier(struct scene_rank *w)
{
	tuttiResult_t rc;

	do {
		scene_call(w, "barrier after the fault");
		rc = tuttiBarrier(w->comm, NULL);
	} while (!rc);
	scene_failed(w, rc, tuttiGetLastError(NULL));
	scene_judge_error(w);
}

/* ---- messages -------------------------------------------------------------------------------- */

enum { TAG_ROUND, TAG_NEVER, TAG_LAST };

/* Receives what is there; messages of a rank come in order. */
static void drain(struct scene_rank *w, uint64_t *last, int timeout_ms)
{
	uint64_t value;
	tuttiMsg_t m;

	while (!tuttiMsgRecv(&value, sizeof(value), TUTTI_ANY, TAG_ROUND, timeout_ms, w->comm,
			     &m)) {
		if (value != m.version * 1000 + (unsigned)m.source || m.version <= last[m.source])
			scene_problem(w,
				      "message %llu of rank %d has value %llu, after number %llu",
				      (unsigned long long)m.version, m.source,
				      (unsigned long long)value,
				      (unsigned long long)last[m.source]);
		last[m.source] = m.version;
		timeout_ms = 0;
	}
}

/* A receive from each dead rank ends: killed, with an error that names it; else at its timeout. */
static void receive_from_victims(struct scene_rank *w)
{
	const struct scene *s = w->s;
	char name[32];
	int none;

	for (int r = 0; r < s->n; r++) {
		tuttiResult_t rc;

		if (!scene_may_name(w, r) || !scene_can_know(w, r))
			continue;
		scene_call(w, "receive from a victim");
		rc = tuttiMsgRecv(&none, sizeof(none), r, TAG_NEVER,
				  s->kind == SCENE_KILL ? -1 : s->timeout_ms, w->comm, NULL);
		scene_failed(w, rc,
			     rc == tuttiInProgress ? "in progress" : tuttiGetLastError(NULL));
		snprintf(name, sizeof(name), "rank %d is dead", r);
		if (rc == tuttiRemoteError ? !strstr(w->report->text, name)
					   : rc != tuttiInProgress || s->kind == SCENE_KILL)
			scene_problem(w, "a receive from rank %d: code %d: %s", r, rc,
				      w->report->text);
		scene_noticed(w, s->kind == SCENE_KILL ? 2000 : s->timeout_ms + 1000);
		if (s->kind != SCENE_KILL)
			break; /* each takes a timeout */
	}
}

/* All survivors connect to the same rank at once; on a busy machine its handshakes may take longer than
 * the timeout. The time limit of the scene ends a send that never succeeds. */
static void send_last(struct scene_rank *w, int to)
{
	tuttiResult_t rc;

	do
		rc = tuttiMsgSend(&w->rank, sizeof(w->rank), to, TAG_LAST, 0, w->comm);
	while (rc == tuttiTimeout);
	if (rc)
		scene_problem(w, "a message to survivor %d: %s", to, tuttiGetLastError(NULL));
}

/* Messages between survivors still arrive. */
static void exchange_last(struct scene_rank *w, uint64_t *last)
{
	int got;

	scene_call(w, "messages between survivors");
	for (int r = 0; r < w->s->n; r++)
		if (is_peer(w, r))
			send_last(w, r);
	for (int r = 0; r < w->s->n; r++) {
		tuttiResult_t rc = tuttiInProgress;

		while (is_peer(w, r) && rc == tuttiInProgress) {
			rc = tuttiMsgRecv(&got, sizeof(got), r, TAG_LAST, 50, w->comm, NULL);
			drain(w, last, 0);
		}
		if (is_peer(w, r) && (rc || got != r))
			scene_problem(w, "no message from survivor %d: code %d, %s", r, rc,
				      tuttiGetLastError(NULL));
	}
}

tuttiResult_t scene_round_messages(struct scene_rank *w, uint64_t i)
{
	int n = w->s->n, to = (w->rank + 1 + (int)(i % (unsigned)(n - 1))) % n;
	uint64_t *last = w->state = w->state ? w->state : calloc(SCENE_RANKS, sizeof(*last));
	uint64_t value = (i + 1) * 1000 + (unsigned)w->rank;
	tuttiResult_t rc;

	if (!w->sh->faulted) {
		scene_call(w, "message");
		rc = tuttiMsgSend(&value, sizeof(value), to, TAG_ROUND, i + 1, w->comm);
		if (rc && !scene_may_name(w, to))
			scene_problem(w, "a message to rank %d: %s", to, tuttiGetLastError(NULL));
		drain(w, last, 2);
		return tuttiSuccess;
	}
	receive_from_victims(w);
	judge_barrier(w);
	exchange_last(w, last);
	scene_meet(w);
	w->ended = true;
	return tuttiSuccess;
}

/* ---- quorum ---------------------------------------------------------------------------------- */

#define QUORUM_MS 300

static int contribution(int rank, uint64_t number, int k)
{
	return rank * 77 + (int)(number * 13 % 1009) + k;
}

static bool has_victim(const struct scene_rank *w, const tuttiQuorum_t *q)
{
	for (int r = 0; r < w->s->n; r++)
		if (scene_may_name(w, r) && q->mask[0] >> r & 1)
			return true;
	return false;
}

static void check_quorum(struct scene_rank *w, const int *out, const tuttiQuorum_t *q)
{
	for (int k = 0; k < COUNT; k++) {
		int sum = 0;

		for (int r = 0; r < w->s->n; r++)
			sum += q->mask[0] >> r & 1 ? contribution(r, q->sequence, k) : 0;
		if (sum == out[k])
			continue;
		scene_problem(w, "quorum operation %llu, mask %llx: element %d is %d, not %d",
			      (unsigned long long)q->sequence, (unsigned long long)q->mask[0], k,
			      out[k], sum);
		return;
	}
}

/* An operation of all ranks that are alive, until a mask has no victim, or rank 0 is lost. */
tuttiResult_t scene_round_quorum(struct scene_rank *w, uint64_t i)
{
	uint64_t *number = w->state = w->state ? w->state : calloc(1, sizeof(*number));
	tuttiQuorum_t q = TUTTI_QUORUM_INITIALIZER;
	bool faulted = w->sh->faulted;
	int in[COUNT], out[COUNT];
	tuttiResult_t rc;

	(void)i;
	for (int k = 0; k < COUNT; k++)
		in[k] = contribution(w->rank, *number + 1, k);
	scene_call(w, "quorum");
	rc = tuttiAllReduceQuorum(in, out, COUNT, tuttiInt32, tuttiSum, w->s->n, QUORUM_MS, w->comm,
				  NULL, &q);
	*number = q.sequence;
	if (!rc)
		check_quorum(w, out, &q);
	if (faulted && w->s->victim[w->rank] && w->s->kind == SCENE_STOP) {
		w->ended = true; /* woken: the victims could go on with each other */
		return tuttiSuccess;
	}
	if (!rc && (!faulted || has_victim(w, &q)))
		return tuttiSuccess;
	if (rc) {
		scene_failed(w, rc, tuttiGetLastError(NULL));
		if (!scene_may_name(w, 0))
			scene_problem(w, "rank 0 lives, and a quorum fails: code %d: %s", rc,
				      w->report->text);
		scene_judge_error_within(w, w->s->kind == SCENE_KILL
						    ? 2000
						    : w->s->timeout_ms + QUORUM_MS + 1000);
	}
	judge_barrier(w);
	scene_meet(w); /* rank 0 must live until the others have their results */
	w->ended = true;
	return tuttiSuccess;
}

/* ---- shrink ---------------------------------------------------------------------------------- */

struct shrinking {
	int n, rank,
		first[SCENE_RANKS]; /* numbers in the first communicator, where they are known */
	bool known;
	uint64_t calls;
};

static struct shrinking *shrinking(struct scene_rank *w)
{
	struct shrinking *h = w->state;

	if (h)
		return h;
	h = w->state = calloc(1, sizeof(*h));
	*h = (struct shrinking){ .n = w->s->n, .rank = w->rank, .known = true };
	for (int r = 0; r < h->n; r++)
		h->first[r] = r;
	return h;
}

/* The ranks that go on together: the survivors, or this side of a cut */
static int count_survivors(const struct scene_rank *w)
{
	int n = w->s->kind == SCENE_CUT || !w->s->victim[w->rank];

	for (int r = 0; r < w->s->n; r++)
		n += is_peer(w, r);
	return n;
}

/* A side of a cut that is a majority is not refused. */
static bool is_refused(const struct scene_rank *w, tuttiResult_t rc)
{
	if (w->s->kind == SCENE_CUT && 2 * count_survivors(w) > w->s->n)
		return false;
	return !strcmp(w->s->shrink, "majority") && rc == tuttiRemoteError &&
	       strstr(w->report->text, "no majority");
}

static tuttiResult_t shrink(struct scene_rank *w, struct shrinking *h)
{
	tuttiComm_t next = NULL;
	tuttiResult_t rc;

	scene_call(w, "shrink");
	rc = tuttiCommShrink(w->comm, NULL, 0, &next, NULL, TUTTI_SHRINK_DEFAULT);
	if (rc) {
		scene_failed(w, rc, tuttiGetLastError(NULL));
		if (!is_refused(w, rc))
			scene_problem(w, "shrink from %d ranks: code %d: %s", h->n, rc,
				      w->report->text);
		w->ended = true;
		return tuttiSuccess;
	}
	tuttiCommDestroy(w->before);
	w->before = w->comm;
	w->comm = next;
	tuttiCommCount(next, &h->n);
	tuttiCommUserRank(next, &h->rank);
	h->calls = 0;
	h->known = false;
	w->report->went_on = w->sh->fault_ns != 0;
	if (w->sh->faulted && w->s->victim[w->rank] && w->s->kind == SCENE_STOP) {
		w->ended = true; /* woken: the victims could go on with each other */
		return tuttiSuccess;
	}
	if (h->n < count_survivors(w)) {
		scene_problem(w, "shrunk to %d ranks, and %d survive", h->n, count_survivors(w));
		w->ended = true;
	}
	return tuttiSuccess;
}

/* The ranks tell each other their first numbers, and sum. Where deaths are noticed at once they then
 * shrink without need, so that the fault strikes during a shrink. A stopped rank would let one rank
 * shrink while others wait for their deadline, and be left out as documented: there the first victim
 * breaks the communicator, and others stop during the shrink. */
tuttiResult_t scene_round_shrink(struct scene_rank *w, uint64_t i)
{
	struct shrinking *h = shrinking(w);
	uint64_t call = h->calls++;
	tuttiResult_t rc;

	(void)i;
	if (call % 3 == 2 && w->s->kind == SCENE_KILL && h->n != count_survivors(w))
		return shrink(w, h);
	if (call % 2)
		rc = scene_collective(w, w->comm, h->n, h->rank, SCENE_ALLREDUCE, COUNT, call);
	else {
		scene_call(w, "allgather");
		rc = tuttiAllGather(&w->rank, h->first, 1, tuttiInt32, w->comm, NULL);
	}
	if (!rc && call % 2 == 0)
		h->known = true;
	if (!rc) {
		tuttiCommDestroy(w->before);
		w->before = NULL;
		w->ended = call % 2 && h->n == count_survivors(w);
		return tuttiSuccess;
	}
	scene_failed(w, rc, tuttiGetLastError(NULL));
	if (!w->sh->fault_ns)
		scene_problem(w, "an error before the fault: %s", w->report->text);
	if (h->known && h->n == w->s->n)
		scene_judge_error(w);
	return shrink(w, h);
}

/* ---- abort ----------------------------------------------------------------------------------- */

static void *abort_aside(void *arg)
{
	struct scene_rank *w = arg;

	scene_pause_us(w->s->abort_us);
	tuttiCommAbort(w->comm);
	return NULL;
}

/* The aborting rank's call ends with tuttiRemoteError; its communicator is gone. */
static void abort_meanwhile(struct scene_rank *w)
{
	pthread_t thread;
	tuttiResult_t rc = tuttiSuccess;

	if (pthread_create(&thread, NULL, abort_aside, w)) {
		scene_problem(w, "no thread");
		return;
	}
	for (uint64_t i = 0; !rc; i++)
		rc = scene_collective(w, w->comm, w->s->n, w->rank, SCENE_ALLREDUCE, COUNT, i);
	scene_failed(w, rc, tuttiGetLastError(NULL));
	pthread_join(thread, NULL);
	if (rc != tuttiRemoteError && rc != tuttiTimeout && rc != tuttiInvalidArgument)
		scene_problem(w, "a call beside an abort: code %d: %s", rc, w->report->text);
}

static void abort_between_calls(struct scene_rank *w)
{
	uint64_t until = scene_now_ns() + w->s->abort_us * 1000ull;
	tuttiResult_t rc = tuttiSuccess;

	for (uint64_t i = 0; !rc && scene_now_ns() < until; i++)
		rc = scene_collective(w, w->comm, w->s->n, w->rank, SCENE_ALLREDUCE, COUNT, i);
	if (rc) {
		scene_failed(w, rc, tuttiGetLastError(NULL));
		scene_judge_error(w);
	}
	scene_call(w, "abort");
	until = scene_now_ns();
	tuttiCommAbort(w->comm);
	w->report->leave_ms = (double)(scene_now_ns() - until) * 1e-6;
}

tuttiResult_t scene_round_abort(struct scene_rank *w, uint64_t i)
{
	tuttiResult_t rc;

	if (w->rank != w->s->aborter) {
		rc = scene_collective(w, w->comm, w->s->n, w->rank, SCENE_ALLREDUCE, COUNT, i);
		return rc ? scene_failed(w, rc, tuttiGetLastError(NULL)) : rc;
	}
	if (w->s->aborts_aside)
		abort_meanwhile(w);
	else
		abort_between_calls(w);
	w->comm = NULL;
	w->ended = true;
	return tuttiSuccess;
}

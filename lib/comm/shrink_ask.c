/*
 * shrink_ask.c - find the ranks that answer, by queries to many ranks at once
 *
 * The service thread of a rank answers a query, whether or not the rank is in a shrink; a stopped
 * process does not, nor one that is cut off. A thread for each rank without a connection makes one,
 * so that the time does not depend on the number of silent ranks. Many ranks that share few cores
 * answer late but one after the other, so each answer gives the others the whole patience again.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/thread.h"
#include "comm/shrink_internal.h"

#define ANSWERS 4 /* patiences in which answers may come, each within one of the answer before */

uint64_t tt_shrink_clock(struct tt_shrink *a, uint64_t most_ns)
{
	uint64_t now = tt_now_ns(), passed = now - a->seen_ns;

	a->seen_ns = now;
	return a->ran_ns += passed < most_ns ? passed : most_ns;
}

bool tt_shrink_is_gone(const struct tt_shrink *a, int rank)
{
	return tt_am_state(a->parent->am, rank) != tuttiRankAlive;
}

int tt_shrink_next(struct tt_shrink *a, enum tt_am_kind kind, int source, uint64_t wait_ns,
		   struct tt_am_header *ret_head, struct tt_reader *ret_r)
{
	struct tt_am_match want = { .kind = kind,
				    .source = source,
				    .tag = -1,
				    .to = a->buffer,
				    .room = TT_AM_DECISION_BYTES((size_t)a->parent->nranks) };
	int rc = tt_am_recv(a->parent->am, &want, tt_now_ns() + wait_ns, ret_head);

	*ret_r = (struct tt_reader){ .at = a->buffer, .left = rc ? 0 : ret_head->bytes };
	return rc;
}

/* ---- the end of the call ----------------------------------------------------------------------- */

static bool is_silent(const void *ctx, int rank)
{
	const struct tt_shrink *a = ctx;

	return tt_shrink_peer(a, rank)->silent;
}

int tt_shrink_check(struct tt_shrink *a)
{
	uint64_t newest, without = tt_control_excluded(a->parent->ctl, &newest);
	int rank = a->parent->rank;
	char ranks[256];

	if (newest > a->epoch)
		a->epoch = newest;
	if (a->without > without)
		without = a->without;
	if (without)
		return tt_fail(
			TT_REMOTE,
			"rank %d: the others went on without this rank, as epoch %llu: this rank did not answer "
			"(it was stopped or cut off), or did not call tuttiCommShrink in time",
			rank, (unsigned long long)without);
	if (tt_shrink_clock(a, a->pause_ns) < a->limit_ns)
		return 0;
	if (!tt_rank_list(a->parent->nranks, is_silent, a, ranks, sizeof(ranks)))
		snprintf(ranks, sizeof(ranks), "no rank");
	return tt_fail(
		TT_TIMEOUT,
		"rank %d: tuttiCommShrink: the ranks did not agree within %llu ms; %s did not answer at last",
		rank, (unsigned long long)(a->ran_ns / 1000000), ranks);
}

int tt_shrink_wait(struct tt_shrink *a, uint64_t until_ns)
{
	int rc = 0;

	while (a->ran_ns < until_ns && !(rc = tt_shrink_check(a))) {
		uint64_t left = until_ns > a->ran_ns ? until_ns - a->ran_ns : 0;

		left = left < a->slice_ns ? left : a->slice_ns;
		nanosleep(&(struct timespec){ .tv_nsec = (long)left }, NULL);
	}
	return rc;
}

/* ---- answers --------------------------------------------------------------------------------- */

int tt_shrink_tell(struct tt_shrink *a, enum tt_shrink_phase phase, int coordinator)
{
	struct tt_writer w = { 0 };
	int rc = TT_SYSTEM;

	tt_put(&w, phase, 1);
	tt_put(&w, (uint32_t)coordinator, 4);
	tt_put(&w, a->attempt, 4);
	tt_put(&w, a->epoch, 8);
	if (phase == TT_SHRINK_COMPLETED)
		tt_put_set(&w, &a->members.map.in);
	if (!w.failed)
		rc = tt_am_set_answer(a->parent->am, w.data, w.have);
	else
		tt_fail(TT_SYSTEM, "rank %d: no memory for an answer", a->parent->rank);
	free(w.data);
	return rc;
}

/* An empty answer, or one of an earlier shrink, is of a rank that is not in this shrink. */
static void note_answer(struct tt_shrink *a, const struct tt_am_header *head, struct tt_reader *r)
{
	struct tt_shrink_peer *p = tt_sparse_get(&a->peer, head->source);
	enum tt_shrink_phase phase = (enum tt_shrink_phase)tt_get_upto(r, 1, TT_SHRINK_COMPLETED);
	int coordinator = (int)tt_get(r, 4);
	uint32_t attempt = (uint32_t)tt_get(r, 4);
	uint64_t epoch = tt_get(r, 8);
	bool complete = phase == TT_SHRINK_COMPLETED;
	struct tt_sent_set in = { 0 };

	if (complete)
		in = tt_get_set(r, a->parent->nranks);
	if (!p || (uint32_t)head->tag != p->query)
		return;
	p->answered = p->known = true;
	p->answered_ns = p->answered_ns ? p->answered_ns : tt_shrink_clock(a, a->pause_ns);
	p->silent = false;
	p->phase = TT_SHRINK_ABSENT;
	if (!tt_get_end(r) || coordinator < -1 || coordinator >= a->parent->nranks)
		return;
	if (complete && !tt_sent_set_has(&in, a->parent->rank))
		a->without = epoch;
	else if (complete && epoch <= a->known_epoch)
		return;
	p->phase = phase;
	p->coordinator = coordinator;
	p->attempt = attempt;
	p->epoch = epoch;
}

/* As tt_am_recv */
static int receive_answer(struct tt_shrink *a, uint64_t wait_ns)
{
	struct tt_am_header head;
	struct tt_reader r;
	int rc = tt_shrink_next(a, TT_AM_ANSWER, -1, wait_ns, &head, &r);

	if (!rc)
		note_answer(a, &head, &r);
	return rc;
}

void tt_shrink_receive(struct tt_shrink *a)
{
	while (!receive_answer(a, 0))
		;
}

/* ---- queries --------------------------------------------------------------------------------- */

/* 0 | TT_SYSTEM */
static int number_query(struct tt_shrink *a, int rank, struct tt_am_header *ret_head)
{
	struct tt_shrink_peer *p = tt_shrink_note(a, rank);

	if (!p)
		return TT_SYSTEM;
	p->query = ++a->queries;
	p->answered = false;
	*ret_head = (struct tt_am_header){ .kind = TT_AM_QUERY, .tag = (int)p->query };
	return 0;
}

/* Without memory the next query comes later. */
void tt_shrink_query(struct tt_shrink *a, int rank)
{
	struct tt_am_header head;

	if (!number_query(a, rank, &head))
		tt_am_query(a->parent->am, rank, &head);
}

/* Connects to a rank, and sends it a query */
struct query_thread {
	struct query_thread *next;
	pthread_t thread;
	struct tt_am *am;
	int rank;
	struct tt_am_header head;
	uint64_t deadline_ns;
	const atomic_bool *stop;
};

static void *connect_and_send(void *arg)
{
	struct query_thread *q = arg;

	if (!tt_am_connect(q->am, q->rank, q->deadline_ns, q->stop))
		tt_am_query(q->am, q->rank, &q->head);
	return NULL;
}

static int start_query(struct tt_shrink *a, int rank, const struct tt_am_header *head,
		       const atomic_bool *stop, struct query_thread **list)
{
	struct query_thread *q = malloc(sizeof(*q));
	int rc;

	if (!q)
		return tt_fail(TT_SYSTEM, "rank %d: no memory to ask rank %d", a->parent->rank,
			       rank);
	*q = (struct query_thread){ .next = *list,
				    .am = a->parent->am,
				    .rank = rank,
				    .head = *head,
				    .deadline_ns = tt_now_ns() + a->timeout_ns,
				    .stop = stop };
	rc = tt_thread_start(&q->thread, "tutti-shrink", connect_and_send, q);
	if (rc) {
		free(q);
		return tt_fail(TT_SYSTEM, "rank %d: cannot start a thread: %s", a->parent->rank,
			       strerror(rc));
	}
	*list = q;
	return 0;
}

static void end_queries(struct tt_control *ctl, atomic_bool *stop, struct query_thread *list)
{
	pthread_mutex_lock(tt_control_mutex(ctl));
	atomic_store(stop, true);
	tt_control_notify(ctl);
	pthread_mutex_unlock(tt_control_mutex(ctl));
	for (struct query_thread *q = list, *next; q; q = next) {
		next = q->next;
		pthread_join(q->thread, NULL);
		free(q);
	}
}

/* Is there a rank without an answer to a query after query number `before`? Ranks answer once, or are gone, so
 * the next look begins where this one ends. */
static bool any_unanswered(struct tt_shrink *a, uint32_t before)
{
	int r = a->answered_to;

	for (; r < a->parent->nranks; r = tt_sparse_next(&a->peer, r + 1)) {
		const struct tt_shrink_peer *p = tt_shrink_peer(a, r);

		if (p->query > before && !p->answered && !tt_shrink_is_gone(a, r))
			break;
	}
	a->answered_to = r;
	return r < a->parent->nranks;
}

/* Takes answers until all have come, or no further one comes. As tt_am_recv */
static int await_answers(struct tt_shrink *a, uint32_t before)
{
	uint64_t now = tt_shrink_clock(a, a->pause_ns), until = now + a->patience_ns,
		 last = now + ANSWERS * a->patience_ns;
	int rc = 0;

	while (rc >= 0 && any_unanswered(a, before) &&
	       (now = tt_shrink_clock(a, a->pause_ns)) < until) {
		rc = receive_answer(a, a->slice_ns);
		if (!rc)
			until = now + a->patience_ns < last ? now + a->patience_ns : last;
	}
	return rc;
}

int tt_shrink_ask(struct tt_shrink *a, int from, int to)
{
	struct query_thread *threads = NULL;
	uint32_t before = a->queries;
	atomic_bool stop = false;
	int rc = 0;

	a->answered_to = from;
	for (int r = from; !rc && r < to; r++) {
		struct tt_am_header head;

		if (r == a->parent->rank || tt_shrink_is_gone(a, r) || tt_shrink_peer(a, r)->barred)
			continue;
		rc = number_query(a, r, &head);
		if (!rc && !tt_am_query(a->parent->am, r, &head))
			rc = start_query(a, r, &head, &stop, &threads);
	}
	if (!rc)
		rc = await_answers(a, before);
	end_queries(a->parent->ctl, &stop, threads);
	for (int r = tt_sparse_next(&a->peer, 0); r < a->parent->nranks;
	     r = tt_sparse_next(&a->peer, r + 1)) {
		struct tt_shrink_peer *p = tt_sparse_get(&a->peer, r);

		if (p->query > before && !p->answered)
			p->silent = p->known = true;
	}
	/* else the last rank that could answer is gone */
	return rc < 0 && any_unanswered(a, before) ? rc : 0;
}

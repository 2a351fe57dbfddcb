/*
 * control_status.c - statuses: what every rank is doing, told only while somebody waits long
 *
 * Called by run (through waiting and missing) and by the service thread. A rank that waits long floods its status;
 * whoever gets one compares it with its own board, so that calls that differ are found, and answers with its own, so
 * that who does not answer is known. Nothing of this runs while calls are quick.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/control_inside.h"
#include "plan/plan.h"

#define TREE_AND_RING (TT_ROLE_PARENT | TT_ROLE_CHILD | TT_ROLE_RING)
#define HASTE_NS (TT_SECOND / 5)         /* between two statuses when there is news or a deadline; else a second */
#define ASK_NS TT_SECOND                 /* at a deadline: who has not answered by then is silent */

/* ---- on the wire ------------------------------------------------------------------------------------------------- */

void tt_put_status(struct tt_writer *w, const struct tt_status *s)
{
	tt_put(w, (uint32_t)s->origin, 4);
	tt_put(w, s->serial, 4);
	tt_put(w, s->urgent, 1);
	tt_put(w, s->started, 8);
	tt_put(w, s->finished, 8);
	tt_put_trail(w, &s->trail);
	tt_put(w, (uint32_t)s->awaited, 4);
	tt_put(w, s->heard, 8);
}

bool tt_get_status(const void *data, size_t bytes, int nranks, struct tt_status *ret_status)
{
	struct tt_reader r = { .at = data, .left = bytes };
	struct tt_status *s = ret_status;

	memset(s, 0, sizeof(*s));
	s->origin = (int)tt_get_upto(&r, 4, (uint64_t)nranks - 1);
	s->serial = (uint32_t)tt_get(&r, 4);
	s->urgent = tt_get_upto(&r, 1, 1);
	s->started = tt_get(&r, 8);
	s->finished = tt_get(&r, 8);
	tt_get_trail(&r, &s->trail);
	s->awaited = (int)tt_get(&r, 4);
	s->heard = tt_get(&r, 8);
	return tt_get_end(&r) && s->finished <= s->started && s->awaited >= -1 && s->awaited < nranks;
}

/* ---- telling -------------------------------------------------------------------------------------------------- */

static void tell(struct tt_control *ctl, uint64_t now, bool urgent)
{
	struct tt_status s = { .origin = ctl->rank, .serial = ++ctl->serial, .urgent = urgent };
	struct tt_writer w = { 0 };

	s.finished = atomic_load(&ctl->finished);
	do
		s.started = atomic_load(&ctl->started);
	while (!tt_board_trail(ctl, s.started, &s.trail));       /* overtaken by 64 calls meanwhile */
	s.awaited = s.started > s.finished ? ctl->awaited : -1;
	s.heard = s.awaited >= 0 ? ctl->awaited_heard : 0;
	tt_put_status(&w, &s);
	tt_conn_send_all(ctl, TREE_AND_RING, NULL, TT_F_STATUS, w.data, w.have);
	free(w.data);
	ctl->told_ns = now;
	ctl->told_started = s.started;
	ctl->answer_due_ns = TT_NEVER;
}

static uint64_t may_tell_at(struct tt_control *ctl, bool urgent)
{
	bool changed = atomic_load(&ctl->started) != ctl->told_started;

	return ctl->told_ns ? ctl->told_ns + (changed || urgent ? HASTE_NS : TT_SECOND) : 0;
}

uint64_t tt_status_timers(struct tt_control *ctl, uint64_t now)
{
	if (ctl->answer_due_ns <= now)
		tell(ctl, now, false);
	return ctl->answer_due_ns;
}

static void hear(struct tt_control *ctl, int rank, uint64_t seq)
{
	if (rank >= 0 && ctl->heard[rank] < seq)
		ctl->heard[rank] = seq;
}

/* Nobody finishes one of these before every rank has begun it. */
static bool needs_everybody(const struct tt_call *call)
{
	return call->count && (call->collective == TT_ALLREDUCE || call->collective == TT_REDUCE_SCATTER ||
			       call->collective == TT_ALLGATHER || call->collective == TT_ALLTOALL);
}

uint64_t tt_status_last(struct tt_control *ctl, int rank)
{
	uint64_t seq = atomic_load(&ctl->finished);
	struct tt_call call;

	for (; seq > ctl->heard[rank] && tt_board_read(ctl, seq, &call); seq--)
		if (needs_everybody(&call))
			hear(ctl, rank, seq);
	return ctl->heard[rank];
}

/* Both of two ranks that differ find it; they say the same, the lower rank first. */
static void compare(struct tt_control *ctl, const struct tt_status *s)
{
	struct tt_call mine, theirs, *low = ctl->rank < s->origin ? &mine : &theirs, *high = low == &mine ? &theirs : &mine;
	uint64_t seq = tt_board_differs(ctl, s->started, &s->trail, &mine, &theirs);
	char a[128], b[128], text[400];

	if (!seq)
		return;
	tt_call_words(low, false, a, sizeof(a));
	tt_call_words(high, false, b, sizeof(b));
	if (!strcmp(a, b)) {
		tt_call_words(low, true, a, sizeof(a));
		tt_call_words(high, true, b, sizeof(b));
	}
	snprintf(text, sizeof(text), "rank %d called %s as operation %llu, rank %d called %s",
		 low == &mine ? ctl->rank : s->origin, a, (unsigned long long)seq,
		 low == &mine ? s->origin : ctl->rank, b);
	tt_control_break(ctl, TT_USAGE, -1, 0, text, NULL);
}

bool tt_status_frame(struct tt_control *ctl, struct tt_conn *conn, const uint8_t *data, size_t bytes)
{
	struct tt_status s;
	uint64_t now = tt_now_ns(), at;

	if (!tt_get_status(data, bytes, ctl->nranks, &s))
		return false;
	if (s.origin == ctl->rank || (ctl->status_at_ns[s.origin] && s.serial <= ctl->status[s.origin].serial))
		return true;
	ctl->status[s.origin] = s;
	ctl->status_at_ns[s.origin] = now;
	hear(ctl, s.origin, s.started);
	hear(ctl, s.awaited, s.heard);
	tt_conn_send_all(ctl, TREE_AND_RING, conn, TT_F_STATUS, data, bytes);
	pthread_cond_broadcast(&ctl->changed);
	compare(ctl, &s);
	at = may_tell_at(ctl, s.urgent);
	if (at <= now)
		tell(ctl, now, false);
	else if (at < ctl->answer_due_ns)
		ctl->answer_due_ns = at;
	return true;
}

/* ---- waiting -------------------------------------------------------------------------------------------------- */

/* In a send or receive whose peer has left: what it had sent has come by now, or never will. */
static void check_peer(struct tt_control *ctl, int peer, uint64_t now)
{
	char text[160];

	if (peer < 0 || !ctl->left[peer] || atomic_load(&ctl->started) != atomic_load(&ctl->finished) ||
	    now - ctl->left_at_ns[peer] < TT_SECOND)
		return;
	snprintf(text, sizeof(text), "rank %d left; rank %d waits for it in a send or receive", peer, ctl->rank);
	tt_control_break(ctl, TT_REMOTE, peer, 0, text, NULL);
}

void tt_control_waiting(struct tt_control *ctl, uint64_t seq, int peer, uint64_t heard)
{
	uint64_t now = tt_now_ns(), asked = atomic_load_explicit(&ctl->asked_ns, memory_order_relaxed);

	(void)seq;                               /* the board has it */
	if (asked && now - asked < TT_SECOND)
		return;
	atomic_store_explicit(&ctl->asked_ns, now, memory_order_relaxed);
	pthread_mutex_lock(&ctl->lock);
	ctl->awaited = peer;
	ctl->awaited_heard = heard;
	hear(ctl, peer, heard);
	tell(ctl, now, false);
	check_peer(ctl, peer, now);
	pthread_mutex_unlock(&ctl->lock);
}

/* ---- who is missing ------------------------------------------------------------------------------------------- */

static bool answers(const struct tt_control *ctl, int rank, uint64_t since_ns)
{
	return rank == ctl->rank || ctl->status_at_ns[rank] >= since_ns;
}

static void await_answers(struct tt_control *ctl, uint64_t since_ns, uint64_t deadline_ns)
{
	int silent;

	do {
		silent = 0;
		for (int r = 0; r < ctl->nranks; r++)
			silent += !answers(ctl, r, since_ns) && !ctl->left[r];
	} while (silent && !ctl->broken && tt_control_await(ctl, deadline_ns));
}

/* What is wrong with rank, for operation seq; false: nothing */
static bool describe(struct tt_control *ctl, int rank, uint64_t seq, uint64_t since_ns, char *text, size_t bytes)
{
	uint64_t last = tt_status_last(ctl, rank);
	char name[160];

	tt_board_name(ctl, last, name, sizeof(name));
	if (!last)
		snprintf(name, sizeof(name), "none");
	if (ctl->left[rank])
		snprintf(text, bytes, "rank %d left after operation %llu", rank,
			 (unsigned long long)ctl->left_after[rank]);
	else if (!answers(ctl, rank, since_ns))
		snprintf(text, bytes, "rank %d is not answering (stopped?); the last operation it was heard of in: %s",
			 rank, name);
	else if (rank != ctl->rank && ctl->status[rank].started < seq)
		snprintf(text, bytes, "rank %d has not called operation %llu yet; its last was: %s", rank,
			 (unsigned long long)seq, name);
	else
		return false;
	return !ctl->left[rank] || ctl->left_after[rank] < seq;
}

/* Everybody is in it and nothing moves: say who waits for whom. */
static void describe_waits(struct tt_control *ctl, uint64_t seq, char *text, size_t bytes)
{
	size_t have = 0;

	snprintf(text, bytes, "every rank is in operation %llu", (unsigned long long)seq);
	for (int r = 0; r < ctl->nranks && have + 48 < bytes; r++) {
		int awaited = r == ctl->rank ? ctl->awaited : ctl->status[r].awaited;

		have = strlen(text);
		if (awaited >= 0 && have + 48 < bytes)
			snprintf(text + have, bytes - have, ", rank %d waits for rank %d", r, awaited);
	}
}

int tt_control_missing(struct tt_control *ctl, uint64_t seq, char *text, size_t bytes)
{
	uint64_t now = tt_now_ns();
	char one[400];
	size_t have = 0;
	int first = -1, others = 0;

	text[0] = '\0';
	pthread_mutex_lock(&ctl->lock);
	tell(ctl, now, true);
	await_answers(ctl, now, now + ASK_NS);
	for (int r = 0; r < ctl->nranks; r++) {
		if (!describe(ctl, r, seq, now, one, sizeof(one)))
			continue;
		first = first < 0 ? r : first;
		if (have + strlen(one) + 32 < bytes)
			have += (size_t)snprintf(text + have, bytes - have, "%s%s", have ? "; " : "", one);
		else
			others++;
	}
	if (others)
		snprintf(text + have, bytes - have, "; and %d more", others);
	if (first < 0)
		describe_waits(ctl, seq, text, bytes);
	pthread_mutex_unlock(&ctl->lock);
	return first;
}

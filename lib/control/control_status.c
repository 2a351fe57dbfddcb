/*
 * control_status.c - statuses: what every rank is doing, told only while somebody waits long
 *
 * Called by run (through waiting and missing) and by the service thread. A rank that waits long
 * floods its status; whoever gets one compares it with its own board, so that calls that differ are
 * found, and answers with its own, so that who does not answer is known. Nothing of this runs while
 * calls are quick.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/control_internal.h"
#include "plan/plan.h"

#define TREE_AND_RING (TT_ROLE_PARENT | TT_ROLE_CHILD | TT_ROLE_RING)
/* between two statuses when there is news or a deadline; else a second */
#define HASTE_NS (TT_SECOND / 5)
/* from news of who waits for whom to a look at all of it */
#define LOOK_NS (TT_SECOND / 50)
#define ASK_NS TT_SECOND                 /* at a deadline: who has not answered by then is silent */

/* ---- telling --------------------------------------------------------------------------------- */

/* How many messages this rank has begun with those who want one of it. */
static void fill_pairs(struct tt_control *ctl, struct tt_status *s)
{
	for (int r = 0; r < ctl->nranks && s->npairs < TT_PAIRS; r++) {
		const struct tt_status *other = r == ctl->rank ? s : &ctl->status[r];
		struct tt_pair *pair = atomic_load_explicit(&ctl->pair[r], memory_order_acquire);
		bool wants = false;

		for (int i = 0; i < other->nwants; i++)
			wants |= other->want[i].peer == ctl->rank;
		if (!wants)
			continue;
		s->pair[s->npairs].peer = r;
		for (int way = 0; way < 2; way++)
			s->pair[s->npairs].started[way] =
				pair ? atomic_load(&pair->started[way]) : 0;
		s->npairs++;
	}
}

/* What was said of being stuck holds as long as nothing began or ended since. */
void tt_status_fill(struct tt_control *ctl, struct tt_status *ret_status)
{
	struct tt_status s = { .origin = ctl->rank, .awaited = -1, .exchanges = ctl->gathers };

	s.finished = atomic_load(&ctl->finished);
	do
		s.started = atomic_load(&ctl->started);
	/* overtaken by 64 calls meanwhile */
	while (!tt_call_log_history(ctl, s.started, &s.trail));
	s.exchanging = ctl->gathering && !ctl->gathered;
	if (ctl->is_stuck && ctl->stuck_started == s.started &&
	    ctl->stuck_done == s.finished + atomic_load(&ctl->messages_done)) {
		s.stuck = ctl->stuck.open ? TT_BLOCKED_OPEN : TT_BLOCKED;
		s.awaited = ctl->stuck.awaited;
		s.last_received = s.awaited >= 0 ? ctl->stuck.last_received : 0;
		s.nwants = ctl->stuck.nwants;
		memcpy(s.want, ctl->stuck.want, sizeof(s.want));
	}
	fill_pairs(ctl, &s);
	*ret_status = s;
}

static void tell(struct tt_control *ctl, uint64_t now, bool urgent)
{
	struct tt_status s;
	struct tt_writer w = { 0 };

	tt_status_fill(ctl, &s);
	s.serial = ++ctl->serial;
	s.urgent = urgent;
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
	if (ctl->look_due_ns <= now) {
		ctl->look_due_ns = TT_NEVER;
		tt_deadlock_check(ctl);
	}
	return ctl->answer_due_ns < ctl->look_due_ns ? ctl->answer_due_ns : ctl->look_due_ns;
}

static void hear(struct tt_control *ctl, int rank, uint64_t seq)
{
	if (rank >= 0 && ctl->last_received[rank] < seq)
		ctl->last_received[rank] = seq;
}

bool tt_status_needs_all(const struct tt_call *call)
{
	return call->count &&
	       (call->collective == TT_ALLREDUCE || call->collective == TT_REDUCE_SCATTER ||
		call->collective == TT_ALLGATHER || call->collective == TT_ALLTOALL);
}

uint64_t tt_status_last(struct tt_control *ctl, int rank)
{
	uint64_t seq = atomic_load(&ctl->finished);
	struct tt_call call;

	for (; seq > ctl->last_received[rank] && tt_call_log_read(ctl, seq, &call); seq--)
		if (tt_status_needs_all(&call))
			hear(ctl, rank, seq);
	return ctl->last_received[rank];
}

/* Both of two ranks that differ find it; they say the same, the lower rank first. */
static void compare(struct tt_control *ctl, const struct tt_status *s)
{
	struct tt_call mine, theirs, *low = ctl->rank < s->origin ? &mine : &theirs,
				     *high = low == &mine ? &theirs : &mine;
	uint64_t seq = tt_call_log_differs(ctl, s->started, &s->trail, &mine, &theirs);
	char a[128], b[128], text[400];

	if (!seq)
		return;
	tt_call_describe(low, false, a, sizeof(a));
	tt_call_describe(high, false, b, sizeof(b));
	if (!strcmp(a, b)) {
		tt_call_describe(low, true, a, sizeof(a));
		tt_call_describe(high, true, b, sizeof(b));
	}
	snprintf(text, sizeof(text), "rank %d called %s as operation %llu, rank %d called %s",
		 low == &mine ? ctl->rank : s->origin, a, (unsigned long long)seq,
		 low == &mine ? s->origin : ctl->rank, b);
	tt_control_break(ctl, TT_USAGE, -1, 0, text, NULL);
}

bool tt_status_frame(struct tt_control *ctl, struct tt_conn *conn, const uint8_t *data,
		     size_t bytes)
{
	struct tt_status s;
	uint64_t now = tt_now_ns(), at;
	bool wants = false;

	if (!tt_get_status(data, bytes, ctl->nranks, &s))
		return false;
	if (s.origin == ctl->rank ||
	    (ctl->status_at_ns[s.origin] && s.serial <= ctl->status[s.origin].serial))
		return true;
	ctl->status[s.origin] = s;
	ctl->status_at_ns[s.origin] = now;
	hear(ctl, s.origin, s.started);
	hear(ctl, s.awaited, s.last_received);
	tt_conn_send_all(ctl, TREE_AND_RING, conn, TT_F_STATUS, data, bytes);
	pthread_cond_broadcast(&ctl->changed);
	compare(ctl, &s);
	tt_deadlock_compare(ctl, &s);
	for (int i = 0; i < s.nwants; i++)
		wants |= s.want[i].peer == ctl->rank;
	if ((s.nwants || s.exchanging || ctl->stuck.nwants) && now + LOOK_NS < ctl->look_due_ns)
		ctl->look_due_ns = now + LOOK_NS;
	at = may_tell_at(ctl, s.urgent || wants);
	if (at <= now)
		tell(ctl, now, false);
	else if (at < ctl->answer_due_ns)
		ctl->answer_due_ns = at;
	return true;
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* In a send or receive whose peer has left: what it had sent has come by now, or never will. */
static void check_peer(struct tt_control *ctl, int peer, uint64_t now)
{
	char text[160];

	if (peer < 0 || !ctl->left[peer] ||
	    atomic_load(&ctl->started) != atomic_load(&ctl->finished) ||
	    now - ctl->left_at_ns[peer] < TT_SECOND)
		return;
	snprintf(text, sizeof(text), "rank %d left; rank %d waits for it in a send or receive",
		 peer, ctl->rank);
	tt_control_break(ctl, TT_REMOTE, peer, 0, text, NULL);
}

static void remember(struct tt_control *ctl, const struct tt_blocked *stuck)
{
	ctl->stuck = *stuck;
	ctl->stuck_started = atomic_load(&ctl->started);
	ctl->stuck_done = atomic_load(&ctl->finished) + atomic_load(&ctl->messages_done);
	ctl->is_stuck = true;
	hear(ctl, stuck->awaited, stuck->last_received);
}

void tt_control_waiting(struct tt_control *ctl, const struct tt_blocked *stuck)
{
	uint64_t now = tt_now_ns(),
		 asked = atomic_load_explicit(&ctl->asked_ns, memory_order_relaxed);

	if (asked && now - asked < TT_SECOND)
		return;
	atomic_store_explicit(&ctl->asked_ns, now, memory_order_relaxed);
	pthread_mutex_lock(&ctl->lock);
	remember(ctl, stuck);
	tell(ctl, now, false);
	tt_deadlock_check(ctl);
	if (!stuck->differs)
		check_peer(ctl, stuck->awaited, now);
	pthread_mutex_unlock(&ctl->lock);
}

/* ---- who is missing -------------------------------------------------------------------------- */

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

/* Why rank does not answer: what a connection to it, or to another rank of its host, has to say. */
static void why_silent(const struct tt_control *ctl, int rank, char *text, size_t bytes)
{
	snprintf(text, bytes, " (stopped?)");
	for (const struct tt_conn *c = ctl->conns; c; c = c->next) {
		char words[160];

		if (c->dead || ctl->host_of[c->peer] != ctl->host_of[rank] ||
		    !tt_sock_silent(c->fd, words, sizeof(words)))
			continue;
		snprintf(text, bytes, ": %s", words);
		return;
	}
}

/* What is wrong with rank, for operation seq,
 * or for a message that it is wanted for; false: nothing */
static bool describe(struct tt_control *ctl, int rank, uint64_t seq, const struct tt_wait_edge *want,
		     uint64_t since_ns, char *text, size_t bytes)
{
	uint64_t last = tt_status_last(ctl, rank);
	const struct tt_status *s = &ctl->status[rank];
	char name[160], other[160], in[200], half[160];

	if (!last)
		snprintf(name, sizeof(name), "none");
	else if (last == s->started && s->trail.nruns)
		tt_call_text(&s->trail.run[0].call, last, name, sizeof(name));
	else
		tt_call_log_name(ctl, last, name, sizeof(name));
	tt_deadlock_text(ctl, rank, other, sizeof(other));
	snprintf(in, sizeof(in), "%s%s", other[0] ? "; it is in " : "", other);
	if (ctl->left[rank]) {
		snprintf(text, bytes, "rank %d left after operation %llu", rank,
			 (unsigned long long)ctl->left_after[rank]);
		return want || ctl->left_after[rank] < seq;
	}
	if (!answers(ctl, rank, since_ns)) {
		why_silent(ctl, rank, in, sizeof(in));
		snprintf(text, bytes,
			"rank %d is not answering%s; the last operation it was last_received of in: %s",
			rank, in, name);
		return true;
	}
	if (want) {
		tt_wait_edge_text(&(struct tt_wait_edge){ !want->send, ctl->rank, want->number, want->call },
			      half, sizeof(half));
		snprintf(text, bytes,
			 "rank %d has not made the matching call, %s; its last operation was: %s%s",
			 rank, half, name, in);
		return !tt_deadlock_met(ctl, want);
	}
	snprintf(text, bytes, "rank %d has not called operation %llu yet; its last was: %s%s", rank,
		 (unsigned long long)seq, name, in);
	return rank != ctl->rank && ctl->status[rank].started < seq;
}

/* Everybody is in it and nothing moves: say who waits for whom. */
static void describe_waits(struct tt_control *ctl, uint64_t seq, char *text, size_t bytes)
{
	size_t have = 0;

	snprintf(text, bytes, "every rank is in operation %llu", (unsigned long long)seq);
	for (int r = 0; r < ctl->nranks && have + 48 < bytes; r++) {
		int awaited = r == ctl->rank ? ctl->stuck.awaited : ctl->status[r].awaited;

		have = strlen(text);
		if (awaited >= 0 && have + 48 < bytes)
			snprintf(text + have, bytes - have, ", rank %d waits for rank %d", r,
				 awaited);
	}
}

/* The first message that rank is wanted for */
static const struct tt_wait_edge *want_of(const struct tt_blocked *stuck, int rank)
{
	for (int i = 0; i < stuck->nwants; i++)
		if (stuck->want[i].peer == rank)
			return &stuck->want[i];
	return NULL;
}

/* In a collective every rank may be missing; otherwise those that messages are expected of. */
static int describe_all(struct tt_control *ctl, uint64_t seq, const struct tt_blocked *stuck,
			uint64_t since_ns, char *text, size_t bytes)
{
	bool collective =
		!stuck->nwants || atomic_load(&ctl->started) > atomic_load(&ctl->finished);
	int first = -1, others = 0;
	size_t have = 0;
	char one[600];

	for (int r = 0; r < ctl->nranks; r++) {
		const struct tt_wait_edge *want = collective ? NULL : want_of(stuck, r);

		if ((!collective && !want) ||
		    !describe(ctl, r, seq, want, since_ns, one, sizeof(one)))
			continue;
		first = first < 0 ? r : first;
		if (have + strlen(one) + 32 < bytes)
			have += (size_t)snprintf(text + have, bytes - have, "%s%s",
						 have ? "; " : "", one);
		else
			others++;
	}
	if (others)
		snprintf(text + have, bytes - have, "; and %d more", others);
	if (first < 0 && collective)
		describe_waits(ctl, seq, text, bytes);
	return first;
}

int tt_control_missing(struct tt_control *ctl, uint64_t seq, const struct tt_blocked *stuck,
		       char *text, size_t bytes)
{
	uint64_t now = tt_now_ns();
	int first;

	text[0] = '\0';
	pthread_mutex_lock(&ctl->lock);
	remember(ctl, stuck);
	tell(ctl, now, true);
	await_answers(ctl, now, now + ASK_NS);
	if (!ctl->broken)
		tt_deadlock_check(ctl);
	first = describe_all(ctl, seq, stuck, now, text, bytes);
	pthread_mutex_unlock(&ctl->lock);
	return first;
}

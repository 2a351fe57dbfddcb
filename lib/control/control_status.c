/*
 * control_status.c - statuses: the current call of every rank, sent only while some rank waits long
 *
 * Called by run (tt_control_waiting), control_missing.c and the service thread. A rank that
 * waits long floods its status, which asks for those of all others. Each receiver compares the
 * status with its own call log, which finds different calls, and answers with its own status, so
 * that ranks without an answer are known. No status is sent while calls are quick.
 */
#include <stdio.h>
#include <string.h>

#include "control/control_internal.h"
#include "base/collective.h"

/* between two statuses after a change or at a deadline; else one second, with many ranks one for each
 * FEW_RANKS of them */
#define URGENT_NS (TT_SECOND / 5)
#define FEW_RANKS 64
#define MOST_SECONDS 15 /* a status is kept for a minute */
/* from a change of the wait-for graph to the check for deadlocks */
#define CHECK_NS (TT_SECOND / 50)

/* ---- send ------------------------------------------------------------------------------------ */

/* The numbers of messages that this rank has started with the ranks that wait for one of its. */
static void fill_pairs(struct tt_control *ctl, struct tt_status *s)
{
	for (int r = 0; r < ctl->nranks && s->npairs < TT_PAIRS; r++) {
		const struct tt_status *other = r == ctl->rank ? s : tt_status_of(ctl, r);
		struct tt_pair *pair = tt_sparse_get(&ctl->log.pair, r);
		bool is_awaited = false;

		for (int i = 0; i < other->nwants; i++)
			is_awaited |= other->want[i].peer == ctl->rank;
		if (!is_awaited)
			continue;
		s->pair[s->npairs].peer = r;
		for (int way = 0; way < 2; way++)
			s->pair[s->npairs].started[way] = pair ? atomic_load(&pair->started[way])
							       : 0;
		s->npairs++;
	}
}

/* The observer counts collectives that have ended; the latest one is added if it has not. No call
 * reads the clock for control: the age of one that is not counted begins with its first status. */
static void fill_tally(struct tt_control *ctl, struct tt_status *s)
{
	const struct tt_call *latest = &s->history.run[0].call;
	uint64_t now = tt_now_ns();

	if (ctl->status.seen_started != s->started) {
		ctl->status.seen_started = s->started;
		ctl->status.seen_ns = now;
	}
	s->counted = tt_observers_tally(ctl, &s->tally, &s->running_ns);
	if (s->started == s->finished)
		s->running_ns = 0;
	else if (!s->running_ns)
		s->running_ns = now - ctl->status.seen_ns;
	if (s->counted && s->history.nruns && s->started > s->finished)
		s->tally.calls[tt_call_kind(latest)]++;
}

/* The blocked state of this rank holds until its next call or completion. */
void tt_status_fill(struct tt_control *ctl, struct tt_status *ret_status)
{
	struct tt_status s = { .origin = ctl->rank,
			       .serial = ctl->status.serial,
			       .ask = ctl->status.ask,
			       .awaited = -1,
			       .exchanges = ctl->gather.number };

	s.finished = atomic_load(&ctl->log.finished);
	do
		s.started = atomic_load(&ctl->log.started);
	/* overwritten by 64 calls meanwhile: read again */
	while (!tt_call_log_history(ctl, s.started, &s.history));
	s.exchanging = ctl->gather.running && !ctl->gather.complete;
	if (ctl->status.is_blocked && ctl->status.blocked_started == s.started &&
	    ctl->status.blocked_done == s.finished + atomic_load(&ctl->log.messages_done)) {
		s.blocked = ctl->status.blocked.open ? TT_BLOCKED_OPEN : TT_BLOCKED;
		s.awaited = ctl->status.blocked.awaited;
		s.last_received = s.awaited >= 0 ? ctl->status.blocked.last_received : 0;
		s.nwants = ctl->status.blocked.nwants;
		memcpy(s.want, ctl->status.blocked.want, sizeof(s.want));
	}
	fill_pairs(ctl, &s);
	fill_tally(ctl, &s);
	s.leads = tt_monitor_leads(ctl->ep);
	*ret_status = s;
}

/* The queue sends what this rank's state is then. */
static void send_status(struct tt_control *ctl, uint64_t now, enum tt_status_ask ask)
{
	ctl->status.serial++;
	if (ctl->status.ask < ask)
		ctl->status.ask = ask;
	ctl->status.sent_ns = now;
	ctl->status.sent_started = atomic_load(&ctl->log.started);
	ctl->status.answer_due_ns = TT_NEVER;
	tt_status_enqueue(ctl, &ctl->status.table.own, TT_STATUS_OWN);
	tt_status_queue_send(ctl, now);
	if (ctl->status.queue.first)
		tt_endpoint_wake(ctl->ep);
}

void tt_status_ask(struct tt_control *ctl, uint64_t now)
{
	send_status(ctl, now, TT_STATUS_ASKS_NOW);
}

/* n ranks that wait pass on 10 n^2 statuses in each period. */
static uint64_t period_ns(const struct tt_control *ctl)
{
	int seconds = ctl->nranks / FEW_RANKS;

	return TT_SECOND * (uint64_t)(seconds < 1              ? 1
				      : seconds < MOST_SECONDS ? seconds
							       : MOST_SECONDS);
}

static uint64_t next_send_ns(struct tt_control *ctl, bool urgent)
{
	bool changed = atomic_load(&ctl->log.started) != ctl->status.sent_started;

	return ctl->status.sent_ns
		       ? ctl->status.sent_ns + (changed || urgent ? URGENT_NS : period_ns(ctl))
		       : 0;
}

uint64_t tt_status_timers(struct tt_control *ctl, uint64_t now)
{
	uint64_t due;

	if (ctl->status.answer_due_ns <= now)
		send_status(ctl, now, TT_STATUS_ANSWERS);
	if (ctl->deadlock.check_due_ns <= now) {
		ctl->deadlock.check_due_ns = TT_NEVER;
		tt_deadlock_check(ctl);
	}
	tt_status_queue_send(ctl, now);
	tt_status_expire(ctl, now);
	due = ctl->status.queue.due_ns;
	if (ctl->status.table.expire_due_ns < due)
		due = ctl->status.table.expire_due_ns;
	if (ctl->status.answer_due_ns < due)
		due = ctl->status.answer_due_ns;
	return ctl->deadlock.check_due_ns < due ? ctl->deadlock.check_due_ns : due;
}

bool tt_status_needs_all(const struct tt_call *call)
{
	return call->count &&
	       (call->collective == TT_ALLREDUCE || call->collective == TT_REDUCE_SCATTER ||
		call->collective == TT_ALLGATHER || call->collective == TT_ALLTOALL);
}

uint64_t tt_status_last(struct tt_control *ctl, int rank)
{
	uint64_t seq = atomic_load(&ctl->log.finished);
	struct tt_call call;

	for (; seq > tt_status_past(ctl, rank).received && tt_call_log_read(ctl, seq, &call); seq--)
		if (tt_status_needs_all(&call))
			tt_status_received(ctl, rank, seq);
	return tt_status_past(ctl, rank).received;
}

/* Break the control if a call of this rank differs from the same call of s->origin. Both ranks find
 * the difference and form the same sentence, the lower rank first. */
static void compare(struct tt_control *ctl, const struct tt_status *s)
{
	struct tt_call mine, theirs, *low = ctl->rank < s->origin ? &mine : &theirs,
				     *high = low == &mine ? &theirs : &mine;
	uint64_t seq = tt_call_log_differs(ctl, s->started, &s->history, &mine, &theirs);
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
	tt_control_break(ctl, TT_USAGE, -1, 0, text, -1);
}

static void receive(struct tt_control *ctl, int from, const struct tt_status *s, uint64_t now)
{
	struct tt_rank_status *latest = tt_status_keep(ctl, s, now);
	bool is_awaited = false;
	uint64_t at;

	if (!latest)
		return;
	tt_status_received(ctl, s->origin, s->started);
	tt_status_received(ctl, s->awaited, s->last_received);
	tt_status_enqueue(ctl, latest, from);
	compare(ctl, s);
	tt_deadlock_compare(ctl, s);
	for (int i = 0; i < s->nwants; i++)
		is_awaited |= s->want[i].peer == ctl->rank;
	if ((s->nwants || s->exchanging || ctl->status.blocked.nwants) &&
	    now + CHECK_NS < ctl->deadlock.check_due_ns)
		ctl->deadlock.check_due_ns = now + CHECK_NS;
	at = next_send_ns(ctl, s->ask == TT_STATUS_ASKS_NOW || is_awaited);
	if ((s->ask || is_awaited) && at < ctl->status.answer_due_ns)
		ctl->status.answer_due_ns = at;
}

bool tt_status_frame(struct tt_control *ctl, int from, const uint8_t *data, size_t bytes)
{
	struct tt_reader r = { .at = data, .left = bytes };
	uint64_t now = tt_now_ns();
	struct tt_status s;

	while (r.left) {
		if (!tt_get_status(&r, ctl->nranks, &s))
			return false;
		receive(ctl, from, &s, now);
	}
	tt_control_changed(ctl);
	if (ctl->status.answer_due_ns <= now)
		send_status(ctl, now, TT_STATUS_ANSWERS);
	tt_status_queue_send(ctl, now);
	return true;
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Break the control if this rank has waited in a send or receive for a second after its peer left:
 * all data of the peer has arrived by then. */
static void check_peer(struct tt_control *ctl, int peer, uint64_t now)
{
	char text[160];

	if (peer < 0 || !tt_set_has(ctl->departed.left, peer) ||
	    atomic_load(&ctl->log.started) != atomic_load(&ctl->log.finished) ||
	    now - tt_flood_goodbye_of(ctl, peer)->at_ns < TT_SECOND)
		return;
	snprintf(text, sizeof(text), "rank %d left; rank %d waits for it in a send or receive",
		 peer, ctl->rank);
	tt_control_break(ctl, TT_REMOTE, peer, 0, text, -1);
}

void tt_status_waits(struct tt_control *ctl, const struct tt_blocked *blocked)
{
	ctl->status.blocked = *blocked;
	ctl->status.blocked_started = atomic_load(&ctl->log.started);
	ctl->status.blocked_done = atomic_load(&ctl->log.finished) +
				   atomic_load(&ctl->log.messages_done);
	ctl->status.is_blocked = true;
	tt_status_received(ctl, blocked->awaited, blocked->last_received);
}

void tt_control_waiting(struct tt_control *ctl, const struct tt_blocked *blocked)
{
	uint64_t now = tt_now_ns(),
		 last_ns = atomic_load_explicit(&ctl->status.asked_ns, memory_order_relaxed);

	if (last_ns && now - last_ns < period_ns(ctl))
		return;
	atomic_store_explicit(&ctl->status.asked_ns, now, memory_order_relaxed);
	tt_control_lock(ctl);
	tt_status_waits(ctl, blocked);
	send_status(ctl, now, TT_STATUS_ASKS);
	tt_deadlock_check(ctl);
	if (!blocked->differs)
		check_peer(ctl, blocked->awaited, now);
	tt_control_unlock(ctl);
}

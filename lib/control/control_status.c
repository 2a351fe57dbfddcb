/*
 * control_status.c - statuses: the current call of every rank, sent only while some rank waits long
 *
 * Called by run (tt_control_waiting, tt_control_missing) and by the service thread. A rank that
 * waits long floods its status, which asks for those of all others. Each receiver compares the
 * status with its own call log, which finds different calls, and answers with its own status, so
 * that ranks without an answer are known. No status is sent while calls are quick.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/control_internal.h"
#include "base/collective.h"

/* between two statuses after a change or at a deadline; else one second, with many ranks one for each
 * FEW_RANKS of them */
#define URGENT_NS (TT_SECOND / 5)
#define FEW_RANKS 64
#define MOST_SECONDS 15 /* a status is kept for a minute */
/* from a change of the wait-for graph to the check for deadlocks */
#define CHECK_NS (TT_SECOND / 50)
/* at a deadline: ranks without an answer by then are silent; errors come within a second of it */
/* ranks for each processor of a host from which a rank may be too slow to answer in time */
#define STARVED 32
#define MOST_EDGES 8
#define MOST_REASONS 3 /* in one text; the other ranks are counted */
#define ANSWER_NS (TT_SECOND * 3 / 4)

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

static void remember(struct tt_control *ctl, const struct tt_blocked *blocked)
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
	remember(ctl, blocked);
	send_status(ctl, now, TT_STATUS_ASKS);
	tt_deadlock_check(ctl);
	if (!blocked->differs)
		check_peer(ctl, blocked->awaited, now);
	tt_control_unlock(ctl);
}

/* ---- missing ranks --------------------------------------------------------------------------- */

bool tt_status_answers(const struct tt_control *ctl, int rank, uint64_t since_ns)
{
	return rank == ctl->rank || tt_status_at_ns(ctl, rank) >= since_ns;
}

static void await_answers(struct tt_control *ctl, uint64_t since_ns, uint64_t deadline_ns)
{
	int silent;

	do {
		silent = 0;
		for (int r = 0; r < ctl->nranks; r++)
			silent += !tt_status_answers(ctl, r, since_ns) &&
				  !tt_set_has(ctl->departed.left, r);
	} while (silent && !ctl->broken && tt_endpoint_await(ctl->ep, deadline_ns));
}

/* Does no chain of living neighbors lead to rank? Then neither questions nor answers pass. */
static bool is_partitioned(const struct tt_control *ctl, int rank)
{
	bool *partitioned = malloc((size_t)ctl->nranks * sizeof(*partitioned));
	bool is = partitioned && tt_control_find_partitioned(ctl, partitioned) && partitioned[rank];

	free(partitioned);
	return is;
}

/* The reason why rank does not answer, from a connection to it or to another rank of its host. */
static void why_silent(const struct tt_control *ctl, int rank, char *text, size_t bytes)
{
	int here = 0;

	for (int r = 0; r < ctl->nranks; r++)
		here += tt_control_host(ctl, r) == tt_control_host(ctl, rank);
	/* as if all hosts had as many processors as this one */
	if (is_partitioned(ctl, rank))
		snprintf(text, bytes, ": the ranks that connect it to rank %d have left or died",
			 ctl->rank);
	else if (here > STARVED * sysconf(_SC_NPROCESSORS_ONLN))
		snprintf(text, bytes, " (stopped, or starved: %d ranks share the host)", here);
	else
		snprintf(text, bytes, " (stopped?)");
	for (const struct tt_conn *c = ctl->ep->conns; c; c = c->next) {
		int other = c->dead || c->registration ? -1 : tt_control_rank(ctl, c->peer);
		char reason[160];

		if (other < 0 || tt_control_host(ctl, other) != tt_control_host(ctl, rank) ||
		    !tt_duplex_silent(&c->duplex, reason, sizeof(reason)))
			continue;
		snprintf(text, bytes, ": %s", reason);
		return;
	}
}

/* The chosen rank whose reason is said: the first that cannot be asked, which must not be called stopped, else the
 * first */
static int first_cause(const struct tt_control *ctl, bool (*chosen)(const void *ctx, int rank),
		       const void *ctx)
{
	bool *partitioned = malloc((size_t)ctl->nranks * sizeof(*partitioned));
	bool any = partitioned && tt_control_find_partitioned(ctl, partitioned);
	int first = -1;

	for (int r = 0; r < ctl->nranks && (first < 0 || (any && !partitioned[first])); r++)
		if (chosen(ctx, r) && (first < 0 || partitioned[r]))
			first = r;
	free(partitioned);
	return first;
}

/* "rank 3 is not answering (stopped?)", "ranks 2, 3 are not answering; rank 2: its host ..." */
static void say_silent(const struct tt_control *ctl, int n, const char *ranks, int first,
		       char *text, size_t bytes)
{
	char why[200];

	why_silent(ctl, first, why, sizeof(why));
	if (n > 1 && why[0] == ':')
		snprintf(text, bytes, "%s are not answering; rank %d%s", ranks, first, why);
	else
		snprintf(text, bytes, "%s %s not answering%s", ranks, n > 1 ? "are" : "is", why);
}

static void name_last(struct tt_control *ctl, int rank, char *name, size_t bytes)
{
	uint64_t last = tt_status_last(ctl, rank);
	const struct tt_status *s = tt_status_of(ctl, rank);

	if (!last)
		snprintf(name, bytes, "none");
	else if (last == s->started && s->history.nruns)
		tt_call_text(&s->history.run[0].call, last, name, bytes);
	else
		tt_call_log_name(ctl, last, name, bytes);
}

/* The reason why rank is missing from operation seq or, if want is given, from that message, as a
 * sentence. false: rank is not missing */
static bool describe(struct tt_control *ctl, int rank, uint64_t seq,
		     const struct tt_wait_edge *want, uint64_t since_ns, char *text, size_t bytes)
{
	char name[160], other[160], in[200], half[160];

	name_last(ctl, rank, name, sizeof(name));
	tt_deadlock_text(ctl, rank, other, sizeof(other));
	snprintf(in, sizeof(in), "%s%s", other[0] ? "; it is in " : "", other);
	if (tt_set_has(ctl->departed.left, rank)) {
		uint64_t after = tt_flood_goodbye_of(ctl, rank)->after;

		snprintf(text, bytes, "rank %d left after operation %llu", rank,
			 (unsigned long long)after);
		return want || after < seq;
	}
	if (!tt_status_answers(ctl, rank, since_ns)) {
		why_silent(ctl, rank, in, sizeof(in));
		snprintf(text, bytes,
			 "rank %d is not answering%s; last operation received from it: %s", rank,
			 in, name);
		return true;
	}
	if (want) {
		tt_wait_edge_text(&(struct tt_wait_edge){ !want->send, ctl->rank, want->number,
							  want->call },
				  half, sizeof(half));
		snprintf(text, bytes,
			 "rank %d has not made the matching call, %s; its last operation was: %s%s",
			 rank, half, name, in);
		return !tt_deadlock_met(ctl, want);
	}
	snprintf(text, bytes, "rank %d has not called operation %llu yet; its last was: %s%s", rank,
		 (unsigned long long)seq, name, in);
	return rank != ctl->rank && tt_status_of(ctl, rank)->started < seq;
}

/* Every rank is in the operation and none progresses: list the rank that each one waits for. */
static void describe_edges(struct tt_control *ctl, uint64_t seq, char *text, size_t bytes)
{
	int shown = 0, others = 0;
	size_t have = 0;

	snprintf(text, bytes, "every rank is in operation %llu", (unsigned long long)seq);
	for (int r = 0; r < ctl->nranks; r++) {
		int awaited = r == ctl->rank ? ctl->status.blocked.awaited
					     : tt_status_of(ctl, r)->awaited;

		have = strlen(text);
		if (awaited >= 0 && shown < MOST_EDGES && have + 80 < bytes) {
			snprintf(text + have, bytes - have, ", rank %d waits for rank %d", r,
				 awaited);
			shown++;
		} else {
			others += awaited >= 0;
		}
	}
	have = strlen(text);
	if (others)
		snprintf(text + have, bytes - have, ", and %d more wait", others);
}

/* The first message of blocked with rank, NULL: none */
static const struct tt_wait_edge *edge_to(const struct tt_blocked *blocked, int rank)
{
	for (int i = 0; i < blocked->nwants; i++)
		if (blocked->want[i].peer == rank)
			return &blocked->want[i];
	return NULL;
}

/* Does a peer of blocked's messages wait for rank, or for one that waits for it, and so on? */
static bool is_behind(const struct tt_control *ctl, const struct tt_blocked *blocked, int rank,
		      uint64_t since_ns)
{
	for (int i = 0; i < blocked->nwants; i++) {
		int at = blocked->want[i].peer;

		for (int step = 0; step < ctl->nranks && at >= 0 && at != rank; step++)
			at = at == ctl->rank || !tt_status_answers(ctl, at, since_ns)
				     ? -1
				     : tt_status_of(ctl, at)->awaited;
		if (at == rank)
			return true;
	}
	return false;
}

struct absence { /* of ranks from operation seq, or from the messages of blocked */
	struct tt_control *ctl;
	const struct tt_blocked *blocked;
	uint64_t seq, since_ns;
	bool collective;
};

/* In a collective every rank may be missing; otherwise the peers of blocked's messages, the silent
 * ranks for which these wait, and the neighbors that hide them. */
static bool is_silent_there(const void *ctx, int r)
{
	const struct absence *a = ctx;

	return !tt_status_answers(a->ctl, r, a->since_ns) &&
	       !tt_set_has(a->ctl->departed.left, r) &&
	       (a->collective || edge_to(a->blocked, r) || tt_control_is_neighbor(a->ctl, r) ||
		is_behind(a->ctl, a->blocked, r, a->since_ns));
}

/* Writes one sentence for several silent ranks; returns the one whose reason it says. -1: there are not several */
static int describe_silent(const struct absence *a, char *text, size_t bytes)
{
	char ranks[160], said[400], name[160];
	int first, n = tt_rank_list(a->ctl->nranks, is_silent_there, a, ranks, sizeof(ranks));

	if (n < 2)
		return -1;
	first = first_cause(a->ctl, is_silent_there, a);
	say_silent(a->ctl, n, ranks, first, said, sizeof(said));
	name_last(a->ctl, first, name, sizeof(name));
	snprintf(text, bytes, "%s; last operation received from rank %d: %s", said, first, name);
	return first;
}

/* Silent ranks come first, because the others may wait for them. */
static int describe_all(struct tt_control *ctl, uint64_t seq, const struct tt_blocked *blocked,
			uint64_t since_ns, char *text, size_t bytes)
{
	bool collective = !blocked->nwants ||
			  atomic_load(&ctl->log.started) > atomic_load(&ctl->log.finished);
	struct absence a = { ctl, blocked, seq, since_ns, collective };
	int first = describe_silent(&a, text, bytes), others = 0, shown = 0;
	size_t have = first < 0 ? 0 : strlen(text);
	bool listed = first >= 0;
	char one[600];

	for (int i = 0; i < 2 * ctl->nranks; i++) {
		int r = i % ctl->nranks;
		const struct tt_wait_edge *want = collective ? NULL : edge_to(blocked, r);
		bool silent = is_silent_there(&a, r);

		if (silent != (i < ctl->nranks) || (silent && listed) ||
		    (!collective && !want && !silent) ||
		    !describe(ctl, r, seq, want, since_ns, one, sizeof(one)))
			continue;
		first = first < 0 ? r : first;
		if (shown < MOST_REASONS && have + strlen(one) + 32 < bytes) {
			have += (size_t)snprintf(text + have, bytes - have, "%s%s",
						 have ? "; " : "", one);
			shown++;
		} else {
			others++;
		}
	}
	if (others)
		snprintf(text + have, bytes - have, "; and %d more", others);
	if (first < 0 && collective)
		describe_edges(ctl, seq, text, bytes);
	return first;
}

int tt_control_missing(struct tt_control *ctl, uint64_t seq, const struct tt_blocked *blocked,
		       char *text, size_t bytes)
{
	uint64_t now = tt_now_ns();
	int first;

	text[0] = '\0';
	tt_control_lock(ctl);
	remember(ctl, blocked);
	tt_status_ask(ctl, now);
	await_answers(ctl, now, now + ANSWER_NS);
	if (!ctl->broken)
		tt_deadlock_check(ctl);
	first = describe_all(ctl, seq, blocked, now, text, bytes);
	tt_control_unlock(ctl);
	return first;
}

struct silence {
	const struct tt_control *ctl;
	uint64_t since_ns;
};

static bool is_silent(const void *ctx, int rank)
{
	const struct silence *s = ctx;

	return !tt_status_answers(s->ctl, rank, s->since_ns) &&
	       !tt_set_has(s->ctl->departed.left, rank);
}

bool tt_status_silent(struct tt_control *ctl, uint64_t wait_ns, char *text, size_t bytes)
{
	struct silence s = { .ctl = ctl, .since_ns = tt_now_ns() };
	char ranks[256];
	int n;

	tt_status_ask(ctl, s.since_ns);
	await_answers(ctl, s.since_ns, s.since_ns + wait_ns);
	n = tt_rank_list(ctl->nranks, is_silent, &s, ranks, sizeof(ranks));
	if (!n)
		return false;
	say_silent(ctl, n, ranks, first_cause(ctl, is_silent, &s), text, bytes);
	return true;
}

bool tt_control_silent(struct tt_control *ctl, uint32_t wait_ms, char *text, size_t bytes)
{
	bool silent;

	tt_control_lock(ctl);
	silent = !ctl->broken && tt_status_silent(ctl, wait_ms * 1000000ull, text, bytes) &&
		 !ctl->broken;
	tt_control_unlock(ctl);
	return silent;
}

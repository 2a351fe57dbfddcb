/*
 * deadlock.c - who waits for whom: messages that differ,
 * and ranks that wait for each other for ever
 *
 * Called by statuses while somebody waits long. A rank that is stuck in an operation waits for
 * every rank that must begin something first: the same collective or exchange, or the other half of
 * a message. Nobody begins anything while it is stuck itself, so ranks that are all stuck and wait
 * for each other never go on: one called a collective, say, and the other receives.
 *
 * Statuses are of different moments, yet what follows from them is certain. Each says: at some
 * moment this rank was stuck until an event at another rank, and up to a later moment these events
 * had not happened here. Were any event of such a circle ever to happen, the first of them would
 * need the one that its own rank is stuck in before it.
 */
#include <stdio.h>
#include <string.h>

#include "control/control_internal.h"
#include "plan/plan.h"

/* ---- in words -------------------------------------------------------------------------------- */

void tt_wait_edge_text(const struct tt_wait_edge *want, char *text, size_t bytes)
{
	struct tt_call call = want->call;
	char what[96];

	call.root = -1;
	call.collective = TT_SENDRECV;
	tt_call_describe(&call, false, what, sizeof(what));         /* "sendrecv of 5 float32" */
	snprintf(text, bytes, "%s%s %s rank %d (number %llu)", want->send ? "send" : "receive",
		 strchr(what, ' '), want->send ? "to" : "from", want->peer,
		 (unsigned long long)want->number);
}

void tt_deadlock_text(const struct tt_control *ctl, int rank, char *text, size_t bytes)
{
	const struct tt_status *s = &ctl->status[rank];

	text[0] = '\0';
	if (rank == ctl->rank || tt_now_ns() - ctl->status_at_ns[rank] > 2 * TT_SECOND)
		return;                          /* nobody asked it lately */
	if (s->exchanging)
		snprintf(text, bytes, "tuttiCommSplit (exchange %llu among all ranks)",
			 (unsigned long long)s->exchanges);
	else if (s->nwants)
		tt_wait_edge_text(&s->want[0], text, bytes);
}

/* ---- messages that differ -------------------------------------------------------------------- */

/* A rank waits for this one, or for several: has what was sent to it been lost? */
static void look_for_lost(struct tt_control *ctl, const struct tt_status *s)
{
	char text[600];

	if (ctl->lost && (s->awaited == ctl->rank || s->awaited < 0) &&
	    ctl->lost(ctl->lost_ctx, s->origin, text, sizeof(text)))
		tt_control_break(ctl, TT_REMOTE, -1, 0, text, NULL);
}

void tt_control_on_awaited(struct tt_control *ctl,
			   bool (*lost)(void *ctx, int peer, char *text, size_t bytes), void *ctx)
{
	pthread_mutex_lock(&ctl->lock);
	ctl->lost = lost;
	ctl->lost_ctx = ctx;
	pthread_mutex_unlock(&ctl->lock);
}

void tt_deadlock_compare(struct tt_control *ctl, const struct tt_status *s)
{
	struct tt_call mine;
	char a[128], b[128], text[400];

	look_for_lost(ctl, s);

	for (int i = 0; i < s->nwants; i++) {
		const struct tt_wait_edge *w = &s->want[i];
		struct tt_wait_edge sent = { true, w->send ? ctl->rank : s->origin, w->number, w->call },
			       got;

		if (w->peer != ctl->rank || w->call.collective != TT_SENDRECV ||
		    !tt_call_log_message(ctl, !w->send, s->origin, w->number, &mine) ||
		    (mine.type == w->call.type && mine.count == w->call.count))
			continue;
		got = (struct tt_wait_edge){ false, w->send ? s->origin : ctl->rank, w->number,
					w->send ? mine : w->call };
		if (!w->send)
			sent.call = mine;
		tt_wait_edge_text(&sent, a, sizeof(a));
		tt_wait_edge_text(&got, b, sizeof(b));
		snprintf(text, sizeof(text), "rank %d called %s, rank %d called %s", got.peer, a,
			 sent.peer, b);
		tt_control_break(ctl, TT_USAGE, -1, 0, text, NULL);
	}
}

/* ---- for ever -------------------------------------------------------------------------------- */

/* Has rank begun the other half of a message that peer wants of it? Not known counts as yes. */
static bool begun(const struct tt_control *ctl, int peer, const struct tt_wait_edge *want)
{
	const struct tt_status *s = &ctl->status[want->peer];

	for (int i = 0; i < s->npairs; i++)
		if (s->pair[i].peer == peer)
			return s->pair[i].started[!want->send] >= want->number;
	return true;
}

bool tt_deadlock_met(const struct tt_control *ctl, const struct tt_wait_edge *want)
{
	return begun(ctl, ctl->rank, want);
}

/* Can rank, in call, not end it before other has begun it? */
static bool needs(const struct tt_call *call, int rank, int other)
{
	switch (call->collective) {
	case TT_BROADCAST:
	case TT_SCATTER:
		return call->count && call->root == other && call->root != rank;
	case TT_REDUCE:
	case TT_GATHER:
		return call->count && call->root == rank;
	default:
		return tt_status_needs_all(call);
	}
}

/* Is rank stuck until other begins something? A send may end without, if there is room for it: it
 * does not count. */
static bool waits_for(const struct tt_control *ctl, int rank, int other)
{
	const struct tt_status *s = &ctl->status[rank], *o = &ctl->status[other];

	if (s->exchanging && o->exchanges < s->exchanges)
		return true;
	if (s->stuck != TT_BLOCKED)
		return false;
	if (s->started > s->finished && o->started < s->started && s->trail.nruns &&
	    needs(&s->trail.run[0].call, rank, other))
		return true;
	for (int i = 0; i < s->nwants; i++)
		if (!s->want[i].send && s->want[i].peer == other && !begun(ctl, rank, &s->want[i]))
			return true;
	return false;
}

/* One of those that rank waits for and that are stuck for ever as well, -1 none */
static int next(const struct tt_control *ctl, int rank)
{
	for (int other = 0; other < ctl->nranks; other++)
		if (ctl->deadlocked[other] && waits_for(ctl, rank, other))
			return other;
	return -1;
}

/* Whoever waits for nobody of them is not stuck for ever; and so on. */
static void find_doomed(struct tt_control *ctl)
{
	bool changed = true;

	for (int r = 0; r < ctl->nranks; r++)
		ctl->deadlocked[r] = (r == ctl->rank || ctl->status_at_ns[r]) && !ctl->left[r] &&
				 (ctl->status[r].stuck == TT_BLOCKED || ctl->status[r].exchanging);
	while (changed) {
		changed = false;
		for (int r = 0; r < ctl->nranks; r++)
			if (ctl->deadlocked[r] && next(ctl, r) < 0) {
				ctl->deadlocked[r] = false;
				changed = true;
			}
	}
}

/* "rank 0 is in ... and waits for rank 1" */
static size_t tell_wait(struct tt_control *ctl, int rank, int other, char *text, size_t bytes)
{
	const struct tt_status *s = &ctl->status[rank], *o = &ctl->status[other];
	char what[160] = "an operation";

	if (s->exchanging && o->exchanges < s->exchanges)
		snprintf(what, sizeof(what), "tuttiCommSplit (exchange %llu among all ranks)",
			 (unsigned long long)s->exchanges);
	else if (s->started > s->finished && o->started < s->started &&
		 needs(&s->trail.run[0].call, rank, other))
		tt_call_text(&s->trail.run[0].call, s->started, what, sizeof(what));
	else
		for (int i = s->nwants - 1; i >= 0; i--)
			if (!s->want[i].send && s->want[i].peer == other &&
			    !begun(ctl, rank, &s->want[i]))
				tt_wait_edge_text(&s->want[i], what, sizeof(what));
	return (size_t)snprintf(text, bytes, "; rank %d is in %s and waits for rank %d", rank, what,
				other);
}

void tt_deadlock_check(struct tt_control *ctl)
{
	char text[900] = "these ranks wait for each other, and none can go on";
	size_t have = strlen(text);
	bool messages = false;
	int first;

	if (ctl->broken)
		return;
	tt_status_fill(ctl, &ctl->status[ctl->rank]);
	for (int r = 0; r < ctl->nranks; r++)
		messages |= ctl->status[r].nwants || ctl->status[r].exchanging;
	/* collectives alone wait in the order of their numbers */
	if (!messages)
		return;
	find_doomed(ctl);
	if (!ctl->deadlocked[ctl->rank])
		return;
	first = ctl->rank;
	/* as far as the circle that this rank is in, or waits for */
	for (int i = 0; i < ctl->nranks; i++)
		first = next(ctl, first);
	for (int r = first, shown = 0; shown == 0 || (r != first && shown < 3);
	     r = next(ctl, r), shown++)
		have += tell_wait(ctl, r, next(ctl, r), text + have, sizeof(text) - have);
	tt_control_break(ctl, TT_USAGE, -1, 0, text, NULL);
}

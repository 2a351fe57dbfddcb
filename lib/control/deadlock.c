/*
 * deadlock.c - deadlock detection: messages that differ, and cycles in the wait-for graph
 *
 * Called by control_status.c while some rank waits long. A blocked rank has an edge to every rank
 * that must start a call first: the same collective or exchange, or the other half of a message. A
 * blocked rank starts no call, so the ranks of a cycle never proceed: one called a collective, for
 * example, and the other one a receive.
 *
 * Statuses are taken at different moments, yet a cycle is certain. Each status states: at some
 * moment its rank was blocked until an event at another rank, and up to a later moment the events
 * that other ranks need from it had not happened. If any event of a cycle ever happened, the first
 * such event would need the completion of the call in which its own rank is blocked.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/control_internal.h"
#include "base/collective.h"

/* ---- text ------------------------------------------------------------------------------------ */

void tt_wait_edge_text(const struct tt_wait_edge *want, char *text, size_t bytes)
{
	struct tt_call call = want->call;
	char name[96];

	call.root = -1;
	call.collective = TT_SENDRECV;
	tt_call_describe(&call, false, name, sizeof(name)); /* "sendrecv of 5 float32" */
	snprintf(text, bytes, "%s%s %s rank %d (number %llu)", want->send ? "send" : "receive",
		 strchr(name, ' '), want->send ? "to" : "from", want->peer,
		 (unsigned long long)want->number);
}

void tt_deadlock_text(const struct tt_control *ctl, int rank, char *text, size_t bytes)
{
	text[0] = '\0';
	if (rank == ctl->rank || tt_now_ns() - tt_status_at_ns(ctl, rank) > 2 * TT_SECOND)
		return; /* its status is out of date */
	tt_status_other_text(tt_status_of(ctl, rank), text, bytes);
}

void tt_status_other_text(const struct tt_status *s, char *text, size_t bytes)
{
	text[0] = '\0';
	if (s->exchanging)
		snprintf(text, bytes, "tuttiCommSplit (exchange %llu among all ranks)",
			 (unsigned long long)s->exchanges);
	else if (s->nwants)
		tt_wait_edge_text(&s->want[0], text, bytes);
}

/* ---- messages that differ -------------------------------------------------------------------- */

/* s->origin waits for this rank, or for several: break the control if a message to it was lost. */
static void check_lost(struct tt_control *ctl, const struct tt_status *s)
{
	char text[600];

	if ((s->awaited == ctl->rank || s->awaited < 0) &&
	    tt_observers_lost(ctl, s->origin, text, sizeof(text)))
		tt_control_break(ctl, TT_REMOTE, -1, 0, text, -1);
}

void tt_deadlock_compare(struct tt_control *ctl, const struct tt_status *s)
{
	struct tt_call mine;
	char a[128], b[128], text[400];

	check_lost(ctl, s);
	for (int i = 0; i < s->nwants; i++) {
		const struct tt_wait_edge *w = &s->want[i];
		struct tt_wait_edge sent = { true, w->send ? ctl->rank : s->origin, w->number,
					     w->call },
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
		tt_control_break(ctl, TT_USAGE, -1, 0, text, -1);
	}
}

/* ---- cycles in the wait-for graph ------------------------------------------------------------ */

/* Has the peer of want started its half of that message of rank `peer`? Unknown counts as yes. */
static bool begun(const struct tt_control *ctl, int peer, const struct tt_wait_edge *want)
{
	const struct tt_status *s = tt_status_of(ctl, want->peer);

	for (int i = 0; i < s->npairs; i++)
		if (s->pair[i].peer == peer)
			return s->pair[i].started[!want->send] >= want->number;
	return true;
}

bool tt_deadlock_met(const struct tt_control *ctl, const struct tt_wait_edge *want)
{
	return begun(ctl, ctl->rank, want);
}

/* Can rank not complete call before other has started it? */
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

/* Is there an edge from rank to other in the wait-for graph? Sends make no edges, since a send
 * completes without its receive if there is room for the message. */
static bool has_edge(const struct tt_control *ctl, int rank, int other)
{
	const struct tt_status *s = tt_status_of(ctl, rank), *o = tt_status_of(ctl, other);

	if (s->exchanging && o->exchanges < s->exchanges)
		return true;
	if (s->blocked != TT_BLOCKED)
		return false;
	if (s->started > s->finished && o->started < s->started && s->history.nruns &&
	    needs(&s->history.run[0].call, rank, other))
		return true;
	for (int i = 0; i < s->nwants; i++)
		if (!s->want[i].send && s->want[i].peer == other && !begun(ctl, rank, &s->want[i]))
			return true;
	return false;
}

/* A deadlocked rank for which rank waits, -1: none */
static int next(const struct tt_control *ctl, int rank)
{
	for (int other = 0; other < ctl->nranks; other++)
		if (ctl->deadlock.in_cycle[other] && has_edge(ctl, rank, other))
			return other;
	return -1;
}

/* Mark the deadlocked ranks: begin with all blocked ranks, and unmark ranks without an edge to a
 * marked rank until none is left. */
static void find_deadlocked(struct tt_control *ctl)
{
	bool changed = true;

	for (int r = 0; r < ctl->nranks; r++)
		ctl->deadlock.in_cycle[r] = (r == ctl->rank || tt_status_at_ns(ctl, r)) &&
					    !tt_set_has(ctl->departed.left, r) &&
					    (tt_status_of(ctl, r)->blocked == TT_BLOCKED ||
					     tt_status_of(ctl, r)->exchanging);
	while (changed) {
		changed = false;
		for (int r = 0; r < ctl->nranks; r++)
			if (ctl->deadlock.in_cycle[r] && next(ctl, r) < 0) {
				ctl->deadlock.in_cycle[r] = false;
				changed = true;
			}
	}
}

/* "rank 0 is in ... and waits for rank 1" */
static size_t describe_wait(struct tt_control *ctl, int rank, int other, char *text, size_t bytes)
{
	const struct tt_status *s = tt_status_of(ctl, rank), *o = tt_status_of(ctl, other);
	char name[160] = "an operation";

	if (s->exchanging && o->exchanges < s->exchanges)
		snprintf(name, sizeof(name), "tuttiCommSplit (exchange %llu among all ranks)",
			 (unsigned long long)s->exchanges);
	else if (s->started > s->finished && o->started < s->started &&
		 needs(&s->history.run[0].call, rank, other))
		tt_call_text(&s->history.run[0].call, s->started, name, sizeof(name));
	else
		for (int i = s->nwants - 1; i >= 0; i--)
			if (!s->want[i].send && s->want[i].peer == other &&
			    !begun(ctl, rank, &s->want[i]))
				tt_wait_edge_text(&s->want[i], name, sizeof(name));
	return (size_t)snprintf(text, bytes, "; rank %d is in %s and waits for rank %d", rank, name,
				other);
}

/* This rank is in a cycle, or behind one: break the communicator. */
static void fail(struct tt_control *ctl)
{
	char text[900] = "these ranks wait for each other, and none can go on";
	size_t have = strlen(text);
	int first;

	first = ctl->rank;
	/* walk to the cycle that this rank is in or behind */
	for (int i = 0; i < ctl->nranks; i++)
		first = next(ctl, first);
	for (int r = first, shown = 0; shown == 0 || (r != first && shown < 3);
	     r = next(ctl, r), shown++)
		have += describe_wait(ctl, r, next(ctl, r), text + have, sizeof(text) - have);
	tt_control_break(ctl, TT_USAGE, -1, 0, text, -1);
}

/* Without memory the next look may find the cycle. */
void tt_deadlock_check(struct tt_control *ctl)
{
	bool messages = false;

	if (ctl->broken)
		return;
	tt_status_fill(ctl, &ctl->status.table.own.status);
	for (int r = 0; r < ctl->nranks; r++)
		messages |= tt_status_of(ctl, r)->nwants || tt_status_of(ctl, r)->exchanging;
	/* collectives alone wait in the order of their numbers, without cycles */
	ctl->deadlock.in_cycle = messages ? calloc((size_t)ctl->nranks, sizeof(bool)) : NULL;
	if (!ctl->deadlock.in_cycle)
		return;
	find_deadlocked(ctl);
	if (ctl->deadlock.in_cycle[ctl->rank])
		fail(ctl);
	free(ctl->deadlock.in_cycle);
}

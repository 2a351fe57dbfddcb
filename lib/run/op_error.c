/*
 * op_error.c - what to say when an operation fails, and telling the other ranks
 *
 * Called by run and wait. The sentence names this rank, this operation, who is missing or to blame
 * and what that rank did last; control knows the others' part of it.
 *
 * Which cause is told does not depend on which word comes first. A fault of this
 * host's own network (a transport's fault) comes before whatever others say, since
 * theirs may be its effect; their word follows it. Who waits long looks for one,
 * since not every card reports what it has lost. A symptom (the peer's stream
 * ended, its card does not answer) gives way to both, and waits for them a while.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "run/op.h"

static const char *op_text(const struct tt_op *op, char text[160])
{
	const struct tt_request *r = op->request;

	if (r->collective == TT_SENDRECV)
		snprintf(text, 160, "%s of %zu %s %s rank %d (number %llu)",
			 r->send ? "send" : "receive", r->count, tt_type_name(r->type),
			 r->send ? "to" : "from", r->root, (unsigned long long)op->seq);
	else
		tt_call_text(&op->call, op->seq, text, 160);
	return text;
}

/* The first rank that some cursor of op waits for, -1 if none or the waits differ. */
static int awaited(const struct tt_op *op)
{
	int peer = -1;

	if (op->request->collective == TT_SENDRECV)
		return op->request->root;
	for (uint32_t i = 0; op->started && i < op->ncursors; i++) {
		struct tt_endpoint *ep;
		int p = op->cursor[i].finished ? -1 : tt_op_waits_for(op, i, &ep);

		if (p >= 0 && peer >= 0 && p != peer)
			return -1;
		if (p >= 0)
			peer = p;
	}
	return peer;
}

void tt_op_error_describe(const struct tt_op *op, struct tt_blocked *ret_stuck)
{
	tuttiComm_t c = op->comm;
	struct tt_blocked *s = ret_stuck;

	*s = (struct tt_blocked){ .awaited = awaited(op) };
	s->last_received = s->awaited >= 0 ? c->last_received[s->awaited] : 0;
	for (; op; op = op->next) {
		const struct tt_request *r = op->request;

		if (op->comm != c)
			continue;
		s->open |= !op->started || op->then;
		if (op->started && r->collective == TT_SENDRECV && s->nwants < TT_WAIT_EDGES)
			s->want[s->nwants++] =
				(struct tt_wait_edge){ r->send, r->root, op->seq, op->call };
	}
}

void tt_op_error_ask(struct tt_op *set)
{
	struct tt_blocked stuck;

	for (struct tt_op *op = set, *last = NULL; op; op = op->next) {
		if (!op->started || (last && last->comm == op->comm))
			continue;
		tt_op_error_describe(op, &stuck);
		tt_control_waiting(op->comm->ctl, &stuck);
		last = op;
	}
}

/* What this host's transports know of the cause why a communicator is broken: 0 nothing | < 0 with
 * the sentence */
static int own_fault(tuttiComm_t c)
{
	int rc = 0;

	for (int i = 0; i < c->nep && !rc; i++)
		if (c->ep[i]->t->fault_ops)
			rc = c->ep[i]->t->fault_ops->local(c->ep[i], true);
	return rc;
}

static bool goes_by(const struct tt_op *op, const struct tt_endpoint *ep)
{
	bool goes = false;

	for (int peer = 0; op->started && peer < op->comm->nranks && !goes; peer++)
		goes = op->road->via[peer] == ep;
	return goes;
}

/* Why op cannot go on: of a card on the other road nothing depends now. */
static int hopeless(const struct tt_op *op)
{
	tuttiComm_t c = op->comm;
	int rc = 0;

	for (int i = 0; i < c->nep && !rc; i++)
		if (c->ep[i]->t->fault_ops && goes_by(op, c->ep[i]))
			rc = c->ep[i]->t->fault_ops->local(c->ep[i], false);
	return rc;
}

/* Communicator broken, or own fault, or both */
static int say(struct tt_op *op, int own)
{
	char what[160], mine[700];
	int code = tt_control_broken(op->comm->ctl), culprit;
	const char *text = tt_control_text(op->comm->ctl, &culprit);

	snprintf(mine, sizeof(mine), "%s", own ? tt_error_text() : "");
	if (!op->started)
		snprintf(what, sizeof(what), "operation %llu was not started",
			 (unsigned long long)op->comm->seq + 1);
	else
		op_text(op, what);
	if (own)
		return tt_fail(own, "rank %d: %s: %s%s%s", op->comm->rank, what, mine,
			       text[0] ? "; of others was last_received: " : "", text);
	return tt_fail(code, "rank %d: %s: %s", op->comm->rank, what, text);
}

int tt_op_error_broken(struct tt_op *op)
{
	return say(op, own_fault(op->comm));
}

int tt_op_error_late(struct tt_op *op)
{
	char what[160], missing[600] = "";
	tuttiComm_t c = op->comm;
	struct tt_blocked stuck;
	int own;

	tt_op_error_describe(op, &stuck);
	tt_control_missing(c->ctl, c->seq, &stuck, missing, sizeof(missing));
	if (tt_control_broken(c->ctl))           /* another rank was first, and knew better */
		return tt_op_error_broken(op);
	if ((own = own_fault(c)))
		return say(op, own);
	return tt_fail(TT_TIMEOUT, "rank %d: %s timed out after %u ms without progress: %s",
		       c->rank, op_text(op, what), c->timeout_ms,
		       missing[0] ? missing : "the other side is in it as well");
}

int tt_op_error_own(struct tt_op *set)
{
	int own = 0;

	for (; set && !own; set = set->next) {
		own = hopeless(set);
		if (own)
			say(set, own);
	}
	return own;
}

/* The links could not be connected, or there was no memory: code's sentence stands already in the
 * latter case. */
int tt_op_error_starting(struct tt_op *op, int code)
{
	if (tt_control_broken(op->comm->ctl))
		return tt_op_error_broken(op);
	return code == TT_TIMEOUT ? tt_op_error_late(op) : code;
}

/* A transport saw a symptom: another call's message where this one's was due, or a connection that
 * ended. The ranks that are the cause are known to control, now or very soon, or this host's card
 * is about to tell; without a verdict the symptom must do. */
int tt_op_error_symptom(struct tt_op *op, int code)
{
	uint64_t until = tt_deadline_ns(op->comm->timeout_ms < 2000 ? op->comm->timeout_ms : 2000);
	struct timespec pause = { .tv_nsec = 1000000 };
	struct tt_blocked stuck;
	bool mismatch = code == TT_USAGE;
	char what[160], cause[700];
	int own = 0;

	snprintf(cause, sizeof(cause), "%s", tt_error_text());
	tt_op_error_describe(op, &stuck);
	stuck.differs = mismatch;
	while (!tt_control_broken(op->comm->ctl) && !(own = own_fault(op->comm)) &&
	       tt_now_ns() < until) {
		if (mismatch)
			tt_control_waiting(op->comm->ctl, &stuck);
		nanosleep(&pause, NULL);
	}
	if (own)
		return say(op, own);
	if (tt_control_broken(op->comm->ctl))
		return tt_op_error_broken(op);
	return tt_fail(code, "rank %d: %s: %s%s", op->comm->rank, op_text(op, what),
		       mismatch ? "another rank made a different call: " : "", cause);
}

void tt_op_error_spread(struct tt_op *set, int code)
{
	for (struct tt_op *op = set; op; op = op->next) {
		if (!tt_control_broken(op->comm->ctl))
			tt_control_raise(op->comm->ctl, code, -1, tt_error_text());
		tt_comm_failed(op->comm, code);
	}
}

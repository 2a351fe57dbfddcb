/*
 * op_error.c - error texts of failed operations, and the failure's way to the other ranks
 *
 * Called by run and wait. An error text names this rank, this operation, the rank that is missing
 * or to blame, and the last operation of that rank; control knows the other ranks' part.
 *
 * The reported cause does not depend on which message arrives first. A fault of this host's own
 * network (a transport's fault) comes before any report of other ranks, which may be its effect;
 * their report follows it. A rank that waits long asks its transports for a fault, since not every
 * NIC reports lost messages. A symptom (the peer's stream ended, its NIC does not answer) gives way
 * to both, and waits for them for at most 2 s. When none comes, the text also names the ranks that do
 * not answer: the network may have cut off this rank together with the peer that left.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "comm/trace.h"
#include "run/way.h"

#define DIAL_LATE_MS 250 /* longest time from the deadline of a dial to its end */
#define CAUSE_MS 1900    /* longest wait of a symptom for its cause; the call ends within 2 s */
#define ANSWER_MS 400    /* at its end: for ranks to answer that they are alive */

static const char *op_text(const struct tt_op *op, char text[160])
{
	const struct tt_request *r = op->call.request;

	if (r->collective == TT_SENDRECV)
		snprintf(text, 160, "%s of %zu %s %s rank %d (number %llu)",
			 r->send ? "send" : "receive", r->count, tt_datatype_name(r->type),
			 r->send ? "to" : "from", r->root, (unsigned long long)op->call.seq);
	else
		tt_call_text(&op->call.record, op->call.seq, text, 160);
	return text;
}

/* The rank that the cursors of op wait for; -1: none, or several. */
static int awaited(const struct tt_op *op)
{
	int peer = -1;

	if (op->call.request->collective == TT_SENDRECV)
		return op->call.request->root;
	for (uint32_t i = 0; op->started && i < op->cursors.n; i++) {
		struct tt_endpoint *ep;
		int p = op->cursors.at[i].finished ? -1 : op->way->waits_for(op, i, &ep);

		if (p >= 0 && peer >= 0 && p != peer)
			return -1;
		if (p >= 0)
			peer = p;
	}
	return peer;
}

/* The wait-for edges of op's communicator: of op and of those after it in its set. The awaited rank
 * is noted in the flight recorder, too. */
static void describe_waits(const struct tt_op *op, struct tt_blocked *ret_stuck)
{
	tuttiComm_t c = op->comm;
	struct tt_blocked *s = ret_stuck;

	*s = (struct tt_blocked){ .awaited = awaited(op) };
	if (c->trace && op->started && op->call.request->collective != TT_SENDRECV)
		c->trace->now->awaited = s->awaited;
	if (s->awaited >= 0 && c->calls.last_received)
		s->last_received = c->calls.last_received[s->awaited];
	for (; op; op = op->next) {
		const struct tt_request *r = op->call.request;

		if (op->comm != c)
			continue;
		s->open |= !op->started || op->then;
		if (op->started && r->collective == TT_SENDRECV && s->nwants < TT_WAIT_EDGES)
			s->want[s->nwants++] = (struct tt_wait_edge){ r->send, r->root,
								      op->call.seq,
								      op->call.record };
	}
}

void tt_op_error_ask(struct tt_op *set)
{
	struct tt_blocked stuck;

	for (struct tt_op *op = set, *last = NULL; op; op = op->next) {
		if (!op->started || (last && last->comm == op->comm))
			continue;
		describe_waits(op, &stuck);
		tt_control_waiting(op->comm->ctl, &stuck);
		last = op;
	}
}

/* Ask this host's transports for the cause of a broken communicator: 0 none | < 0 with the error
 * text */
static int own_fault(tuttiComm_t c)
{
	int rc = 0;

	for (int i = 0; i < c->paths.nep && !rc; i++)
		if (c->paths.ep[i]->t->fault_ops)
			rc = c->paths.ep[i]->t->fault_ops->local(c->paths.ep[i], true);
	return rc;
}

static bool goes_by(const struct tt_op *op, const struct tt_endpoint *ep)
{
	bool goes = false;

	for (int peer = 0; op->started && peer < op->comm->nranks && !goes; peer++)
		goes = tt_path_via(op->bound.path, peer) == ep;
	return goes;
}

/* The fault of a transport for which op can never complete; transports of the other path do not
 * matter. 0 none | < 0 */
static int fatal_fault(const struct tt_op *op)
{
	tuttiComm_t c = op->comm;
	int rc = 0;

	for (int i = 0; i < c->paths.nep && !rc; i++)
		if (c->paths.ep[i]->t->fault_ops && goes_by(op, c->paths.ep[i]))
			rc = c->paths.ep[i]->t->fault_ops->local(c->paths.ep[i], false);
	return rc;
}

/* The error text of op: the communicator is broken, or own is a fault of this host, or both. */
static int explain(struct tt_op *op, int own)
{
	char what[160], mine[700];
	int code = tt_control_broken(op->comm->ctl), culprit;
	const char *text = tt_control_text(op->comm->ctl, &culprit);

	snprintf(mine, sizeof(mine), "%s", own ? tt_error_text() : "");
	if (!op->started)
		snprintf(what, sizeof(what), "operation %llu was not started",
			 (unsigned long long)op->comm->calls.seq + 1);
	else
		op_text(op, what);
	if (own)
		return tt_fail(own, "rank %d: %s: %s%s%s", op->comm->rank, what, mine,
			       text[0] ? "; other ranks reported: " : "", text);
	return tt_fail(code, "rank %d: %s: %s", op->comm->rank, what, text);
}

int tt_op_error_broken(struct tt_op *op)
{
	return explain(op, own_fault(op->comm));
}

/* The reason why this rank's dial of l has failed; "": the peer dials, or its side is missing. The
 * dial began with the operation, so it gives up about now. */
static void dial_error(struct tt_link *l, char *text, size_t bytes)
{
	uint64_t until = tt_deadline_ns(DIAL_LATE_MS);
	int rc = 0;

	while (l->ep->world->rank < l->peer && !(rc = l->t->ready(l)) && tt_now_ns() < until)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	snprintf(text, bytes, "%s", rc < 0 ? tt_error_text() : "");
}

/* op waits for a link: break the communicator with the missing rank, or with the error of the
 * dial. */
static int unconnected(struct tt_op *op)
{
	struct tt_link *l = op->connecting.missing;
	char missing[512], error[512] = "", text[900];
	tuttiComm_t c = op->comm;
	struct tt_blocked stuck;
	int who;

	describe_waits(op, &stuck);
	who = tt_control_missing(c->ctl, c->calls.seq, &stuck, missing, sizeof(missing));
	if (tt_control_broken(c->ctl)) /* another rank reported a cause meanwhile */
		return tt_op_error_broken(op);
	if (who < 0) /* all have answered, at once */
		dial_error(l, error, sizeof(error));
	if (who < 0 && error[0])
		snprintf(missing, sizeof(missing), "%s", error);
	else if (who < 0)
		snprintf(missing, sizeof(missing),
			 "rank %d has made no call that needs the connection", l->peer);
	snprintf(text, sizeof(text), "rank %d has no connection to rank %d after %u ms: %s",
		 c->rank, l->peer, c->settings.timeout_ms, missing);
	tt_control_raise(c->ctl, TT_TIMEOUT, who, text);
	return tt_op_error_broken(op);
}

int tt_op_error_late(struct tt_op *op)
{
	char what[160], missing[600] = "";
	tuttiComm_t c = op->comm;
	struct tt_blocked stuck;
	int own;

	if (op->way == &tt_connecting_way)
		return unconnected(op);
	describe_waits(op, &stuck);
	tt_control_missing(c->ctl, c->calls.seq, &stuck, missing, sizeof(missing));
	if (tt_control_broken(c->ctl)) /* another rank reported a cause meanwhile */
		return tt_op_error_broken(op);
	if ((own = own_fault(c)))
		return explain(op, own);
	return tt_fail(TT_TIMEOUT, "rank %d: %s timed out after %u ms without progress: %s",
		       c->rank, op_text(op, what), c->settings.timeout_ms,
		       missing[0] ? missing : "the other ranks are in the same call");
}

int tt_op_error_own(struct tt_op *set)
{
	int own = 0;

	for (; set && !own; set = set->next) {
		own = fatal_fault(set);
		if (own)
			explain(set, own);
	}
	return own;
}

/* A transport saw a symptom: a message of another call, or a connection that ended or could not be
 * made. Control knows the cause, now or very soon, or a NIC of this host is about to report it;
 * otherwise the symptom is reported. */
int tt_op_error_symptom(struct tt_op *op, int code)
{
	struct tt_control *ctl = op->comm->ctl;
	uint32_t timeout_ms = op->comm->settings.timeout_ms;
	uint64_t until = tt_deadline_ns(timeout_ms < CAUSE_MS ? timeout_ms : CAUSE_MS) -
			 ANSWER_MS * 1000000ull;
	struct timespec pause = { .tv_nsec = 1000000 };
	char what[160], cause[700], silent[512] = "";
	struct tt_blocked stuck;
	bool mismatch = code == TT_USAGE;
	int own;

	snprintf(cause, sizeof(cause), "%s", tt_error_text());
	describe_waits(op, &stuck);
	stuck.differs = mismatch;
	do {
		if (mismatch)
			tt_control_waiting(ctl, &stuck);
		nanosleep(&pause, NULL);
		own = own_fault(op->comm);
	} while (!own && !tt_control_broken(ctl) && tt_now_ns() < until);
	if (!own && tt_control_silent(ctl, ANSWER_MS, silent, sizeof(silent)))
		own = own_fault(op->comm);
	if (own)
		return explain(op, own);
	if (tt_control_broken(ctl))
		return tt_op_error_broken(op);
	return tt_fail(code, "rank %d: %s: %s%s%s%s", op->comm->rank, op_text(op, what),
		       mismatch ? "another rank made a different call: " : "", cause,
		       silent[0] ? "; " : "", silent);
}

/* op failed before its first step: a link could not be connected, or memory ran out, which is this
 * thread's error text already. */
int tt_op_error_starting(struct tt_op *op, int code)
{
	if (tt_control_broken(op->comm->ctl))
		return tt_op_error_broken(op);
	return code == TT_TIMEOUT  ? tt_op_error_late(op)
	       : code == TT_REMOTE ? tt_op_error_symptom(op, code)
				   : code;
}

void tt_op_error_spread(struct tt_op *set, int code)
{
	for (struct tt_op *op = set; op; op = op->next) {
		if (!tt_control_broken(op->comm->ctl))
			tt_control_raise(op->comm->ctl, code, -1, tt_error_text());
		tt_comm_failed(op->comm, code);
	}
}

/*
 * control_dials.c - outstanding dials: their callers have met the deadline before the server answered
 *
 * Called by control_message.c, control_holders.c and the service thread. A server may need longer for the
 * handshakes of all ranks that dial it than a caller may wait. If each dial ended with its caller, the
 * server would work for clients that have gone, and serve none until fewer ranks dial. So a dial whose
 * handshake runs stays with the endpoint: the service thread goes on with the handshake, and the next call
 * finds the connection, or goes on with the dial. A dial ends when the server ends it, TT_DIAL_NS after the
 * latest call's deadline, or with the endpoint.
 */
#include <stdlib.h>

#include "control/control_internal.h"

#define LOOK_NS 1000000ull /* between two looks at a handshake, at least */

static void free_dial(struct tt_outstanding_dial *d)
{
	tt_authenticate_end(&d->attempt);
	tt_tls_close(d->welcomed);
	free(d);
}

static struct tt_outstanding_dial *take(struct tt_control_endpoint *ep, const struct tt_dial *dial)
{
	struct tt_outstanding_dial **at = &ep->peers.outstanding, *d;

	while ((d = *at) && !(d->dial.to.rank == dial->to.rank &&
			      d->dial.purpose == dial->purpose && d->dial.channel == dial->channel))
		at = &d->next;
	if (d)
		*at = d->next;
	return d;
}

/* The outstanding dial, for another caller; NULL: none */
static struct tt_outstanding_dial *resume(struct tt_control *ctl, const struct tt_dial *dial)
{
	struct tt_outstanding_dial *d;

	tt_control_lock(ctl);
	d = take(ctl->ep, dial);
	tt_control_unlock(ctl);
	if (!d)
		return NULL;
	d->dial.me = dial->me;
	d->dial.rank = dial->rank;
	d->dial.stop = dial->stop;
	d->dial.deadline_ns = dial->deadline_ns;
	return d;
}

static struct tt_outstanding_dial *begin(const struct tt_dial *dial)
{
	struct tt_outstanding_dial *d = calloc(1, sizeof(*d));

	if (d)
		d->dial = *dial;
	return d;
}

/* Of questions the first ones stay, since they are answered first; more end with their calls. Locked */
static bool may_leave(const struct tt_control_endpoint *ep, const struct tt_outstanding_dial *d)
{
	int questions = 0;

	if (ep->ended || d->dial.purpose != TT_P_RECORD)
		return !ep->ended;
	for (const struct tt_outstanding_dial *o = ep->peers.outstanding; o; o = o->next)
		questions += o->dial.purpose == TT_P_RECORD;
	return questions < TT_QUESTIONS;
}

/* The service thread goes on with the dial. false: the endpoint closes, or has left enough questions */
static bool leave(struct tt_control *ctl, struct tt_outstanding_dial *d)
{
	struct tt_control_endpoint *ep = ctl->ep;
	bool stays;

	d->dial.stop = NULL;
	d->attempt.ctl = NULL;
	d->attempt.patience = (struct tt_patience){ .deadline_ns = TT_NEVER };
	d->left_ns = tt_now_ns();
	d->due_ns = 0;
	tt_control_lock(ctl);
	stays = may_leave(ep, d);
	if (stays) {
		d->next = ep->peers.outstanding;
		ep->peers.outstanding = d;
	}
	tt_control_unlock(ctl);
	tt_endpoint_wake(ep);
	return stays;
}

int tt_dials_connect(struct tt_control *ctl, struct tt_dial *dial, struct tt_duplex *ret_duplex)
{
	struct tt_outstanding_dial *d = resume(ctl, dial);
	int rc = 0;

	if (d && d->welcomed) {
		*ret_duplex = (struct tt_duplex){ .tls = d->welcomed };
		d->welcomed = NULL;
		free_dial(d);
		return 0;
	}
	if (!d && !(d = begin(dial)))
		return tt_fail(TT_SYSTEM, "rank %d: no memory to connect to rank %d", dial->me,
			       dial->rank);
	if (!d->attempt.dial)
		rc = tt_attempt_begin(ctl, &d->dial, &d->attempt);
	d->attempt.end_ns = dial->deadline_ns + TT_DIAL_NS;
	if (!rc)
		rc = tt_attempt_go_on(ctl, &d->attempt, ret_duplex);
	if (rc != TT_TIMEOUT || !d->attempt.nrunning || !leave(ctl, d))
		free_dial(d);
	return rc;
}

/* ---- the service thread ---------------------------------------------------------------------- */

/* Has a connection, or an answer, come another way? */
static bool is_needless(struct tt_control_endpoint *ep, const struct tt_outstanding_dial *d)
{
	struct tt_business_card record;

	if (d->dial.purpose == TT_P_CONTROL)
		return tt_conn_to(ep, d->dial.to.rank);
	tt_directory_get(&ep->peers.directory, d->dial.channel, &record);
	return record.port != 0;
}

/* The server's answer to a question waits in the socket for the next call. Returns whether the dial is over. */
static bool welcomed(struct tt_control_endpoint *ep, struct tt_outstanding_dial *d,
		     struct tt_tls *tls)
{
	struct tt_hello hello;

	if (d->dial.purpose != TT_P_CONTROL) {
		d->welcomed = tls;
		tt_authenticate_end(&d->attempt);
		return false;
	}
	tt_hello_get(d->dial.hello, &hello);
	/* without memory the next call dials again */
	(void)tt_endpoint_use(ep, hello.context, (struct tt_duplex){ .tls = tls }, d->dial.to.rank);
	return true;
}

/* Returns whether the dial is over. */
static bool go_on(struct tt_control_endpoint *ep, struct tt_outstanding_dial *d, uint64_t now)
{
	struct tt_sock_target *to;
	struct tt_tls *tls;
	int rc;

	if (now < d->due_ns)
		return false;
	if (is_needless(ep, d) || now >= d->attempt.end_ns)
		return true;
	d->due_ns = now + tt_poll_interval_ns(d->left_ns, LOOK_NS);
	if (d->welcomed)
		return false;
	rc = tt_authenticate_await(&d->attempt, 0, &to, &tls);
	if (!rc)
		return welcomed(ep, d, tls);
	return rc != TT_TIMEOUT || !d->attempt.nrunning;
}

uint64_t tt_dials_timers(struct tt_control_endpoint *ep, uint64_t now)
{
	struct tt_outstanding_dial **at = &ep->peers.outstanding, *d;
	uint64_t due = TT_NEVER;

	while ((d = *at)) {
		if (go_on(ep, d, now)) {
			*at = d->next;
			free_dial(d);
			continue;
		}
		due = d->due_ns < due ? d->due_ns : due;
		at = &d->next;
	}
	return due;
}

void tt_dials_end(struct tt_control_endpoint *ep)
{
	struct tt_outstanding_dial *d;

	while ((d = ep->peers.outstanding)) {
		ep->peers.outstanding = d->next;
		free_dial(d);
	}
}

size_t tt_dials_memory(const struct tt_control_endpoint *ep)
{
	size_t bytes = 0;

	for (const struct tt_outstanding_dial *d = ep->peers.outstanding; d; d = d->next)
		bytes += sizeof(*d) + (size_t)(d->attempt.nrunning + !!d->welcomed) * TT_TLS_BYTES;
	return bytes;
}

/*
 * control_authenticate.c - authenticate the servers that a dial has reached, several at a time
 *
 * Called by control_connect.c, in the caller's thread. Something else may listen at an address or
 * port of a rank, and answer with nothing, with noise or with a false verdict. So a handshake that
 * is slow does not delay the next one, and only a server that has proved the secret ends a dial.
 */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "control/control_internal.h"

#define HANDSHAKE_NS (5 * TT_SECOND) /* the peer may share a busy core with many ranks */
#define SLICE_NS (20 * 1000000ull)

static void remove_at(struct tt_dial_attempt *a, int i)
{
	memmove(&a->running[i], &a->running[i + 1],
		(size_t)(--a->nrunning - i) * sizeof(a->running[0]));
}

/* The reason is the thread's last error. verdict: of a server that has proved the secret, or 0. */
static void refused(struct tt_dial_attempt *a, int i, enum tt_verdict verdict)
{
	struct tt_sock_target *c = a->running[i].to;
	char where[TT_ENDPOINT_TEXT], last[sizeof(a->last)];

	tt_sock_close(a->running[i].fd);
	remove_at(a, i);
	snprintf(c->why, sizeof(c->why), "%s", tt_error_text());
	snprintf(last, sizeof(last), "%s: %s", tt_address_text(&c->address, c->port, where),
		 tt_error_text());
	if (strcmp(last, a->last))
		tt_log(TT_LOG_INFO, "rank %d: looking for rank %d: %s", a->dial->me, a->dial->rank,
		       last);
	memcpy(a->last, last, sizeof(last));
	a->answered = true;
	if (verdict == TT_V_FULL)
		memcpy(a->full, a->last, sizeof(a->full));
}

bool tt_authenticate_runs(const struct tt_dial_attempt *a, const struct tt_sock_target *to)
{
	for (int i = 0; i < a->nrunning; i++)
		if (a->running[i].to == to)
			return true;
	return false;
}

void tt_authenticate_begin(struct tt_dial_attempt *a, struct tt_sock_target *to, int fd)
{
	const struct tt_control_endpoint *ep = a->ctl->ep;
	struct tt_hello hello = { .purpose = a->dial->purpose,
				  .from = ep->peer,
				  .to = a->dial->to->rank,
				  .channel = a->dial->channel,
				  .context = a->ctl->context,
				  .epoch = ep->auth.epoch };
	struct tt_patience patience = a->patience;
	uint64_t limit = tt_now_ns() + HANDSHAKE_NS;
	int i;

	if (a->nrunning == TT_HANDSHAKES) {
		tt_fail(TT_REMOTE, "no answer in time");
		refused(a, 0, 0);
	}
	memcpy(hello.job, ep->auth.job, TT_NONCE);
	patience.deadline_ns = limit < patience.deadline_ns ? limit : patience.deadline_ns;
	i = a->nrunning++;
	a->running[i] = (struct tt_authentication){ to, fd, patience.deadline_ns, { .have = 0 } };
	if (tt_handshake_begin(&a->running[i].shake, fd, &hello, &patience))
		refused(a, i, 0);
}

/* Fill pfds with the sockets of the running handshakes; wait at most wait_ms. */
static int poll_all(const struct tt_dial_attempt *a, struct pollfd *pfds, int wait_ms)
{
	for (int i = 0; i < a->nrunning; i++)
		pfds[i] = (struct pollfd){ .fd = a->running[i].fd, .events = POLLIN };
	return poll(pfds, (nfds_t)a->nrunning, wait_ms);
}

bool tt_authenticate_has_news(void *ctx)
{
	const struct tt_dial_attempt *a = ctx;
	struct pollfd pfds[TT_HANDSHAKES];

	return poll_all(a, pfds, 0) > 0 || (a->patience.stop && a->patience.stop(a->patience.ctx));
}

/* Go on with a readable handshake. 0: authenticated | TT_TIMEOUT: not yet, or refused |
 * TT_USAGE: this rank's attempt is over */
static int step(struct tt_dial_attempt *a, int i, struct tt_sock_target **ret_to, int *ret_fd)
{
	struct tt_authentication *one = &a->running[i];
	struct tt_patience patience = a->patience;
	const struct tt_key *key = a->ctl->ep->auth.key;
	enum tt_verdict verdict;
	int rc = tt_handshake_read(&one->shake, one->fd, key, &verdict);

	if (!rc)
		return TT_TIMEOUT;
	patience.deadline_ns = one->until_ns;
	if (rc > 0)
		rc = tt_handshake_finish(&one->shake, one->fd, key, &patience, &verdict);
	if (rc) {
		refused(a, i, verdict);
		return verdict == TT_V_STALE ? TT_USAGE : TT_TIMEOUT;
	}
	tt_handshake_keys(key, one->shake.hello, one->shake.reply, false, &a->keys);
	*ret_to = one->to;
	*ret_fd = one->fd;
	remove_at(a, i);
	return 0;
}

/* End the handshakes that have run for too long. */
static void expire(struct tt_dial_attempt *a, uint64_t now)
{
	for (int i = a->nrunning - 1; i >= 0; i--)
		if (now >= a->running[i].until_ns) {
			tt_fail(TT_REMOTE, "no answer in time");
			refused(a, i, 0);
		}
}

int tt_authenticate_await(struct tt_dial_attempt *a, uint64_t wait_ns,
			  struct tt_sock_target **ret_to, int *ret_fd)
{
	uint64_t until = tt_now_ns() + wait_ns, now;
	int before = a->nrunning;

	do {
		struct pollfd pfds[TT_HANDSHAKES];
		uint64_t slice = wait_ns < SLICE_NS ? wait_ns : SLICE_NS;
		int rc = TT_TIMEOUT;

		if (poll_all(a, pfds, (int)(slice / 1000000)) > 0)
			for (int i = a->nrunning - 1; i >= 0 && rc == TT_TIMEOUT; i--)
				if (pfds[i].revents)
					rc = step(a, i, ret_to, ret_fd);
		if (rc != TT_TIMEOUT)
			return rc;
		now = tt_now_ns();
		expire(a, now);
	} while (now < until && a->nrunning == before &&
		 !(a->patience.stop && a->patience.stop(a->patience.ctx)));
	return TT_TIMEOUT;
}

void tt_authenticate_end(struct tt_dial_attempt *a)
{
	while (a->nrunning)
		tt_sock_close(a->running[--a->nrunning].fd);
}

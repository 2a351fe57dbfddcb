/*
 * control_authenticate.c - authenticate the servers that a dial has reached, several at a time
 *
 * Called by control_connect.c in the caller's thread, and by control_dials.c also in the service thread
 * and with the endpoint's lock: the functions take no lock. Something else may listen at an address or
 * port of a rank, and answer with nothing, with noise or with a false verdict. So a handshake that
 * is slow does not delay the next one, and only a server that has proved the secret ends a dial.
 */
#include <errno.h>
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

/* A server that has welcomed this rank meanwhile would take the end of the connection for this rank's
 * death. */
static void give_up(const struct tt_dial_attempt *a, struct tt_authentication *one)
{
	uint8_t bytes[TT_FRAME_HEAD];
	struct tt_writer w = TT_WRITER_INTO(bytes);

	tt_put_frame_head(&w, &(struct tt_frame_head){ .kind = TT_F_END });
	if (one->asked && a->dial->purpose != TT_P_DATA && a->dial->purpose != TT_P_RECORD)
		(void)!tt_tls_send(one->tls, bytes, w.have);
	tt_tls_close(one->tls);
}

/* The reason is the thread's last error. */
static void refused(struct tt_dial_attempt *a, int i)
{
	enum tt_verdict verdict = a->running[i].verdict;
	struct tt_sock_target *c = a->running[i].to;
	char where[TT_ENDPOINT_TEXT], last[sizeof(a->last)];

	give_up(a, &a->running[i]);
	remove_at(a, i);
	snprintf(c->why, sizeof(c->why), "%s", tt_error_text());
	snprintf(last, sizeof(last), "%s: %s", tt_address_text(&c->address, c->port, where),
		 tt_error_text());
	if (strcmp(last, a->last))
		tt_log(verdict == TT_V_WELCOME ? TT_LOG_WARN : TT_LOG_INFO,
		       "rank %d: looking for rank %d: %s", a->dial->me, a->dial->rank, last);
	memcpy(a->last, last, sizeof(last));
	a->answered = true;
	a->early = verdict == TT_V_EARLY;
	if (verdict == TT_V_FULL)
		memcpy(a->full, a->last, sizeof(a->full));
}

bool tt_authenticate_runs(const struct tt_dial_attempt *a, const struct tt_sock_target *to)
{
	for (int i = 0; i < a->nrunning; i++)
		if (a->running[i].to == to ||
		    (a->one_listener && a->running[i].to->port == to->port))
			return true;
	return false;
}

int tt_authenticate_begin(struct tt_dial_attempt *a, struct tt_sock_target *to, int fd)
{
	struct tt_authentication one = { .to = to, .until_ns = tt_now_ns() + HANDSHAKE_NS };
	int rc;

	if (a->nrunning == TT_HANDSHAKES) {
		tt_fail(TT_REMOTE, "no answer in time");
		refused(a, 0);
	}
	if (one.until_ns > a->end_ns)
		one.until_ns = a->end_ns;
	one.tls = tt_tls_client(a->ep->auth.tls, fd, a->dial->to.public_key);
	rc = one.tls ? tt_tls_handshake(one.tls) : tt_fail(TT_SYSTEM, "no memory for a connection");
	if (rc == TT_SYSTEM) {
		tt_tls_close(one.tls);
		return rc;
	}
	one.proved = rc > 0; /* by a server that was faster than this thread */
	a->running[a->nrunning++] = one;
	if (rc < 0)
		refused(a, a->nrunning - 1);
	return 0;
}

/* Fill pfds with the sockets of the running handshakes; wait at most wait_ms. */
static int poll_all(const struct tt_dial_attempt *a, struct pollfd *pfds, int wait_ms)
{
	for (int i = 0; i < a->nrunning; i++)
		pfds[i] = (struct pollfd){ .fd = tt_tls_fd(a->running[i].tls), .events = POLLIN };
	return poll(pfds, (nfds_t)a->nrunning, wait_ms);
}

bool tt_authenticate_has_news(void *ctx)
{
	const struct tt_dial_attempt *a = ctx;
	struct pollfd pfds[TT_HANDSHAKES];

	return poll_all(a, pfds, 0) > 0 || (a->patience.stop && a->patience.stop(a->patience.ctx));
}

/* A refusal that is final counts like a welcome: from the rank itself, where its key is known. */
static int judge(struct tt_dial_attempt *a, struct tt_authentication *one,
		 const struct tt_verdict_message *message)
{
	const struct tt_dial *dial = a->dial;
	int holds = tt_verdict_check(a->ep, one->tls, dial->hello, dial->to.public_key, message);

	if (holds < 0)
		return tt_fail(TT_SYSTEM, "no memory to check a signature");
	one->verdict = (enum tt_verdict)message->verdict;
	one->proved_rank = holds;
	if (one->verdict != TT_V_WELCOME)
		return tt_verdict_fail(one->verdict);
	if (!one->proved_rank)
		return tt_fail(TT_REMOTE, "a process without the key of rank %d", dial->rank);
	memcpy(a->server_key, message->public_key, TT_PUBLIC_KEY);
	return 0;
}

/* 1: welcome | 0: not yet | TT_REMOTE: the verdict does not come, or it is a refusal | TT_SYSTEM: also a failure
 * of this host while it receives, since another hello would find a server that has welcomed this one */
static int receive_verdict(struct tt_dial_attempt *a, struct tt_authentication *one)
{
	struct tt_verdict_message message;
	ssize_t n = tt_tls_recv(one->tls, &message, sizeof(message));
	int rc;

	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n < 0 && (errno == EBADMSG || tt_sock_is_remote_error(errno)))
		return tt_fail(TT_REMOTE, "connection lost: %m");
	if (n < 0)
		return tt_fail(TT_SYSTEM, "receive the answer to a hello: %m");
	if (n == 0)
		return tt_fail(TT_REMOTE, "connection closed by the other side");
	if (n != sizeof(message))
		return tt_verdict_fail(0);
	rc = judge(a, one, &message);
	return rc ? rc : 1;
}

/* One hello at a time, and its answer is awaited until the dial ends: a server that has welcomed this
 * rank takes the end of the connection for this rank's death. */
static bool has_asked(const struct tt_dial_attempt *a)
{
	for (int i = 0; i < a->nrunning; i++)
		if (a->running[i].asked)
			return true;
	return false;
}

static int send_hello(const struct tt_dial_attempt *a, struct tt_authentication *one)
{
	struct tt_hello_message message;

	memcpy(message.hello, a->dial->hello, TT_HELLO_BYTES);
	if (!tt_hello_sign(a->ep, one->tls, &message))
		return tt_fail(TT_SYSTEM, "no memory for a signature");
	if (tt_tls_send(one->tls, &message, sizeof(message)) != sizeof(message))
		return tt_fail(TT_REMOTE, "connection lost: %m");
	one->asked = true;
	return 0;
}

/* TLS, then the hello, then the verdict. 1: welcome | 0: call again when the socket is readable |
 * TT_REMOTE, TT_SYSTEM with the sentence */
static int go_on(struct tt_dial_attempt *a, struct tt_authentication *one)
{
	int rc;

	if (!one->asked) {
		rc = one->proved ? 1 : tt_tls_handshake(one->tls);
		one->proved = rc > 0;
		if (rc <= 0 || has_asked(a))
			return rc < 0 ? rc : 0;
		if ((rc = send_hello(a, one)))
			return rc;
	}
	return receive_verdict(a, one);
}

/* Go on with a readable connection. 0: authenticated | TT_TIMEOUT: not yet, or refused | TT_USAGE:
 * refused for good | TT_SYSTEM */
static int step(struct tt_dial_attempt *a, int i, struct tt_sock_target **ret_to,
		struct tt_tls **ret_tls)
{
	struct tt_authentication *one = &a->running[i];
	int rc = go_on(a, one);
	bool over = rc < 0 && one->proved_rank && tt_verdict_is_final(one->verdict);

	if (rc < 0)
		refused(a, i);
	if (rc == TT_SYSTEM)
		return tt_fail(TT_SYSTEM, "rank %d: %s", a->dial->me, a->last);
	if (rc <= 0)
		return over ? TT_USAGE : TT_TIMEOUT;
	*ret_to = one->to;
	*ret_tls = one->tls;
	remove_at(a, i);
	return 0;
}

/* End the handshakes that have run for too long; one that has asked runs until the end of the dial. That
 * end is no reason beside that of an earlier round. */
static void expire(struct tt_dial_attempt *a, uint64_t now)
{
	for (int i = a->nrunning - 1; i >= 0; i--) {
		if (now < (a->running[i].asked ? a->end_ns : a->running[i].until_ns))
			continue;
		if (now >= a->end_ns && *a->running[i].to->why) {
			give_up(a, &a->running[i]);
			remove_at(a, i);
			a->answered = true;
			continue;
		}
		tt_fail(TT_REMOTE, "no answer in time");
		refused(a, i);
	}
}

/* Does a server wait for the hello? */
static bool may_ask(const struct tt_dial_attempt *a)
{
	for (int i = 0; i < a->nrunning; i++)
		if (a->running[i].proved && !has_asked(a))
			return true;
	return false;
}

int tt_authenticate_await(struct tt_dial_attempt *a, uint64_t wait_ns,
			  struct tt_sock_target **ret_to, struct tt_tls **ret_tls)
{
	uint64_t now = tt_now_ns(), deadline = a->patience.deadline_ns, until = now + wait_ns;
	int before = a->nrunning;

	if (until > deadline)
		until = deadline;
	do {
		struct pollfd pfds[TT_HANDSHAKES];
		uint64_t slice = wait_ns < SLICE_NS ? wait_ns : SLICE_NS;
		int rc = TT_TIMEOUT;

		if (deadline < now + slice)
			slice = deadline > now ? deadline - now : 0;
		if (may_ask(a))
			slice = 0;
		poll_all(a, pfds, (int)((slice + 999999) / 1000000));
		for (int i = a->nrunning - 1; i >= 0 && rc == TT_TIMEOUT; i--)
			if (pfds[i].revents || a->running[i].proved)
				rc = step(a, i, ret_to, ret_tls);
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
		give_up(a, &a->running[--a->nrunning]);
}

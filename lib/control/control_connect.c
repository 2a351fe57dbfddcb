/*
 * control_connect.c - connect to another rank: choice of addresses, retries, deadline
 *
 * Called by joining ranks, the dialer and senders of messages, in the caller's thread. A rank has
 * several addresses, and some lead nowhere or to another process (172.17.0.1 is every Docker
 * host's own address), so the server must prove its rank; otherwise the next address is tried, and
 * all addresses again until the deadline.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "control/control_internal.h"

#define PAUSE_MIN_NS 1000000ull
#define PAUSE_MAX_NS (100 * 1000000ull)
/* from the hello to a server to the next target, while the server does not answer */
#define HEAD_START_NS (50 * 1000000ull)
/* after the first refusals, before a rank is called gone without a reason */
#define REASON_NS TT_SECOND

static bool is_broken(void *ctx)
{
	return tt_control_broken(ctx);
}

static bool is_stopped(void *ctx)
{
	return atomic_load(*(const atomic_bool *const *)ctx);
}

/* A connection with a `stop` of its own is wanted also when the control is broken. */
static struct tt_patience patience_of(struct tt_control *ctl, const struct tt_dial *dial)
{
	if (dial->stop)
		return (struct tt_patience){ .deadline_ns = dial->deadline_ns,
					     .stop = is_stopped,
					     .ctx = (void *)(uintptr_t)&dial->stop };
	return (struct tt_patience){ .deadline_ns = dial->deadline_ns,
				     .stop = is_broken,
				     .ctx = ctl };
}

static bool is_mine(const struct tt_address *mine, int nmine, const struct tt_address *a)
{
	for (int i = 0; i < nmine; i++)
		if (tt_address_equal(&mine[i], a))
			return true;
	return false;
}

static bool is_near(const struct tt_address *mine, int nmine, const struct tt_address *a)
{
	for (int i = 0; i < nmine; i++)
		if (tt_address_near(&mine[i], a))
			return true;
	return false;
}

static void add(struct tt_dial_attempt *a, const struct tt_dial *dial,
		const struct tt_address *address)
{
	for (int i = 0; i < (dial->nports > 1 ? dial->nports : 1) && a->n < TT_CANDIDATES; i++)
		a->list[a->n++] = (struct tt_sock_target){ .address = *address,
							   .port = dial->to.port + i };
}

/* Order of the addresses: loopback within one network namespace, else the address of the latest
 * success; then addresses of a common subnet; then the others, which may be routed. */
static void choose(const struct tt_control *ctl, const struct tt_dial *dial,
		   struct tt_dial_attempt *ret_a)
{
	const struct tt_control_endpoint *ep = ctl->ep;
	const struct tt_business_card *me = &ep->peers.mine, *to = &dial->to;
	bool same_netns = me->netns == to->netns;
	int best = dial->known ? (int)(intptr_t)tt_sparse_get(&ep->peers.best_address, to->rank) - 1
			       : -1;
	struct tt_dial_attempt *a = ret_a;

	a->one_listener = same_netns;
	if (same_netns) {
		add(a, dial, &tt_loopback4);
		add(a, dial, &tt_loopback6);
	} else if (best >= 0 && best < to->naddresses) {
		add(a, dial, &to->addresses[best]);
	}
	for (int near = 1; near >= 0; near--)
		for (int i = 0; i < to->naddresses; i++) {
			const struct tt_address *other = &to->addresses[i];
			bool loop = tt_address_is_loopback(other),
			     mine = is_mine(me->addresses, me->naddresses, other);

			if (is_near(me->addresses, me->naddresses, other) != near ||
			    (!same_netns && i == best))
				continue;
			if (dial->named || (!loop && (same_netns || !mine)))
				add(a, dial, other);
		}
}

/* Without memory the next dial tries the addresses in their order. */
static void keep_best(struct tt_control *ctl, int peer, int address)
{
	tt_control_lock(ctl);
	tt_sparse_set(&ctl->ep->peers.best_address, peer, (void *)(intptr_t)(address + 1));
	tt_control_unlock(ctl);
}

static void note_choice(struct tt_control *ctl, const struct tt_dial *dial,
			const struct tt_sock_target *c)
{
	static const char *const purposes[] = {
		[TT_P_REGISTER] = "registration",
		[TT_P_CONTROL] = "control",
		[TT_P_DATA] = "data",
		[TT_P_RECORD] = "a business card",
	};
	const struct tt_business_card *to = &dial->to;
	char where[TT_ENDPOINT_TEXT];

	for (int i = 0; c && dial->known && i < to->naddresses; i++)
		if (tt_address_equal(&to->addresses[i], &c->address))
			keep_best(ctl, to->rank, i);
	tt_log(TT_LOG_DEBUG, "rank %d: connected to rank %d (%s) at %s for %s", dial->me,
	       dial->rank, to->name,
	       c ? tt_address_text(&c->address, c->port, where) : "this process",
	       purposes[dial->purpose]);
}

/* The result of a target; NULL: none, because another target leads to the same listener. */
static const char *result_of(const struct tt_dial_attempt *a, const struct tt_sock_target *to)
{
	if (*to->why)
		return to->why;
	for (int i = 0; i < a->nrunning; i++)
		if (a->running[i].to == to)
			return "connected, but no answer yet";
	for (int i = 0; i < a->n && a->one_listener; i++)
		if (*a->list[i].why && a->list[i].port == to->port)
			return NULL;
	return tt_authenticate_runs(a, to) ? NULL : "not tried";
}

/* "10.0.0.1:4000 (no answer), ..." */
static void describe_tried(const struct tt_dial_attempt *a, char *text, size_t bytes)
{
	char where[TT_ENDPOINT_TEXT];
	size_t have = 0;

	text[0] = '\0';
	for (int i = 0; i < a->n && have < bytes; i++) {
		const char *result = result_of(a, &a->list[i]);

		if (result)
			have += (size_t)snprintf(text + have, bytes - have, "%s%s (%s)",
						 have ? ", " : "",
						 tt_address_text(&a->list[i].address,
								 a->list[i].port, where),
						 result);
	}
}

/* The number of targets that refused the connection: the host is up, without a listener. */
static int refusals(const struct tt_dial_attempt *a)
{
	int n = 0;

	for (int i = 0; i < a->n; i++)
		n += !strcmp(a->list[i].why, strerror(ECONNREFUSED));
	return n;
}

static bool has_tried(const struct tt_dial_attempt *a)
{
	bool tried = a->last[0] || a->full[0] || a->nrunning;

	for (int i = 0; i < a->n; i++)
		tried |= *a->list[i].why != '\0';
	return tried;
}

static int give_up(struct tt_control *ctl, const struct tt_dial *dial,
		   const struct tt_dial_attempt *a)
{
	const struct tt_business_card *me = &ctl->ep->peers.mine, *to = &dial->to;
	bool root = dial->purpose == TT_P_REGISTER;
	char tried[600];

	if (!a->n)
		return tt_fail(
			TT_TIMEOUT,
			"rank %d: rank %d has no address that this host can reach; its network "
			"interfaces are loopback only, or TUTTI_SOCKET_IFNAME excludes them",
			dial->me, dial->rank);
	if (!has_tried(a))
		return tt_fail(
			TT_TIMEOUT,
			"rank %d (on %s): the time to connect was over before this rank came to dial rank %d (%s); "
			"its host is overloaded, or the timeout is too short: run fewer processes there, or set "
			"TUTTI_TIMEOUT_MS higher",
			dial->me, me->name, dial->rank, to->name);
	describe_tried(a, tried, sizeof(tried));
	if (root && refusals(a) == a->n && !a->last[0])
		return tt_fail(
			TT_TIMEOUT,
			"rank %d: rank %d did not join, or cannot be reached: no process listens at %s; rank 0 "
			"made no call, or failed before it could listen and reported the reason there",
			dial->me, dial->rank, tried);
	if (root && a->early)
		return tt_fail(
			TT_TIMEOUT,
			"rank %d: rank 0 is still in an earlier communicator or attempt of this job, and began no new one in time",
			dial->me);
	return tt_fail(TT_TIMEOUT, "rank %d (on %s): rank %d (%s) %s cannot be reached; tried %s",
		       dial->me, me->name, dial->rank, to->name, root ? "did not join, or" : "",
		       a->full[0]                          ? a->full
		       : refusals(a) == a->n && a->last[0] ? a->last
							   : tried);
}

/* A rank that looks for rank 0 says so every 5 s: rank 0 cannot. */
static void log_wait(const struct tt_dial_attempt *a, uint64_t *due_ns)
{
	char tried[600];

	if (a->dial->purpose != TT_P_REGISTER || !tt_log_due(due_ns))
		return;
	describe_tried(a, tried, sizeof(tried));
	if (a->early)
		tt_log(TT_LOG_WARN,
		       "rank %d: waiting for rank 0, which is in an earlier communicator of this job",
		       a->dial->me);
	else
		tt_log(TT_LOG_WARN, "rank %d: waiting for rank 0; tried %s", a->dial->me, tried);
}

static bool has_left(struct tt_control *ctl, int peer)
{
	int rank = tt_control_rank(ctl, peer);
	bool left;

	tt_control_lock(ctl);
	left = rank >= 0 && tt_set_has(ctl->departed.left, rank);
	tt_control_unlock(ctl);
	return left;
}

/* Is the loopback interface down? Then no address of this host is reachable. */
static bool lacks_loopback(const struct tt_control *ctl, const struct tt_dial *dial,
			   const struct tt_dial_attempt *a)
{
	return ctl->ep->peers.mine.netns == dial->to.netns && !a->answered && !refusals(a) &&
	       !tt_loopback_is_up();
}

/* The reason why a round brought no connection. TT_TIMEOUT: try again | others: retries are
 * pointless */
static int judge_round(struct tt_control *ctl, const struct tt_dial *dial,
		       struct tt_dial_attempt *a)
{
	bool asks = dial->purpose == TT_P_RECORD; /* there are other holders */
	char tried[600];

	/* the server had no descriptor left, and has ended */
	if (a->full[0] && !a->answered)
		return tt_fail(TT_REMOTE, "rank %d: rank %d: %s", dial->me, dial->rank, a->full);
	if (lacks_loopback(ctl, dial, a))
		return tt_fail(
			TT_SYSTEM,
			"rank %d: rank %d is on this host, but the loopback interface is down; bring it up with "
			"`ip link set lo up`",
			dial->me, dial->rank);
	if (!asks && has_left(ctl, dial->to.rank))
		return tt_fail(TT_REMOTE, "rank %d: rank %d has left", dial->me, dial->rank);
	if (!(dial->stop || ctl->join.has_table) || !refusals(a) || a->answered)
		return TT_TIMEOUT;
	/* the rank listened before, or there would be no communicator; the reason of its end may be
	 * on the way still */
	if (!dial->stop && !a->refused_ns)
		a->refused_ns = tt_now_ns();
	if (!dial->stop && !asks && tt_now_ns() - a->refused_ns < REASON_NS)
		return TT_TIMEOUT;
	describe_tried(a, tried, sizeof(tried));
	return tt_fail(TT_REMOTE, "rank %d: rank %d is gone: %s", dial->me, dial->rank, tried);
}

static bool is_untried(const struct tt_dial_attempt *a)
{
	for (int i = 0; i < a->n; i++)
		if (!a->list[i].tried)
			return true;
	return false;
}

/* Targets of handshakes that run are not tried again. In this network namespace all addresses lead to
 * one listener of a port: a second handshake would only keep a busy rank busy. */
static void mark_running(struct tt_dial_attempt *a)
{
	for (int i = 0; i < a->n; i++)
		a->list[i].tried |= tt_authenticate_runs(a, &a->list[i]);
}

/* Try all addresses once, but those whose server still has to answer. 0 | TT_TIMEOUT: try again |
 * TT_USAGE, TT_SYSTEM: retries are pointless */
static int try_all(struct tt_dial_attempt *a, struct tt_sock_target **ret_to,
		   struct tt_tls **ret_tls)
{
	struct tt_patience patience = { a->patience.deadline_ns, tt_authenticate_has_news, a };
	int rc = TT_TIMEOUT, i, fd;

	a->answered = false;
	for (i = 0; i < a->n; i++)
		a->list[i].tried = false;
	mark_running(a);
	while (rc == TT_TIMEOUT && is_untried(a) && tt_now_ns() < patience.deadline_ns &&
	       !(a->patience.stop && a->patience.stop(a->patience.ctx))) {
		rc = tt_sock_happy_eyeballs(a->list, a->n, &patience, &i, &fd);
		if (rc == TT_SYSTEM && !a->nrunning) /* else they may hold the last descriptor */
			return tt_fail(TT_SYSTEM, "rank %d: %s", a->dial->me, tt_error_text());
		if (!rc && tt_authenticate_begin(a, &a->list[i], fd))
			return tt_fail(TT_SYSTEM, "rank %d: %s", a->dial->me, tt_error_text());
		mark_running(a);
		rc = tt_authenticate_await(a, rc ? 0 : HEAD_START_NS, ret_to, ret_tls);
	}
	return rc;
}

/* The server has refused this rank: retries are pointless. */
static int refused(const struct tt_dial_attempt *a)
{
	return tt_fail(TT_REMOTE, "rank %d: rank %d: %s", a->dial->me, a->dial->rank, a->last);
}

/* Has another thread connected to the rank meanwhile? The server accepts TT_PEER_CONNS of this rank at most. */
static bool is_connected(struct tt_control *ctl, const struct tt_dial *dial)
{
	bool connected;

	if (dial->purpose != TT_P_CONTROL || !dial->known)
		return false;
	tt_control_lock(ctl);
	connected = tt_conn_to(ctl->ep, dial->to.rank);
	tt_control_unlock(ctl);
	return connected;
}

/* Rounds until the rank turns up in this process, or a server at an address is authenticated. */
static int try_until(struct tt_dial_attempt *a, struct tt_sock_target **ret_to,
		     struct tt_duplex *ret_duplex)
{
	uint64_t pause = PAUSE_MIN_NS, log_ns = 0;
	struct tt_control *ctl = a->ctl;
	const struct tt_dial *dial = a->dial;

	for (;;) {
		int rc;

		/* not while one runs: behind a hello the server takes its end for this rank's death */
		if (!a->nrunning && is_connected(ctl, dial))
			return 0;
		if (!dial->network &&
		    tt_local_connect(ctl, dial, &a->patience, a->server_key, &ret_duplex->pipe))
			return 0;
		if (!a->n || tt_now_ns() >= dial->deadline_ns)
			return give_up(ctl, dial, a);
		log_wait(a, &log_ns);
		rc = try_all(a, ret_to, &ret_duplex->tls);
		if (rc == TT_USAGE)
			return refused(a);
		if (rc == TT_TIMEOUT && !a->nrunning)
			rc = judge_round(ctl, dial, a);
		if (rc && dial->stop && atomic_load(dial->stop))
			return tt_fail(TT_REMOTE, "rank %d: the communicator was aborted",
				       dial->me);
		if (rc && !dial->stop && tt_control_broken(ctl)) {
			rc = tt_control_fail(ctl);
			/* no retry, but the sentence lists the addresses if any was tried */
			return rc == TT_TIMEOUT && has_tried(a) ? give_up(ctl, dial, a) : rc;
		}
		if (rc == TT_TIMEOUT && !dial->network && !a->nrunning)
			tt_local_await(ctl, dial, &a->patience, pause);
		else if (rc == TT_TIMEOUT)
			rc = tt_authenticate_await(a, pause, ret_to, &ret_duplex->tls);
		if (rc != TT_TIMEOUT)
			return rc == TT_USAGE ? refused(a) : rc;
		pause = pause * 2 < PAUSE_MAX_NS ? pause * 2 : PAUSE_MAX_NS;
	}
}

/* no connection: another thread of this rank has connected meanwhile */
static bool is_empty(const struct tt_duplex *duplex)
{
	return !duplex->tls && !duplex->pipe;
}

static void write_hello(const struct tt_control *ctl, struct tt_dial *dial)
{
	const struct tt_control_endpoint *ep = ctl->ep;
	struct tt_hello hello = { .purpose = dial->purpose,
				  .from = ep->peer,
				  .to = dial->to.rank,
				  .channel = dial->channel,
				  .context = ctl->context,
				  .epoch = ep->auth.epoch };

	tt_hello_put(&hello, dial->hello);
}

int tt_attempt_begin(struct tt_control *ctl, struct tt_dial *dial, struct tt_dial_attempt *ret_a)
{
	int rc = 0;

	if (dial->known && !dial->to.port && ctl->ep->peers.directory.holders.first)
		rc = tt_holders_ask(ctl, dial);
	if (rc)
		return rc;
	write_hello(ctl, dial);
	*ret_a = (struct tt_dial_attempt){ .ep = ctl->ep,
					   .dial = dial,
					   .end_ns = dial->deadline_ns };
	choose(ctl, dial, ret_a);
	return 0;
}

int tt_attempt_go_on(struct tt_control *ctl, struct tt_dial_attempt *a,
		     struct tt_duplex *ret_duplex)
{
	struct tt_sock_target *to = NULL;
	int rc;

	*ret_duplex = (struct tt_duplex){ 0 };
	a->ctl = ctl;
	a->patience = patience_of(ctl, a->dial);
	rc = try_until(a, &to, ret_duplex);
	if (!rc && !is_empty(ret_duplex))
		note_choice(ctl, a->dial, to);
	return rc;
}

int tt_control_connect(struct tt_control *ctl, struct tt_dial *dial, struct tt_duplex *ret_duplex)
{
	struct tt_dial_attempt a;
	int rc = tt_attempt_begin(ctl, dial, &a);

	if (rc)
		return rc;
	rc = tt_attempt_go_on(ctl, &a, ret_duplex);
	tt_authenticate_end(&a);
	if (!rc && !is_empty(ret_duplex))
		memcpy(dial->server_key, a.server_key, TT_PUBLIC_KEY);
	return rc;
}

/* The other rank sends nothing before the confirmation: a dial that is given up may be welcomed later,
 * and bytes that it sent then would be lost. Ranks of one process see each other's decisions. */
int tt_endpoint_use(struct tt_control_endpoint *ep, uint64_t context, struct tt_duplex duplex,
		    int peer)
{
	struct tt_conn *conn = tt_conn_add(ep, duplex, peer, false);

	if (!conn)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for a connection", ep->peer);
	if (!duplex.pipe)
		tt_conn_send(ep, conn, context, TT_F_CONFIRM, NULL, 0);
	tt_flood_connected(ep, conn);
	return 0;
}

int tt_control_use(struct tt_control *ctl, struct tt_duplex duplex, int peer)
{
	return is_empty(&duplex) ? 0 : tt_endpoint_use(ctl->ep, ctl->context, duplex, peer);
}

/* ---- connections to neighbors ---------------------------------------------------------------- */

static int await_connection(struct tt_control *ctl, int peer, const struct tt_dial *dial)
{
	int rc = 0;

	tt_control_lock(ctl);
	ctl->join.awaits = true;
	while (!rc && !ctl->broken && !tt_conn_to(ctl->ep, peer))
		if (!tt_endpoint_await(ctl->ep, dial->deadline_ns))
			rc = tt_fail(
				TT_TIMEOUT,
				"rank %d: rank %d, its neighbor in the tree or the ring, did not connect in time",
				dial->me, dial->rank);
	ctl->join.awaits = false;
	if (ctl->broken)
		rc = tt_control_fail(ctl);
	tt_control_unlock(ctl);
	return rc;
}

int tt_control_reach(struct tt_control *ctl, int rank, int me, int named, uint64_t deadline_ns)
{
	struct tt_control_endpoint *ep = ctl->ep;
	int peer = tt_control_peer(ctl, rank), rc;
	struct tt_dial dial = tt_dial_of(ctl, rank, TT_P_CONTROL, deadline_ns);
	struct tt_duplex duplex;
	bool connected;

	dial.me = me;
	dial.rank = named;
	tt_control_lock(ctl);
	connected = tt_conn_to(ep, peer);
	tt_control_unlock(ctl);
	if (connected)
		return 0;
	if (peer > ep->peer)
		return await_connection(ctl, peer, &dial);
	if ((rc = tt_control_connect(ctl, &dial, &duplex)))
		return rc;
	tt_control_lock(ctl);
	rc = tt_control_use(ctl, duplex, peer);
	tt_control_unlock(ctl);
	return rc;
}

/* ---- dials of a rank of the control ---------------------------------------------------------- */

struct tt_dial tt_dial_of(struct tt_control *ctl, int rank, enum tt_purpose purpose,
			  uint64_t deadline_ns)
{
	struct tt_dial dial = { .known = true,
				.me = ctl->rank,
				.rank = rank,
				.purpose = purpose,
				.deadline_ns = deadline_ns };

	tt_directory_get(&ctl->ep->peers.directory, tt_control_peer(ctl, rank), &dial.to);
	return dial;
}

/*
 * monitor.c - the monitor's side of a question (monitor.h)
 *
 * Called by `tutti top`. The monitor connects as a rank does, by Happy Eyeballs over the addresses of
 * the id, and asks the first server that proves the job's key: rank 0. The servers that rank 0 names follow
 * one after the other, and those that they name. No endpoint of the monitor listens, and no thread serves it.
 */
#include <errno.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "control/control_internal.h"
#include "control/monitor.h"

#define ASK_NS (5 * TT_SECOND)     /* all servers together */
#define CONNECT_NS (2 * TT_SECOND) /* until a server proves itself */
#define BUSY_NS (TT_SECOND / 20)

struct question {
	struct tt_control_endpoint *ep; /* the monitor's key, job and identity */
	uint8_t server
		[TT_PUBLIC_KEY];     /* zeros: rank 0, whose key is not known before its verdict */
	uint8_t root[TT_PUBLIC_KEY]; /* rank 0's key */
	struct tt_sock_target list[TT_CANDIDATES];
	int n;
	uint64_t deadline_ns;
	bool busy; /* rank 0 answers other monitors: ask again */
};

/* The ports of a server at its addresses; first at loopback, where it is in this network namespace. */
static void list_targets(uint64_t netns, const struct tt_address *addresses, int naddresses,
			 int port, int nports, struct question *q)
{
	struct tt_address list[TT_ADDRESSES + TT_ID_ADDRESSES + 2];
	uint64_t here = 0;
	int n = 0;

	if (!tt_id_netns("", &here) && netns == here) {
		list[n++] = tt_loopback4;
		list[n++] = tt_loopback6;
	}
	for (int i = 0; i < naddresses; i++)
		list[n++] = addresses[i];
	q->n = 0;
	for (int i = 0; i < n; i++)
		for (int p = 0; p < nports && q->n < TT_CANDIDATES; p++)
			q->list[q->n++] = (struct tt_sock_target){ .address = list[i],
								   .port = port + p };
}

/* Wait for bytes of the server. 0 | TT_TIMEOUT */
static int await(struct tt_tls *tls, uint64_t deadline_ns)
{
	struct pollfd pfd = { .fd = tt_tls_fd(tls), .events = POLLIN };
	uint64_t now;

	while ((now = tt_now_ns()) < deadline_ns)
		if (poll(&pfd, 1, (int)((deadline_ns - now) / 1000000) + 1) > 0)
			return 0;
	return tt_fail(
		TT_TIMEOUT,
		"rank 0 accepts the connection and does not answer: its process is stopped, or its "
		"host is overloaded");
}

static int receive(struct tt_tls *tls, void *data, size_t bytes, uint64_t deadline_ns)
{
	uint8_t *at = data;
	int rc = 0;

	while (bytes && !rc) {
		ssize_t n = tt_tls_recv(tls, at, bytes);

		if (n > 0) {
			at += n;
			bytes -= (size_t)n;
		} else if (n < 0 && errno == EAGAIN) {
			rc = await(tls, deadline_ns);
		} else {
			rc = tt_fail(TT_REMOTE, "rank 0 ended the connection: %s",
				     n ? strerror(errno) : "its process ends, or lacks memory");
		}
	}
	return rc;
}

/* 0: the server is rank 0 of this job, and will report */
static int greet(struct question *q, struct tt_tls *tls)
{
	const struct tt_hello hello = { .purpose = TT_P_MONITOR, .from = TT_MONITOR };
	struct tt_hello_message message;
	struct tt_verdict_message verdict;
	int rc;

	tt_hello_put(&hello, message.hello);
	if (!tt_hello_sign(q->ep, tls, &message))
		return tt_fail(TT_SYSTEM, "no memory for a signature");
	if (tt_tls_send(tls, &message, sizeof(message)) != sizeof(message))
		return tt_fail(TT_REMOTE, "connection lost: %m");
	if ((rc = receive(tls, &verdict, sizeof(verdict), q->deadline_ns)))
		return rc;
	if (tt_verdict_check(q->ep, tls, message.hello, q->server, &verdict) != 1)
		return tt_verdict_fail(0);
	if (!tt_public_key_known(q->server))
		memcpy(q->root, verdict.public_key, TT_PUBLIC_KEY);
	if (verdict.verdict == TT_V_EARLY)
		return tt_fail(TT_REMOTE, "the ranks of the job have not all joined yet");
	q->busy = verdict.verdict == TT_V_BUSY;
	return verdict.verdict == TT_V_WELCOME ? 0 : tt_verdict_fail(verdict.verdict);
}

static int read_report(const struct question *q, struct tt_tls *tls,
		       struct tt_job_report *ret_report)
{
	uint8_t head[4], *body;
	struct tt_reader r = { .at = head, .left = sizeof(head) };
	size_t bytes;
	int rc = receive(tls, head, sizeof(head), q->deadline_ns);

	if (rc)
		return rc;
	bytes = tt_get_upto(&r, 4, TT_REPORT_MOST);
	body = r.failed ? NULL : malloc(bytes + 1);
	if (!body)
		return tt_fail(TT_SYSTEM, "no memory for a report");
	rc = receive(tls, body, bytes, q->deadline_ns);
	if (!rc && !tt_get_job_report(body, bytes, ret_report))
		rc = tt_fail(TT_REMOTE, "rank 0 sent a malformed report");
	free(body);
	return rc;
}

static uint64_t connect_until(const struct question *q)
{
	uint64_t until = tt_now_ns() + CONNECT_NS;

	return until < q->deadline_ns ? until : q->deadline_ns;
}

/* Takes fd. 0 | < 0; *ret_proved: the server has the job's key */
static int ask(struct question *q, int fd, bool *ret_proved, struct tt_job_report *ret_report)
{
	struct tt_tls *tls = tt_tls_client(q->ep->auth.tls, fd, q->server);
	uint64_t until = connect_until(q);
	int rc = 0, shook = 0;

	if (!tls)
		return tt_fail(TT_SYSTEM, "no memory for a connection");
	while (!rc && !(shook = tt_tls_handshake(tls)))
		rc = await(tls, until);
	rc = shook < 0 ? shook : rc;
	*ret_proved = !rc;
	if (!rc && !(rc = greet(q, tls)))
		rc = read_report(q, tls, ret_report);
	tt_tls_close(tls);
	return rc;
}

/* Ask the targets until one has the job's key. A target that accepted the connection gives the error. */
static int ask_any(struct question *q, struct tt_job_report *ret_report)
{
	struct tt_patience patience = { .deadline_ns = connect_until(q) };
	char why[200] = "", where[TT_ENDPOINT_TEXT];
	bool proved = false;
	int rc = 0, code = TT_REMOTE, i, fd;

	q->busy = false;
	for (i = 0; i < q->n; i++)
		q->list[i].tried = false;
	while (!proved && !(rc = tt_sock_happy_eyeballs(q->list, q->n, &patience, &i, &fd))) {
		code = ask(q, fd, &proved, ret_report);
		if (!code)
			return 0;
		snprintf(why, sizeof(why), "%s: %s",
			 tt_address_text(&q->list[i].address, q->list[i].port, where),
			 tt_error_text());
	}
	if (*why)
		return tt_fail(code, "%s", why);
	if (!q->n)
		return tt_fail(TT_ARG, "the id has no address that this host can reach");
	tt_address_text(&q->list[0].address, q->list[0].port, where);
	if (rc == TT_REMOTE)
		return tt_fail(TT_REMOTE, "%s: %s: the job has ended, or has not begun", where,
			       q->list[0].why);
	return tt_fail(rc, "%s: %s", where,
		       rc == TT_TIMEOUT ? "the host does not answer" : tt_error_text());
}

/* Ask until the server has a place for this monitor. */
static int ask_patiently(struct question *q, struct tt_job_report *ret_report)
{
	int rc;

	while ((rc = ask_any(q, ret_report)) && q->busy && tt_now_ns() < q->deadline_ns)
		nanosleep(&(struct timespec){ .tv_nsec = BUSY_NS }, NULL);
	return rc;
}

/* ---- further servers ------------------------------------------------------------------------- */

/* Is it rank 0, or does the report name it? */
static bool is_known(const struct question *q, const struct tt_job_report *report,
		     const struct tt_business_card *server)
{
	if (tt_public_key_is(q->root, server->public_key))
		return true;
	for (int i = 0; i < report->nservers; i++)
		if (tt_public_key_is(report->servers[i].public_key, server->public_key))
			return true;
	return false;
}

/* Move all of more to report, without servers that are known. false: no memory */
static bool add(const struct question *q, struct tt_job_report *report, struct tt_job_report *more)
{
	size_t ncomms = (size_t)report->ncomms + (size_t)more->ncomms,
	       nservers = (size_t)report->nservers + (size_t)more->nservers;
	struct tt_comm_report *comms = realloc(report->comms, (ncomms + 1) * sizeof(*comms));
	struct tt_business_card *servers;

	report->comms = comms ? comms : report->comms;
	servers = comms ? realloc(report->servers, (nservers + 1) * sizeof(*servers)) : NULL;
	if (!servers)
		return false;
	report->servers = servers;
	memcpy(comms + report->ncomms, more->comms, (size_t)more->ncomms * sizeof(*comms));
	report->ncomms = (int)ncomms;
	more->ncomms = 0;
	for (int i = 0; i < more->nservers; i++)
		if (!is_known(q, report, &more->servers[i]))
			servers[report->nservers++] = more->servers[i];
	report->left_out += more->left_out;
	return true;
}

/* A server that does not answer in time has communicators that are left out. */
static int ask_servers(struct question *q, struct tt_job_report *report)
{
	for (int i = 0; i < report->nservers; i++) {
		const struct tt_business_card *server = &report->servers[i];
		struct tt_job_report more;
		bool added;

		list_targets(server->netns, server->addresses, server->naddresses, server->port, 1,
			     q);
		memcpy(q->server, server->public_key, TT_PUBLIC_KEY);
		if (tt_now_ns() >= q->deadline_ns || ask_patiently(q, &more)) {
			report->left_out++;
			continue;
		}
		added = add(q, report, &more);
		tt_job_report_free(&more);
		if (!added)
			return tt_fail(TT_SYSTEM, "no memory for a report");
	}
	return 0;
}

int tt_monitor_ask(const tuttiUniqueId *id, struct tt_job_report *ret_report)
{
	struct question q = { .deadline_ns = tt_now_ns() + ASK_NS };
	struct tt_job_report report;
	struct tt_id fields;
	int rc = tt_id_unpack(id, &fields);

	if (rc)
		return rc;
	list_targets(fields.netns, fields.addresses, fields.naddresses, fields.port, fields.nports,
		     &q);
	rc = tt_endpoint_make(TT_MONITOR, 2, &q.ep);
	if (rc)
		return rc;
	rc = tt_endpoint_authenticate(q.ep, &fields);
	OPENSSL_cleanse(fields.secret, TT_SECRET);
	if (!rc)
		rc = tt_endpoint_tls(q.ep);
	if (!rc && !(rc = ask_patiently(&q, &report)) && (rc = ask_servers(&q, &report)))
		tt_job_report_free(&report);
	tt_endpoint_free(q.ep);
	if (!rc)
		*ret_report = report;
	return rc;
}

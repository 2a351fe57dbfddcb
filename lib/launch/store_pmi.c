/*
 * store_pmi.c - the store of PMI-1, the text protocol of Hydra (MPICH, Intel MPI) on the socket PMI_FD
 *
 * Called by rendezvous.c. A request and a response are a line each: "cmd=put kvsname=K key=k
 * value=v". MPI in the same process uses the same socket, only during MPI_Init and MPI_Finalize, so
 * no call of this file may run at the same time. A process that has sent cmd=init must send
 * cmd=finalize before it exits, or Hydra treats its exit as a crash: MPI does so where it was
 * initialized, else this file does at exit.
 */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launch/launch.h"

#define LINE 2048
#define ANSWER_MS 10000 /* Hydra answers at once, except a barrier */
#define SLICE_MS 50

/* The one PMI session of the process. */
static struct {
	pthread_mutex_t lock;
	int fd; /* -1: no session */
	pid_t pid;
	bool lost; /* out of step: a response may still arrive */
	char kvs[256];
} pmi = { .lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1 };

/* Has MPI been initialized (finalized) in this process? question: "MPI_Initialized" (...) */
static bool mpi_was(const char *question)
{
	int (*ask)(int *flag) = (int (*)(int *))dlsym(RTLD_DEFAULT, question);
	int yes = 0;

	return ask && !ask(&yes) && yes;
}

static int lost(const struct tt_store *s, const char *what)
{
	pmi.lost = true;
	return tt_fail(TT_SYSTEM, "rank %d: PMI_FD=%d: %s", s->job->rank, pmi.fd, what);
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* MSG_NOSIGNAL: the launcher may have closed the socket. */
static int send_line(const struct tt_store *s, const char *line)
{
	size_t bytes = strlen(line);

	while (bytes) {
		ssize_t n = send(pmi.fd, line, bytes, MSG_NOSIGNAL);

		if (n < 0 && errno != EINTR)
			return lost(s, strerror(errno));
		if (n > 0) {
			line += n;
			bytes -= (size_t)n;
		}
	}
	return 0;
}

static int receive_line(const struct tt_store *s, char line[LINE], uint64_t deadline_ns)
{
	size_t have = 0;

	for (;;) {
		struct pollfd pfd = { .fd = pmi.fd, .events = POLLIN };
		ssize_t n;

		if (poll(&pfd, 1, SLICE_MS) <= 0) {
			if (tt_now_ns() < deadline_ns)
				continue;
			pmi.lost = true;
			return TT_TIMEOUT;
		}
		n = read(pmi.fd, line + have,
			 1); /* one byte: the bytes after the line may be for MPI */
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return lost(s, "the launcher closed it");
		if (line[have] == '\n') {
			line[have] = '\0';
			return 0;
		}
		if (++have == LINE)
			return lost(s, "the launcher's answer is too long");
	}
}

/* The value of key in "key=value key=value", NULL: none. Ends the value by NUL, so that the caller
 * must read later fields first. */
static char *field(char *line, const char *key)
{
	size_t bytes = strlen(key);

	for (char *p = line; p; p = strchr(p, ' ')) {
		p += *p == ' ';
		if (!strncmp(p, key, bytes) && p[bytes] == '=') {
			p += bytes + 1;
			p[strcspn(p, " ")] = '\0';
			return p;
		}
	}
	return NULL;
}

/* Send line, receive a response that begins with "cmd=answer" and has rc=0 or no rc. */
static int request(const struct tt_store *s, const char *line, const char *answer,
		   char response[LINE], uint64_t deadline_ns)
{
	char want[64], copy[LINE], reason[256], *rc_text;
	int rc = send_line(s, line);

	if (!rc)
		rc = receive_line(s, response, deadline_ns);
	if (rc)
		return rc;
	snprintf(want, sizeof(want), "cmd=%s", answer);
	snprintf(copy, sizeof(copy), "%s", response);
	rc_text = field(copy, "rc");
	if (!strncmp(response, want, strlen(want)) && (!rc_text || !strcmp(rc_text, "0")))
		return 0;
	snprintf(reason, sizeof(reason), "the launcher answered \"%.120s\", not %s", response,
		 want);
	return lost(s, reason);
}

static int query(const struct tt_store *s, const char *line, const char *answer,
		 char response[LINE])
{
	int rc = request(s, line, answer, response, tt_deadline_ns(ANSWER_MS));

	return rc == TT_TIMEOUT ? lost(s, "the launcher does not answer") : rc;
}

/* ---- the store ------------------------------------------------------------------------------- */

static void leave(void)
{
	static const char bye[] = "cmd=finalize\n";
	char line[64];

	if (pmi.fd < 0 || pmi.pid != getpid() || pmi.lost || mpi_was("MPI_Initialized"))
		return;
	if (send(pmi.fd, bye, sizeof(bye) - 1, MSG_NOSIGNAL) == (ssize_t)sizeof(bye) - 1)
		(void)!read(pmi.fd, line, sizeof(line));
	pmi.fd = -1;
}

static int begin(struct tt_store *s)
{
	char response[LINE], *name;
	int rc = 0;

	pmi.fd = atoi(getenv("PMI_FD"));
	if (pmi.pid != getpid()) {
		pmi.pid = getpid();
		atexit(leave);
	}
	if (!mpi_was("MPI_Initialized"))
		rc = query(s, "cmd=init pmi_version=1 pmi_subversion=1\n", "response_to_init",
			   response);
	if (!rc)
		rc = query(s, "cmd=get_my_kvsname\n", "my_kvsname", response);
	if (rc)
		return rc;
	name = field(response, "kvsname");
	snprintf(pmi.kvs, sizeof(pmi.kvs), "%s", name ? name : "");
	return name ? 0 : lost(s, "the launcher has no name for its store");
}

static int open_pmi(struct tt_store *s)
{
	int rc = 0;

	pthread_mutex_lock(&pmi.lock);
	if (mpi_was("MPI_Finalized"))
		rc = tt_fail(
			TT_USAGE,
			"rank %d: MPI_Finalize has ended this process's PMI session; join before it",
			s->job->rank);
	else if (pmi.lost)
		rc = tt_fail(
			TT_SYSTEM,
			"rank %d: an earlier join by PMI failed half-way; this process cannot join by PMI again",
			s->job->rank);
	else if (pmi.fd < 0)
		rc = begin(s);
	if (rc)
		pthread_mutex_unlock(&pmi.lock);
	/* the lock is held until close_pmi: one user of the session */
	return rc;
}

static void close_pmi(struct tt_store *s)
{
	(void)s;
	pthread_mutex_unlock(&pmi.lock);
}

static int put_pmi(struct tt_store *s, const char *key, const char *value)
{
	char line[LINE], response[LINE];

	snprintf(line, sizeof(line), "cmd=put kvsname=%s key=%s value=%s\n", pmi.kvs, key, value);
	return query(s, line, "put_result", response);
}

static int fence_pmi(struct tt_store *s, uint64_t deadline_ns)
{
	char response[LINE];
	int rc = request(s, "cmd=barrier_in\n", "barrier_out", response, deadline_ns);

	if (rc != TT_TIMEOUT)
		return rc;
	return tt_fail(
		TT_TIMEOUT,
		"rank %d: joining timed out: not all %d ranks reached the launcher's barrier; "
		"PMI-1 does not say which",
		s->job->rank, s->job->nranks);
}

static int get_pmi(struct tt_store *s, const char *key, char value[TT_STORE_VALUE],
		   uint64_t deadline_ns)
{
	char line[LINE], response[LINE], *found;
	int rc;

	(void)deadline_ns;
	snprintf(line, sizeof(line), "cmd=get kvsname=%s key=%s\n", pmi.kvs, key);
	rc = query(s, line, "get_result", response);
	found = rc ? NULL : field(response, "value");
	snprintf(value, TT_STORE_VALUE, "%s", found ? found : "");
	return rc || found ? rc : lost(s, "the launcher's answer has no value");
}

/* Hydra then kills all ranks: the others are in a barrier that this rank will not enter. */
static bool abort_pmi(struct tt_store *s, const char *why)
{
	(void)why;
	return !send_line(s, "cmd=abort exitcode=1\n");
}

const struct tt_store_ops tt_store_pmi = {
	.name = "PMI-1",
	.open = open_pmi,
	.put = put_pmi,
	.fence = fence_pmi,
	.get = get_pmi,
	.abort = abort_pmi,
	.close = close_pmi,
};

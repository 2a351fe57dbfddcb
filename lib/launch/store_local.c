/*
 * store_local.c - the store of ranks on one host under a launcher without a store: an abstract socket
 * for processes of one user
 *
 * Called by rendezvous.c. Rank 0 listens, and its thread answers every connection with the value
 * that was put. Other users can compute the socket's name and take it first. Both sides therefore
 * check the user of the other side, and a job has several names: rank 0 listens at the first that no
 * other user has taken, the other ranks ask at each. Nothing is left behind when rank 0 dies.
 */
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/openssl.h"
#include "base/thread.h"
#include "launch/launch.h"

#define PAUSE_NS 5000000l
#define ANSWER_S 2
#define NAMES 16
#define LISTEN_TRIES 20 /* pauses until a job that has bound its name surely listens */

struct local_store {
	int listener; /* -1: none */
	pthread_t thread;
	char value[TT_STORE_VALUE];
};

/* The names are digests: the same on every rank of the attempt, and different for every other job of
 * the user. */
static socklen_t name_of(const struct tt_store *s, const char *key, int number,
			 struct sockaddr_un *ret_name)
{
	uint8_t sum[TT_DIGEST];
	char text[600];
	int n;

	snprintf(text, sizeof(text), "%s/%d/%s/%u/%d", s->job->name, s->job->epoch, key,
		 (unsigned)geteuid(), number);
	tt_digest(text, strlen(text), sum);
	*ret_name = (struct sockaddr_un){ .sun_family = AF_UNIX };
	n = snprintf(ret_name->sun_path + 1, sizeof(ret_name->sun_path) - 1, "tutti-launch-");
	for (int i = 0; i < 16; i++)
		n += snprintf(ret_name->sun_path + 1 + n, 3, "%02x", sum[i]);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static bool is_ours(int fd, unsigned *ret_user)
{
	struct ucred who = { 0 };

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &(socklen_t){ sizeof(who) }))
		return false;
	*ret_user = who.uid;
	return who.uid == geteuid();
}

static int open_local(struct tt_store *s)
{
	struct local_store *own = calloc(1, sizeof(*own));

	if (!own)
		return tt_fail(TT_SYSTEM, "rank %d: no memory to join the ranks of this host",
			       s->job->rank);
	own->listener = -1;
	s->own = own;
	return 0;
}

static void *serve(void *arg)
{
	struct local_store *own = arg;
	unsigned user;
	int fd;

	/* shutdown of the listener ends the loop */
	while ((fd = accept4(own->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0 ||
	       errno == ECONNABORTED || errno == EINTR || errno == EMFILE || errno == ENFILE) {
		if (fd < 0) {
			nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
			continue;
		}
		if (is_ours(fd, &user))
			(void)!send(fd, own->value, strlen(own->value), MSG_NOSIGNAL);
		close(fd);
	}
	return NULL;
}

static int start(struct local_store *own)
{
	return tt_thread_start(&own->thread, "tutti-store", serve, own);
}

/* Does a process of this user listen at a name that is taken? If not, *ret_user listens there. */
static bool is_taken_by_us(const struct sockaddr_un *name, socklen_t bytes, unsigned *ret_user)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool ours = false;

	for (int i = 0; fd >= 0 && i < LISTEN_TRIES; i++) {
		if (!connect(fd, (const struct sockaddr *)name, bytes)) {
			ours = is_ours(fd, ret_user);
			break;
		}
		nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
	}
	if (fd >= 0)
		close(fd);
	return ours;
}

static int names_are_taken(const struct tt_store *s, unsigned user)
{
	return tt_fail(TT_USAGE,
		       "rank %d: user %u has taken all socket names of this job (%s) on this host: "
		       "set TUTTI_ROOT=file:/path in a folder that only you can write",
		       s->job->rank, user, s->job->name);
}

/* Listen at the first name that no other user has taken. */
static int bind_name(const struct tt_store *s, const char *key, int fd)
{
	struct sockaddr_un name;
	unsigned user = (unsigned)-1;

	for (int i = 0; i < NAMES; i++) {
		socklen_t bytes = name_of(s, key, i, &name);

		if (!bind(fd, (struct sockaddr *)&name, bytes) && !listen(fd, SOMAXCONN))
			return 0;
		if (errno != EADDRINUSE)
			return tt_fail(TT_SYSTEM,
				       "rank 0: cannot listen for the ranks of this host: %m");
		if (is_taken_by_us(&name, bytes, &user))
			return tt_fail(
				TT_USAGE,
				"rank 0: another job of %s with the same name is starting on this host (%s)",
				s->job->launcher, s->job->name);
		tt_log(TT_LOG_WARN, "rank 0: user %u has taken socket name %d of %d of this job",
		       user, i + 1, NAMES);
	}
	return names_are_taken(s, user);
}

static int put_local(struct tt_store *s, const char *key, const char *value)
{
	struct local_store *own = s->own;
	int fd = tt_sock_own(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)), rc;

	snprintf(own->value, sizeof(own->value), "%s", value);
	if (fd < 0)
		return tt_sock_fail("rank 0: cannot make a socket");
	if ((rc = bind_name(s, key, fd))) {
		tt_sock_close(fd);
		return rc;
	}
	own->listener = fd;
	if (!start(own))
		return 0;
	own->listener = -1;
	tt_sock_close(fd);
	return tt_fail(
		TT_SYSTEM,
		"rank 0: cannot start a thread that sends its address to the ranks of this host");
}

static void close_local(struct tt_store *s)
{
	struct local_store *own = s->own;

	if (own->listener >= 0) {
		shutdown(own->listener, SHUT_RDWR);
		pthread_join(own->thread, NULL);
		tt_sock_close(own->listener);
	}
	OPENSSL_cleanse(own, sizeof(*own)); /* the value has the secret of the job */
	free(own);
}

/* Returns the bytes of the value, 0: not yet, or *ret_user, another user, listens there, < 0 */
static int query_name(const struct sockaddr_un *name, socklen_t bytes, char value[TT_STORE_VALUE],
		      unsigned *ret_user)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), n = 0;
	struct timeval limit = { .tv_sec = ANSWER_S };
	ssize_t got;

	if (fd < 0)
		return tt_sock_fail("cannot make a socket");
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	/* a full queue refuses at once, and is asked again */
	if (!connect(fd, (const struct sockaddr *)name, bytes) && is_ours(fd, ret_user) &&
	    !fcntl(fd, F_SETFL, 0))
		while (n < TT_STORE_VALUE - 1 &&
		       (got = recv(fd, value + n, (size_t)(TT_STORE_VALUE - 1 - n), 0)) > 0)
			n += (int)got;
	close(fd);
	value[n] = '\0';
	return n;
}

/* Asks at every name. As query_name; < 0 also: another user listens at all names. */
static int query_root(const struct tt_store *s, const char *key, char value[TT_STORE_VALUE])
{
	const unsigned own = geteuid();
	unsigned stranger = own;
	struct sockaddr_un name;
	int n = 0, taken = 0;

	for (int i = 0; i < NAMES && !n; i++) {
		unsigned user = own;
		socklen_t bytes = name_of(s, key, i, &name);

		n = query_name(&name, bytes, value, &user);
		if (user != own) {
			stranger = user;
			taken++;
		}
	}
	return taken == NAMES ? names_are_taken(s, stranger) : n;
}

static int get_local(struct tt_store *s, const char *key, char value[TT_STORE_VALUE],
		     uint64_t deadline_ns)
{
	uint64_t log_ns = 0;
	int n;

	while (!(n = query_root(s, key, value))) {
		if (tt_now_ns() > deadline_ns)
			return tt_fail(
				TT_TIMEOUT,
				"rank %d: rank 0 did not join: no rank 0 of attempt %d of this job (%s) on this host; "
				"ranks in containers with a network of their own need TUTTI_ROOT and TUTTI_SECRET",
				s->job->rank, s->job->epoch, s->job->name);
		if (tt_log_due(&log_ns))
			tt_log(TT_LOG_WARN,
			       "rank %d: waiting for rank 0 of attempt %d of this job (%s) on this host",
			       s->job->rank, s->job->epoch, s->job->name);
		nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
	}
	return n > 0 ? 0 : n;
}

const struct tt_store_ops tt_store_local = {
	.name = "rank 0's socket",
	.open = open_local,
	.put = put_local,
	.get = get_local,
	.close = close_local,
};

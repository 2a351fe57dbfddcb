/*
 * sock.c - listen, connect and exchange bytes with a deadline; own every socket across fork
 *
 * Called by control, launch, am and transports. Waits poll in slices, because the event that ends
 * them early (a broken communicator) is not a descriptor.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sock.h"

#define SLICE_MS 20

/* ---- ownership -------------------------------------------------------------------------------- *
 * owned[fd] is the inode of the socket; a descriptor number that was closed and reused by another
 * part of the program has another inode. */

static pthread_mutex_t owned_lock = PTHREAD_MUTEX_INITIALIZER;
static ino_t *owned;
static int nowned;

static ino_t inode_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? 0 : st.st_ino;
}

int tt_sock_own(int fd)
{
	ino_t *larger;

	if (fd < 0)
		return fd;
	pthread_mutex_lock(&owned_lock);
	if (fd >= nowned && (larger = realloc(owned, (size_t)(fd + 64) * sizeof(*owned)))) {
		memset(larger + nowned, 0, (size_t)(fd + 64 - nowned) * sizeof(*owned));
		owned = larger;
		nowned = fd + 64;
	}
	if (fd < nowned)
		owned[fd] = inode_of(fd);
	pthread_mutex_unlock(&owned_lock);
	return fd;
}

void tt_sock_guard_standard_streams(void)
{
	for (int fd = 0; fd < 3; fd++) {
		int fresh = fcntl(fd, F_GETFD) >= 0
				    ? -1
				    : open("/dev/null", (fd ? O_RDONLY : O_WRONLY) | O_CLOEXEC);

		if (fresh > fd) /* another thread took fd meanwhile */
			close(fresh);
	}
}

void tt_sock_close(int fd)
{
	if (fd < 0)
		return;
	pthread_mutex_lock(&owned_lock);
	if (fd < nowned)
		owned[fd] = 0;
	close(fd);
	pthread_mutex_unlock(&owned_lock);
}

static void before_fork(void)
{
	pthread_mutex_lock(&owned_lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&owned_lock);
}

static void in_child(void)
{
	for (int fd = 0; fd < nowned; fd++)
		if (owned[fd] && owned[fd] == inode_of(fd))
			close(fd);
	free(owned);
	owned = NULL;
	nowned = 0;
	pthread_mutex_unlock(&owned_lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, in_child);
}

/* ---- making sockets -------------------------------------------------------------------------- */

int tt_sock_fail(const char *what)
{
	struct rlimit limit = { 0 };
	int why = errno;

	getrlimit(RLIMIT_NOFILE, &limit);
	errno = why;
	if (why == EMFILE)
		return tt_fail(TT_SYSTEM, "%s: %m (limit %llu; raise it with ulimit -n)", what,
			       (unsigned long long)limit.rlim_cur);
	return tt_fail(TT_SYSTEM, "%s: %m", what);
}

static int bound_port(int fd)
{
	struct sockaddr_in6 sa = { 0 };

	getsockname(fd, (struct sockaddr *)&sa, &(socklen_t){ sizeof(sa) });
	return ntohs(sa.sin6_port); /* at the same offset for IPv4 */
}

bool tt_sock_is_inside_host(int fd)
{
	union {
		struct sockaddr any;
		struct sockaddr_in four;
		struct sockaddr_in6 six;
	} us = { 0 }, them = { 0 };

	if (getsockname(fd, &us.any, &(socklen_t){ sizeof(us) }) ||
	    getpeername(fd, &them.any, &(socklen_t){ sizeof(them) }))
		return false;
	if (us.any.sa_family == AF_INET6)
		return IN6_ARE_ADDR_EQUAL(&us.six.sin6_addr, &them.six.sin6_addr);
	return us.any.sa_family == AF_UNIX || us.four.sin_addr.s_addr == them.four.sin_addr.s_addr;
}

/* Loopback has no bottleneck and needs no pacing: a default congestion control that paces (bbr)
 * costs a quarter of the bandwidth there. A socket that has begun to pace never stops. So each
 * socket begins with reno, which does not pace and which every kernel allows to every user, and
 * gets the system's default back when its connection leaves the host. */
void tt_sock_unpace(int fd)
{
	setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
}

void tt_sock_settle(int fd)
{
	int family = AF_INET, fresh;
	char name[16];
	socklen_t n = sizeof(name);

	if (tt_sock_is_inside_host(fd))
		return;
	getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &(socklen_t){ sizeof(family) });
	fresh = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fresh >= 0 && !getsockopt(fresh, IPPROTO_TCP, TCP_CONGESTION, name, &n))
		setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, n);
	if (fresh >= 0)
		close(fresh);
}

/* SO_REUSEADDR lets a bound socket and one listening socket share a port, but not a second
 * listener: so a process can listen on a reserved port, and a second process that listens gets an
 * error. alone: no other socket may be bound to the port yet. */
static int bind_all(int port, bool alone, int *ret_fd)
{
	struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };
	struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool has_six = fd >= 0;

	if (!has_six && errno != EMFILE && errno != ENFILE)
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return tt_sock_fail("cannot make a socket");
	if (!alone)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
	if (has_six)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){ 0 }, sizeof(int));
	if (bind(fd, has_six ? (struct sockaddr *)&six : (struct sockaddr *)&four,
		 has_six ? sizeof(six) : sizeof(four))) {
		int why = errno;

		close(fd);
		errno = why;
		return tt_fail(TT_SYSTEM, "port %d: %m", port);
	}
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
	*ret_fd = fd;
	return 0;
}

int tt_sock_reserve(int port, int *ret_fd, int *ret_port)
{
	int rc = bind_all(port, true, ret_fd);

	if (!rc)
		*ret_port = bound_port(*ret_fd);
	return rc;
}

int tt_sock_reserve_used(int port, int *ret_fd, int *ret_port)
{
	int rc = bind_all(port, false, ret_fd);

	if (!rc)
		*ret_port = bound_port(*ret_fd);
	return rc;
}

int tt_sock_listen(int port, int *ret_fd, int *ret_port)
{
	int fd, rc = bind_all(port, false, &fd);

	if (rc)
		return rc;
	tt_sock_own(fd);
	tt_sock_set_blocking(fd, false);
	tt_sock_unpace(fd);
	if (listen(fd, SOMAXCONN)) {
		int why = errno;

		tt_sock_close(fd);
		errno = why;
		return tt_fail(TT_SYSTEM, "port %d: %m", port);
	}
	*ret_port = bound_port(fd);
	*ret_fd = fd;
	return 0;
}

struct tt_ports tt_ports_read(const char *range)
{
	struct tt_ports ports = { 0 };
	int last;

	if (sscanf(range, "%d-%d", &ports.first, &last) == 2)
		ports.count = last - ports.first + 1;
	return ports;
}

int tt_sock_among(const struct tt_ports *ports, int (*make)(int port, int *ret_fd, int *ret_port),
		  int *ret_fd, int *ret_port)
{
	int rc = 0, last = ports->first + ports->count - 1;

	if (ports->count < 2)
		return make(ports->first, ret_fd, ret_port);
	for (int i = 0; i < 2 * ports->count; i++) {
		int port = ports->first + i % ports->count;
		bool avoided = port >= ports->avoid_first &&
			       port < ports->avoid_first + ports->avoid_count;

		if (avoided != (i >= ports->count))
			continue;
		rc = make(port, ret_fd, ret_port);
		if (!rc || errno != EADDRINUSE)
			return rc;
	}
	rc = tt_fail(
		TT_SYSTEM,
		"none of the ports %d to %d is free; every process takes one, every unique id another",
		ports->first, last);
	errno = EADDRINUSE;
	return rc;
}

void tt_sock_set_blocking(int fd, bool blocking)
{
	int flags = fcntl(fd, F_GETFL);

	fcntl(fd, F_SETFL, blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static bool is_over(const struct tt_patience *p)
{
	return tt_now_ns() >= p->deadline_ns || (p->stop && p->stop(p->ctx));
}

/* 0 ready | TT_TIMEOUT */
static int await(int fd, const struct tt_patience *p)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	while (poll(&pfd, 1, SLICE_MS) <= 0)
		if (is_over(p))
			return tt_fail(TT_TIMEOUT, "no answer in time");
	return 0;
}

/* After a call that returned n: 0: continue | TT_TIMEOUT, TT_REMOTE */
static int judge(int fd, ssize_t n, const struct tt_patience *patience)
{
	if (n >= 0 || errno == EINTR)
		return 0;
	if (errno == EAGAIN)
		return await(fd, patience);
	return tt_fail(TT_REMOTE, "connection lost: %m");
}

int tt_sock_recv(int fd, void *data, size_t bytes, const struct tt_patience *patience)
{
	char *p = data, *end = p + bytes;
	int rc = 0;

	while (p < end && !rc) {
		ssize_t n = recv(fd, p, (size_t)(end - p), 0);

		if (n == 0)
			return tt_fail(TT_REMOTE, "connection closed by the other side");
		rc = judge(fd, n, patience);
		p += n > 0 ? n : 0;
	}
	return rc;
}

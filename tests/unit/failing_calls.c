/*
 * failing_calls.c - see failing_calls.h
 *
 * The linker turns a reference to NAME into __wrap_NAME, and __real_NAME into NAME.
 */
#include "tests/unit/failing_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

const char *const failing_name[FAILING_KINDS] = {
	[FAILING_MEMORY] = "memory",       [FAILING_OPENSSL_MEMORY] = "OpenSSL's memory",
	[FAILING_SOCKET] = "socket",       [FAILING_LISTEN] = "bind and listen",
	[FAILING_ACCEPT] = "accept",       [FAILING_CONNECT] = "connect",
	[FAILING_EPOLL] = "epoll",         [FAILING_SEND] = "send and write",
	[FAILING_RECV] = "recv",           [FAILING_THREAD] = "threads",
	[FAILING_MMAP] = "mmap",           [FAILING_FILE] = "files",
	[FAILING_READ] = "reads of peers", [FAILING_NAMES] = "addresses",
};

static const int reason[FAILING_KINDS] = {
	[FAILING_MEMORY] = ENOMEM, [FAILING_OPENSSL_MEMORY] = ENOMEM,
	[FAILING_SOCKET] = EMFILE, [FAILING_LISTEN] = EADDRINUSE,
	[FAILING_ACCEPT] = EMFILE, [FAILING_CONNECT] = EADDRNOTAVAIL,
	[FAILING_EPOLL] = ENOSPC,  [FAILING_SEND] = ENOBUFS,
	[FAILING_RECV] = ENOMEM,   [FAILING_THREAD] = EAGAIN,
	[FAILING_MMAP] = ENOMEM,   [FAILING_FILE] = ENOSPC,
	[FAILING_READ] = EPERM,    [FAILING_NAMES] = EAI_MEMORY,
};

static struct {
	atomic_bool on;
	enum failing_kind kind;
	long at;
	bool all_later;
	atomic_long calls[FAILING_KINDS], failed, wakeups;
} failing;

void failing_begin(enum failing_kind kind, long at, bool all_later)
{
	failing.kind = kind;
	failing.at = at;
	failing.all_later = all_later;
	for (int i = 0; i < FAILING_KINDS; i++)
		failing.calls[i] = 0;
	failing.failed = 0;
	failing.on = true;
}

void failing_end(void)
{
	failing.on = false;
}

long failing_calls(enum failing_kind kind)
{
	return failing.calls[kind];
}

long failing_failed(void)
{
	return failing.failed;
}

long failing_wakeups(void)
{
	return failing.wakeups;
}

static bool fails(enum failing_kind kind)
{
	long number;

	if (!failing.on)
		return false;
	number = ++failing.calls[kind];
	if (kind != failing.kind || !failing.at ||
	    (failing.all_later ? number < failing.at : number != failing.at))
		return false;
	failing.failed++;
	errno = reason[kind];
	return true;
}

/* WRAP(kind, result of a failure, type, name, parameters, arguments) */
#define WRAP(kind, failure, type, name, parameters, arguments) \
	type __real_##name parameters;                         \
	type __wrap_##name parameters;                         \
	type __wrap_##name parameters                          \
	{                                                      \
		if (fails(kind))                               \
			return failure;                        \
		return __real_##name arguments;                \
	}

/* ---- memory ---------------------------------------------------------------------------------- */

WRAP(FAILING_MEMORY, NULL, void *, malloc, (size_t bytes), (bytes))
WRAP(FAILING_MEMORY, NULL, void *, calloc, (size_t n, size_t bytes), (n, bytes))
WRAP(FAILING_MEMORY, NULL, void *, realloc, (void *p, size_t bytes), (p, bytes))
WRAP(FAILING_MEMORY, NULL, void *, aligned_alloc, (size_t align, size_t bytes), (align, bytes))
WRAP(FAILING_MMAP, MAP_FAILED, void *, mmap,
     (void *at, size_t bytes, int prot, int flags, int fd, off_t offset),
     (at, bytes, prot, flags, fd, offset))

static void *openssl_malloc(size_t bytes, const char *file, int line)
{
	(void)file, (void)line;
	return fails(FAILING_OPENSSL_MEMORY) ? NULL : __real_malloc(bytes);
}

static void *openssl_realloc(void *p, size_t bytes, const char *file, int line)
{
	(void)file, (void)line;
	return fails(FAILING_OPENSSL_MEMORY) ? NULL : __real_realloc(p, bytes);
}

static void openssl_free(void *p, const char *file, int line)
{
	(void)file, (void)line;
	free(p);
}

void __asan_init(void) __attribute__((weak)); /* in a build with AddressSanitizer */

/* Without memory OpenSSL 3.0 itself leaks some bytes, so a leak checker has nothing to do there. */
__attribute__((constructor)) static void count_openssl(void)
{
	if (__asan_init)
		return;
	CRYPTO_set_mem_functions(openssl_malloc, openssl_realloc, openssl_free);
}

/* ---- sockets --------------------------------------------------------------------------------- */

WRAP(FAILING_SOCKET, -1, int, socket, (int domain, int type, int protocol),
     (domain, type, protocol))
WRAP(FAILING_LISTEN, -1, int, bind, (int fd, const struct sockaddr *to, socklen_t n), (fd, to, n))
WRAP(FAILING_LISTEN, -1, int, listen, (int fd, int backlog), (fd, backlog))
WRAP(FAILING_ACCEPT, -1, int, accept4, (int fd, struct sockaddr *from, socklen_t *n, int flags),
     (fd, from, n, flags))
WRAP(FAILING_CONNECT, -1, int, connect, (int fd, const struct sockaddr *to, socklen_t n),
     (fd, to, n))
WRAP(FAILING_SEND, -1, ssize_t, send, (int fd, const void *data, size_t bytes, int flags),
     (fd, data, bytes, flags))
WRAP(FAILING_SEND, -1, ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags),
     (fd, m, flags))
WRAP(FAILING_RECV, -1, ssize_t, recv, (int fd, void *data, size_t bytes, int flags),
     (fd, data, bytes, flags))
WRAP(FAILING_RECV, -1, ssize_t, recvmsg, (int fd, struct msghdr *m, int flags), (fd, m, flags))

/* The kernel never refuses the eight bytes of an eventfd that has room. */
ssize_t __real_write(int fd, const void *data, size_t bytes);
ssize_t __wrap_write(int fd, const void *data, size_t bytes);
ssize_t __wrap_write(int fd, const void *data, size_t bytes)
{
	struct stat st;

	if (!fstat(fd, &st) && (S_ISSOCK(st.st_mode) || S_ISREG(st.st_mode)) && fails(FAILING_SEND))
		return -1;
	return __real_write(fd, data, bytes);
}

WRAP(FAILING_READ, -1, ssize_t, process_vm_readv,
     (pid_t pid, const struct iovec *local, unsigned long nlocal, const struct iovec *remote,
      unsigned long nremote, unsigned long flags),
     (pid, local, nlocal, remote, nremote, flags))

/* ---- waiting --------------------------------------------------------------------------------- */

WRAP(FAILING_EPOLL, -1, int, epoll_create1, (int flags), (flags))
WRAP(FAILING_EPOLL, -1, int, eventfd, (unsigned count, int flags), (count, flags))

/* Only an addition takes memory in the kernel. */
int __real_epoll_ctl(int epoll, int op, int fd, struct epoll_event *ev);
int __wrap_epoll_ctl(int epoll, int op, int fd, struct epoll_event *ev);
int __wrap_epoll_ctl(int epoll, int op, int fd, struct epoll_event *ev)
{
	return op == EPOLL_CTL_ADD && fails(FAILING_EPOLL) ? -1
							   : __real_epoll_ctl(epoll, op, fd, ev);
}

int __real_epoll_wait(int epoll, struct epoll_event *ev, int most, int timeout_ms);
int __wrap_epoll_wait(int epoll, struct epoll_event *ev, int most, int timeout_ms);
int __wrap_epoll_wait(int epoll, struct epoll_event *ev, int most, int timeout_ms)
{
	int n = __real_epoll_wait(epoll, ev, most, timeout_ms);

	failing.wakeups++;
	return n;
}

int __real_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	int ready = __real_poll(fds, n, timeout_ms);

	failing.wakeups++;
	return ready;
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*body)(void *),
			  void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*body)(void *),
			  void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*body)(void *),
			  void *arg)
{
	return fails(FAILING_THREAD) ? EAGAIN : __real_pthread_create(thread, attr, body, arg);
}

/* ---- files and names ------------------------------------------------------------------------- */

WRAP(FAILING_FILE, NULL, FILE *, fopen, (const char *path, const char *mode), (path, mode))
WRAP(FAILING_FILE, NULL, FILE *, fdopen, (int fd, const char *mode), (fd, mode))
WRAP(FAILING_FILE, -1, int, memfd_create, (const char *name, unsigned flags), (name, flags))
WRAP(FAILING_FILE, -1, int, ftruncate, (int fd, off_t bytes), (fd, bytes))
WRAP(FAILING_FILE, -1, int, fallocate, (int fd, int mode, off_t at, off_t bytes),
     (fd, mode, at, bytes))
WRAP(FAILING_FILE, 0, size_t, fwrite, (const void *data, size_t bytes, size_t n, FILE *f),
     (data, bytes, n, f))
WRAP(FAILING_FILE, -1, int, fsync, (int fd), (fd))
WRAP(FAILING_FILE, -1, int, rename, (const char *from, const char *to), (from, to))
WRAP(FAILING_NAMES, -1, int, getifaddrs, (struct ifaddrs * *ret_all), (ret_all))
WRAP(FAILING_NAMES, EAI_MEMORY, int, getaddrinfo,
     (const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **ret_all),
     (host, port, hints, ret_all))

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
	va_list list;
	mode_t mode = 0;

	if (flags & O_CREAT) {
		va_start(list, flags);
		mode = va_arg(list, mode_t);
		va_end(list);
	}
	return fails(FAILING_FILE) ? -1 : __real_open(path, flags, mode);
}

/*
 * failing_calls.h - system calls and allocations of the library that fail at their k-th call
 *
 * failing_calls.c wraps the functions by the linker (--wrap), so it sees the calls of the library's
 * own code, and the allocations of OpenSSL. The calls of a process count from failing_begin on.
 */
#ifndef TESTS_FAILING_CALLS_H
#define TESTS_FAILING_CALLS_H

#include <stdbool.h>

enum failing_kind {
	FAILING_MEMORY,
	FAILING_OPENSSL_MEMORY,
	FAILING_SOCKET,
	FAILING_LISTEN, /* bind, listen */
	FAILING_ACCEPT,
	FAILING_CONNECT,
	FAILING_EPOLL, /* epoll_create1, additions by epoll_ctl, eventfd */
	FAILING_SEND,  /* send, sendmsg, write */
	FAILING_RECV,  /* recv, recvmsg */
	FAILING_THREAD,
	FAILING_MMAP,
	FAILING_FILE, /* open, fopen, fdopen, memfd_create, ftruncate, fallocate, fwrite, fsync, rename */
	FAILING_READ,  /* process_vm_readv */
	FAILING_NAMES, /* getifaddrs, getaddrinfo */
	FAILING_KINDS
};

extern const char *const failing_name[FAILING_KINDS];

/* Count from here on; the calls number at of a kind fails, or all from there on. at 0: none */
void failing_begin(enum failing_kind kind, long at, bool all_later);
void failing_end(void);
/* The calls between begin and end; how many of them failed */
long failing_calls(enum failing_kind kind);
long failing_failed(void);
/* The returns of epoll_wait and poll in this process so far */
long failing_wakeups(void);

#endif

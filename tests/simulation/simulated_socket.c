/*
 * simulated_socket.c - calls that make, connect, name and end sockets
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/simulation/simulated_network.h"

#define SYN_GIVES_UP 6 /* Linux: tcp_syn_retries */

SIM_REPLACE(int, close, int fd)
{
	if (!net_is_simulated(fd))
		return __real_close(fd);
	sim_call();
	net_close(net_of(fd));
	return 0;
}

SIM_REPLACE(int, socket, int family, int type, int protocol)
{
	int fd;

	(void)protocol;
	sim_call();
	if (family != AF_INET)
		return net_fail(EAFNOSUPPORT);
	fd = net_make(NET_SOCKET);
	if (fd >= 0)
		net_of(fd)->nonblocking = type & SOCK_NONBLOCK;
	return fd;
}

static int next_port(void)
{
	if (sim->network->next_port > 65535)
		sim->network->next_port = 33000;
	return sim->network->next_port++;
}

/* A process has a host of its own. */
static bool is_taken(const struct net_descriptor *d, int port)
{
	for (int i = 0; i < d->process->descriptor_room; i++) {
		int at = d->process->descriptors[i];
		const struct net_descriptor *o = at < 0 ? &sim->network->none : net_at(at);

		if (o->kind == NET_SOCKET && o != d && o->bound && o->host == d->host &&
		    o->port == port && (o->listening || !o->reuse || !d->reuse))
			return true;
	}
	return false;
}

SIM_REPLACE(int, bind, int fd, const struct sockaddr *sa, socklen_t bytes)
{
	struct net_descriptor *d = net_of(fd);
	int port = ntohs(((const struct sockaddr_in *)(const void *)sa)->sin_port);

	(void)bytes;
	sim_call();
	while (!d->port) {
		int next = port ? port : next_port();

		if (!is_taken(d, next))
			d->port = next;
		else if (port)
			return net_fail(EADDRINUSE);
	}
	d->bound = true;
	return 0;
}

SIM_REPLACE(int, listen, int fd, int backlog)
{
	struct net_descriptor *d = net_of(fd);
	int *first = &sim->network->listeners[d->host % NET_BUCKETS];

	sim_call();
	if (d->listening)
		return 0;
	d->listening = true;
	d->backlog = backlog;
	d->next_listener = *first;
	*first = net_index(d);
	return 0;
}

static struct net_descriptor *listener(int host, int port)
{
	int at = sim->network->listeners[host % NET_BUCKETS];

	while (at >= 0 && (net_at(at)->host != host || net_at(at)->port != port))
		at = net_at(at)->next_listener;
	return at < 0 ? NULL : net_at(at);
}

static void finish_connect(struct net_descriptor *d, int error)
{
	d->connecting = false;
	d->connected = !error;
	d->error = error;
	net_note_ready(d);
	sim_wake(d->process);
}

/* The answer of the peer's host has arrived. */
static void established(void *arg)
{
	struct net_descriptor *d = net_claim(arg);

	if (d && d->connecting)
		finish_connect(d, d->peer >= 0 || d->in ? 0 : ECONNREFUSED);
}

/* A SYN arrives, or is lost. */
static void syn(void *arg)
{
	struct net_descriptor *d = net_claim(arg), *l, *end;
	struct sim_process *before = sim->process;

	if (!d || !d->connecting)
		return;
	l = listener(d->peer_host, d->peer_port);
	if (net_is_cut(d->host, d->peer_host) || net_is_cut(d->peer_host, d->host) ||
	    (l && l->nqueue == l->backlog)) {
		if (++d->syns > SYN_GIVES_UP)
			finish_connect(d, ETIMEDOUT);
		else
			sim_at(sim->now_ns + (SIM_SECOND << d->syns), syn, net_due_of(d));
		return;
	}
	sim_at(sim->now_ns + net_delay(d->peer_host, d->host), established, net_due_of(d));
	if (!l)
		return;
	sim->process = l->process;
	end = net_of(net_make(NET_SOCKET));
	sim->process = before;
	end->connected = true;
	end->peer = net_index(d);
	end->peer_host = d->host;
	end->peer_port = d->port;
	end->port = l->port;
	d->peer = net_index(end);
	if (l->nqueue == l->queue_room) {
		l->queue_room = l->queue_room * 2 + 8;
		l->queue = sim_resize(l->queue, (size_t)l->queue_room * sizeof(*l->queue));
	}
	l->queue[l->nqueue++] = d->peer;
	net_note_ready(l);
	sim_wake(l->process);
}

SIM_REPLACE(int, connect, int fd, const struct sockaddr *sa, socklen_t bytes)
{
	const struct sockaddr_in *to = (const void *)sa;
	struct net_descriptor *d = net_of(fd);
	uint32_t address = ntohl(to->sin_addr.s_addr);

	(void)bytes;
	sim_call();
	d->peer_host = address >> 24 == 127 ? d->host : (int)(address - 0x0a000001u);
	d->peer_port = ntohs(to->sin_port);
	if (d->peer_host < 0 || d->peer_host >= sim->network->room)
		return net_fail(ENETUNREACH);
	if (!d->port)
		d->port = next_port();
	d->connecting = true;
	sim_at(sim->now_ns + net_delay(d->host, d->peer_host), syn, net_due_of(d));
	if (d->nonblocking)
		return net_fail(EINPROGRESS);
	while (d->connecting)
		sim_sleep(d->process, SIM_NEVER);
	return d->error ? net_fail(d->error) : 0;
}

SIM_REPLACE(int, accept4, int fd, struct sockaddr *sa, socklen_t *bytes, int flags)
{
	struct sockaddr_in from = { .sin_family = AF_INET };
	struct net_descriptor *d = net_of(fd), *end;

	sim_call();
	if (!d->nqueue)
		return net_fail(EAGAIN);
	end = net_at(d->queue[0]);
	memmove(d->queue, d->queue + 1, (size_t)--d->nqueue * sizeof(d->queue[0]));
	end->nonblocking = flags & SOCK_NONBLOCK;
	from.sin_addr.s_addr = sim_network_address(end->peer_host);
	from.sin_port = htons((uint16_t)end->peer_port);
	if (sa)
		memcpy(sa, &from, *bytes < sizeof(from) ? *bytes : sizeof(from));
	return end->fd;
}

SIM_REPLACE(int, shutdown, int fd, int how)
{
	struct net_descriptor *d = net_of(fd);

	sim_call();
	if (how == SHUT_RD || d->shut)
		return 0;
	d->shut = true;
	if (d->peer >= 0)
		net_end_at(net_at(d->peer), false);
	return 0;
}

/* ---- properties ------------------------------------------------------------------------------ */

static void put_name(int host, int port, struct sockaddr *sa, socklen_t *bytes)
{
	struct sockaddr_in name = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };

	name.sin_addr.s_addr = host < 0 ? 0 : sim_network_address(host);
	memcpy(sa, &name, *bytes < sizeof(name) ? *bytes : sizeof(name));
	*bytes = sizeof(name);
}

SIM_REPLACE(int, getsockname, int fd, struct sockaddr *sa, socklen_t *bytes)
{
	sim_call();
	put_name(net_of(fd)->host, net_of(fd)->port, sa, bytes);
	return 0;
}

SIM_REPLACE(int, getpeername, int fd, struct sockaddr *sa, socklen_t *bytes)
{
	sim_call();
	if (net_of(fd)->peer_host < 0)
		return net_fail(ENOTCONN);
	put_name(net_of(fd)->peer_host, net_of(fd)->peer_port, sa, bytes);
	return 0;
}

SIM_REPLACE(int, getsockopt, int fd, int level, int option, void *value, socklen_t *bytes)
{
	(void)bytes;
	sim_call();
	if (level != SOL_SOCKET || option != SO_ERROR)
		return net_fail(ENOPROTOOPT);
	*(int *)value = net_of(fd)->error;
	if (!net_of(fd)->connected)
		return 0;
	net_of(fd)->error = 0;
	return 0;
}

SIM_REPLACE(int, setsockopt, int fd, int level, int option, const void *value, socklen_t bytes)
{
	(void)bytes;
	sim_call();
	if (level == SOL_SOCKET && option == SO_PEEK_OFF)
		return net_fail(EOPNOTSUPP);
	if (level == SOL_SOCKET && option == SO_REUSEADDR)
		net_of(fd)->reuse = *(const int *)value;
	if (level == IPPROTO_TCP && option == TCP_USER_TIMEOUT && *(const unsigned *)value)
		net_of(fd)->user_timeout_ns = *(const unsigned *)value * SIM_MS;
	return 0;
}

/* SIOCOUTQ: bytes that the peer's host has not acknowledged */
SIM_REPLACE(int, ioctl, int fd, unsigned long request, ...)
{
	const struct net_descriptor *d = net_of(fd);
	size_t unacknowledged = 0;
	va_list args;

	sim_call();
	if (!net_is_simulated(fd) || request != SIOCOUTQ)
		return net_fail(ENOTTY);
	for (const struct net_segment *s = d->peer < 0 ? NULL : net_at(d->peer)->in; s; s = s->next)
		if (s->arrival_ns > sim->now_ns)
			unacknowledged += s->bytes;
	va_start(args, request);
	*va_arg(args, int *) = (int)unacknowledged;
	va_end(args);
	return 0;
}

SIM_REPLACE(int, fcntl, int fd, int command, ...)
{
	va_list args;
	int flags;

	sim_call();
	if (!net_is_simulated(fd))
		return net_fail(EBADF);
	if (command == F_GETFL)
		return O_RDWR | (net_of(fd)->nonblocking ? O_NONBLOCK : 0);
	if (command != F_SETFL)
		return 0;
	va_start(args, command);
	flags = va_arg(args, int);
	va_end(args);
	net_of(fd)->nonblocking = flags & O_NONBLOCK;
	return 0;
}

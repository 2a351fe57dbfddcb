/*
 * simulated_network.c - sockets between simulated hosts; poll, epoll, eventfd
 *
 * A stream is two ends; what one sends is a list of segments at the other, each with a time of
 * arrival, in order. Between two hosts that are cut, segments wait for the repair, and an end whose
 * segments stay unacknowledged for its user timeout fails, as TCP does.
 *
 *   process A            network                    process B
 *   connect  ----------- SYN, some us -----------> accept queue of the listener, or a refusal
 *   send     ----------- segments, in order -----> recv
 *   killed   ----------- FIN, or RST ------------> end, or ECONNRESET
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/simulation/simulation.h"

#define DESCRIPTORS 8192
#define WINDOW (64u << 10)                 /* bytes sent and not received */
#define TCP_GIVES_UP_NS (924 * SIM_SECOND) /* Linux: 15 retransmissions */
#define SYN_GIVES_UP 6                     /* Linux: tcp_syn_retries */

enum kind { FREE, NUL, EVENT, EPOLL, SOCKET };

struct segment {
	struct segment *next;
	uint64_t arrival_ns; /* SIM_NEVER: held by a cut */
	size_t bytes, taken;
	bool fin, reset;
	uint8_t data[];
};

struct watch {
	int fd;
	struct epoll_event event;
};

struct descriptor {
	enum kind kind;
	struct sim_process *process;
	bool nonblocking;

	uint64_t count; /* EVENT */

	struct watch *watches; /* EPOLL */
	int nwatches, watch_room;

	/* SOCKET */
	bool bound, reuse, listening, connecting, connected, shut;
	int port, peer_port, host, peer_host; /* 0 and -1: none */
	int peer;                             /* descriptor of the other end, -1: closed, none */
	int error;                            /* SO_ERROR */
	int queue[64], nqueue;                /* listening: connected ends, to be accepted */
	struct segment *in, **in_last;
	size_t in_bytes;       /* of `in`: sent by the peer, not received */
	uint64_t last_arrival; /* of a segment towards this end */
	bool ended;            /* FIN or RST was received */
	uint64_t user_timeout_ns;
	int syns; /* sent */
	unsigned generation;
};

struct sim_network {
	struct descriptor table[DESCRIPTORS];
	int lowest; /* no free entry below */
	int last;   /* no used entry from here on */
	bool cuts[SIM_PROCESSES][SIM_PROCESSES];
	int next_port;
};

/* A timer of a socket: void, when the descriptor was closed and used again */
struct due {
	int fd;
	unsigned generation;
};

static struct descriptor *of(int fd)
{
	return &sim->network->table[fd - SIM_FD];
}

static int number(const struct descriptor *d)
{
	return (int)(d - sim->network->table) + SIM_FD;
}

static bool is_simulated(int fd)
{
	return fd >= SIM_FD && fd < SIM_FD + DESCRIPTORS && of(fd)->kind != FREE;
}

static int fail(int error)
{
	errno = error;
	return -1;
}

static int make(enum kind kind)
{
	struct descriptor *d;
	unsigned generation;

	while (sim->network->lowest < DESCRIPTORS &&
	       sim->network->table[sim->network->lowest].kind != FREE)
		sim->network->lowest++;
	if (sim->network->lowest == DESCRIPTORS)
		return fail(EMFILE);
	d = &sim->network->table[sim->network->lowest];
	if (sim->network->last <= sim->network->lowest)
		sim->network->last = sim->network->lowest + 1;
	generation = d->generation + 1;
	*d = (struct descriptor){ .kind = kind,
				  .process = sim->process,
				  .peer = -1,
				  .peer_host = -1,
				  .host = sim->process->host,
				  .generation = generation,
				  .user_timeout_ns = TCP_GIVES_UP_NS };
	d->in_last = &d->in;
	sim->process->ndescriptors++;
	return number(d);
}

void sim_network_begin(void)
{
	sim->network = sim_alloc(sizeof(*sim->network));
	sim->network->next_port = 33000;
}

int sim_network_null(void)
{
	return make(NUL);
}

uint32_t sim_network_address(int host)
{
	return htonl(0x0a000001u + (uint32_t)host);
}

void sim_trace(const char *format, ...)
{
	va_list args;

	if (!sim->tracing)
		return;
	fprintf(stderr, "%12.3f us  ", 1e-3 * (double)sim->now_ns);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

/* ---- time of arrival ------------------------------------------------------------------------- */

static uint64_t delay(int a, int b)
{
	if (a == b)
		return 3000 + sim_random(10000);
	/* mostly some tens of us; sometimes a queue, or a lost segment */
	if (sim_random(64) == 0)
		return sim_random_scale(SIM_MS / 4, 64 * SIM_MS);
	return 10000 + sim_random(60000);
}

static void wake_process(void *arg)
{
	struct sim_process *p = arg;

	sim_wake(p);
}

static struct due *due_of(const struct descriptor *d)
{
	struct due *due = sim_alloc(sizeof(*due));

	*due = (struct due){ number(d), d->generation };
	return due;
}

/* The socket of a timer, NULL: closed */
static struct descriptor *claim(struct due *due)
{
	struct descriptor *d = of(due->fd);
	bool same = d->generation == due->generation && d->kind == SOCKET;

	free(due);
	return same ? d : NULL;
}

/* A segment at end d from its peer, in order after the earlier ones */
static void arrive(struct descriptor *d, struct segment *s)
{
	bool held = d->peer_host >= 0 && sim->network->cuts[d->peer_host][d->host];
	uint64_t when = sim->now_ns + delay(d->peer_host, d->host);

	if (when < d->last_arrival)
		when = d->last_arrival;
	s->arrival_ns = held ? SIM_NEVER : when;
	s->next = NULL;
	*d->in_last = s;
	d->in_last = &s->next;
	d->in_bytes += s->bytes;
	if (held)
		return;
	d->last_arrival = when;
	sim_at(when, wake_process, d->process);
}

static struct segment *segment(size_t bytes)
{
	struct segment *s = sim_alloc(sizeof(*s) + bytes);

	s->bytes = bytes;
	return s;
}

/* ---- cuts ------------------------------------------------------------------------------------ */

static bool has_held(const struct descriptor *d)
{
	for (const struct segment *s = d->in; s; s = s->next)
		if (s->arrival_ns == SIM_NEVER)
			return true;
	return false;
}

/* The end has waited for an acknowledgment for its user timeout. */
static void give_up(void *arg)
{
	struct descriptor *d = claim(arg);

	if (!d || d->error || d->peer < 0 || !has_held(of(d->peer)))
		return;
	sim_trace("process %d: connection to host %d times out", d->process->number, d->peer_host);
	d->error = ETIMEDOUT;
	d->connected = false;
	sim_wake(d->process);
}

void sim_network_cut(int a, int b, bool cut)
{
	sim->network->cuts[a][b] = cut;
	sim_trace("network: host %d to host %d: %s", a, b, cut ? "cut" : "repaired");
	for (int i = 0; i < sim->network->last && !cut; i++) {
		struct descriptor *d = &sim->network->table[i];
		uint64_t when = sim->now_ns + 200 * SIM_MS; /* a retransmission */

		if (d->kind != SOCKET || d->host != b || d->peer_host != a)
			continue;
		for (struct segment *s = d->in; s; s = s->next)
			if (s->arrival_ns == SIM_NEVER)
				s->arrival_ns = d->last_arrival = when;
		sim_at(when, wake_process, d->process);
	}
}

/* ---- making and ending ----------------------------------------------------------------------- */

static void drop_in(struct descriptor *d)
{
	struct segment *next;

	for (struct segment *s = d->in; s; s = next) {
		next = s->next;
		free(s);
	}
	d->in = NULL;
	d->in_last = &d->in;
	d->in_bytes = 0;
}

/* A FIN or RST arrives at the end d, which cannot send any more after an RST. */
static void end_at(struct descriptor *d, bool reset)
{
	struct segment *s = segment(0);

	s->fin = !reset;
	s->reset = reset;
	arrive(d, s);
	if (reset)
		d->peer = -1;
}

bool sim_network_lose(int *ret_a, int *ret_b)
{
	struct sim_network *n = sim->network;
	int first = (int)sim_random((uint32_t)n->last + 1);

	for (int i = 0; i < n->last; i++) {
		struct descriptor *d = &n->table[(first + i) % n->last], *peer;

		if (d->kind != SOCKET || !d->connected || d->peer < 0)
			continue;
		peer = of(d->peer);
		*ret_a = d->process->number;
		*ret_b = peer->process->number;
		sim_trace("network: a connection of processes %d and %d is lost", *ret_a, *ret_b);
		end_at(d, true);
		end_at(peer, true);
		return true;
	}
	return false;
}

static void close_descriptor(struct descriptor *d)
{
	if (d->kind == SOCKET) {
		for (int i = 0; i < d->nqueue; i++)
			close_descriptor(of(d->queue[i]));
		if (d->peer >= 0) {
			end_at(of(d->peer), d->in_bytes > 0);
			of(d->peer)->peer = -1;
		}
		drop_in(d);
	}
	if (d->kind != EPOLL)
		for (int i = 0; i < sim->network->last; i++)
			for (int j = 0; sim->network->table[i].kind == EPOLL &&
					j < sim->network->table[i].nwatches;
			     j++)
				if (sim->network->table[i].watches[j].fd == number(d))
					sim->network->table[i].watches[j--] =
						sim->network->table[i]
							.watches[--sim->network->table[i].nwatches];
	free(d->watches);
	d->watches = NULL;
	d->process->ndescriptors--;
	d->kind = FREE;
	d->generation++;
	if (d - sim->network->table < sim->network->lowest)
		sim->network->lowest = (int)(d - sim->network->table);
}

void sim_network_kill(struct sim_process *p)
{
	for (int i = 0; i < sim->network->last; i++)
		if (sim->network->table[i].kind != FREE && sim->network->table[i].process == p)
			close_descriptor(&sim->network->table[i]);
}

SIM_REPLACE(int, close, int fd)
{
	if (!is_simulated(fd))
		return __real_close(fd);
	sim_call();
	close_descriptor(of(fd));
	return 0;
}

SIM_REPLACE(int, socket, int family, int type, int protocol)
{
	int fd;

	(void)protocol;
	sim_call();
	if (family != AF_INET)
		return fail(EAFNOSUPPORT);
	fd = make(SOCKET);
	if (fd >= 0)
		of(fd)->nonblocking = type & SOCK_NONBLOCK;
	return fd;
}

static bool is_taken(const struct descriptor *d, int port)
{
	for (int i = 0; i < sim->network->last; i++) {
		const struct descriptor *o = &sim->network->table[i];

		if (o->kind == SOCKET && o != d && o->bound && o->host == d->host &&
		    o->port == port && (o->listening || !o->reuse || !d->reuse))
			return true;
	}
	return false;
}

SIM_REPLACE(int, bind, int fd, const struct sockaddr *sa, socklen_t bytes)
{
	struct descriptor *d = of(fd);
	int port = ntohs(((const struct sockaddr_in *)(const void *)sa)->sin_port);

	(void)bytes;
	sim_call();
	while (!port && is_taken(d, sim->network->next_port))
		sim->network->next_port++;
	if (!port)
		port = sim->network->next_port++;
	if (is_taken(d, port))
		return fail(EADDRINUSE);
	d->bound = true;
	d->port = port;
	return 0;
}

SIM_REPLACE(int, listen, int fd, int backlog)
{
	(void)backlog;
	sim_call();
	of(fd)->listening = true;
	return 0;
}

static struct descriptor *listener(int host, int port)
{
	for (int i = 0; i < sim->network->last; i++)
		if (sim->network->table[i].kind == SOCKET && sim->network->table[i].listening &&
		    sim->network->table[i].host == host && sim->network->table[i].port == port)
			return &sim->network->table[i];
	return NULL;
}

static void finish_connect(struct descriptor *d, int error)
{
	d->connecting = false;
	d->connected = !error;
	d->error = error;
	sim_wake(d->process);
}

/* The answer of the peer's host has arrived. */
static void established(void *arg)
{
	struct descriptor *d = claim(arg);

	if (d && d->connecting)
		finish_connect(d, d->peer >= 0 || d->in ? 0 : ECONNREFUSED);
}

/* A SYN arrives, or is lost. */
static void syn(void *arg)
{
	struct descriptor *d = claim(arg), *l, *end;
	struct sim_process *before = sim->process;
	int fd;

	if (!d || !d->connecting)
		return;
	if (sim->network->cuts[d->host][d->peer_host] ||
	    sim->network->cuts[d->peer_host][d->host]) {
		if (++d->syns > SYN_GIVES_UP)
			finish_connect(d, ETIMEDOUT);
		else
			sim_at(sim->now_ns + (SIM_SECOND << d->syns), syn, due_of(d));
		return;
	}
	l = listener(d->peer_host, d->peer_port);
	sim_at(sim->now_ns + delay(d->peer_host, d->host), established, due_of(d));
	if (!l || l->nqueue == 64)
		return;
	sim->process = l->process;
	fd = make(SOCKET);
	sim->process = before;
	end = of(fd);
	end->connected = true;
	end->peer = number(d);
	end->peer_host = d->host;
	end->peer_port = d->port;
	end->port = l->port;
	d->peer = fd;
	l->queue[l->nqueue++] = fd;
	sim_wake(l->process);
}

SIM_REPLACE(int, connect, int fd, const struct sockaddr *sa, socklen_t bytes)
{
	const struct sockaddr_in *to = (const void *)sa;
	struct descriptor *d = of(fd);
	uint32_t address = ntohl(to->sin_addr.s_addr);

	(void)bytes;
	sim_call();
	d->peer_host = address >> 24 == 127 ? d->host : (int)(address - 0x0a000001u);
	d->peer_port = ntohs(to->sin_port);
	if (d->peer_host < 0 || d->peer_host >= SIM_PROCESSES)
		return fail(ENETUNREACH);
	if (!d->port)
		d->port = sim->network->next_port++;
	d->connecting = true;
	sim_at(sim->now_ns + delay(d->host, d->peer_host), syn, due_of(d));
	if (d->nonblocking)
		return fail(EINPROGRESS);
	while (d->connecting)
		sim_sleep(d->process, SIM_NEVER);
	return d->error ? fail(d->error) : 0;
}

SIM_REPLACE(int, accept4, int fd, struct sockaddr *sa, socklen_t *bytes, int flags)
{
	struct sockaddr_in from = { .sin_family = AF_INET };
	struct descriptor *d = of(fd);
	int end;

	sim_call();
	if (!d->nqueue)
		return fail(EAGAIN);
	end = d->queue[0];
	memmove(d->queue, d->queue + 1, (size_t)--d->nqueue * sizeof(d->queue[0]));
	of(end)->nonblocking = flags & SOCK_NONBLOCK;
	from.sin_addr.s_addr = sim_network_address(of(end)->peer_host);
	from.sin_port = htons((uint16_t)of(end)->peer_port);
	if (sa)
		memcpy(sa, &from, *bytes < sizeof(from) ? *bytes : sizeof(from));
	return end;
}

SIM_REPLACE(int, shutdown, int fd, int how)
{
	struct descriptor *d = of(fd);

	sim_call();
	if (how == SHUT_RD || d->shut)
		return 0;
	d->shut = true;
	if (d->peer >= 0)
		end_at(of(d->peer), false);
	return 0;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static bool has_room(const struct descriptor *d)
{
	return d->peer < 0 || of(d->peer)->in_bytes < WINDOW;
}

static bool has_input(const struct descriptor *d)
{
	return d->nqueue || d->ended || d->error || (d->in && d->in->arrival_ns <= sim->now_ns);
}

/* A sender whose segments a cut holds gives up some time after the first. */
static void limit(struct descriptor *d)
{
	const struct descriptor *peer = of(d->peer);

	if (sim->network->cuts[d->host][d->peer_host] && !has_held(peer))
		sim_at(sim->now_ns + d->user_timeout_ns, give_up, due_of(d));
}

/* A compromised process: lengths, counts and ranks that are wrong are more telling than noise. */
static void garble(const struct sim_process *p, struct segment *s)
{
	static const uint64_t values[] = { 0,          1,          0x7f,       0xff,
					   0x7fffffff, 0xffffffff, 1ull << 62, UINT64_MAX };
	size_t at, bytes;

	if (!p->garbles || !s->bytes || sim_random(p->garbles))
		return;
	at = sim_random((uint32_t)(s->bytes < 64 || sim_random(4) == 0 ? s->bytes : 64));
	bytes = (size_t)1 << sim_random(4);
	if (bytes > s->bytes - at)
		bytes = s->bytes - at;
	sim_trace("process %d garbles bytes %zu to %zu", p->number, at, at + bytes - 1);
	if (sim_random(2))
		memcpy(s->data + at, &values[sim_random(8)], bytes);
	else
		s->data[at] ^= (uint8_t)(1u << sim_random(8));
}

static ssize_t send_some(struct descriptor *d, const struct iovec *iov, size_t niov, int flags)
{
	size_t bytes = 0, at = 0;
	struct segment *s;
	bool waits = !d->nonblocking && !(flags & MSG_DONTWAIT);

	if (d->shut)
		return fail(EPIPE);
	while (!d->error && has_room(d) == false) {
		if (!waits)
			return fail(EAGAIN);
		sim_sleep(d->process, SIM_NEVER);
	}
	if (d->error || !d->connected) {
		int error = d->error ? d->error : ENOTCONN;

		return fail(error);
	}
	for (size_t i = 0; i < niov; i++)
		bytes += iov[i].iov_len;
	if (bytes > 1 && sim_random(16) == 0)
		bytes = 1 + sim_random((uint32_t)(bytes < WINDOW ? bytes : WINDOW)); /* a part */
	if (bytes > WINDOW)
		bytes = WINDOW;
	if (d->peer < 0)
		return (ssize_t)bytes; /* the reset is under way, or will be */
	s = segment(bytes);
	for (size_t i = 0; i < niov && at < bytes; i++) {
		size_t n = iov[i].iov_len < bytes - at ? iov[i].iov_len : bytes - at;

		memcpy(s->data + at, iov[i].iov_base, n);
		at += n;
	}
	garble(d->process, s);
	limit(d);
	sim_trace("process %d -> process %d: %zu bytes", d->process->number,
		  of(d->peer)->process->number, bytes);
	arrive(of(d->peer), s);
	return (ssize_t)bytes;
}

static ssize_t take(struct descriptor *d, uint8_t *to, size_t bytes)
{
	size_t have = 0;
	struct segment *s;

	while (have < bytes && (s = d->in) && s->arrival_ns <= sim->now_ns && !s->fin &&
	       !s->reset) {
		size_t n = s->bytes - s->taken < bytes - have ? s->bytes - s->taken : bytes - have;

		memcpy(to + have, s->data + s->taken, n);
		have += n;
		s->taken += n;
		d->in_bytes -= n;
		if (s->taken < s->bytes)
			break;
		d->in = s->next;
		if (!d->in)
			d->in_last = &d->in;
		free(s);
		if (sim_random(8) == 0)
			break; /* the rest with the next call */
	}
	if (have && d->peer >= 0)
		sim_wake(of(d->peer)->process);
	return (ssize_t)have;
}

static ssize_t recv_some(struct descriptor *d, void *to, size_t bytes, int flags)
{
	bool waits = !d->nonblocking && !(flags & MSG_DONTWAIT);
	const struct segment *s;
	ssize_t n;

	for (;;) {
		n = take(d, to, bytes);
		if (n || !bytes)
			return n;
		s = d->in;
		if (s && s->arrival_ns <= sim->now_ns) {
			d->ended = true;
			return s->reset ? fail(ECONNRESET) : 0;
		}
		if (d->error)
			return fail(d->error);
		if (!waits)
			return fail(EAGAIN);
		sim_sleep(d->process, SIM_NEVER);
	}
}

SIM_REPLACE(ssize_t, send, int fd, const void *data, size_t bytes, int flags)
{
	struct iovec one = { (void *)(uintptr_t)data, bytes };

	sim_call();
	return send_some(of(fd), &one, 1, flags);
}

SIM_REPLACE(ssize_t, sendmsg, int fd, const struct msghdr *msg, int flags)
{
	sim_call();
	return send_some(of(fd), msg->msg_iov, msg->msg_iovlen, flags);
}

SIM_REPLACE(ssize_t, recv, int fd, void *data, size_t bytes, int flags)
{
	sim_call();
	return recv_some(of(fd), data, bytes, flags);
}

SIM_REPLACE(ssize_t, __recv_chk, int fd, void *data, size_t bytes, size_t room, int flags)
{
	(void)room;
	return __wrap_recv(fd, data, bytes, flags);
}

SIM_REPLACE(ssize_t, recvmsg, int fd, struct msghdr *msg, int flags)
{
	ssize_t all = 0;

	sim_call();
	for (size_t i = 0; i < msg->msg_iovlen; i++) {
		ssize_t n = recv_some(of(fd), msg->msg_iov[i].iov_base, msg->msg_iov[i].iov_len,
				      all ? flags | MSG_DONTWAIT : flags);

		if (n <= 0)
			return all ? all : n;
		all += n;
		if ((size_t)n < msg->msg_iov[i].iov_len)
			break;
	}
	return all;
}

SIM_REPLACE(ssize_t, read, int fd, void *data, size_t bytes)
{
	struct descriptor *d = of(fd);

	if (!is_simulated(fd))
		return __real_read(fd, data, bytes);
	sim_call();
	if (d->kind == SOCKET)
		return recv_some(d, data, bytes, 0);
	if (d->kind != EVENT)
		return 0;
	if (!d->count)
		return fail(EAGAIN);
	memcpy(data, &d->count, sizeof(d->count));
	d->count = 0;
	return sizeof(d->count);
}

SIM_REPLACE(ssize_t, __read_chk, int fd, void *data, size_t bytes, size_t room)
{
	(void)room;
	return __wrap_read(fd, data, bytes);
}

SIM_REPLACE(ssize_t, write, int fd, const void *data, size_t bytes)
{
	uint64_t add;

	if (!is_simulated(fd))
		return __real_write(fd, data, bytes);
	if (of(fd)->kind == SOCKET)
		return __wrap_send(fd, data, bytes, 0);
	sim_call();
	memcpy(&add, data, sizeof(add));
	of(fd)->count += add;
	sim_wake(of(fd)->process);
	return (ssize_t)bytes;
}

SIM_REPLACE(int, eventfd, unsigned count, int flags)
{
	int fd;

	(void)flags;
	sim_call();
	fd = make(EVENT);
	if (fd >= 0)
		of(fd)->count = count;
	return fd;
}

SIM_REPLACE(int, eventfd_read, int fd, eventfd_t *value)
{
	return __wrap_read(fd, value, sizeof(*value)) < 0 ? -1 : 0;
}

SIM_REPLACE(int, eventfd_write, int fd, eventfd_t value)
{
	return __wrap_write(fd, &value, sizeof(value)) < 0 ? -1 : 0;
}

/* ---- waiting --------------------------------------------------------------------------------- */

static short events_of(int fd)
{
	const struct descriptor *d = of(fd);

	if (!is_simulated(fd))
		return POLLNVAL;
	if (d->kind == EVENT)
		return (short)(d->count ? POLLIN | POLLOUT : POLLOUT);
	if (d->kind != SOCKET)
		return POLLIN | POLLOUT;
	return (short)((has_input(d) ? POLLIN : 0) | (d->error ? POLLERR : 0) |
		       (d->connected && has_room(d) ? POLLOUT
			: d->error                  ? POLLOUT
						    : 0) |
		       (d->in && d->in->reset && d->in->arrival_ns <= sim->now_ns
				? POLLERR | POLLHUP
				: 0));
}

static int poll_all(struct pollfd *fds, nfds_t n, uint64_t until_ns)
{
	sim_call();
	for (;;) {
		int ready = 0;

		for (nfds_t i = 0; i < n; i++) {
			fds[i].revents = 0;
			if (fds[i].fd >= 0)
				fds[i].revents = (short)(events_of(fds[i].fd) &
							 (fds[i].events | POLLERR | POLLHUP |
							  POLLNVAL));
			ready += fds[i].revents != 0;
		}
		if (ready || sim->now_ns >= until_ns)
			return ready;
		sim_sleep(sim->process, until_ns);
	}
}

static uint64_t until_of(int timeout_ms)
{
	return timeout_ms < 0 ? SIM_NEVER : sim->now_ns + (uint64_t)timeout_ms * SIM_MS;
}

SIM_REPLACE(int, poll, struct pollfd *fds, nfds_t n, int timeout_ms)
{
	return poll_all(fds, n, until_of(timeout_ms));
}

SIM_REPLACE(int, __poll_chk, struct pollfd *fds, nfds_t n, int timeout_ms, size_t room)
{
	(void)room;
	return poll_all(fds, n, until_of(timeout_ms));
}

SIM_REPLACE(int, ppoll, struct pollfd *fds, nfds_t n, const struct timespec *time,
	    const sigset_t *mask)
{
	(void)mask;
	return poll_all(fds, n,
			!time ? SIM_NEVER
			      : sim->now_ns + (uint64_t)time->tv_sec * SIM_SECOND +
					(uint64_t)time->tv_nsec);
}

SIM_REPLACE(int, __ppoll_chk, struct pollfd *fds, nfds_t n, const struct timespec *time,
	    const sigset_t *mask, size_t room)
{
	(void)room;
	return __wrap_ppoll(fds, n, time, mask);
}

SIM_REPLACE(int, epoll_create1, int flags)
{
	(void)flags;
	sim_call();
	return make(EPOLL);
}

SIM_REPLACE(int, epoll_ctl, int epoll, int op, int fd, struct epoll_event *event)
{
	struct descriptor *e = of(epoll);
	int i = 0;

	sim_call();
	while (i < e->nwatches && e->watches[i].fd != fd)
		i++;
	if ((i < e->nwatches) == (op == EPOLL_CTL_ADD))
		return fail(i < e->nwatches ? EEXIST : ENOENT);
	if (op == EPOLL_CTL_DEL) {
		e->watches[i] = e->watches[--e->nwatches];
		return 0;
	}
	if (i == e->watch_room) {
		e->watch_room = e->watch_room * 2 + 8;
		e->watches = sim_resize(e->watches, (size_t)e->watch_room * sizeof(*e->watches));
	}
	e->watches[i] = (struct watch){ fd, *event };
	e->nwatches += op == EPOLL_CTL_ADD;
	sim_wake(e->process);
	return 0;
}

SIM_REPLACE(int, epoll_wait, int epoll, struct epoll_event *ret_events, int most, int timeout_ms)
{
	struct descriptor *e = of(epoll);
	uint64_t until_ns = until_of(timeout_ms);

	sim_call();
	for (;;) {
		uint32_t first = e->nwatches ? sim_random((uint32_t)e->nwatches) : 0;
		int n = 0;

		for (int i = 0; i < e->nwatches && n < most; i++) {
			struct watch *w = &e->watches[((int)first + i) % e->nwatches];
			uint32_t events = (uint16_t)events_of(w->fd) &
					  (w->event.events | EPOLLERR | EPOLLHUP);

			if (!events)
				continue;
			ret_events[n] = w->event;
			ret_events[n++].events = events;
		}
		if (n || sim->now_ns >= until_ns)
			return n;
		sim_sleep(e->process, until_ns);
	}
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
	put_name(of(fd)->host, of(fd)->port, sa, bytes);
	return 0;
}

SIM_REPLACE(int, getpeername, int fd, struct sockaddr *sa, socklen_t *bytes)
{
	sim_call();
	if (of(fd)->peer_host < 0)
		return fail(ENOTCONN);
	put_name(of(fd)->peer_host, of(fd)->peer_port, sa, bytes);
	return 0;
}

SIM_REPLACE(int, getsockopt, int fd, int level, int option, void *value, socklen_t *bytes)
{
	(void)bytes;
	sim_call();
	if (level != SOL_SOCKET || option != SO_ERROR)
		return fail(ENOPROTOOPT);
	*(int *)value = of(fd)->error;
	if (!of(fd)->connected)
		return 0;
	of(fd)->error = 0;
	return 0;
}

SIM_REPLACE(int, setsockopt, int fd, int level, int option, const void *value, socklen_t bytes)
{
	(void)bytes;
	sim_call();
	if (level == SOL_SOCKET && option == SO_REUSEADDR)
		of(fd)->reuse = *(const int *)value;
	if (level == IPPROTO_TCP && option == TCP_USER_TIMEOUT && *(const unsigned *)value)
		of(fd)->user_timeout_ns = *(const unsigned *)value * SIM_MS;
	return 0;
}

/* SIOCOUTQ: bytes that the peer's host has not acknowledged */
SIM_REPLACE(int, ioctl, int fd, unsigned long request, ...)
{
	const struct descriptor *d = of(fd);
	size_t unacknowledged = 0;
	va_list args;

	sim_call();
	if (!is_simulated(fd) || request != SIOCOUTQ)
		return fail(ENOTTY);
	for (const struct segment *s = d->peer < 0 ? NULL : of(d->peer)->in; s; s = s->next)
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
	if (!is_simulated(fd))
		return fail(EBADF);
	if (command == F_GETFL)
		return O_RDWR | (of(fd)->nonblocking ? O_NONBLOCK : 0);
	if (command != F_SETFL)
		return 0;
	va_start(args, command);
	flags = va_arg(args, int);
	va_end(args);
	of(fd)->nonblocking = flags & O_NONBLOCK;
	return 0;
}

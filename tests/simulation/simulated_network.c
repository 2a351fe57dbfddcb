/*
 * simulated_network.c - the table of descriptors, times of arrival, cuts, kills
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "tests/simulation/simulated_network.h"

#define NET_DESCRIPTORS 256                /* of each process, on average */
#define TCP_GIVES_UP_NS (924 * SIM_SECOND) /* Linux: 15 retransmissions */

struct net_descriptor *net_at(int index)
{
	return &sim->network->table[index];
}

int net_index(const struct net_descriptor *d)
{
	return (int)(d - sim->network->table);
}

bool net_is_simulated(int fd)
{
	const struct sim_process *p = sim ? sim->process : NULL;

	return p && fd >= SIM_FD && fd < SIM_FD + p->descriptor_room &&
	       p->descriptors[fd - SIM_FD] >= 0;
}

struct net_descriptor *net_of(int fd)
{
	return net_is_simulated(fd) ? net_at(sim->process->descriptors[fd - SIM_FD])
				    : &sim->network->none;
}

/* The lowest number that the process does not use */
static int number(struct sim_process *p)
{
	int fd = 0;

	while (fd < p->descriptor_room && p->descriptors[fd] >= 0)
		fd++;
	if (fd == p->descriptor_room) {
		p->descriptor_room = fd * 2 + 16;
		p->descriptors = sim_resize(p->descriptors,
					    (size_t)p->descriptor_room * sizeof(int));
		for (int i = fd; i < p->descriptor_room; i++)
			p->descriptors[i] = -1;
	}
	return fd;
}

int net_fail(int error)
{
	errno = error;
	return -1;
}

static uint64_t *word_of(int index)
{
	return &sim->network->used[index / 64];
}

int net_make(enum net_kind kind)
{
	struct net_descriptor *d;
	struct sim_process *p = sim->process;
	int fd = number(p), at;
	unsigned generation;

	while (sim->network->lowest < sim->network->room && !~*word_of(sim->network->lowest))
		sim->network->lowest += 64;
	if (sim->network->lowest >= sim->network->room)
		return net_fail(EMFILE);
	at = sim->network->lowest + __builtin_ctzll(~*word_of(sim->network->lowest));
	*word_of(at) |= 1ull << at % 64;
	d = &sim->network->table[at];
	if (sim->network->last <= at)
		sim->network->last = at + 1;
	generation = d->generation + 1;
	*d = (struct net_descriptor){ .kind = kind,
				      .process = p,
				      .fd = fd + SIM_FD,
				      .peer = -1,
				      .peer_host = -1,
				      .next_listener = -1,
				      .epoll = -1,
				      .host = p->host,
				      .generation = generation,
				      .user_timeout_ns = TCP_GIVES_UP_NS };
	d->in_last = &d->in;
	p->ndescriptors++;
	p->descriptors[fd] = net_index(d);
	return fd + SIM_FD;
}

void sim_network_begin(int processes)
{
	struct sim_network *n = sim->network = sim_alloc(sizeof(*n));
	size_t bytes;

	n->room = processes * NET_DESCRIPTORS;
	bytes = (size_t)n->room * sizeof(*n->table);
	n->table = processes > SIM_PROCESSES ? sim_pages(bytes) : sim_alloc(bytes);
	n->used = sim_alloc((size_t)n->room / 64 * sizeof(*n->used));
	n->next_port = 33000;
	memset(n->listeners, -1, sizeof(n->listeners));
}

int sim_network_null(void)
{
	return net_make(NET_NUL);
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

/* The last hosts of a crowd are never cut. */
bool net_is_cut(int a, int b)
{
	return a >= 0 && a < SIM_PROCESSES && b < SIM_PROCESSES && sim->network->cuts[a][b];
}

uint64_t net_delay(int a, int b)
{
	if (sim->hop_ns)
		return a == b ? 0 : sim->hop_ns;
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

static void wake_end(void *arg)
{
	struct net_descriptor *d = arg;

	net_note_ready(d);
	sim_wake(d->process);
}

struct net_due *net_due_of(const struct net_descriptor *d)
{
	struct net_due *due = sim_alloc(sizeof(*due));

	*due = (struct net_due){ net_index(d), d->generation };
	return due;
}

/* The socket of a timer, NULL: closed */
struct net_descriptor *net_claim(struct net_due *due)
{
	struct net_descriptor *d = net_at(due->index);
	bool same = d->generation == due->generation && d->kind == NET_SOCKET;

	sim_free(due);
	return same ? d : NULL;
}

/* A segment at end d from its peer, in order after the earlier ones */
void net_arrive(struct net_descriptor *d, struct net_segment *s)
{
	bool held = net_is_cut(d->peer_host, d->host);
	uint64_t when = sim->now_ns + net_delay(d->peer_host, d->host);

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
	if (sim->hop_ns) /* an end that was closed meanwhile, and is another one now, harms nobody */
		sim_at(when, wake_end, d);
	else
		sim_at(when, wake_process, d->process);
}

struct net_segment *net_segment(size_t bytes)
{
	struct net_segment *s = sim_alloc(sizeof(*s) + bytes);

	s->bytes = bytes;
	return s;
}

/* ---- cuts ------------------------------------------------------------------------------------ */

bool net_has_held(const struct net_descriptor *d)
{
	for (const struct net_segment *s = d->in; s; s = s->next)
		if (s->arrival_ns == SIM_NEVER)
			return true;
	return false;
}

/* The end has waited for an acknowledgment for its user timeout. */
void net_give_up(void *arg)
{
	struct net_descriptor *d = net_claim(arg);

	if (!d || d->error || d->peer < 0 || !net_has_held(net_at(d->peer)))
		return;
	sim_trace("process %d: connection to host %d times out", d->process->number, d->peer_host);
	d->error = ETIMEDOUT;
	d->connected = false;
	net_note_ready(d);
	sim_wake(d->process);
}

void sim_network_cut(int a, int b, bool cut)
{
	sim->network->cuts[a][b] = cut;
	sim_trace("network: host %d to host %d: %s", a, b, cut ? "cut" : "repaired");
	for (int i = 0; i < sim->network->last && !cut; i++) {
		struct net_descriptor *d = &sim->network->table[i];
		uint64_t when = sim->now_ns + 200 * SIM_MS; /* a retransmission */

		if (d->kind == NET_SOCKET && d->host == a && d->peer_host == b)
			net_acknowledge(d, 0);
		if (d->kind != NET_SOCKET || d->host != b || d->peer_host != a)
			continue;
		for (struct net_segment *s = d->in; s; s = s->next)
			if (s->arrival_ns == SIM_NEVER)
				s->arrival_ns = d->last_arrival = when;
		sim_at(when, wake_process, d->process);
	}
}

/* ---- making and ending ----------------------------------------------------------------------- */

/* Bytes that nobody will receive: the peer gets an RST. */
static bool has_unread(const struct net_descriptor *d)
{
	for (const struct net_segment *s = d->in; s; s = s->next)
		if (s->taken < s->bytes)
			return true;
	return false;
}

static void drop_in(struct net_descriptor *d)
{
	struct net_segment *next;

	for (struct net_segment *s = d->in; s; s = next) {
		next = s->next;
		sim_free(s);
	}
	d->in = NULL;
	d->in_last = &d->in;
	d->in_bytes = 0;
}

/* A FIN or RST arrives at the end d, which cannot send any more after an RST. */
void net_end_at(struct net_descriptor *d, bool reset)
{
	struct net_segment *s = net_segment(0);

	s->fin = !reset;
	s->reset = reset;
	net_arrive(d, s);
	if (reset)
		d->peer = -1;
}

bool sim_network_lose(int *ret_a, int *ret_b)
{
	struct sim_network *n = sim->network;
	int first = (int)sim_random((uint32_t)n->last + 1);

	for (int i = 0; i < n->last; i++) {
		struct net_descriptor *d = &n->table[(first + i) % n->last], *peer;

		if (d->kind != NET_SOCKET || !d->connected || d->peer < 0)
			continue;
		peer = net_at(d->peer);
		*ret_a = d->process->number;
		*ret_b = peer->process->number;
		sim_trace("network: a connection of processes %d and %d is lost", *ret_a, *ret_b);
		net_end_at(d, true);
		net_end_at(peer, true);
		return true;
	}
	return false;
}

/* A closed descriptor is watched no more, and listens no more. */
static void forget(struct net_descriptor *d)
{
	struct net_descriptor *e = d->epoll >= 0 ? net_at(d->epoll) : NULL;
	int *at = &sim->network->listeners[d->host % NET_BUCKETS];

	for (int j = 0; e && e->kind == NET_EPOLL && j < e->nwatches; j++)
		if (e->watches[j].fd == d->fd)
			e->watches[j--] = e->watches[--e->nwatches];
	while (d->listening && *at != net_index(d))
		at = &net_at(*at)->next_listener;
	if (d->listening)
		*at = d->next_listener;
	sim_free(d->queue);
	d->queue = NULL;
	net_forget_ready(d);
	while (d->kind == NET_EPOLL && d->next)
		net_forget_ready(d->next);
}

void net_close(struct net_descriptor *d)
{
	if (d->kind == NET_SOCKET) {
		for (int i = 0; i < d->nqueue; i++)
			net_close(net_at(d->queue[i]));
		if (d->peer >= 0) {
			net_at(d->peer)->full = d->in_bytes >= NET_WINDOW;
			net_end_at(net_at(d->peer), has_unread(d));
			net_at(d->peer)->peer = -1;
			net_note_ready(net_at(d->peer));
		}
		drop_in(d);
	}
	forget(d);
	sim_free(d->watches);
	d->watches = NULL;
	d->process->ndescriptors--;
	d->process->descriptors[d->fd - SIM_FD] = -1;
	d->kind = NET_FREE;
	d->generation++;
	*word_of(net_index(d)) &= ~(1ull << net_index(d) % 64);
	if (net_index(d) < sim->network->lowest)
		sim->network->lowest = net_index(d) / 64 * 64;
}

void sim_network_kill(struct sim_process *p)
{
	for (int i = 0; i < sim->network->last; i++)
		if (sim->network->table[i].kind != NET_FREE && sim->network->table[i].process == p)
			net_close(&sim->network->table[i]);
}

void net_acknowledge(struct net_descriptor *d, size_t bytes)
{
	d->unacknowledged += bytes;
	if (d->peer < 0 || net_is_cut(d->host, d->peer_host) || !d->unacknowledged)
		return;
	d->in_bytes -= d->unacknowledged;
	d->unacknowledged = 0;
	net_note_ready(net_at(d->peer));
	sim_wake(net_at(d->peer)->process);
}

/* The end of a stream has arrived, behind bytes that may not have been received. */
static bool has_end(const struct net_descriptor *d)
{
	for (const struct net_segment *s = d->in; s && s->arrival_ns <= sim->now_ns; s = s->next)
		if (s->fin || s->reset)
			return true;
	return false;
}

bool net_has_room(const struct net_descriptor *d)
{
	return d->peer < 0 ? !d->full || has_end(d) : net_at(d->peer)->in_bytes < NET_WINDOW;
}

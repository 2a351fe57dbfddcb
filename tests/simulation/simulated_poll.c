/*
 * simulated_poll.c - poll and epoll
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "tests/simulation/simulated_network.h"

/* Has the end of the peer's data come, also behind data that are not read yet? */
static bool has_ended(const struct net_descriptor *d)
{
	const struct net_segment *s = d->in;

	while (s && !(s->fin || s->reset))
		s = s->next;
	return s && s->arrival_ns <= sim->now_ns;
}

/* wanted: others than these may be left out. Rank 0 of many has thousands of descriptors: whether the peer
 * has room is looked up only for those that want to send. */
static short events_of(const struct net_descriptor *d, uint32_t wanted)
{
	if (d->kind == NET_FREE)
		return POLLNVAL;
	if (d->kind == NET_EVENT)
		return (short)(d->count ? POLLIN | POLLOUT : POLLOUT);
	if (d->kind != NET_SOCKET)
		return POLLIN | POLLOUT;
	return (short)((net_has_input(d) ? POLLIN : 0) | (d->error ? POLLERR : 0) |
		       (wanted & POLLOUT && (d->error || (d->connected && net_has_room(d)))
				? POLLOUT
				: 0) |
		       (wanted & POLLRDHUP && has_ended(d) ? POLLRDHUP : 0) |
		       (d->in && d->in->reset && d->in->arrival_ns <= sim->now_ns
				? POLLERR | POLLHUP
				: 0));
}

/* ---- candidates ------------------------------------------------------------------------------ */

/* Behind the others. An epoll's own `next` and `before` are the first and the last one. */
void net_note_ready(struct net_descriptor *d)
{
	struct net_descriptor *e = d->epoll >= 0 ? net_at(d->epoll) : NULL;

	if (!sim->hop_ns || !e || d->candidate || e->kind != NET_EPOLL)
		return;
	d->candidate = true;
	d->next = NULL;
	d->before = e->before;
	*(e->before ? &e->before->next : &e->next) = d;
	e->before = d;
}

void net_forget_ready(struct net_descriptor *d)
{
	struct net_descriptor *e = d->epoll >= 0 ? net_at(d->epoll) : NULL;

	if (!d->candidate)
		return;
	d->candidate = false;
	*(d->before ? &d->before->next : &e->next) = d->next;
	*(d->next ? &d->next->before : &e->before) = d->before;
}

/* ---- waits ----------------------------------------------------------------------------------- */

/* What a thread waits for, on its stack and not in variables */
struct wait {
	uint64_t until_ns;
	int ready;
	struct pollfd *fds;
	nfds_t n;
	struct net_descriptor *epoll;
	struct epoll_event *events;
	int most;
};

static bool is_polled(void *arg)
{
	struct wait *w = arg;

	w->ready = 0;
	for (nfds_t i = 0; i < w->n; i++) {
		struct pollfd *p = &w->fds[i];

		p->revents = 0;
		if (p->fd >= 0)
			p->revents = (short)(events_of(net_of(p->fd), (uint16_t)p->events) &
					     (p->events | POLLERR | POLLHUP | POLLNVAL));
		w->ready += p->revents != 0;
	}
	return w->ready || sim->now_ns >= w->until_ns;
}

static int poll_all(struct pollfd *fds, nfds_t n, uint64_t until_ns)
{
	struct wait w = { .until_ns = until_ns, .fds = fds, .n = n };

	sim_call();
	sim_await(sim->process, until_ns, is_polled, &w);
	return w.ready;
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
	return net_make(NET_EPOLL);
}

SIM_REPLACE(int, epoll_ctl, int epoll, int op, int fd, struct epoll_event *event)
{
	struct net_descriptor *e = net_of(epoll);
	int i = 0;

	sim_call();
	while (i < e->nwatches && e->watches[i].fd != fd)
		i++;
	if ((i < e->nwatches) == (op == EPOLL_CTL_ADD))
		return net_fail(i < e->nwatches ? EEXIST : ENOENT);
	if (op == EPOLL_CTL_DEL) {
		net_forget_ready(net_of(fd));
		net_of(fd)->epoll = -1;
		e->watches[i] = e->watches[--e->nwatches];
		return 0;
	}
	if (i == e->watch_room) {
		e->watch_room = e->watch_room * 2 + 8;
		e->watches = sim_resize(e->watches, (size_t)e->watch_room * sizeof(*e->watches));
	}
	e->watches[i] = (struct net_watch){ fd, net_of(fd), *event };
	net_of(fd)->epoll = net_index(e);
	net_of(fd)->watched = *event;
	net_note_ready(net_of(fd));
	e->nwatches += op == EPOLL_CTL_ADD;
	sim_wake(e->process);
	return 0;
}

/* Those that are ready stay candidates, behind all others. */
static bool is_candidate_ready(struct wait *w)
{
	const struct net_descriptor *last = w->epoll->before;

	w->ready = 0;
	for (struct net_descriptor *d = w->epoll->next, *next; d && w->ready < w->most; d = next) {
		uint32_t wanted = d->watched.events | EPOLLERR | EPOLLHUP,
			 events = (uint16_t)events_of(d, wanted) & wanted;

		next = d == last ? NULL : d->next;
		net_forget_ready(d);
		if (!events)
			continue;
		net_note_ready(d);
		w->events[w->ready] = d->watched;
		w->events[w->ready++].events = events;
	}
	return w->ready || sim->now_ns >= w->until_ns;
}

static bool is_watched_ready(void *arg)
{
	struct wait *w = arg;
	const struct net_descriptor *e = w->epoll;
	uint32_t first;

	if (sim->hop_ns)
		return is_candidate_ready(w);
	first = e->nwatches ? sim_random((uint32_t)e->nwatches) : 0;
	w->ready = 0;
	for (int i = 0; i < e->nwatches && w->ready < w->most; i++) {
		const struct net_watch *watch = &e->watches[((int)first + i) % e->nwatches];
		uint32_t events = (uint16_t)events_of(watch->of, watch->event.events) &
				  (watch->event.events | EPOLLERR | EPOLLHUP);

		if (!events)
			continue;
		w->events[w->ready] = watch->event;
		w->events[w->ready++].events = events;
	}
	return w->ready || sim->now_ns >= w->until_ns;
}

SIM_REPLACE(int, epoll_wait, int epoll, struct epoll_event *ret_events, int most, int timeout_ms)
{
	struct wait w = { .until_ns = until_of(timeout_ms),
			  .epoll = net_of(epoll),
			  .events = ret_events,
			  .most = most };

	sim_call();
	sim_await(w.epoll->process, w.until_ns, is_watched_ready, &w);
	return w.ready;
}

/*
 * simulated_poll.c - poll and epoll
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "tests/simulation/simulated_network.h"

static short events_of(int fd)
{
	const struct net_descriptor *d = net_of(fd);

	if (!net_is_simulated(fd))
		return POLLNVAL;
	if (d->kind == NET_EVENT)
		return (short)(d->count ? POLLIN | POLLOUT : POLLOUT);
	if (d->kind != NET_SOCKET)
		return POLLIN | POLLOUT;
	return (short)((net_has_input(d) ? POLLIN : 0) | (d->error ? POLLERR : 0) |
		       (d->connected && net_has_room(d) ? POLLOUT
			: d->error                      ? POLLOUT
							: 0) |
		       (d->in && d->in->reset && d->in->arrival_ns <= sim->now_ns
				? POLLERR | POLLHUP
				: 0));
}

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
			p->revents = (short)(events_of(p->fd) &
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
		e->watches[i] = e->watches[--e->nwatches];
		return 0;
	}
	if (i == e->watch_room) {
		e->watch_room = e->watch_room * 2 + 8;
		e->watches = sim_resize(e->watches, (size_t)e->watch_room * sizeof(*e->watches));
	}
	e->watches[i] = (struct net_watch){ fd, *event };
	net_of(fd)->epoll = net_index(e);
	e->nwatches += op == EPOLL_CTL_ADD;
	sim_wake(e->process);
	return 0;
}

static bool is_watched_ready(void *arg)
{
	struct wait *w = arg;
	const struct net_descriptor *e = w->epoll;
	uint32_t first = e->nwatches ? sim_random((uint32_t)e->nwatches) : 0;

	w->ready = 0;
	for (int i = 0; i < e->nwatches && w->ready < w->most; i++) {
		const struct net_watch *watch = &e->watches[((int)first + i) % e->nwatches];
		uint32_t events = (uint16_t)events_of(watch->fd) &
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

/*
 * service.c - the service thread of the process: sleeps in epoll, and works for all endpoints
 *
 * Called by endpoint.c. The first endpoint opens the descriptors and starts the thread, the last one
 * ends both. The thread takes one endpoint's lock at a time. It visits an endpoint that has had an
 * event, that was woken, or whose timer is due. Only the thread changes its list of endpoints: so an
 * endpoint that leaves waits until the thread has handled the events that epoll has reported.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/thread.h"
#include "control/control_internal.h"

#define EVENTS 32

static struct {
	/* guards users and running; held while the thread begins or ends */
	pthread_mutex_t lifecycle;
	int users;
	bool running;
	pthread_t thread;
	int epoll, wake; /* descriptors; wake: an eventfd that ends the sleep */
	enum tt_source wake_source;
	atomic_int reserve;  /* descriptor, -1: given up for a handshake */
	atomic_bool woken;   /* wake is readable */
	atomic_bool request; /* one of the next three has changed */

	pthread_mutex_t lock; /* guards requests: */
	pthread_cond_t changed;
	struct tt_control_endpoint *entering;
	bool stop;
	struct tt_control_endpoint *endpoints; /* thread: service */
} service;

/* All belongs to the parent, whose other threads may hold the locks while this one forks. */
static void reset(void)
{
	pthread_mutex_init(&service.lifecycle, NULL);
	pthread_mutex_init(&service.lock, NULL);
	pthread_cond_init(&service.changed, NULL);
	service.users = 0;
	service.running = service.stop = false;
	service.epoll = service.wake = -1;
	service.reserve = -1;
	service.woken = service.request = false;
	service.entering = service.endpoints = NULL;
	service.wake_source = TT_SRC_WAKE;
}

__attribute__((constructor)) static void watch_forks(void)
{
	reset();
	pthread_atfork(NULL, NULL, reset);
}

/* ---- descriptors ----------------------------------------------------------------------------- */

int tt_service_epoll(void)
{
	return service.epoll;
}

bool tt_service_watch(int op, int fd, uint32_t events, void *watched)
{
	struct epoll_event ev = { .events = events, .data.ptr = watched };

	return !epoll_ctl(service.epoll, op, fd, &ev);
}

void tt_service_keep_reserve(void)
{
	int none = -1, fd;

	if (service.reserve >= 0 || (fd = fcntl(service.wake, F_DUPFD_CLOEXEC, 0)) < 0)
		return;
	if (!atomic_compare_exchange_strong(&service.reserve, &none, tt_sock_own(fd)))
		tt_sock_close(fd);
}

bool tt_service_give_reserve(void)
{
	int fd = atomic_exchange(&service.reserve, -1);

	tt_sock_close(fd);
	return fd >= 0;
}

static void close_descriptors(void)
{
	int why = errno;

	tt_service_give_reserve();
	tt_sock_close(service.wake);
	tt_sock_close(service.epoll);
	service.epoll = service.wake = -1;
	errno = why;
}

static bool open_descriptors(void)
{
	service.epoll = tt_sock_own(epoll_create1(EPOLL_CLOEXEC));
	if (service.epoll >= 0)
		service.wake = tt_sock_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (service.wake >= 0)
		tt_service_keep_reserve();
	if (service.reserve >= 0 &&
	    tt_service_watch(EPOLL_CTL_ADD, service.wake, EPOLLIN, &service.wake_source))
		return true;
	close_descriptors();
	return false;
}

/* ---- the work for one endpoint --------------------------------------------------------------- */

static struct tt_control *find_broken(const struct tt_control_endpoint *ep)
{
	struct tt_control *ctl = ep->controls;

	while (ctl && !ctl->observers.broken_due)
		ctl = ctl->next;
	return ctl;
}

/* Call the observers of controls that broke; unlocked meanwhile. */
static void notify_broken(struct tt_control_endpoint *ep)
{
	struct tt_control *ctl;

	while ((ctl = find_broken(ep))) {
		ctl->observers.broken_due = false;
		ctl->observers.running = true;
		pthread_mutex_unlock(&ep->lock);
		tt_observers_broken(ctl);
		pthread_mutex_lock(&ep->lock);
		ctl->observers.running = false;
		pthread_cond_broadcast(&ep->changed);
	}
}

/* Run the timers that are due; returns the time of the next one. */
static uint64_t timers(struct tt_control_endpoint *ep)
{
	uint64_t now = tt_now_ns(), due = TT_NEVER, d;

	for (struct tt_control *ctl = ep->controls; ctl; ctl = ctl->next) {
		if ((d = tt_status_timers(ctl, now)) < due)
			due = d;
		if ((d = tt_bootstrap_timers(ctl, now)) < due)
			due = d;
		if ((d = tt_observers_timers(ctl, now)) < due)
			due = d;
	}
	if ((d = tt_dials_timers(ep, now)) < due)
		due = d;
	d = tt_monitor_timers(ep, now);
	return d < due ? d : due;
}

static void visit(struct tt_control_endpoint *ep)
{
	pthread_mutex_lock(&ep->lock);
	tt_conn_pipes_serve(ep);
	notify_broken(ep);
	ep->served.due_ns = timers(ep);
	tt_conn_reap(ep);
	tt_monitor_reap(ep);
	if (tt_conn_pipes_ready(ep))
		ep->served.due_ns = 0;
	pthread_mutex_unlock(&ep->lock);
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void dispatch(const struct epoll_event *ev)
{
	struct tt_watched *watched = ev->data.ptr;
	struct tt_control_endpoint *ep;
	uint64_t count;

	if (watched->source == TT_SRC_WAKE) {
		(void)!read(service.wake, &count, sizeof(count));
		service.woken = false;
		return;
	}
	if (watched->source != TT_SRC_CONN && watched->source != TT_SRC_MONITOR) {
		tt_listeners_event(watched);
		return;
	}
	ep = watched->ep;
	pthread_mutex_lock(&ep->lock);
	if (watched->source == TT_SRC_CONN)
		tt_conn_event(ep, ev->data.ptr, ev->events);
	else
		tt_monitor_event(ev->data.ptr, ev->events);
	pthread_mutex_unlock(&ep->lock);
	ep->served.woken = true;
}

/* Visit the listeners and the endpoints that need it; returns the time to the next timer, -1: none. */
static int visit_all(void)
{
	uint64_t now = tt_now_ns(), due = tt_listeners_visit(now);

	for (struct tt_control_endpoint *ep = service.endpoints; ep; ep = ep->served.next) {
		if (atomic_exchange(&ep->served.woken, false) || now >= ep->served.due_ns)
			visit(ep);
		if (ep->served.due_ns < due)
			due = ep->served.due_ns;
	}
	if (due == TT_NEVER)
		return -1;
	now = tt_now_ns();
	return due <= now ? 0 : (int)((due - now) / 1000000) + 1;
}

/* Endpoints enter and leave. false: the thread ends */
static bool take_requests(void)
{
	struct tt_control_endpoint **at = &service.endpoints, *ep;
	bool stop;

	if (!atomic_exchange(&service.request, false))
		return true;
	pthread_mutex_lock(&service.lock);
	while ((ep = service.entering)) {
		service.entering = ep->served.next;
		ep->served.next = service.endpoints;
		service.endpoints = ep;
	}
	while ((ep = *at)) {
		if (ep->served.leaving)
			*at = ep->served.next;
		else
			at = &ep->served.next;
		ep->served.leaving = false;
	}
	stop = service.stop;
	pthread_cond_broadcast(&service.changed);
	pthread_mutex_unlock(&service.lock);
	return !stop;
}

static void *serve(void *unused)
{
	struct epoll_event ev[EVENTS];

	(void)unused;
	while (take_requests()) {
		int n = epoll_wait(service.epoll, ev, EVENTS, visit_all());

		for (int i = 0; i < n; i++)
			dispatch(&ev[i]);
	}
	return NULL;
}

static void wake(void)
{
	if (!atomic_exchange(&service.woken, true))
		(void)!write(service.wake, &(uint64_t){ 1 }, sizeof(uint64_t));
}

void tt_service_wake(struct tt_control_endpoint *ep)
{
	ep->served.woken = true;
	wake();
}

/* ---- endpoints ------------------------------------------------------------------------------- */

int tt_service_open(struct tt_control_endpoint *ep)
{
	char what[64];

	pthread_mutex_lock(&service.lifecycle);
	ep->served.user = service.users || open_descriptors();
	service.users += ep->served.user;
	pthread_mutex_unlock(&service.lifecycle);
	if (ep->served.user)
		return 0;
	snprintf(what, sizeof(what), "rank %d: cannot watch its connections", ep->peer);
	return tt_sock_fail(what);
}

int tt_service_enter(struct tt_control_endpoint *ep)
{
	int rc = 0;

	pthread_mutex_lock(&service.lifecycle);
	if (!service.running)
		rc = tt_thread_start(&service.thread, "tutti-control", serve, NULL);
	service.running = rc == 0;
	pthread_mutex_unlock(&service.lifecycle);
	if (rc)
		return tt_fail(TT_SYSTEM, "rank %d: cannot start a thread: %s", ep->peer,
			       strerror(rc));
	ep->served.entered = true;
	pthread_mutex_lock(&service.lock);
	ep->served.next = service.entering;
	service.entering = ep;
	service.request = true;
	pthread_mutex_unlock(&service.lock);
	wake();
	return 0;
}

void tt_service_leave(struct tt_control_endpoint *ep)
{
	if (!ep->served.entered)
		return;
	pthread_mutex_lock(&service.lock);
	ep->served.leaving = true;
	service.request = true;
	wake();
	while (ep->served.leaving)
		pthread_cond_wait(&service.changed, &service.lock);
	pthread_mutex_unlock(&service.lock);
}

void tt_service_close(struct tt_control_endpoint *ep)
{
	pthread_mutex_lock(&service.lifecycle);
	if (ep->served.user && --service.users == 0) {
		if (service.running) {
			pthread_mutex_lock(&service.lock);
			service.stop = true;
			service.request = true;
			pthread_mutex_unlock(&service.lock);
			wake();
			pthread_join(service.thread, NULL);
		}
		service.running = service.stop = false;
		tt_listeners_reap();
		close_descriptors();
		service.woken = false;
	}
	pthread_mutex_unlock(&service.lifecycle);
}

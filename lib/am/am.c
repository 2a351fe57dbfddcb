/*
 * am.c - active messages of a communicator: make, service thread, states of ranks, close
 *
 * Called by comm. The service thread sleeps in epoll until a socket is readable, a socket with
 * queued messages is writable, or an operation of quorum_coordinator.c is due.
 */
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"
#include "base/sock.h"
#include "am/am_internal.h"

#define EVENTS 32
#define GOODBYE_MS 5000 /* as in control */
#define GOODBYE_BROKEN_MS 500
#define NEVER UINT64_MAX

/* ---- states of ranks ------------------------------------------------------------------------- */

void tt_am_gone(struct tt_am *am, int rank, tuttiRankState_t how)
{
	if (!am->gone[rank]) /* a rank that has left cannot die */
		am->gone[rank] = (uint8_t)how;
	tt_quorum_lost(am, rank);
	pthread_cond_broadcast(&am->changed);
	if (am->threaded)
		(void)!write(am->wake, &(uint64_t){ 1 }, sizeof(uint64_t));
}

tuttiRankState_t tt_am_state(struct tt_am *am, int rank)
{
	tuttiRankState_t state;

	pthread_mutex_lock(&am->lock);
	state = (tuttiRankState_t)am->gone[rank];
	pthread_mutex_unlock(&am->lock);
	return state;
}

/* ---- callbacks of control -------------------------------------------------------------------- */

/* Another rank dialed. Thread: control's service thread. */
static void on_socket(void *ctx, int peer, int fd)
{
	struct tt_am *am = ctx;

	pthread_mutex_lock(&am->lock);
	if (am->stop || tt_am_start(am))
		tt_sock_close(fd);
	else
		tt_am_conn_add(am, peer, fd);
	pthread_mutex_unlock(&am->lock);
}

static void on_gone(void *ctx, int rank, tuttiRankState_t how)
{
	struct tt_am *am = ctx;

	pthread_mutex_lock(&am->lock);
	tt_am_gone(am, rank, how);
	pthread_mutex_unlock(&am->lock);
}

static const struct tt_control_observer observer = { .am_socket = on_socket, .gone = on_gone };

/* ---- the service thread ---------------------------------------------------------------------- */

static int poll_timeout_ms(uint64_t due)
{
	uint64_t now = tt_now_ns();

	if (due == NEVER)
		return -1;
	return due <= now ? 0 : (int)((due - now) / 1000000) + 1;
}

static void *serve(void *arg)
{
	struct tt_am *am = arg;
	struct epoll_event ev[EVENTS];
	uint64_t count;

	pthread_mutex_lock(&am->lock);
	while (!am->stop) {
		int n, timeout_ms = poll_timeout_ms(tt_quorum_timers(am, tt_now_ns()));

		tt_am_conn_reap(am);
		pthread_mutex_unlock(&am->lock);
		n = epoll_wait(am->epoll, ev, EVENTS, timeout_ms);
		pthread_mutex_lock(&am->lock);
		for (int i = 0; i < n; i++) {
			if (ev[i].data.ptr)
				tt_am_conn_event(am, ev[i].data.ptr, ev[i].events);
			else
				(void)!read(am->wake, &count, sizeof(count));
		}
	}
	pthread_mutex_unlock(&am->lock);
	return NULL;
}

int tt_am_start(struct tt_am *am)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int rc;

	if (am->threaded)
		return 0;
	if (am->epoll < 0)
		am->epoll = tt_sock_own(epoll_create1(EPOLL_CLOEXEC));
	if (am->wake < 0 && am->epoll >= 0)
		am->wake = tt_sock_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (am->wake < 0)
		return tt_sock_fail("am cannot watch its connections");
	epoll_ctl(am->epoll, EPOLL_CTL_ADD, am->wake, &ev);
	rc = tt_thread_start(&am->thread, "tutti-am", serve, am);
	if (rc)
		return tt_fail(TT_SYSTEM, "rank %d: cannot start a thread for messages: %s",
			       am->rank, strerror(rc));
	am->threaded = true;
	return 0;
}

bool tt_am_await(struct tt_am *am, uint64_t deadline_ns)
{
	struct timespec until = { .tv_sec = (time_t)(deadline_ns / 1000000000),
				  .tv_nsec = (long)(deadline_ns % 1000000000) };

	if (tt_now_ns() >= deadline_ns)
		return false;
	pthread_cond_timedwait(&am->changed, &am->lock, &until);
	return true;
}

/* ---- make and close -------------------------------------------------------------------------- */

static void release(struct tt_am *am)
{
	tt_unexpected_free(am);
	tt_quorum_free(am);
	tt_sock_close(am->wake);
	tt_sock_close(am->epoll);
	pthread_cond_destroy(&am->changed);
	pthread_mutex_destroy(&am->lock);
	free(am->send_conn);
	free(am->dialing);
	free(am->gone);
	free(am);
}

int tt_am_make(struct tt_control *ctl, int rank, int nranks, uint32_t timeout_ms,
	       struct tt_am **ret_am)
{
	struct tt_am *am = calloc(1, sizeof(*am));
	pthread_condattr_t attr;

	if (!am)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for messages", rank);
	am->ctl = ctl;
	am->rank = rank;
	am->nranks = nranks;
	am->timeout_ms = timeout_ms;
	am->pid = getpid();
	am->epoll = am->wake = -1;
	am->unexpected_last = &am->unexpected;
	am->posted_last = &am->posted;
	pthread_mutex_init(&am->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&am->changed, &attr);
	pthread_condattr_destroy(&attr);
	am->send_conn = calloc((size_t)nranks, sizeof(*am->send_conn));
	am->dialing = calloc((size_t)nranks, sizeof(*am->dialing));
	am->gone = calloc((size_t)nranks, sizeof(*am->gone));
	if (!am->send_conn || !am->dialing || !am->gone) {
		release(am);
		return tt_fail(TT_SYSTEM, "rank %d: no memory for messages among %d ranks", rank,
			       nranks);
	}
	tt_control_observe(ctl, &observer, am);
	*ret_am = am;
	return 0;
}

void tt_am_abort(struct tt_am *am)
{
	pthread_mutex_lock(&am->lock);
	atomic_store(&am->aborted, true);
	pthread_cond_broadcast(&am->changed);
	pthread_mutex_unlock(&am->lock);
}

static bool all_sent(struct tt_am *am)
{
	int pending;

	for (struct tt_am_conn *c = am->conns; c; c = c->next)
		if (!c->dead && !am->gone[c->peer] &&
		    (c->sendq || (!ioctl(c->fd, SIOCOUTQ, &pending) && pending)))
			return false;
	return true;
}

/* Sends goodbye and waits until it has arrived. After an abort, does not wait. */
static void say_goodbye(struct tt_am *am)
{
	uint64_t until = tt_deadline_ns(tt_control_broken(am->ctl) ? GOODBYE_BROKEN_MS
								   : GOODBYE_MS);
	struct tt_am_header bye = { .kind = TT_AM_GOODBYE };

	pthread_mutex_lock(&am->lock);
	for (int r = 0; r < am->nranks; r++)
		if (am->send_conn[r] && !am->send_conn[r]->dead)
			tt_am_post(am, r, &bye, NULL);
	while (!am->aborted && !all_sent(am) && tt_now_ns() < until) {
		pthread_mutex_unlock(&am->lock);
		nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
		pthread_mutex_lock(&am->lock);
	}
	am->stop = true;
	pthread_mutex_unlock(&am->lock);
	(void)!write(am->wake, &(uint64_t){ 1 }, sizeof(uint64_t));
	pthread_join(am->thread, NULL);
}

/* In a forked child, everything except the memory belongs to the parent: nothing is closed or
 * freed. */
void tt_am_close(struct tt_am *am)
{
	if (!am || am->pid != getpid())
		return;
	tt_control_unobserve(am->ctl, &observer, am);
	if (am->threaded)
		say_goodbye(am);
	for (struct tt_am_conn *c = am->conns; c; c = c->next)
		tt_am_conn_end(am, c, tuttiRankAlive);
	tt_am_conn_reap(am);
	release(am);
}

void tt_am_sent(struct tt_am *am, uint64_t *ret_bytes, uint64_t *ret_messages)
{
	pthread_mutex_lock(&am->lock);
	*ret_bytes = am->sent_bytes;
	*ret_messages = am->messages;
	pthread_mutex_unlock(&am->lock);
}

size_t tt_am_memory(struct tt_am *am)
{
	size_t bytes = sizeof(*am) + (size_t)am->nranks * (sizeof(*am->send_conn) + 2);

	pthread_mutex_lock(&am->lock);
	bytes += am->unexpected_bytes + tt_quorum_memory(am);
	for (const struct tt_am_conn *c = am->conns; c; c = c->next)
		bytes += sizeof(*c);
	pthread_mutex_unlock(&am->lock);
	return bytes;
}

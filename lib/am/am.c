/*
 * am.c - make a mail, its service thread, who is gone, and closing it
 *
 * Called by comm. The thread sleeps in epoll until a socket has something, there is room in one for
 * what waits, or an operation of quorum_coordinator.c is due.
 */
#include <linux/sockios.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/sock.h"
#include "am/am_internal.h"

#define EVENTS 32
#define GOODBYE_MS 5000                  /* as control's */
#define GOODBYE_BROKEN_MS 500
#define NEVER UINT64_MAX

/* ---- who is gone ----------------------------------------------------------------------------- */

void tt_am_gone(struct tt_am *mail, int rank, tuttiRankState_t how)
{
	if (!mail->gone[rank])                   /* who has left does not die any more */
		mail->gone[rank] = (uint8_t)how;
	tt_quorum_lost(mail, rank);
	pthread_cond_broadcast(&mail->changed);
	if (mail->threaded)
		(void)!write(mail->wake, &(uint64_t){ 1 }, sizeof(uint64_t));
}

tuttiRankState_t tt_am_state(struct tt_am *mail, int rank)
{
	tuttiRankState_t state;

	pthread_mutex_lock(&mail->lock);
	state = (tuttiRankState_t)mail->gone[rank];
	pthread_mutex_unlock(&mail->lock);
	return state;
}

/* ---- control's side -------------------------------------------------------------------------- */

/* Another rank dialled. Thread: control's. */
static void on_socket(void *ctx, int peer, int fd)
{
	struct tt_am *mail = ctx;

	pthread_mutex_lock(&mail->lock);
	if (mail->stop || tt_am_start(mail))
		tt_sock_close(fd);
	else
		tt_am_conn_add(mail, peer, fd);
	pthread_mutex_unlock(&mail->lock);
}

static void on_gone(void *ctx, int rank, tuttiRankState_t how)
{
	struct tt_am *mail = ctx;

	pthread_mutex_lock(&mail->lock);
	tt_am_gone(mail, rank, how);
	pthread_mutex_unlock(&mail->lock);
}

static const struct tt_control_observer observer = { .am_socket = on_socket, .gone = on_gone };

/* ---- the thread ------------------------------------------------------------------------------ */

static int sleep_ms(uint64_t due)
{
	uint64_t now = tt_now_ns();

	if (due == NEVER)
		return -1;
	return due <= now ? 0 : (int)((due - now) / 1000000) + 1;
}

static void *serve(void *arg)
{
	struct tt_am *mail = arg;
	struct epoll_event ev[EVENTS];
	uint64_t count;

	pthread_mutex_lock(&mail->lock);
	while (!mail->stop) {
		int n, timeout_ms = sleep_ms(tt_quorum_timers(mail, tt_now_ns()));

		tt_am_bury(mail);
		pthread_mutex_unlock(&mail->lock);
		n = epoll_wait(mail->epoll, ev, EVENTS, timeout_ms);
		pthread_mutex_lock(&mail->lock);
		for (int i = 0; i < n; i++) {
			if (ev[i].data.ptr)
				tt_am_conn_event(mail, ev[i].data.ptr, ev[i].events);
			else
				(void)!read(mail->wake, &count, sizeof(count));
		}
	}
	pthread_mutex_unlock(&mail->lock);
	return NULL;
}

int tt_am_start(struct tt_am *mail)
{
	struct epoll_event ev = { .events = EPOLLIN };
	sigset_t all, before;
	int rc;

	if (mail->threaded)
		return 0;
	if (mail->epoll < 0)
		mail->epoll = tt_sock_own(epoll_create1(EPOLL_CLOEXEC));
	if (mail->wake < 0 && mail->epoll >= 0)
		mail->wake = tt_sock_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (mail->wake < 0)
		return tt_sock_fail("mail cannot watch its connections");
	epoll_ctl(mail->epoll, EPOLL_CTL_ADD, mail->wake, &ev);
	sigfillset(&all);                        /* signals are the program's business */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&mail->thread, NULL, serve, mail);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc)
		return tt_fail(TT_SYSTEM, "rank %d: cannot start a thread for messages: %s",
			       mail->rank, strerror(rc));
	mail->threaded = true;
	pthread_setname_np(mail->thread, "tutti-mail");
	return 0;
}

bool tt_am_await(struct tt_am *mail, uint64_t deadline_ns)
{
	struct timespec until = { .tv_sec = (time_t)(deadline_ns / 1000000000),
				  .tv_nsec = (long)(deadline_ns % 1000000000) };

	if (tt_now_ns() >= deadline_ns)
		return false;
	pthread_cond_timedwait(&mail->changed, &mail->lock, &until);
	return true;
}

/* ---- make and close -------------------------------------------------------------------------- */

static void release(struct tt_am *mail)
{
	tt_unexpected_free(mail);
	tt_quorum_free(mail);
	tt_sock_close(mail->wake);
	tt_sock_close(mail->epoll);
	pthread_cond_destroy(&mail->changed);
	pthread_mutex_destroy(&mail->lock);
	free(mail->out);
	free(mail->dialling);
	free(mail->gone);
	free(mail);
}

int tt_am_make(struct tt_control *ctl, int rank, int nranks, uint32_t timeout_ms,
		 struct tt_am **ret_mail)
{
	struct tt_am *mail = calloc(1, sizeof(*mail));
	pthread_condattr_t attr;

	if (!mail)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for messages", rank);
	mail->ctl = ctl;
	mail->rank = rank;
	mail->nranks = nranks;
	mail->timeout_ms = timeout_ms;
	mail->pid = getpid();
	mail->epoll = mail->wake = -1;
	mail->box_last = &mail->box;
	mail->waiters_last = &mail->waiters;
	pthread_mutex_init(&mail->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&mail->changed, &attr);
	pthread_condattr_destroy(&attr);
	mail->out = calloc((size_t)nranks, sizeof(*mail->out));
	mail->dialling = calloc((size_t)nranks, sizeof(*mail->dialling));
	mail->gone = calloc((size_t)nranks, sizeof(*mail->gone));
	if (!mail->out || !mail->dialling || !mail->gone) {
		release(mail);
		return tt_fail(TT_SYSTEM, "rank %d: no memory for messages among %d ranks", rank,
			       nranks);
	}
	tt_control_observe(ctl, &observer, mail);
	*ret_mail = mail;
	return 0;
}

void tt_am_cut(struct tt_am *mail)
{
	pthread_mutex_lock(&mail->lock);
	mail->cut = true;
	pthread_cond_broadcast(&mail->changed);
	pthread_mutex_unlock(&mail->lock);
}

static bool all_sent(struct tt_am *mail)
{
	int pending;

	for (struct tt_am_conn *c = mail->conns; c; c = c->next)
		if (!c->dead && !mail->gone[c->peer] &&
		    (c->out || (!ioctl(c->fd, SIOCOUTQ, &pending) && pending)))
			return false;
	return true;
}

/* After an abort nothing is waited for. */
static void say_goodbye(struct tt_am *mail)
{
	uint64_t until =
		tt_deadline_ns(tt_control_broken(mail->ctl) ? GOODBYE_BROKEN_MS : GOODBYE_MS);
	struct tt_am_header bye = { .kind = TT_AM_BYE };

	pthread_mutex_lock(&mail->lock);
	for (int r = 0; r < mail->nranks; r++)
		if (mail->out[r] && !mail->out[r]->dead)
			tt_am_post(mail, r, &bye, NULL);
	while (!mail->cut && !all_sent(mail) && tt_now_ns() < until) {
		pthread_mutex_unlock(&mail->lock);
		nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
		pthread_mutex_lock(&mail->lock);
	}
	mail->stop = true;
	pthread_mutex_unlock(&mail->lock);
	(void)!write(mail->wake, &(uint64_t){ 1 }, sizeof(uint64_t));
	pthread_join(mail->thread, NULL);
}

/* In a forked child everything but the memory is the parent's. */
void tt_am_close(struct tt_am *mail)
{
	if (!mail || mail->pid != getpid())
		return;
	tt_control_unobserve(mail->ctl, &observer, mail);
	if (mail->threaded)
		say_goodbye(mail);
	for (struct tt_am_conn *c = mail->conns; c; c = c->next)
		tt_am_conn_end(mail, c, tuttiRankAlive);
	tt_am_bury(mail);
	release(mail);
}

void tt_am_sent(struct tt_am *mail, uint64_t *ret_bytes, uint64_t *ret_letters)
{
	pthread_mutex_lock(&mail->lock);
	*ret_bytes = mail->sent_bytes;
	*ret_letters = mail->letters;
	pthread_mutex_unlock(&mail->lock);
}

size_t tt_am_memory(struct tt_am *mail)
{
	size_t bytes = sizeof(*mail) + (size_t)mail->nranks * (sizeof(*mail->out) + 2);

	pthread_mutex_lock(&mail->lock);
	bytes += mail->box_bytes + tt_quorum_memory(mail);
	for (const struct tt_am_conn *c = mail->conns; c; c = c->next)
		bytes += sizeof(*c);
	pthread_mutex_unlock(&mail->lock);
	return bytes;
}

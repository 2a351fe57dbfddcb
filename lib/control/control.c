/*
 * control.c - make a control, run its service thread, leave
 *
 * Called by bootstrap and split (make, start) and by comm (leave, hosts). The service thread sleeps
 * in epoll until a connection is readable, a peer connects, a timer is due or tt_control_wake is
 * called. The thread works under ctl->lock and never blocks there.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"
#include "control/control_internal.h"

#define EVENTS 32
/* limit for the peers' hosts to acknowledge everything at leaving */
#define GOODBYE_MS 5000
#define GOODBYE_BROKEN_MS 200 /* ... when only the goodbye is left to send */

/* ---- make and free --------------------------------------------------------------------------- */

static bool allocate(struct tt_control *ctl)
{
	size_t n = (size_t)ctl->nranks;

	ctl->auth.key = tt_key_alloc();
	ctl->peers.business_cards = calloc(n, sizeof(*ctl->peers.business_cards));
	ctl->peers.best_address = calloc(n, sizeof(*ctl->peers.best_address));
	ctl->peers.host_of = calloc(n, sizeof(*ctl->peers.host_of));
	ctl->join.attached = calloc(n, sizeof(*ctl->join.attached));
	ctl->departed.left = calloc(n, sizeof(*ctl->departed.left));
	ctl->departed.dead = calloc(n, sizeof(*ctl->departed.dead));
	ctl->departed.left_after = calloc(n, sizeof(*ctl->departed.left_after));
	ctl->departed.left_at_ns = calloc(n, sizeof(*ctl->departed.left_at_ns));
	ctl->gather.have = calloc(n, sizeof(*ctl->gather.have));
	ctl->status.latest = calloc(n, sizeof(*ctl->status.latest));
	ctl->status.at_ns = calloc(n, sizeof(*ctl->status.at_ns));
	ctl->status.last_received = calloc(n, sizeof(*ctl->status.last_received));
	ctl->log.pair = calloc(n, sizeof(*ctl->log.pair));
	ctl->deadlock.in_cycle = calloc(n, sizeof(*ctl->deadlock.in_cycle));
	return ctl->auth.key && ctl->peers.business_cards && ctl->peers.best_address &&
	       ctl->peers.host_of && ctl->join.attached && ctl->departed.left &&
	       ctl->departed.dead && ctl->departed.left_after && ctl->departed.left_at_ns &&
	       ctl->gather.have && ctl->status.latest && ctl->status.at_ns &&
	       ctl->status.last_received && ctl->log.pair && ctl->deadlock.in_cycle;
}

size_t tt_control_memory(struct tt_control *ctl)
{
	size_t per_rank = sizeof(*ctl->peers.business_cards) + sizeof(*ctl->peers.best_address) +
			  sizeof(*ctl->peers.host_of) + sizeof(*ctl->join.attached) +
			  sizeof(*ctl->departed.left) + sizeof(*ctl->departed.left_after) +
			  sizeof(*ctl->departed.left_at_ns) + sizeof(*ctl->gather.have) +
			  sizeof(*ctl->status.latest) + sizeof(*ctl->status.at_ns) +
			  sizeof(*ctl->status.last_received);
	size_t bytes = sizeof(*ctl) + (size_t)ctl->nranks * per_rank;

	pthread_mutex_lock(&ctl->lock);
	for (const struct tt_conn *c = ctl->conns; c; c = c->next)
		bytes += sizeof(*c) + c->in_room + c->out.room + c->early_bytes;
	pthread_mutex_unlock(&ctl->lock);
	return bytes;
}

static int watch(struct tt_control *ctl, int fd, enum tt_source *source)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = source };

	if (epoll_ctl(ctl->service.epoll, EPOLL_CTL_ADD, fd, &ev))
		return tt_fail(TT_SYSTEM, "rank %d: epoll: %m", ctl->rank);
	return 0;
}

static int open_descriptors(struct tt_control *ctl, const struct tt_ports *ports)
{
	int rc = tt_sock_among(ports, tt_sock_listen, &ctl->listener.fd, &ctl->listener.port);
	char what[64];

	if (rc && ctl->rank && ports->first && ports->count < 2 && errno == EADDRINUSE)
		return tt_fail(
			TT_SYSTEM,
			"rank %d: TUTTI_PORT_RANGE has port %d alone, which is in use; every communicator of a rank takes one",
			ctl->rank, ports->first);
	if (rc && ports->first && ports->count < 2 && errno == EADDRINUSE)
		return tt_fail(
			TT_SYSTEM,
			"rank %d: port %d, where rank 0 must listen, is in use by another process, "
			"or by another rank 0 with the same id; make a new id",
			ctl->rank, ports->first);
	if (rc)
		return tt_fail(rc, "rank %d: %s", ctl->rank, tt_error_text());
	ctl->service.epoll = tt_sock_own(epoll_create1(EPOLL_CLOEXEC));
	ctl->service.wake = ctl->service.epoll < 0
				    ? -1
				    : tt_sock_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	ctl->listener.reserve_fd = ctl->service.wake < 0
					   ? -1
					   : tt_sock_own(open("/dev/null", O_RDONLY | O_CLOEXEC));
	if (ctl->listener.reserve_fd < 0) {
		snprintf(what, sizeof(what), "rank %d: cannot watch its connections", ctl->rank);
		return tt_sock_fail(what);
	}
	rc = watch(ctl, ctl->service.wake, &ctl->service.wake_source);
	return rc ? rc : watch(ctl, ctl->listener.fd, &ctl->listener.source);
}

int tt_control_make(int rank, int nranks, const struct tt_ports *ports, struct tt_control **ret_ctl)
{
	struct tt_control *ctl = aligned_alloc(TT_APART,
					       (sizeof(*ctl) + TT_APART - 1) / TT_APART * TT_APART);
	pthread_condattr_t attr;
	int rc;

	if (!ctl)
		return tt_fail(TT_SYSTEM, "rank %d: no memory", rank);
	memset(ctl, 0, sizeof(*ctl));
	ctl->rank = rank;
	ctl->nranks = nranks;
	ctl->pid = getpid();
	ctl->service.wake_source = TT_SRC_WAKE;
	ctl->listener.source = TT_SRC_LISTENER;
	ctl->service.epoll = ctl->service.wake = ctl->listener.fd = ctl->listener.reserve_fd = -1;
	ctl->log.gone_after = ctl->status.answer_due_ns = ctl->deadlock.check_due_ns =
		ctl->listener.resume_ns = TT_NEVER;
	ctl->status.blocked.awaited = ctl->failure.culprit = -1;
	pthread_mutex_init(&ctl->lock, NULL);
	pthread_mutex_init(&ctl->observers.lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&ctl->changed, &attr);
	pthread_condattr_destroy(&attr);
	rc = allocate(ctl) ? 0
			   : tt_fail(TT_SYSTEM, "rank %d: no memory for %d ranks", rank, nranks);
	if (!rc && nranks > 1 && ports)
		rc = open_descriptors(ctl, ports);
	if (rc)
		tt_control_free(ctl);
	else
		*ret_ctl = ctl;
	return rc;
}

static void close_sockets(struct tt_control *ctl)
{
	struct tt_parked *next;

	tt_unauth_reap(ctl, true);
	for (struct tt_conn *c = ctl->conns; c; c = c->next) {
		if (!c->dead)
			tt_sock_close(c->fd);
		c->dead = true;
	}
	tt_conn_reap(ctl);
	for (struct tt_parked *p = ctl->listener.parked; p; p = next) {
		next = p->next;
		tt_sock_close(p->fd);
		free(p);
	}
	tt_bootstrap_close(ctl);
	tt_sock_close(ctl->listener.fd);
	tt_sock_close(ctl->listener.reserve_fd);
	tt_sock_close(ctl->service.wake);
	tt_sock_close(ctl->service.epoll);
}

void tt_control_free(struct tt_control *ctl)
{
	close_sockets(ctl);
	pthread_cond_destroy(&ctl->changed);
	pthread_mutex_destroy(&ctl->lock);
	pthread_mutex_destroy(&ctl->observers.lock);
	tt_key_free(ctl->auth.key);
	free(ctl->peers.business_cards);
	free(ctl->peers.best_address);
	free(ctl->peers.host_of);
	free(ctl->join.attached);
	free(ctl->departed.left);
	free(ctl->departed.dead);
	free(ctl->departed.left_after);
	free(ctl->departed.left_at_ns);
	free(ctl->gather.have);
	free(ctl->status.latest);
	free(ctl->status.at_ns);
	free(ctl->status.last_received);
	for (int r = 0; r < ctl->nranks && ctl->log.pair; r++)
		free(atomic_load(&ctl->log.pair[r]));
	free(ctl->log.pair);
	free(ctl->deadlock.in_cycle);
	free(ctl);
}

void tt_control_number_hosts(struct tt_control *ctl)
{
	ctl->peers.nhosts = 0;
	for (int r = 0; r < ctl->nranks; r++) {
		int same = 0;

		while (ctl->peers.business_cards[same].host != ctl->peers.business_cards[r].host)
			same++;
		ctl->peers.host_of[r] = same < r ? ctl->peers.host_of[same] : ctl->peers.nhosts++;
	}
}

const int *tt_control_hosts(struct tt_control *ctl, int *ret_nhosts)
{
	*ret_nhosts = ctl->peers.nhosts;
	return ctl->peers.host_of;
}

bool tt_control_same(const struct tt_control *a, const struct tt_control *b)
{
	return !memcmp(a->auth.job, b->auth.job, sizeof(a->auth.job));
}

int tt_rank_list(int nranks, bool (*which)(const void *ctx, int rank), const void *ctx, char *text,
		 size_t bytes)
{
	char numbers[256] = "";
	size_t have = 0;
	int n = 0, shown = 0;

	for (int r = 0; r < nranks; r++) {
		if (!which(ctx, r))
			continue;
		n++;
		if (have + 16 > sizeof(numbers))
			continue;
		have += (size_t)snprintf(numbers + have, sizeof(numbers) - have, "%s%d",
					 n > 1 ? ", " : "", r);
		shown++;
	}
	if (n > shown)
		snprintf(text, bytes, "ranks %s and %d more", numbers, n - shown);
	else
		snprintf(text, bytes, "rank%s %s", n > 1 ? "s" : "", numbers);
	return n;
}

/* ---- the service thread ---------------------------------------------------------------------- */

void tt_control_wake(struct tt_control *ctl)
{
	if (ctl->service.wake >= 0)
		(void)!write(ctl->service.wake, &(uint64_t){ 1 }, sizeof(uint64_t));
}

bool tt_control_await(struct tt_control *ctl, uint64_t deadline_ns)
{
	struct timespec until = { .tv_sec = (time_t)(deadline_ns / TT_SECOND),
				  .tv_nsec = (long)(deadline_ns % TT_SECOND) };

	return pthread_cond_timedwait(&ctl->changed, &ctl->lock, &until) != ETIMEDOUT;
}

bool tt_control_frame(struct tt_control *ctl, struct tt_conn *conn, enum tt_frame kind,
		      const uint8_t *data, size_t bytes)
{
	if ((conn->roles & TT_ROLE_REGISTER) && !conn->registered && kind != TT_F_REGISTER &&
	    kind != TT_F_DECLINE)
		return true; /* the goodbye of a refused rank */
	switch (kind) {
	case TT_F_GATHER_UP:
		return tt_gather_up(ctl, conn, data, bytes);
	case TT_F_GATHER_DOWN:
		return tt_gather_down(ctl, conn, data, bytes);
	case TT_F_ABORT:
		return tt_flood_abort(ctl, conn, data, bytes);
	case TT_F_STATUS:
		return tt_status_frame(ctl, conn, data, bytes);
	case TT_F_DEAD:
		return tt_flood_dead(ctl, conn, data, bytes);
	case TT_F_GOODBYE:
		return tt_flood_goodbye(ctl, conn, data, bytes);
	case TT_F_SHRUNK:
		return tt_split_shrunk(ctl, conn, data, bytes);
	case TT_F_SPLIT_FAILED:
		return tt_split_failed(ctl, conn, data, bytes);
	default:
		return tt_join_frame(ctl, conn, kind, data, bytes);
	}
}

static void dispatch(struct tt_control *ctl, const struct epoll_event *ev)
{
	uint64_t count;

	switch (*(enum tt_source *)ev->data.ptr) {
	case TT_SRC_WAKE:
		(void)!read(ctl->service.wake, &count, sizeof(count));
		break;
	case TT_SRC_LISTENER:
		tt_accept_event(ctl);
		break;
	case TT_SRC_UNAUTH:
		tt_unauth_event(ctl, ev->data.ptr);
		break;
	case TT_SRC_CONN:
		tt_conn_event(ctl, ev->data.ptr, ev->events);
		break;
	}
}

/* Run the timers that are due; returns the time to the next one, -1: none. */
static int timers(struct tt_control *ctl)
{
	uint64_t now = tt_now_ns(), due = tt_accept_timers(ctl, now), d;

	if ((d = tt_status_timers(ctl, now)) < due)
		due = d;
	if ((d = tt_bootstrap_timers(ctl, now)) < due)
		due = d;
	if (due == TT_NEVER)
		return -1;
	return due <= now ? 0 : (int)((due - now) / 1000000) + 1;
}

static void *serve(void *arg)
{
	struct tt_control *ctl = arg;
	struct epoll_event ev[EVENTS];

	pthread_mutex_lock(&ctl->lock);
	while (!ctl->service.stop) {
		int n, timeout_ms = timers(ctl);
		bool notify;

		tt_conn_reap(ctl);
		tt_unauth_reap(ctl, false);
		notify = ctl->observers.broken_due;
		ctl->observers.broken_due = false;
		pthread_mutex_unlock(&ctl->lock);
		if (notify)
			tt_observers_broken(ctl);
		n = epoll_wait(ctl->service.epoll, ev, EVENTS, timeout_ms);
		pthread_mutex_lock(&ctl->lock);
		for (int i = 0; i < n; i++)
			dispatch(ctl, &ev[i]);
	}
	pthread_mutex_unlock(&ctl->lock);
	return NULL;
}

int tt_control_start(struct tt_control *ctl)
{
	int rc;

	if (ctl->nranks == 1)
		return 0;
	rc = tt_thread_start(&ctl->service.thread, "tutti-control", serve, ctl);
	if (rc)
		return tt_fail(TT_SYSTEM, "rank %d: cannot start a thread: %s", ctl->rank,
			       strerror(rc));
	ctl->service.running = true;
	return 0;
}

/* ---- leaving --------------------------------------------------------------------------------- */

static void send_goodbye(struct tt_control *ctl)
{
	uint64_t deadline = tt_deadline_ns(tt_control_broken(ctl) ? GOODBYE_BROKEN_MS : GOODBYE_MS);
	bool sent = false;

	pthread_mutex_lock(&ctl->lock);
	tt_flood_leave(ctl);
	while (!(sent = tt_conn_all_sent(ctl)) && tt_now_ns() < deadline) {
		pthread_mutex_unlock(&ctl->lock);
		nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
		pthread_mutex_lock(&ctl->lock);
	}
	ctl->service.stop = true;
	pthread_mutex_unlock(&ctl->lock);
	tt_control_wake(ctl);
	pthread_join(ctl->service.thread, NULL);
}

/* In a forked child everything except the memory belongs to the parent. */
void tt_control_leave(struct tt_control *ctl)
{
	if (!ctl || ctl->pid != getpid())
		return;
	if (ctl->service.running)
		send_goodbye(ctl);
	tt_control_free(ctl);
}

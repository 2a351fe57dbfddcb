/*
 * control.c - make a control, its service thread, and leaving
 *
 * The service thread sleeps in epoll until a connection has something, a guest knocks, a timer is
 * due or somebody wakes it. It works under ctl->lock and never blocks there.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "control/control_internal.h"

#define EVENTS 32
/* leaving waits so long for the peers' hosts to have all that was for them */
#define GOODBYE_MS 5000
#define GOODBYE_BROKEN_MS 200            /* ... when only the goodbye is left to say */

/* ---- make and free --------------------------------------------------------------------------- */

static bool allocate(struct tt_control *ctl)
{
	size_t n = (size_t)ctl->nranks;

	ctl->cards = calloc(n, sizeof(*ctl->cards));
	ctl->best = calloc(n, sizeof(*ctl->best));
	ctl->host_of = calloc(n, sizeof(*ctl->host_of));
	ctl->attached = calloc(n, sizeof(*ctl->attached));
	ctl->left = calloc(n, sizeof(*ctl->left));
	ctl->dead = calloc(n, sizeof(*ctl->dead));
	ctl->left_after = calloc(n, sizeof(*ctl->left_after));
	ctl->left_at_ns = calloc(n, sizeof(*ctl->left_at_ns));
	ctl->gather_have = calloc(n, sizeof(*ctl->gather_have));
	ctl->status = calloc(n, sizeof(*ctl->status));
	ctl->status_at_ns = calloc(n, sizeof(*ctl->status_at_ns));
	ctl->last_received = calloc(n, sizeof(*ctl->last_received));
	ctl->pair = calloc(n, sizeof(*ctl->pair));
	ctl->deadlocked = calloc(n, sizeof(*ctl->deadlocked));
	return ctl->cards && ctl->best && ctl->host_of && ctl->attached && ctl->left && ctl->dead &&
	       ctl->left_after && ctl->left_at_ns && ctl->gather_have && ctl->status &&
	       ctl->status_at_ns && ctl->last_received && ctl->pair && ctl->deadlocked;
}

size_t tt_control_memory(struct tt_control *ctl)
{
	size_t per_rank = sizeof(*ctl->cards) + sizeof(*ctl->best) + sizeof(*ctl->host_of) +
			  sizeof(*ctl->attached) + sizeof(*ctl->left) + sizeof(*ctl->left_after) +
			  sizeof(*ctl->left_at_ns) + sizeof(*ctl->gather_have) +
			  sizeof(*ctl->status) + sizeof(*ctl->status_at_ns) + sizeof(*ctl->last_received);
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

	if (epoll_ctl(ctl->epoll, EPOLL_CTL_ADD, fd, &ev))
		return tt_fail(TT_SYSTEM, "rank %d: epoll: %m", ctl->rank);
	return 0;
}

static int open_descriptors(struct tt_control *ctl, const struct tt_ports *ports)
{
	int rc = tt_sock_among(ports, tt_sock_listen, &ctl->listener, &ctl->port);
	char what[64];

	if (rc && ctl->rank && ports->first && ports->count < 2 && errno == EADDRINUSE)
		return tt_fail(TT_SYSTEM,
			"rank %d: TUTTI_PORT_RANGE has port %d alone, which is in use; every communicator of a rank takes one",
			ctl->rank, ports->first);
	if (rc && ports->first && ports->count < 2 && errno == EADDRINUSE)
		return tt_fail(TT_SYSTEM,
			"rank %d: port %d, where the ranks are to meet, is in use by another process, "
			"or by another rank 0 with the same id; make a new id", ctl->rank,
			ports->first);
	if (rc)
		return tt_fail(rc, "rank %d: %s", ctl->rank, tt_error_text());
	ctl->epoll = tt_sock_own(epoll_create1(EPOLL_CLOEXEC));
	ctl->wake = ctl->epoll < 0 ? -1 : tt_sock_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	ctl->spare = ctl->wake < 0 ? -1 : tt_sock_own(open("/dev/null", O_RDONLY | O_CLOEXEC));
	if (ctl->spare < 0) {
		snprintf(what, sizeof(what), "rank %d: cannot watch its connections", ctl->rank);
		return tt_sock_fail(what);
	}
	rc = watch(ctl, ctl->wake, &ctl->wake_source);
	return rc ? rc : watch(ctl, ctl->listener, &ctl->listener_source);
}

int tt_control_make(int rank, int nranks, const struct tt_ports *ports, struct tt_control **ret_ctl)
{
	struct tt_control *ctl =
		aligned_alloc(TT_APART, (sizeof(*ctl) + TT_APART - 1) / TT_APART * TT_APART);
	pthread_condattr_t attr;
	int rc;

	if (!ctl)
		return tt_fail(TT_SYSTEM, "rank %d: no memory", rank);
	memset(ctl, 0, sizeof(*ctl));
	ctl->rank = rank;
	ctl->nranks = nranks;
	ctl->pid = getpid();
	ctl->wake_source = TT_SRC_WAKE;
	ctl->listener_source = TT_SRC_LISTENER;
	ctl->epoll = ctl->wake = ctl->listener = ctl->spare = -1;
	ctl->gone_after = ctl->answer_due_ns = ctl->look_due_ns = ctl->hear_again_ns = TT_NEVER;
	ctl->stuck.awaited = ctl->culprit = -1;
	pthread_mutex_init(&ctl->lock, NULL);
	pthread_mutex_init(&ctl->hook_lock, NULL);
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

	tt_guest_bury(ctl, true);
	for (struct tt_conn *c = ctl->conns; c; c = c->next) {
		if (!c->dead)
			tt_sock_close(c->fd);
		c->dead = true;
	}
	tt_conn_bury(ctl);
	for (struct tt_parked *p = ctl->parked; p; p = next) {
		next = p->next;
		tt_sock_close(p->fd);
		free(p);
	}
	tt_bootstrap_close(ctl);
	tt_sock_close(ctl->listener);
	tt_sock_close(ctl->spare);
	tt_sock_close(ctl->wake);
	tt_sock_close(ctl->epoll);
}

void tt_control_free(struct tt_control *ctl)
{
	close_sockets(ctl);
	pthread_cond_destroy(&ctl->changed);
	pthread_mutex_destroy(&ctl->lock);
	pthread_mutex_destroy(&ctl->hook_lock);
	free(ctl->cards);
	free(ctl->best);
	free(ctl->host_of);
	free(ctl->attached);
	free(ctl->left);
	free(ctl->dead);
	free(ctl->left_after);
	free(ctl->left_at_ns);
	free(ctl->gather_have);
	free(ctl->status);
	free(ctl->status_at_ns);
	free(ctl->last_received);
	for (int r = 0; r < ctl->nranks && ctl->pair; r++)
		free(atomic_load(&ctl->pair[r]));
	free(ctl->pair);
	free(ctl->deadlocked);
	free(ctl);
}

void tt_control_number_hosts(struct tt_control *ctl)
{
	ctl->nhosts = 0;
	for (int r = 0; r < ctl->nranks; r++) {
		int same = 0;

		while (ctl->cards[same].host != ctl->cards[r].host)
			same++;
		ctl->host_of[r] = same < r ? ctl->host_of[same] : ctl->nhosts++;
	}
}

const int *tt_control_hosts(struct tt_control *ctl, int *ret_nhosts)
{
	*ret_nhosts = ctl->nhosts;
	return ctl->host_of;
}

bool tt_control_same(const struct tt_control *a, const struct tt_control *b)
{
	return !memcmp(a->job, b->job, sizeof(a->job));
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
	if (ctl->wake >= 0)
		(void)!write(ctl->wake, &(uint64_t){ 1 }, sizeof(uint64_t));
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
		return true;                     /* one that was refused says goodbye */
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
		(void)!read(ctl->wake, &count, sizeof(count));
		break;
	case TT_SRC_LISTENER:
		tt_accept_event(ctl);
		break;
	case TT_SRC_GUEST:
		tt_guest_event(ctl, ev->data.ptr);
		break;
	case TT_SRC_CONN:
		tt_conn_event(ctl, ev->data.ptr, ev->events);
		break;
	}
}

/* Do what is due; how long may the thread sleep? */
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
	while (!ctl->stop) {
		int n, timeout_ms = timers(ctl);

		tt_conn_bury(ctl);
		tt_guest_bury(ctl, false);
		if (ctl->hook_due)
			tt_flood_hook(ctl);
		pthread_mutex_unlock(&ctl->lock);
		n = epoll_wait(ctl->epoll, ev, EVENTS, timeout_ms);
		pthread_mutex_lock(&ctl->lock);
		for (int i = 0; i < n; i++)
			dispatch(ctl, &ev[i]);
	}
	pthread_mutex_unlock(&ctl->lock);
	return NULL;
}

/* Signals are the program's business: none is delivered to this thread. */
int tt_control_start(struct tt_control *ctl)
{
	sigset_t all, before;
	int rc;

	if (ctl->nranks == 1)
		return 0;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&ctl->thread, NULL, serve, ctl);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc)
		return tt_fail(TT_SYSTEM, "rank %d: cannot start a thread: %s", ctl->rank,
			       strerror(rc));
	ctl->threaded = true;
	pthread_setname_np(ctl->thread, "tutti-control");
	return 0;
}

/* ---- leaving --------------------------------------------------------------------------------- */

static void say_goodbye(struct tt_control *ctl)
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
	ctl->stop = true;
	pthread_mutex_unlock(&ctl->lock);
	tt_control_wake(ctl);
	pthread_join(ctl->thread, NULL);
}

/* In a forked child everything but the memory is the parent's. */
void tt_control_leave(struct tt_control *ctl)
{
	if (!ctl || ctl->pid != getpid())
		return;
	if (ctl->threaded)
		say_goodbye(ctl);
	tt_control_free(ctl);
}

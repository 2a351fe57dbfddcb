/*
 * am.c - active messages of a communicator: make, events of control, states of ranks, close
 *
 * Called by comm, and by control's service thread with frames, ends of connections and timers.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "am/am_internal.h"
#include "control/frame.h"

#define GOODBYE_MS 5000 /* as in control */
#define GOODBYE_BROKEN_MS 500
#define POLL_LEAST_NS 200000
#define RETRY_NS 10000000ull
#define NEVER UINT64_MAX

/* bytes that may arrive before their messages have a destination: of all ranks together, of one
 * rank */
#define AHEAD_BYTES (4u << 20)
#define WINDOW_MOST (256u << 10)
#define WINDOW_LEAST 1024u

/* ---- states of ranks ------------------------------------------------------------------------- */

void tt_am_gone(struct tt_am *am, int rank, tuttiRankState_t how)
{
	if (tt_am_how_gone(am, rank) == tuttiRankAlive) /* a rank that has left cannot die */
		tt_set_add(how == tuttiRankLeft ? am->left : am->dead, rank);
	tt_quorum_lost(am, rank);
	pthread_cond_broadcast(&am->changed);
}

tuttiRankState_t tt_am_state(struct tt_am *am, int rank)
{
	tuttiRankState_t state;

	pthread_mutex_lock(am->lock);
	state = tt_am_how_gone(am, rank);
	pthread_mutex_unlock(am->lock);
	return state;
}

int tt_am_next_left(struct tt_am *am, int from)
{
	int r;

	pthread_mutex_lock(am->lock);
	r = tt_set_next(am->left, am->nranks, from);
	pthread_mutex_unlock(am->lock);
	return r;
}

/* ---- callbacks of control -------------------------------------------------------------------- */

static void on_message(void *ctx, int rank, int kind, const uint8_t *data, size_t bytes)
{
	if (kind == TT_F_CREDIT)
		tt_stream_credit(ctx, rank, data, bytes);
	else if (kind == TT_F_SHRINK)
		tt_am_shrink_frame(ctx, rank, data, bytes);
	else
		tt_stream_bytes(ctx, rank, data, bytes);
}

static uint8_t *on_destination(void *ctx, int rank, size_t *ret_bytes)
{
	struct tt_am *am = ctx;
	const struct tt_am_stream *s = tt_stream_at(am, rank);

	if (!s || !s->in_body || s->stalled || !s->to || !tt_control_is_open(am->ctl, rank))
		return NULL;
	*ret_bytes = s->head.bytes - s->have;
	return s->to + s->have;
}

static void on_room(void *ctx, int rank)
{
	struct tt_am *am = ctx;
	struct tt_am_stream *s = tt_stream_at(am, rank);

	if (s)
		tt_stream_send(am, s);
}

static void on_over(void *ctx, int rank, tuttiRankState_t how)
{
	struct tt_am *am = ctx;

	tt_stream_over(am, rank);
	tt_am_gone(am, rank, how);
}

static void on_gone(void *ctx, int rank, tuttiRankState_t how)
{
	tt_am_gone(ctx, rank, how);
}

static uint64_t on_timers(void *ctx, uint64_t now)
{
	struct tt_am *am = ctx;
	uint64_t due = tt_quorum_timers(am, now);

	if (am->retries && am->retry_ns == NEVER)
		am->retry_ns = now + RETRY_NS;
	if (am->retry_ns <= now) {
		am->retry_ns = NEVER;
		tt_stream_retry(am);
	}
	return due < am->retry_ns ? due : am->retry_ns;
}

static const struct tt_control_observer observer = { .message = on_message,
						     .destination = on_destination,
						     .room = on_room,
						     .over = on_over,
						     .gone = on_gone,
						     .timers = on_timers };

bool tt_am_await(struct tt_am *am, uint64_t deadline_ns)
{
	struct timespec until = { .tv_sec = (time_t)(deadline_ns / 1000000000),
				  .tv_nsec = (long)(deadline_ns % 1000000000) };

	if (tt_now_ns() >= deadline_ns)
		return false;
	pthread_cond_timedwait(&am->changed, am->lock, &until);
	return true;
}

/* ---- make and close -------------------------------------------------------------------------- */

static void release(struct tt_am *am)
{
	tt_stream_free_all(am);
	tt_unexpected_free(am);
	tt_quorum_free(am);
	pthread_cond_destroy(&am->changed);
	free(am->answer);
	tt_sparse_free(&am->streams);
	free(am->left);
	free(am->dead);
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
	am->asker = -1;
	am->timeout_ms = timeout_ms;
	am->pid = getpid();
	am->lock = tt_control_mutex(ctl);
	am->window = AHEAD_BYTES / (unsigned)nranks;
	if (am->window > WINDOW_MOST)
		am->window = WINDOW_MOST;
	if (am->window < WINDOW_LEAST)
		am->window = WINDOW_LEAST;
	am->unexpected_most = TT_AM_UNEXPECTED_BYTES;
	am->retry_ns = NEVER;
	am->stalled_last = &am->stalled;
	am->unexpected_last = &am->unexpected;
	am->posted_last = &am->posted;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&am->changed, &attr);
	pthread_condattr_destroy(&attr);
	am->left = tt_set_make(nranks);
	am->dead = tt_set_make(nranks);
	if (!tt_sparse_make(&am->streams, nranks) || !am->left || !am->dead) {
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
	pthread_mutex_lock(am->lock);
	atomic_store(&am->aborted, true);
	pthread_cond_broadcast(&am->changed);
	tt_control_notify(am->ctl);
	pthread_mutex_unlock(am->lock);
}

/* Waits until the connections have all messages. After an abort, does not wait. */
static void await_sent(struct tt_am *am)
{
	uint64_t until = tt_deadline_ns(tt_control_broken(am->ctl) ? GOODBYE_BROKEN_MS
								   : GOODBYE_MS);
	uint64_t began = tt_now_ns(), pause;

	pthread_mutex_lock(am->lock);
	while (!am->aborted && !tt_stream_all_sent(am) && tt_now_ns() < until) {
		pthread_mutex_unlock(am->lock);
		pause = tt_poll_interval_ns(began, POLL_LEAST_NS);
		nanosleep(&(struct timespec){ .tv_nsec = (long)pause }, NULL);
		pthread_mutex_lock(am->lock);
	}
	pthread_mutex_unlock(am->lock);
}

/* In a forked child, everything except the memory belongs to the parent: nothing is freed. */
void tt_am_close(struct tt_am *am)
{
	if (!am || am->pid != getpid())
		return;
	await_sent(am);
	tt_control_unobserve(am->ctl, &observer, am);
	release(am);
}

void tt_am_sent(struct tt_am *am, uint64_t *ret_bytes, uint64_t *ret_messages)
{
	pthread_mutex_lock(am->lock);
	*ret_bytes = am->sent_bytes;
	*ret_messages = am->messages;
	pthread_mutex_unlock(am->lock);
}

size_t tt_am_memory(struct tt_am *am)
{
	size_t bytes = sizeof(*am) + 2 * TT_SET_BYTES(am->nranks);

	pthread_mutex_lock(am->lock);
	bytes += am->unexpected_bytes + tt_quorum_memory(am) + tt_stream_memory(am);
	pthread_mutex_unlock(am->lock);
	return bytes;
}

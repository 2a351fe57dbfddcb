/*
 * gpu_watchdog.c - the thread that watches over the calls on a rank's GPU
 *
 * Started and ended by gpu_open.c, woken by gpu_call.c; calls control and the driver. A wait on a
 * GPU can observe neither deaths nor deadlines, so this thread does: it sleeps while no call is in
 * flight, else polls every few milliseconds.
 *
 *   a kernel gave up (its report says so), or streams made no progress for the time-out, or the
 *   device failed, after which no work on the device ever ends:
 *           the communicator breaks with an error
 *   the communicator is broken:
 *           all waits on the GPU are ended, of kernels by the abort word, of streams by the upper halves
 *           of their words; the results are then undefined, but all work ends
 *
 * While a thread of the program copies between the device and pageable memory, the driver lets no other
 * thread in until the copy's stream has come so far. So control's thread, which never calls the driver,
 * ends the waits, by stores to host words.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/thread.h"
#include "comm/comm.h"
#include "gpu/gpu_call.h"

#define POLL_MS 5
#define POLL_GRAPHS_MS 20 /* the library does not see replays of graphs */
#define ASK_MS 500        /* time without progress before the other ranks are asked */

struct watchdog {
	struct tt_gpu *d;
	uint64_t progress, since_ns; /* sum of the counters; time of its last change */
};

static uint32_t word(const uint32_t *at)
{
	return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

/* Asks the driver for the state of a stream, a query that copies of pageable memory do not hold up. The kernels
 * count the calls that have ended; replays of graphs count too, so with graphs only the event tells that
 * the newest call has ended. *ret_failure: the driver's code, which a failed device returns for every call;
 * 0: none */
static bool is_busy(struct tt_gpu *d, int *ret_failure)
{
	const struct tt_dev_report *r = &d->ipc->words->report;
	uint32_t ended = word(&r->ended);
	bool graphs = atomic_load(&d->has_graphs), busy;
	int rc = d->cu->stream_query(d->own);

	busy = atomic_load(&d->enqueueing) || word(&r->begun) != ended ||
	       (!graphs && atomic_load(&d->launched) != ended);
	if (graphs && !busy && !rc)
		rc = d->cu->event_query(d->last);
	/* at the end of the program the driver is unloaded before this thread ends */
	*ret_failure = rc == TT_CU_NOT_READY || rc == TT_CU_DEINITIALIZED ? 0 : rc;
	return busy || rc;
}

/* The communicator broke. The abort word first: a job behind a wait that ends here must do nothing. Thread:
 * control's, or the one that broke it */
static void end_waits(void *gpu)
{
	const struct tt_gpu *d = gpu;
	struct tt_dev_host_words *w = d->ipc->words;

	__atomic_store_n(&w->report.abort, 1, __ATOMIC_RELEASE);
	for (int i = 0; i < TT_DEV_STREAM_WORDS; i++)
		__atomic_store_n(&w->stream[i].ended, 1, __ATOMIC_RELEASE);
}

static const struct tt_control_observer observer = { .broken = end_waits };

static void fail_broken(tuttiComm_t c)
{
	int culprit, code = tt_control_broken(c->ctl);

	tt_fail(code, "rank %d: %s", c->rank, tt_control_text(c->ctl, &culprit));
	tt_comm_failed(c, code);
}

static void give_up(tuttiComm_t c, int code, int culprit)
{
	tt_control_raise(c->ctl, code, culprit, tt_error_text());
	tt_comm_failed(c, code);
}

/* rank: the missing rank according to the kernel's report, -1: unknown */
static void late(struct tt_gpu *d, int rank)
{
	struct tt_blocked stuck = { .awaited = rank };
	tuttiComm_t c = d->comm;
	char missing[600] = "";
	uint64_t seq = atomic_load(&d->newest_seq);
	int first = tt_control_missing(c->ctl, seq, &stuck, missing, sizeof(missing));

	if (tt_control_broken(c->ctl))
		return; /* another rank has reported the cause */
	if (!missing[0] && rank >= 0)
		snprintf(missing, sizeof(missing), "rank %d did not make this call", rank);
	tt_fail(TT_TIMEOUT,
		"rank %d: operation %llu, on device %d, timed out after %u ms without progress: %s",
		c->rank, (unsigned long long)seq, d->device, c->settings.timeout_ms,
		missing[0] ? missing : "the other ranks have made the call as well");
	give_up(c, TT_TIMEOUT, first >= 0 ? first : rank);
}

/* A peer's record had the signature of another call. */
static void other_call(struct tt_gpu *d)
{
	const struct tt_dev_report *r = &d->ipc->words->report;
	tuttiComm_t c = d->comm;
	struct tt_call theirs;
	char text[160];

	memcpy(&theirs, r->call, sizeof(theirs));
	tt_call_text(&theirs, atomic_load(&d->newest_seq), text, sizeof(text));
	tt_fail(TT_USAGE, "rank %d: rank %u made a different call on device memory: %s", c->rank,
		r->rank, text);
	give_up(c, TT_USAGE, (int)r->rank);
}

static void device_failed(struct tt_gpu *d, int failure)
{
	tuttiComm_t c = d->comm;

	give_up(c,
		tt_cuda_fail(failure, "rank %d: operation %llu, on device %d", c->rank,
			     (unsigned long long)atomic_load(&d->newest_seq), d->device),
		c->rank);
}

/* Breaks the communicator for a failure that a kernel reported. */
static void take_report(struct tt_gpu *d)
{
	const struct tt_dev_report *r = &d->ipc->words->report;

	if (word(&r->what) == TT_DEV_OTHER_CALL)
		other_call(d);
	else if (word(&r->what) == TT_DEV_LATE)
		late(d, (int)r->rank);
}

void tt_gpu_take_report(tuttiComm_t c)
{
	if (c->gpu && c->gpu->kernels && !tt_control_broken(c->ctl))
		take_report(c->gpu);
}

/* newest: the sequence number of the newest call when the device was asked */
static void check(struct watchdog *w, uint64_t newest, bool busy, int failure)
{
	struct tt_gpu *d = w->d;
	tuttiComm_t c = d->comm;
	const struct tt_dev_report *r = &d->ipc->words->report;
	uint64_t now = tt_now_ns(), progress = (uint64_t)word(&r->begun) + word(&r->ended) + newest;
	/* kernels time out first, since their reports name the missing rank */
	uint64_t limit_ms = (uint64_t)c->settings.timeout_ms + (d->kernels_wait ? ASK_MS : 0);
	struct tt_blocked stuck = { .awaited = -1 };

	if (progress != w->progress || !busy) {
		w->progress = progress;
		w->since_ns = now;
	}
	if (!busy)
		tt_control_done(c->ctl, newest);
	else if (now - w->since_ns > ASK_MS * 1000000ull)
		tt_control_waiting(c->ctl, &stuck);
	if (tt_control_broken(c->ctl))
		fail_broken(c);
	else if (failure)
		device_failed(d, failure);
	else if (word(&r->what) != TT_DEV_FINE)
		take_report(d);
	else if (word(&r->begun) != word(&r->ended) && now - w->since_ns > limit_ms * 1000000)
		late(d, -1);
}

static void pause_for(struct tt_gpu *d, int ms)
{
	uint64_t until_ns = tt_now_ns() + (uint64_t)ms * 1000000;
	struct timespec until = { .tv_sec = (time_t)(until_ns / 1000000000),
				  .tv_nsec = (long)(until_ns % 1000000000) };

	pthread_cond_timedwait(&d->work, &d->lock, &until);
}

/* Prepares the thread. Its creator waits for the result. */
static bool is_ready(struct tt_gpu *d)
{
	int relaxed = TT_CU_CAPTURE_RELAXED, rc;

	/* in a stricter mode a query of this thread could invalidate a capture by the program */
	if (!(rc = d->cu->capture_mode(&relaxed)))
		rc = d->cu->ctx_set(d->ctx);
	pthread_mutex_lock(&d->lock);
	d->started = true;
	d->start_code = rc;
	pthread_cond_signal(&d->work);
	pthread_mutex_unlock(&d->lock);
	return !rc;
}

static void *watch(void *arg)
{
	struct tt_gpu *d = arg;
	struct watchdog w = { .d = d, .since_ns = tt_now_ns() };
	uint64_t done = 0;
	int failure;
	bool busy;

	if (!is_ready(d))
		return NULL;
	pthread_mutex_lock(&d->lock);
	while (!d->stop) {
		uint64_t newest = atomic_load(&d->newest_seq);

		if (newest == done && !atomic_load(&d->has_graphs)) {
			d->asleep = true;
			pthread_cond_wait(&d->work, &d->lock);
			d->asleep = false;
			w.since_ns = tt_now_ns();
			continue;
		}
		pthread_mutex_unlock(&d->lock);
		busy = is_busy(d, &failure);
		check(&w, newest, busy, failure);
		if (!busy)
			done = newest;
		pthread_mutex_lock(&d->lock);
		if (!d->stop)
			pause_for(d, busy ? POLL_MS : POLL_GRAPHS_MS);
	}
	pthread_mutex_unlock(&d->lock);
	return NULL;
}

/* Without the thread no death would be noticed, so a failure to start it fails the join. */
int tt_gpu_watch(struct tt_gpu *d)
{
	int rc = tt_thread_start(&d->thread, "tutti-gpu", watch, d);

	d->watched = !rc;
	if (!rc)
		tt_control_observe(d->comm->ctl, &observer, d);
	if (rc)
		return tt_fail(TT_SYSTEM, "rank %d: no thread to watch the device: %s",
			       d->comm->rank, strerror(rc));
	pthread_mutex_lock(&d->lock);
	while (!d->started)
		pthread_cond_wait(&d->work, &d->lock);
	rc = d->start_code;
	pthread_mutex_unlock(&d->lock);
	return rc ? tt_cuda_fail(rc,
				 "rank %d: the context of device %d for the thread that watches it",
				 d->comm->rank, d->device)
		  : 0;
}

void tt_gpu_unwatch(struct tt_gpu *d)
{
	if (!d->watched)
		return;
	pthread_mutex_lock(&d->lock);
	d->stop = true;
	pthread_cond_signal(&d->work);
	pthread_mutex_unlock(&d->lock);
	pthread_join(d->thread, NULL);
	tt_control_unobserve(d->comm->ctl, &observer, d);
}

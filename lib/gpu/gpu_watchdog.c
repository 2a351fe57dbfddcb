/*
 * gpu_watchdog.c - a thread that watches over what a rank's GPU was given
 *
 * Nothing on a GPU can ask for a missing rank or hear that one died, so this thread does: it sleeps
 * while nothing is under way, else looks every few milliseconds.
 *
 *   a kernel gave up (its report says so), streams stand still for the time-out, or the device
 *   failed, after which nothing that was given to it ever comes to an end:
 *           the communicator's error
 *   the communicator is broken:
 *           all waiting on the GPU is ended, kernels by the abort word, streams by writing what
 *           they wait for; the results are worthless then, but everything comes to an end
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "comm/comm.h"
#include "gpu/gpu.h"

#define LOOK_MS 5
#define LOOK_GRAPHS_MS 20                /* replays are not announced */
#define ASK_MS 500
#define MOST_OPS 32                      /* that are put on a stream as one */

struct watch {
	struct tt_gpu *d;
	tt_custream rescue;
	uint64_t progress, since_ns;
};

static uint32_t word(const uint32_t *at)
{
	return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

/* *ret_trouble: what the driver says of a device that failed, and from then on of everything */
static bool is_busy(struct tt_gpu *d, int *ret_trouble)
{
	const struct tt_dev_report *r = d->area->report;
	int rc = atomic_load(&d->given) ? d->cu->event_query(d->last) : 0;

	/* at the end of the program the driver goes before this thread does */
	*ret_trouble = rc == TT_CU_NOT_READY || rc == TT_CU_ENDED ? 0 : rc;
	return rc || word(&r->begun) != word(&r->ended) || atomic_load(&d->enters);
}

/* One into every word that this rank's streams may wait for, as their peers write it: a copy could
 * tear a word that is looked at, and would wait where the program's copies do. */
static void let_streams_go(struct watch *w)
{
	struct tt_cumemop op[MOST_OPS];
	struct tt_gpu *d = w->d;
	unsigned n = 0;

	_Static_assert(offsetof(struct tt_dev_signals, told) ==
			       offsetof(struct tt_dev_signals, arrived) + 12 * TT_DEV_RANKS,
		       "the four lie in a row");
	for (uint32_t i = 0; i < 3 * TT_DEV_RANKS + TT_DEV_WORDS; i++) {
		op[n++] = (struct tt_cumemop){
			.operation = TT_CU_WRITE_32,
			.address = d->area->at + offsetof(struct tt_dev_signals, arrived) + 4 * i,
			.value = 1
		};
		if (n == MOST_OPS) {
			d->cu->stream_batch(w->rescue, n, op, 0);
			n = 0;
		}
	}
	if (n)
		d->cu->stream_batch(w->rescue, n, op, 0);
	d->cu->stream_synchronize(w->rescue);
}

static void end_all(struct watch *w)
{
	struct tt_gpu *d = w->d;
	tuttiComm_t c = d->comm;
	int culprit, code = tt_control_broken(c->ctl);

	tt_fail(code, "rank %d: %s", c->rank, tt_control_text(c->ctl, &culprit));
	tt_comm_failed(c, code);
	__atomic_store_n(&d->area->report->abort, 1, __ATOMIC_RELEASE);
	let_streams_go(w);
}

static void give_up(tuttiComm_t c, int code, int culprit)
{
	tt_control_raise(c->ctl, code, culprit, tt_error_text());
	tt_comm_failed(c, code);
}

/* rank: who is missing as the GPU sees it, -1: it does not know. */
static void late(struct tt_gpu *d, int rank)
{
	struct tt_blocked stuck = { .awaited = rank };
	tuttiComm_t c = d->comm;
	char missing[600] = "";
	uint64_t seq = atomic_load(&d->given);
	int first = tt_control_missing(c->ctl, seq, &stuck, missing, sizeof(missing));

	if (tt_control_broken(c->ctl))
		return;                                /* another rank was first, and knew better */
	if (!missing[0] && rank >= 0)
		snprintf(missing, sizeof(missing), "rank %d did not come to it", rank);
	tt_fail(TT_TIMEOUT,
		"rank %d: operation %llu, on device %d, timed out after %u ms without progress: %s",
		c->rank, (unsigned long long)seq, d->device, c->timeout_ms,
		missing[0] ? missing : "the others are in it as well");
	give_up(c, TT_TIMEOUT, first >= 0 ? first : rank);
}

/* Another call's card lay where this call's was due. */
static void other_call(struct tt_gpu *d)
{
	const struct tt_dev_report *r = d->area->report;
	tuttiComm_t c = d->comm;
	struct tt_call theirs;
	char text[160];

	memcpy(&theirs, r->call, sizeof(theirs));
	tt_call_text(&theirs, atomic_load(&d->given), text, sizeof(text));
	tt_fail(TT_USAGE, "rank %d: rank %u made a different call on device memory: %s", c->rank,
		r->rank, text);
	give_up(c, TT_USAGE, (int)r->rank);
}

static void device_failed(struct tt_gpu *d, int trouble)
{
	tuttiComm_t c = d->comm;

	give_up(c, tt_cuda_fail(trouble, "rank %d: operation %llu, on device %d", c->rank,
				(unsigned long long)atomic_load(&d->given), d->device), c->rank);
}

/* given: when it was asked whether the device is busy */
static void look(struct watch *w, uint64_t given, bool busy, int trouble)
{
	struct tt_gpu *d = w->d;
	tuttiComm_t c = d->comm;
	const struct tt_dev_report *r = d->area->report;
	uint64_t now = tt_now_ns(), progress = (uint64_t)word(&r->begun) + word(&r->ended) + given;
	/* kernels know better who is missing */
	uint64_t limit_ms = (uint64_t)c->timeout_ms + (d->meets ? ASK_MS : 0);
	struct tt_blocked stuck = { .awaited = -1 };

	if (progress != w->progress || !busy) {
		w->progress = progress;
		w->since_ns = now;
	}
	if (!busy)
		tt_control_done(c->ctl, given);
	else if (now - w->since_ns > ASK_MS * 1000000ull)
		tt_control_waiting(c->ctl, &stuck);
	if (tt_control_broken(c->ctl))
		end_all(w);
	else if (trouble)
		device_failed(d, trouble);
	else if (word(&r->what) == TT_DEV_OTHER_CALL)
		other_call(d);
	else if (word(&r->what) == TT_DEV_LATE)
		late(d, (int)r->rank);
	else if (word(&r->begun) != word(&r->ended) && now - w->since_ns > limit_ms * 1000000)
		late(d, -1);
}

static void pause_for(struct tt_gpu *d, int ms)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_nsec += ms * 1000000l;
	if (t.tv_nsec >= 1000000000l) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000l;
	}
	pthread_cond_timedwait(&d->work, &d->lock, &t);
}

/* What the thread needs. Whoever made it waits for the answer. */
static bool is_ready(struct watch *w)
{
	struct tt_gpu *d = w->d;
	int relaxed = TT_CU_CAPTURE_RELAXED, rc;

	/* else a question of ours could spoil a capture of the program's */
	if (!(rc = d->cu->capture_mode(&relaxed)) && !(rc = d->cu->ctx_set(d->ctx)))
		rc = tt_gpu_stream_before(d->cu, &w->rescue);
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
	struct watch w = { .d = d, .since_ns = tt_now_ns() };
	uint64_t done = 0;
	int trouble;
	bool busy;

	if (!is_ready(&w))
		return NULL;
	pthread_mutex_lock(&d->lock);
	while (!d->stop) {
		uint64_t given = atomic_load(&d->given);

		if (given == done && !atomic_load(&d->captured)) {
			pthread_cond_wait(&d->work, &d->lock);
			w.since_ns = tt_now_ns();
			continue;
		}
		pthread_mutex_unlock(&d->lock);
		busy = is_busy(d, &trouble);
		look(&w, given, busy, trouble);
		if (!busy)
			done = given;
		pthread_mutex_lock(&d->lock);
		if (!d->stop)
			pause_for(d, busy ? LOOK_MS : LOOK_GRAPHS_MS);
	}
	pthread_mutex_unlock(&d->lock);
	d->cu->stream_destroy(w.rescue);
	return NULL;
}

/* Without it nobody would hear of a death: no kernels then, but an error. */
int tt_gpu_watch(struct tt_gpu *d)
{
	sigset_t all, old;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&d->thread, NULL, watch, d);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	d->watched = !rc;
	if (rc)
		return tt_fail(TT_SYSTEM, "rank %d: no thread to watch the device: %s",
			       d->comm->rank, strerror(rc));
	pthread_mutex_lock(&d->lock);
	while (!d->started)
		pthread_cond_wait(&d->work, &d->lock);
	rc = d->start_code;
	pthread_mutex_unlock(&d->lock);
	return rc ? tt_cuda_fail(rc, "rank %d: a stream for the thread that watches device %d",
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
}

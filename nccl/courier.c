/*
 * courier.c - a thread a communicator that carries out calls on device memory, once their inputs have come to the host
 *
 * Called by staged.c (push), by CUDA's streams (arrived, passed) and by comms.c (drain, stop). It makes no CUDA call: a
 * stream waits for a word in pinned memory, which is stored here. Whatever happens, also after an abort, the word is
 * stored, so that no stream waits for ever.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "nccl/staged.h"

struct nc_courier {
	tuttiComm_t tutti;
	pthread_t thread;
	pthread_mutex_t lock;                  /* guards everything below */
	pthread_cond_t changed;
	struct nc_batch *first, **last;
	bool busy, stop, aborted;
	int users;                             /* its communicator, and each batch */
};

static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;     /* guards comm->courier; taken before a courier's lock */

static void leave(struct nc_courier *k)
{
	bool last;

	pthread_mutex_lock(&k->lock);
	last = !--k->users;
	pthread_mutex_unlock(&k->lock);
	if (!last)
		return;
	pthread_mutex_destroy(&k->lock);
	pthread_cond_destroy(&k->changed);
	free(k);
}

void nc_batch_release(struct nc_batch *b)
{
	struct nc_courier *k = b->courier;

	if (atomic_fetch_sub(&b->holders, 1) > 1)
		return;
	nc_piece_give(b->piece);
	free(b->ops);
	free(b->requests);
	free(b);
	leave(k);
}

void nc_batch_arrived(void *batch)
{
	struct nc_batch *b = batch;
	struct nc_courier *k = b->courier;

	pthread_mutex_lock(&k->lock);
	if (atomic_fetch_sub(&b->unready, 1) == 1)
		pthread_cond_broadcast(&k->changed);
	pthread_mutex_unlock(&k->lock);
}

void nc_batch_passed(void *batch)
{
	nc_batch_release(batch);
}

/* What CUDA refused here, the other ranks learn as this rank's failure. */
static void carry_out(struct nc_courier *k, struct nc_batch *b)
{
	if (atomic_load(&b->failed)) {
		if (!tt_comm_enter(k->tutti)) {
			tt_control_raise(k->tutti->ctl, TT_REMOTE, k->tutti->rank, "CUDA refused a call of this rank");
			tt_comm_leave(k->tutti);
		}
		return;
	}
	if (tt_comm_enter(k->tutti))
		return;
	tt_run_in_turn(b->requests, b->n);     /* a failure breaks the communicator, which tells it to whoever asks */
	tt_comm_leave(k->tutti);
}

static void *work(void *arg)
{
	struct nc_courier *k = arg;
	struct nc_batch *b;
	bool aborted;

	pthread_mutex_lock(&k->lock);
	for (;;) {
		while (!(k->first ? k->aborted || !atomic_load(&k->first->unready) : k->stop))
			pthread_cond_wait(&k->changed, &k->lock);
		b = k->first;
		if (!b)
			break;
		k->first = b->next;
		if (!k->first)
			k->last = &k->first;
		k->busy = true;
		aborted = k->aborted;
		pthread_mutex_unlock(&k->lock);
		if (!aborted)
			carry_out(k, b);
		atomic_store(b->piece->word, b->value);
		nc_batch_release(b);
		pthread_mutex_lock(&k->lock);
		k->busy = false;
		pthread_cond_broadcast(&k->changed);
	}
	pthread_mutex_unlock(&k->lock);
	return NULL;
}

static int start(tuttiComm_t tutti, struct nc_courier **ret_courier)
{
	struct nc_courier *k = calloc(1, sizeof(*k));
	sigset_t all, old;
	int failed;

	if (!k)
		return tt_fail(TT_SYSTEM, "no memory for calls on device memory");
	k->tutti = tutti;
	k->last = &k->first;
	k->users = 1;
	pthread_mutex_init(&k->lock, NULL);
	pthread_cond_init(&k->changed, NULL);
	sigfillset(&all);                      /* signals are the program's business, not this thread's */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	failed = pthread_create(&k->thread, NULL, work, k);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (failed) {
		leave(k);
		return tt_fail(TT_SYSTEM, "no thread for calls on device memory: %s", strerror(failed));
	}
	*ret_courier = k;
	return 0;
}

/* Counts the caller as a user, so that the courier outlives an abort by another thread meanwhile. */
int nc_courier_of(ncclComm_t c, tuttiComm_t tutti, struct nc_courier **ret_courier)
{
	struct nc_courier *k;
	int rc = 0;

	pthread_mutex_lock(&making);
	k = c->courier;
	if (atomic_load(&c->magic) != NC_MAGIC)
		rc = tt_fail(TT_ARG, "the communicator was aborted meanwhile");
	else if (!k && !(rc = start(tutti, &k)))
		c->courier = k;
	if (!rc) {
		pthread_mutex_lock(&k->lock);
		k->users++;
		pthread_mutex_unlock(&k->lock);
		*ret_courier = k;
	}
	pthread_mutex_unlock(&making);
	return rc;
}

/* The batch takes over its maker's use of the courier. */
void nc_courier_push(struct nc_courier *k, struct nc_batch *b)
{
	bool gone;

	b->courier = k;
	pthread_mutex_lock(&k->lock);
	gone = k->stop;
	if (!gone) {
		*k->last = b;
		k->last = &b->next;
		pthread_cond_broadcast(&k->changed);
	}
	pthread_mutex_unlock(&k->lock);
	if (gone) {
		atomic_store(b->piece->word, b->value);
		nc_batch_release(b);
	}
}

static struct nc_courier *look(ncclComm_t c, bool take)
{
	struct nc_courier *k;

	pthread_mutex_lock(&making);
	k = c->courier;
	if (take)
		c->courier = NULL;
	else if (k) {
		pthread_mutex_lock(&k->lock);
		k->users++;
		pthread_mutex_unlock(&k->lock);
	}
	pthread_mutex_unlock(&making);
	return k;
}

void nc_courier_drain(ncclComm_t c)
{
	struct nc_courier *k = look(c, false);

	if (!k)
		return;
	pthread_mutex_lock(&k->lock);
	while ((k->first || k->busy) && !k->aborted)
		pthread_cond_wait(&k->changed, &k->lock);
	pthread_mutex_unlock(&k->lock);
	leave(k);
}

void nc_courier_abort(ncclComm_t c)
{
	struct nc_courier *k = look(c, false);

	if (!k)
		return;
	pthread_mutex_lock(&k->lock);
	k->aborted = true;
	pthread_cond_broadcast(&k->changed);
	pthread_mutex_unlock(&k->lock);
	leave(k);
}

void nc_courier_stop(ncclComm_t c)
{
	struct nc_courier *k = look(c, true);

	if (!k)
		return;
	pthread_mutex_lock(&k->lock);
	k->stop = true;
	pthread_cond_broadcast(&k->changed);
	pthread_mutex_unlock(&k->lock);
	pthread_join(k->thread, NULL);
	leave(k);
}

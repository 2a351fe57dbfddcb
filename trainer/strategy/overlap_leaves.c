/* overlap_leaves.c - sums over leaves behind the backward pass (overlap_leaves.h) */
#include "trainer/strategy/overlap_leaves.h"

#include "trainer/strategy/gradient_sum.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct tt_behind {
	struct tt_trainer *t;
	pthread_t thread;
	bool threaded;
	/* guards what follows; of the rest the thread has its turn in a step */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	size_t given, summed; /* from there on: final, and the total */
	bool stop;
	int rc;               /* of this step */
	uint64_t first_ns;    /* when its first sum was begun */
	size_t about, bucket; /* floats; as asked, and a multiple of the ranks */
	int ranks;            /* that pile has room for */
	struct tt_pile pile;
};

/* Where the next bucket begins: below `end`, unless that is 0. */
static size_t next_bucket(const struct tt_behind *b, size_t end)
{
	return end > b->bucket ? end - b->bucket : 0;
}

static bool has_work(const struct tt_behind *b)
{
	return !b->rc && b->summed && next_bucket(b, b->summed) >= b->given;
}

static void *work(void *arg)
{
	struct tt_behind *b = arg;

	pthread_mutex_lock(&b->lock);
	while (!b->stop) {
		size_t first = next_bucket(b, b->summed), count = b->summed - first;
		int rc;

		if (!has_work(b)) {
			pthread_cond_wait(&b->changed, &b->lock);
			continue;
		}
		if (b->summed == b->t->sum.stride)
			b->first_ns = tt_time_ns();
		pthread_mutex_unlock(&b->lock);
		rc = tt_total_part(b->t, &b->pile, first, count);
		pthread_mutex_lock(&b->lock);
		b->summed = first;
		b->rc = rc;
		pthread_cond_broadcast(&b->changed);
	}
	pthread_mutex_unlock(&b->lock);
	return NULL;
}

int tt_behind_open(struct tt_trainer *t, size_t bucket, struct tt_behind **ret_behind)
{
	struct tt_behind *b = calloc(1, sizeof(*b));
	sigset_t all, before;
	int rc;

	if (!b)
		return tt_train_fail(TT_TRAIN_FAILED, "no memory for a thread");
	*ret_behind = b;
	b->t = t;
	b->about = bucket;
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->changed, NULL);
	if (tt_wire_apart(t)) /* whose additions all come from one thread */
		return TT_TRAIN_OK;
	sigfillset(&all); /* signals are the main thread's */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&b->thread, NULL, work, b);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	b->threaded = !rc;
	if (rc)
		return tt_train_fail(TT_TRAIN_FAILED, "no thread to add up gradients: %s",
				     strerror(rc));
	return TT_TRAIN_OK;
}

void tt_behind_close(struct tt_behind *b)
{
	if (!b)
		return;
	pthread_mutex_lock(&b->lock);
	b->stop = true;
	pthread_cond_broadcast(&b->changed);
	pthread_mutex_unlock(&b->lock);
	if (b->threaded)
		pthread_join(b->thread, NULL);
	tt_pile_close(&b->pile);
	pthread_cond_destroy(&b->changed);
	pthread_mutex_destroy(&b->lock);
	free(b);
}

/* Every rank adds up an equal part of each bucket. */
static int make_room(struct tt_behind *b)
{
	size_t ranks = (size_t)b->t->nranks;

	if (b->ranks == b->t->nranks)
		return TT_TRAIN_OK;
	tt_pile_close(&b->pile);
	b->ranks = b->t->nranks;
	b->bucket = (b->about + ranks - 1) / ranks * ranks;
	if (b->bucket > b->t->sum.stride)
		b->bucket = b->t->sum.stride;
	return tt_pile_open(b->t, &b->pile, b->bucket / ranks);
}

int tt_behind_begin(struct tt_behind *b)
{
	int rc;

	pthread_mutex_lock(&b->lock);
	rc = make_room(b);
	b->given = b->summed = b->t->sum.stride;
	b->rc = rc;
	pthread_mutex_unlock(&b->lock);
	return rc;
}

int tt_behind_tell(void *behind, size_t from)
{
	struct tt_behind *b = behind;

	pthread_mutex_lock(&b->lock);
	b->given = from;
	if (has_work(b))
		pthread_cond_broadcast(&b->changed);
	pthread_mutex_unlock(&b->lock);
	return TT_TRAIN_OK;
}

/* Without a thread. */
static int sum_here(struct tt_behind *b)
{
	uint64_t waits = tt_time_ns();
	int rc = b->rc;

	while (b->summed && !rc) {
		size_t first = next_bucket(b, b->summed);

		rc = tt_total_part(b->t, &b->pile, first, b->summed - first);
		b->summed = first;
	}
	tt_exposed(b->t, waits);
	return rc;
}

int tt_behind_wait(struct tt_behind *b)
{
	uint64_t waits = tt_time_ns();
	int rc;

	if (!b->threaded)
		return sum_here(b);
	tt_behind_tell(b, 0);
	pthread_mutex_lock(&b->lock);
	while (b->summed && !b->rc)
		pthread_cond_wait(&b->changed, &b->lock);
	rc = b->rc;
	if (b->first_ns < waits)
		tt_timeline_add(&b->t->timeline, TT_TIME_HIDDEN, b->t->step, b->first_ns, waits);
	pthread_mutex_unlock(&b->lock);
	tt_exposed(b->t, waits);
	return rc;
}

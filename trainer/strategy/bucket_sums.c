/* bucket_sums.c - sums over leaves per gradient bucket, overlapped with the backward pass
 * (bucket_sums.h) */
#include "trainer/strategy/bucket_sums.h"

#include "base/thread.h"
#include "trainer/strategy/gradient_sum.h"

#include <stdlib.h>
#include <string.h>

struct train_buckets {
	struct train_rank *t;
	pthread_t thread;
	bool threaded;
	/* guards the members below; during a step the thread alone uses t->comm and partials */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	size_t ready, summed; /* gradients from here on are final; are summed */
	bool stop;
	int rc;                   /* result of this step */
	uint64_t first_ns;        /* start of this step's first sum */
	size_t requested, bucket; /* floats; bucket: a multiple of the ranks */
	int ranks;                /* ranks that partials was allocated for */
	struct train_partials partials;
};

/* The begin of the bucket that ends at `end`. */
static size_t next_bucket(const struct train_buckets *b, size_t end)
{
	return end > b->bucket ? end - b->bucket : 0;
}

static bool has_work(const struct train_buckets *b)
{
	return !b->rc && b->summed && next_bucket(b, b->summed) >= b->ready;
}

static void *sum_buckets(void *arg)
{
	struct train_buckets *b = arg;

	pthread_mutex_lock(&b->lock);
	while (!b->stop) {
		size_t first = next_bucket(b, b->summed), count = b->summed - first;
		int rc;

		if (!has_work(b)) {
			pthread_cond_wait(&b->changed, &b->lock);
			continue;
		}
		if (b->summed == b->t->sum.stride)
			b->first_ns = train_time_ns();
		pthread_mutex_unlock(&b->lock);
		rc = train_sum_bucket(b->t, &b->partials, first, count);
		pthread_mutex_lock(&b->lock);
		b->summed = first;
		b->rc = rc;
		pthread_cond_broadcast(&b->changed);
	}
	pthread_mutex_unlock(&b->lock);
	return NULL;
}

int train_buckets_open(struct train_rank *t, size_t bucket, struct train_buckets **ret_buckets)
{
	struct train_buckets *b = calloc(1, sizeof(*b));
	int rc;

	if (!b)
		return train_fail(TRAIN_FAILED, "no memory for a thread");
	*ret_buckets = b;
	b->t = t;
	b->requested = bucket;
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->changed, NULL);
	if (train_comm_on_device(t)) /* device operations must come from one thread */
		return TRAIN_OK;
	rc = tt_thread_start(&b->thread, "train-sums", sum_buckets, b);
	b->threaded = !rc;
	if (rc)
		return train_fail(TRAIN_FAILED, "cannot create a thread to sum gradients: %s",
				  strerror(rc));
	return TRAIN_OK;
}

void train_buckets_close(struct train_buckets *b)
{
	if (!b)
		return;
	pthread_mutex_lock(&b->lock);
	b->stop = true;
	pthread_cond_broadcast(&b->changed);
	pthread_mutex_unlock(&b->lock);
	if (b->threaded)
		pthread_join(b->thread, NULL);
	train_partials_close(&b->partials);
	pthread_cond_destroy(&b->changed);
	pthread_mutex_destroy(&b->lock);
	free(b);
}

/* Adapts bucket and partials to the number of ranks; every rank sums an equal part of a bucket. */
static int resize(struct train_buckets *b)
{
	size_t ranks = (size_t)b->t->nranks;

	if (b->ranks == b->t->nranks)
		return TRAIN_OK;
	train_partials_close(&b->partials);
	b->ranks = b->t->nranks;
	b->bucket = (b->requested + ranks - 1) / ranks * ranks;
	if (b->bucket > b->t->sum.stride)
		b->bucket = b->t->sum.stride;
	return train_partials_open(b->t, &b->partials, b->bucket / ranks);
}

int train_buckets_begin(struct train_buckets *b)
{
	int rc;

	pthread_mutex_lock(&b->lock);
	rc = resize(b);
	b->ready = b->summed = b->t->sum.stride;
	b->rc = rc;
	pthread_mutex_unlock(&b->lock);
	return rc;
}

int train_buckets_ready(void *buckets, size_t from)
{
	struct train_buckets *b = buckets;

	pthread_mutex_lock(&b->lock);
	b->ready = from;
	if (has_work(b))
		pthread_cond_broadcast(&b->changed);
	pthread_mutex_unlock(&b->lock);
	return TRAIN_OK;
}

/* Sums all buckets without a thread. */
static int sum_all(struct train_buckets *b)
{
	uint64_t wait_begin = train_time_ns();
	int rc = b->rc;

	while (b->summed && !rc) {
		size_t first = next_bucket(b, b->summed);

		rc = train_sum_bucket(b->t, &b->partials, first, b->summed - first);
		b->summed = first;
	}
	train_add_exposed(b->t, wait_begin);
	return rc;
}

int train_buckets_wait(struct train_buckets *b)
{
	uint64_t wait_begin = train_time_ns();
	int rc;

	if (!b->threaded)
		return sum_all(b);
	train_buckets_ready(b, 0);
	pthread_mutex_lock(&b->lock);
	while (b->summed && !b->rc)
		pthread_cond_wait(&b->changed, &b->lock);
	rc = b->rc;
	if (b->first_ns < wait_begin)
		train_timeline_add(&b->t->timeline, TRAIN_TIME_HIDDEN, b->t->step, b->first_ns,
				   wait_begin);
	pthread_mutex_unlock(&b->lock);
	train_add_exposed(b->t, wait_begin);
	return rc;
}

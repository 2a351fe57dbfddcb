/* bucket_sums.c - sums per gradient bucket, overlapped with the backward pass
 * (bucket_sums.h) */
#include "trainer/strategy/bucket_sums.h"

#include "base/thread.h"
#include "trainer/strategy/gradient_sum.h"
#include "trainer/strategy/sparse_rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The time of a bucket's sum. */
struct bucket_span {
	uint64_t begin_ns, end_ns;
};

struct train_buckets {
	struct train_rank *t;
	pthread_t thread;
	bool threaded;
	/* guards the members below; during a step the thread alone uses t->comm and partials */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	size_t ready, summed; /* gradients from here on are final; are summed */
	bool stop;
	int rc;                        /* result of this step */
	char error[TRAIN_ERROR_BYTES]; /* its text */
	struct bucket_span *span;      /* of this step's sums */
	size_t spans, capacity;
	size_t requested, bucket; /* floats; bucket: over leaves a multiple of the ranks */
	int ranks;                /* ranks that partials was allocated for */
	struct train_partials partials;
	struct train_row_sums rows; /* of a sparse table, the last bucket */
};

static size_t sparse_end(const struct train_buckets *b)
{
	return b->rows.dense_at;
}

/* The begin of the bucket that ends at `end`. */
static size_t next_bucket(const struct train_buckets *b, size_t end)
{
	size_t dense = sparse_end(b);

	if (end <= dense)
		return 0;
	return end > dense + b->bucket ? end - b->bucket : dense;
}

static bool has_work(const struct train_buckets *b)
{
	return !b->rc && b->summed && next_bucket(b, b->summed) >= b->ready;
}

static bool over_leaves(const struct train_buckets *b)
{
	return b->t->leaves.kind != TRAIN_CANONICAL_OFF;
}

static int sum_bucket(struct train_buckets *b, size_t first, size_t count)
{
	struct train_rank *t = b->t;
	float *at = t->comm_buffer + first;

	if (first < sparse_end(b))
		return train_row_sums_make(t, &b->rows);
	if (over_leaves(b))
		return train_sum_bucket(t, &b->partials, first, count);
	return train_check(tuttiAllReduce(at, at, count, tuttiFloat32, tuttiSum, t->comm, NULL),
			   t->comm);
}

static void *sum_buckets(void *arg)
{
	struct train_buckets *b = arg;

	pthread_mutex_lock(&b->lock);
	while (!b->stop) {
		size_t first = next_bucket(b, b->summed), count = b->summed - first;
		uint64_t begin;
		int rc;

		if (!has_work(b)) {
			pthread_cond_wait(&b->changed, &b->lock);
			continue;
		}
		pthread_mutex_unlock(&b->lock);
		begin = train_time_ns();
		rc = sum_bucket(b, first, count);
		pthread_mutex_lock(&b->lock);
		b->span[b->spans++] = (struct bucket_span){ begin, train_time_ns() };
		b->summed = first;
		b->rc = rc;
		snprintf(b->error, sizeof(b->error), "%s", train_error());
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
	train_row_sums_close(&b->rows);
	free(b->span);
	pthread_cond_destroy(&b->changed);
	pthread_mutex_destroy(&b->lock);
	free(b);
}

/* Memory for the spans of a step of `floats` floats */
static int reserve_spans(struct train_buckets *b, size_t floats)
{
	size_t most = floats / b->bucket + 2;
	struct bucket_span *span;

	b->spans = 0;
	if (most <= b->capacity)
		return TRAIN_OK;
	span = realloc(b->span, most * sizeof(*span));
	if (!span)
		return train_fail(TRAIN_FAILED, "no memory for the times of %zu buckets", most);
	b->span = span;
	b->capacity = most;
	return TRAIN_OK;
}

/* Adapts bucket and partials to the number of ranks; over leaves every rank sums an equal part of a
 * bucket. */
static int resize(struct train_buckets *b)
{
	size_t ranks = (size_t)b->t->nranks;
	int rc;

	if (b->ranks == b->t->nranks)
		return TRAIN_OK;
	b->ranks = b->t->nranks;
	b->bucket = b->requested;
	train_row_sums_close(&b->rows);
	rc = train_row_sums_open(b->t, &b->rows);
	if (rc || !over_leaves(b))
		return rc;
	train_partials_close(&b->partials);
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
	b->ready = b->summed = over_leaves(b) ? b->t->sum.stride : b->t->floats;
	if (!rc)
		rc = reserve_spans(b, b->summed);
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
	for (size_t i = 0; i < b->spans; i++) { /* a span without time before the wait is dropped */
		uint64_t end = b->span[i].end_ns;

		train_timeline_add(&b->t->timeline, TRAIN_TIME_HIDDEN, b->t->step,
				   b->span[i].begin_ns, end < wait_begin ? end : wait_begin);
	}
	pthread_mutex_unlock(&b->lock);
	train_add_exposed(b->t, wait_begin);
	return rc ? train_fail(rc, "%s", b->error) : TRAIN_OK;
}

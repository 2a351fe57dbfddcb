/*
 * stream_set.c - a batch of requests whose streams share communicators
 *
 * Called by group.c. The batch is an item of the queue of each of its streams. The thread that arrives
 * at it last runs it, the others wait: so the batch begins behind everything before it in every
 * stream, and every stream goes on when the whole batch is complete. The caller stands for the NULL
 * stream. Two such batches have the same order in all queues, so their threads never wait for each
 * other.
 */
#include <stdio.h>
#include <string.h>

#include "run/host_stream.h"

struct stream_set;

struct set_item {
	struct tt_stream_item item;
	struct stream_set *set;
};

struct stream_set {
	pthread_mutex_t lock; /* guards everything below but the items */
	pthread_cond_t ran;
	struct tt_batch *batch;
	size_t missing; /* streams that have not arrived at the batch */
	size_t left;    /* streams that have not gone on; the last one frees the set */
	bool complete;
	int rc;
	char text[1024]; /* of rc */
	struct set_item items[];
};

static pthread_mutex_t pushing =
	PTHREAD_MUTEX_INITIALIZER; /* one set at a time enters the queues */

static void run_last(struct stream_set *s)
{
	int rc;

	pthread_mutex_unlock(&s->lock);
	rc = tt_batch_run(s->batch);
	pthread_mutex_lock(&s->lock);
	s->rc = rc;
	snprintf(s->text, sizeof(s->text), "%s", rc ? tt_error_text() : "");
	s->complete = true;
	pthread_cond_broadcast(&s->ran);
}

/* A stream arrives at the batch. Returns the batch's result when it is complete. */
static int arrive(struct tt_stream_item *item)
{
	struct stream_set *s = ((struct set_item *)item)->set;
	bool last;
	int rc;

	pthread_mutex_lock(&s->lock);
	if (--s->missing == 0)
		run_last(s);
	while (!s->complete)
		pthread_cond_wait(&s->ran, &s->lock);
	rc = s->rc ? tt_fail(s->rc, "%s", s->text) : 0;
	last = --s->left == 0;
	pthread_mutex_unlock(&s->lock);
	if (last) {
		pthread_cond_destroy(&s->ran);
		pthread_mutex_destroy(&s->lock);
		tt_pool_give(s);
	}
	return rc;
}

static bool first_of_stream(const struct tt_request *requests, size_t i)
{
	for (size_t j = 0; j < i; j++)
		if (requests[j].stream == requests[i].stream)
			return false;
	return true;
}

/* The streams of the requests. 0 | TT_ARG: one is none */
static int count_streams(const struct tt_request *requests, size_t n, size_t *ret_streams)
{
	int rc = 0;

	*ret_streams = 0;
	for (size_t i = 0; i < n && !rc; i++)
		if (first_of_stream(requests, i)) {
			++*ret_streams;
			rc = requests[i].stream ? tt_stream_check(requests[i].stream) : 0;
		}
	return rc;
}

static struct stream_set *new_set(const struct tt_request *requests, size_t n, size_t streams)
{
	struct stream_set *s = tt_pool_take(requests[0].comm,
					    sizeof(*s) + streams * sizeof(s->items[0]));

	if (!s) {
		tt_fail(TT_SYSTEM, "no memory to queue %zu operations", n);
		return NULL;
	}
	memset(s, 0, sizeof(*s));
	s->batch = tt_batch_draw(requests, n);
	if (!s->batch) {
		tt_pool_give(s);
		return NULL;
	}
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->ran, NULL);
	s->missing = s->left = streams;
	return s;
}

int tt_streams_submit(const struct tt_request *requests, size_t n)
{
	struct tt_stream_item *own = NULL;
	struct stream_set *s;
	size_t streams;
	int rc = count_streams(requests, n, &streams);

	if (rc)
		return rc;
	for (size_t i = 0; i < n; i++)
		atomic_store_explicit(&requests[i].comm->order.queued, true, memory_order_release);
	s = new_set(requests, n, streams);
	if (!s)
		return TT_SYSTEM;
	pthread_mutex_lock(&pushing);
	for (size_t i = 0, k = 0; i < n; i++)
		if (first_of_stream(requests, i)) {
			struct set_item *at = &s->items[k++];

			*at = (struct set_item){ { .run = arrive }, s };
			if (requests[i].stream)
				tt_stream_push(requests[i].stream, &at->item);
			else
				own = &at->item;
		}
	pthread_mutex_unlock(&pushing);
	return own ? arrive(own) : 0;
}

static void in_child(void)
{
	pthread_mutex_init(&pushing, NULL);
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

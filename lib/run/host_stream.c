/*
 * host_stream.c - a host stream: a queue, and the thread that runs it in order
 *
 * Called by order.c, stream_set.c and event.c (push) and api. The worker sleeps while the queue is empty. The first
 * error since the last wait is kept with its text, for the next wait or query; the first error since
 * the last mark, for the next mark.
 */
#include <stdio.h>
#include <string.h>

#include "base/thread.h"
#include "run/host_stream.h"

#define STREAM_MAGIC 0x7374726du

struct host_stream {
	uint32_t magic;
	unsigned fork_count;
	pthread_t thread;
	pthread_mutex_t lock; /* guards everything below */
	pthread_cond_t work, idle;
	struct tt_stream_item *first, **last;
	bool busy, stop;
	struct stream_error {
		int code;
		char text[1024];
	} error; /* first error since the last wait */
	/* first error since the last mark; the worker alone uses it, without the lock */
	struct stream_error mark;
};

static void keep(struct stream_error *e, int rc)
{
	if (!rc || e->code)
		return;
	e->code = rc;
	snprintf(e->text, sizeof(e->text), "%s", tt_error_text());
}

static void reach(struct host_stream *s, struct tt_stream_mark *mark)
{
	bool inner = mark->inner;

	mark->reached(mark, s->mark.code, s->mark.code ? s->mark.text : "");
	if (!inner)
		s->mark.code = 0;
}

static void run_first(struct host_stream *s)
{
	struct tt_stream_item *item = s->first;
	int rc = 0;

	s->first = item->next;
	if (!s->first)
		s->last = &s->first;
	s->busy = true;
	pthread_mutex_unlock(&s->lock);
	if (item->run)
		rc = item->run(item);
	else
		reach(s, (struct tt_stream_mark *)item);
	keep(&s->mark, rc);
	pthread_mutex_lock(&s->lock);
	s->busy = false;
	keep(&s->error, rc);
	if (!s->first)
		pthread_cond_broadcast(&s->idle);
}

static void *work(void *arg)
{
	struct host_stream *s = arg;

	pthread_mutex_lock(&s->lock);
	for (;;) {
		while (!s->first && !s->stop)
			pthread_cond_wait(&s->work, &s->lock);
		if (!s->first)
			break;
		run_first(s);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

int tt_stream_create(tuttiStream_t *ret_stream)
{
	struct host_stream *s = tt_handle_new(sizeof(*s));
	int rc;

	if (!s)
		return tt_fail(TT_SYSTEM, "no memory for a stream");
	s->magic = STREAM_MAGIC;
	s->fork_count = tt_forks;
	s->last = &s->first;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->work, NULL);
	pthread_cond_init(&s->idle, NULL);
	rc = tt_thread_start(&s->thread, "tutti-stream", work, s);
	if (rc) {
		s->magic = 0;
		tt_handle_free(s, sizeof(*s));
		return tt_fail(TT_SYSTEM, "no thread for a stream: %s", strerror(rc));
	}
	*ret_stream = s;
	return 0;
}

int tt_stream_check(tuttiStream_t stream)
{
	struct host_stream *s = stream;

	if (!tt_handle_is(s) || s->magic != STREAM_MAGIC)
		return tt_fail(TT_ARG,
			       "stream %p was not made by tuttiStreamCreate, or it was destroyed",
			       stream);
	if (s->fork_count != tt_forks)
		return tt_fail(TT_ARG,
			       "this stream was made before a fork; the child must make its own");
	return 0;
}

void tt_stream_push(tuttiStream_t stream, struct tt_stream_item *item)
{
	struct host_stream *s = stream;

	item->next = NULL;
	pthread_mutex_lock(&s->lock);
	*s->last = item;
	s->last = &item->next;
	pthread_cond_signal(&s->work);
	pthread_mutex_unlock(&s->lock);
}

void tt_stream_push_mark(tuttiStream_t stream, struct tt_stream_mark *mark)
{
	mark->item.run = NULL;
	tt_stream_push(stream, &mark->item);
}

/* The kept error; the next call returns 0. Under s->lock. */
static int take_error(struct host_stream *s)
{
	int rc = s->error.code;

	s->error.code = 0;
	return rc ? tt_fail(rc, "%s", s->error.text) : 0;
}

/* A callback that waits for its own stream would wait for itself. */
static int not_its_thread(tuttiStream_t stream)
{
	struct host_stream *s = stream;
	int rc = tt_stream_check(stream);

	if (!rc && pthread_equal(s->thread, pthread_self()))
		rc = tt_fail(TT_USAGE,
			     "a callback of stream %p waits for the stream, which waits for it",
			     stream);
	return rc;
}

int tt_stream_wait(tuttiStream_t stream)
{
	struct host_stream *s = stream;
	int rc = not_its_thread(stream);

	if (rc)
		return rc;
	pthread_mutex_lock(&s->lock);
	while (s->first || s->busy)
		pthread_cond_wait(&s->idle, &s->lock);
	rc = take_error(s);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

int tt_stream_query(tuttiStream_t stream)
{
	struct host_stream *s = stream;
	int rc = tt_stream_check(stream);

	if (rc)
		return rc;
	pthread_mutex_lock(&s->lock);
	rc = s->first || s->busy ? 1 : take_error(s);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

int tt_stream_destroy(tuttiStream_t stream)
{
	struct host_stream *s = stream;
	int rc = tt_stream_wait(stream);

	if (not_its_thread(stream))
		return rc;
	pthread_mutex_lock(&s->lock);
	s->stop = true;
	pthread_cond_signal(&s->work);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->thread, NULL);
	pthread_cond_destroy(&s->work);
	pthread_cond_destroy(&s->idle);
	pthread_mutex_destroy(&s->lock);
	s->magic = 0;
	tt_handle_free(s, sizeof(*s));
	return rc;
}

/*
 * event.c - events and callbacks: tell the program that a host stream has reached a mark
 *
 * Called by api. A mark is pushed to a stream (host_stream.c), whose thread calls event_reached or
 * callback_reached. An event counts its marks: the latest one decides its state, and a destroy
 * waits for all of them.
 */
#include <stdio.h>
#include <stdlib.h>

#include "run/host_stream.h"

#define EVENT_MAGIC 0x6576656eu

struct tuttiEvent {
	uint32_t magic;
	unsigned fork_count;
	pthread_mutex_t lock; /* guards everything below */
	pthread_cond_t reached;
	uint64_t recorded; /* number of marks pushed, and of the latest mark */
	uint64_t left;     /* number of marks that are not reached yet */
	bool complete;     /* the latest mark was reached */
	int error;         /* of the latest mark */
	char text[1024];
};

struct event_mark {
	struct tt_stream_mark mark; /* first member */
	struct tuttiEvent *event;
	uint64_t number;
};

struct callback_mark {
	struct tt_stream_mark mark; /* first member */
	tuttiCallback_t call;
	void *ctx;
};

static int check(tuttiEvent_t e)
{
	if (!tt_handle_is(e) || e->magic != EVENT_MAGIC)
		return tt_fail(TT_ARG,
			       "event %p was not made by tuttiEventCreate, or it was destroyed",
			       (void *)e);
	if (e->fork_count != tt_forks)
		return tt_fail(TT_ARG,
			       "this event was made before a fork; the child must make its own");
	return 0;
}

int tt_event_create(tuttiEvent_t *ret_event)
{
	struct tuttiEvent *e = tt_handle_new(sizeof(*e));

	if (!e)
		return tt_fail(TT_SYSTEM, "no memory for an event");
	e->magic = EVENT_MAGIC;
	e->fork_count = tt_forks;
	e->complete = true;
	pthread_mutex_init(&e->lock, NULL);
	pthread_cond_init(&e->reached, NULL);
	*ret_event = e;
	return 0;
}

static void event_reached(struct tt_stream_mark *mark, int rc, const char *text)
{
	struct event_mark *m = (struct event_mark *)mark;
	struct tuttiEvent *e = m->event;

	pthread_mutex_lock(&e->lock);
	e->left--;
	if (m->number == e->recorded) {
		e->complete = true;
		e->error = rc;
		snprintf(e->text, sizeof(e->text), "%s", text);
	}
	pthread_cond_broadcast(&e->reached);
	pthread_mutex_unlock(&e->lock);
	free(m);
}

int tt_event_record(tuttiEvent_t e, tuttiStream_t stream)
{
	struct event_mark *m;
	int rc = check(e);

	if (!rc)
		rc = tt_stream_check(stream);
	if (rc)
		return rc;
	m = malloc(sizeof(*m));
	if (!m)
		return tt_fail(TT_SYSTEM, "no memory to record an event");
	pthread_mutex_lock(&e->lock);
	*m = (struct event_mark){ { .reached = event_reached }, e, ++e->recorded };
	e->left++;
	e->complete = false;
	pthread_mutex_unlock(&e->lock);
	tt_stream_push_mark(stream, &m->mark);
	return 0;
}

/* The result of a complete event. Under e->lock. */
static int result(const struct tuttiEvent *e)
{
	return e->error ? tt_fail(e->error, "%s", e->text) : 0;
}

int tt_event_query(tuttiEvent_t e)
{
	int rc = check(e);

	if (rc)
		return rc;
	pthread_mutex_lock(&e->lock);
	rc = e->complete ? result(e) : 1;
	pthread_mutex_unlock(&e->lock);
	return rc;
}

int tt_event_wait(tuttiEvent_t e)
{
	int rc = check(e);

	if (rc)
		return rc;
	pthread_mutex_lock(&e->lock);
	while (!e->complete)
		pthread_cond_wait(&e->reached, &e->lock);
	rc = result(e);
	pthread_mutex_unlock(&e->lock);
	return rc;
}

int tt_event_destroy(tuttiEvent_t e)
{
	int rc = check(e);

	if (rc)
		return rc;
	pthread_mutex_lock(&e->lock);
	while (e->left)
		pthread_cond_wait(&e->reached, &e->lock);
	pthread_mutex_unlock(&e->lock);
	pthread_cond_destroy(&e->reached);
	pthread_mutex_destroy(&e->lock);
	e->magic = 0;
	tt_handle_free(e, sizeof(*e));
	return 0;
}

static void callback_reached(struct tt_stream_mark *mark, int rc, const char *text)
{
	struct callback_mark *m = (struct callback_mark *)mark;

	m->call(m->ctx, (tuttiResult_t)-rc, text);
	free(m);
}

int tt_stream_add_callback(tuttiStream_t stream, tuttiCallback_t call, void *ctx)
{
	struct callback_mark *m;
	int rc = tt_stream_check(stream);

	if (rc)
		return rc;
	m = malloc(sizeof(*m));
	if (!m)
		return tt_fail(TT_SYSTEM, "no memory for a callback of a stream");
	*m = (struct callback_mark){ { .reached = callback_reached }, call, ctx };
	tt_stream_push_mark(stream, &m->mark);
	return 0;
}

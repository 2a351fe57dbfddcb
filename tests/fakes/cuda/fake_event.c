/* fake_event.c - events of the fake CUDA driver: each record of an event completes on its own */
#include <stdlib.h>
#include <time.h>

#include "tests/fakes/cuda/fake_cuda.h"

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* use, leave: under fake_lock */
static struct fake_record *use(struct fake_record *r)
{
	if (r)
		r->users++;
	return r;
}

static void leave(struct fake_record *r)
{
	if (r && !--r->users)
		free(r);
}

void fake_reach(struct fake_record *r)
{
	pthread_mutex_lock(&fake_lock);
	r->done = true;
	r->at_ms = now_ms();
	pthread_cond_broadcast(&fake_changed);
	leave(r);
	pthread_mutex_unlock(&fake_lock);
}

void fake_await_record(struct fake_record *r)
{
	pthread_mutex_lock(&fake_lock);
	while (r && !r->done)
		pthread_cond_wait(&fake_changed, &fake_lock);
	leave(r);
	pthread_mutex_unlock(&fake_lock);
}

EXPORT int cuEventCreate(tt_cuevent *ret_event, unsigned flags)
{
	ENTER_CONTEXT();
	(void)flags;
	*ret_event = calloc(1, sizeof(struct event));
	fake_count(AN_EVENT, 1);
	return *ret_event ? 0 : TT_CU_NO_MEMORY;
}

EXPORT int cuEventDestroy_v2(tt_cuevent event)
{
	ENTER_CONTEXT();
	pthread_mutex_lock(&fake_lock);
	leave(((struct event *)event)->newest);
	pthread_mutex_unlock(&fake_lock);
	free(event);
	fake_count(AN_EVENT, -1);
	return 0;
}

EXPORT int cuEventRecord(tt_cuevent event, tt_custream stream)
{
	struct event *e = event;
	struct fake_stream *s = fake_stream(stream);
	struct fake_node n = { .kind = RECORD };

	ENTER_CONTEXT();
	pthread_mutex_lock(&fake_lock);
	e->graph = s->graph;
	if (!s->graph && (n.record = calloc(1, sizeof(*n.record)))) {
		leave(e->newest);
		e->newest = n.record;
		n.record->users = 2;
	}
	pthread_mutex_unlock(&fake_lock);
	return e->graph ? 0 : n.record ? fake_add(stream, &n) : TT_CU_NO_MEMORY;
}

/* Waiting for an event that was recorded in a capture adds the stream to the capture. */
EXPORT int cuStreamWaitEvent(tt_custream stream, tt_cuevent event, unsigned flags)
{
	struct event *e = event;
	struct fake_stream *s = fake_stream(stream);
	struct fake_node n = { .kind = WAIT_EVENT };
	bool foreign;

	ENTER_CONTEXT();
	(void)flags;
	pthread_mutex_lock(&fake_lock);
	foreign = s->graph && !e->graph && e->newest;
	if (e->graph)
		s->graph = e->graph;
	if (!s->graph)
		n.record = use(e->newest);
	pthread_mutex_unlock(&fake_lock);
	if (foreign)
		return 905; /* CUDA_ERROR_STREAM_CAPTURE_ISOLATION */
	return s->graph ? 0 : fake_add(stream, &n);
}

EXPORT int cuEventQuery(tt_cuevent event)
{
	struct event *e = event;
	bool done, captured;

	ENTER_FREELY();
	pthread_mutex_lock(&fake_lock);
	captured = e->graph != NULL;
	done = !e->newest || e->newest->done;
	pthread_mutex_unlock(&fake_lock);
	return captured ? 900 : done ? 0 : TT_CU_NOT_READY;
}

EXPORT int cuEventSynchronize(tt_cuevent event)
{
	struct fake_record *newest;

	ENTER_FREELY();
	pthread_mutex_lock(&fake_lock);
	newest = use(((struct event *)event)->newest);
	pthread_mutex_unlock(&fake_lock);
	fake_await_record(newest);
	return fake_dead();
}

EXPORT int cuEventElapsedTime(float *ret_ms, tt_cuevent from, tt_cuevent to)
{
	const struct event *first = from, *last = to;

	ENTER_CONTEXT();
	if (!first->newest || !last->newest)
		return TT_CU_BAD_HANDLE;
	*ret_ms = (float)(last->newest->at_ms - first->newest->at_ms);
	return 0;
}

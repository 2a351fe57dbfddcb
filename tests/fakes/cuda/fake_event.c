/* fake_event.c - events of the fake CUDA driver: the numbers of the newest record enqueued and
 * completed */
#include <stdlib.h>
#include <time.h>

#include "tests/fakes/cuda/fake_cuda.h"

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* As CUDA's, an event lives until it is destroyed and no stream has an operation with it. Under fake_lock. */
static void release(struct event *e)
{
	if (e->destroyed && !e->operations)
		free(e);
}

void fake_reach(struct event *e, uint64_t number)
{
	pthread_mutex_lock(&fake_lock);
	if (e->done < number)
		e->done = number;
	e->at_ms = now_ms();
	pthread_cond_broadcast(&fake_changed);
	e->operations--;
	release(e);
	pthread_mutex_unlock(&fake_lock);
}

void fake_await_in_stream(struct event *e, uint64_t number)
{
	pthread_mutex_lock(&fake_lock);
	while (e->done < number)
		pthread_cond_wait(&fake_changed, &fake_lock);
	e->operations--;
	release(e);
	pthread_mutex_unlock(&fake_lock);
}

static void await(struct event *e, uint64_t number)
{
	pthread_mutex_lock(&fake_lock);
	while (e->done < number)
		pthread_cond_wait(&fake_changed, &fake_lock);
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
	((struct event *)event)->destroyed = true;
	release(event);
	pthread_mutex_unlock(&fake_lock);
	fake_count(AN_EVENT, -1);
	return 0;
}

EXPORT int cuEventRecord(tt_cuevent event, tt_custream stream)
{
	struct event *e = event;
	struct fake_stream *s = fake_stream(stream);
	struct fake_node n = { .kind = RECORD, .event = e };

	ENTER_CONTEXT();
	pthread_mutex_lock(&fake_lock);
	e->graph = s->graph;
	if (!s->graph) {
		n.number = ++e->recorded;
		e->operations++;
	}
	pthread_mutex_unlock(&fake_lock);
	return e->graph ? 0 : fake_add(stream, &n);
}

/* Waiting for an event that was recorded in a capture adds the stream to the capture. */
EXPORT int cuStreamWaitEvent(tt_custream stream, tt_cuevent event, unsigned flags)
{
	struct event *e = event;
	struct fake_stream *s = fake_stream(stream);
	struct fake_node n = { .kind = WAIT_EVENT, .event = e };
	bool foreign;

	ENTER_CONTEXT();
	(void)flags;
	pthread_mutex_lock(&fake_lock);
	n.number = e->recorded;
	foreign = s->graph && !e->graph && e->recorded;
	if (e->graph)
		s->graph = e->graph;
	e->operations += !foreign && !s->graph;
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
	done = e->done >= e->recorded;
	pthread_mutex_unlock(&fake_lock);
	return captured ? 900 : done ? 0 : TT_CU_NOT_READY;
}

EXPORT int cuEventSynchronize(tt_cuevent event)
{
	ENTER_FREELY();
	await(event, ((struct event *)event)->recorded);
	return fake_dead();
}

EXPORT int cuEventElapsedTime(float *ret_ms, tt_cuevent from, tt_cuevent to)
{
	ENTER_CONTEXT();
	*ret_ms = (float)(((struct event *)to)->at_ms - ((struct event *)from)->at_ms);
	return 0;
}

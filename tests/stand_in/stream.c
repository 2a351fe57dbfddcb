/*
 * stream.c - the stand-in's streams: a thread each, which runs its nodes in order; events
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "stand_in.h"

__thread unsigned stand_in_block, stand_in_blocks;
static struct stream *legacy;
static __thread struct stream *per_thread;

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* ---- what a node does ------------------------------------------------------------------------ */

static void dawdle(void)
{
	static __thread unsigned seed;
	const char *text = getenv("TUTTI_TEST_CUDA_DELAY_US");
	int most = text ? atoi(text) : 0;

	if (!seed)
		seed = (unsigned)getpid() ^ (unsigned)(uintptr_t)&seed;
	if (most > 0)
		usleep((unsigned)rand_r(&seed) % (unsigned)most);
}

/* 32 bits that other streams, processes and the host change meanwhile */
static void run_batch(const struct node *n)
{
	for (unsigned i = 0; i < n->nops; i++) {
		atomic_uint *at = (atomic_uint *)(uintptr_t)n->op[i].address;
		unsigned value = (unsigned)n->op[i].value;

		if (n->op[i].operation == TT_CU_WRITE_32) {
			atomic_store(at, value);
			continue;
		}
		while (n->op[i].flags == TT_CU_WAIT_EQ ? atomic_load(at) != value
						       : (int)(atomic_load(at) - value) < 0)
			usleep(20);
	}
}

static void reach(struct event *e, uint64_t number)
{
	pthread_mutex_lock(&stand_in_lock);
	if (e->done < number)
		e->done = number;
	e->at_ms = now_ms();
	pthread_cond_broadcast(&stand_in_changed);
	pthread_mutex_unlock(&stand_in_lock);
}

static void await(struct event *e, uint64_t number)
{
	pthread_mutex_lock(&stand_in_lock);
	while (e->done < number)
		pthread_cond_wait(&stand_in_changed, &stand_in_lock);
	pthread_mutex_unlock(&stand_in_lock);
}

static void launch(const struct node *n)
{
	stand_in_blocks = n->blocks;
	for (stand_in_block = 0; stand_in_block < n->blocks; stand_in_block++)
		n->kernel->run(n->params);
}

void stand_in_run(const struct node *n)
{
	dawdle();
	switch (n->kind) {
	case COPY:
		memcpy(n->to, n->from, n->bytes);
		if (n->spoilt)
			((unsigned char *)n->to)[n->bytes / 2] ^= 1;
		break;
	case SET:
		memset(n->to, n->value, n->bytes);
		break;
	case HOST_FUNC:
		n->fn(n->arg);
		break;
	case RECORD:
		reach(n->event, n->number);
		break;
	case WAIT_EVENT:
		await(n->event, n->number);
		break;
	case BATCH:
		run_batch(n);
		break;
	case LAUNCH:
		launch(n);
		break;
	}
}

/* ---- the queue ------------------------------------------------------------------------------- */

static void *work(void *arg)
{
	struct stream *s = arg;
	struct node *n;

	pthread_mutex_lock(&stand_in_lock);
	for (;;) {
		while (!s->first && !s->stop)
			pthread_cond_wait(&stand_in_changed, &stand_in_lock);
		n = s->first;
		if (!n)
			break;
		s->first = n->next;
		if (!s->first)
			s->last = &s->first;
		s->busy = true;
		pthread_mutex_unlock(&stand_in_lock);
		stand_in_run(n);
		free(n);
		pthread_mutex_lock(&stand_in_lock);
		s->busy = false;
		pthread_cond_broadcast(&stand_in_changed);
	}
	pthread_mutex_unlock(&stand_in_lock);
	return NULL;
}

static struct stream *make(void)
{
	struct stream *s = calloc(1, sizeof(*s));

	s->last = &s->first;
	if (pthread_create(&s->thread, NULL, work, s))
		abort();
	return s;
}

struct stream *stand_in_stream(tt_custream stream)
{
	if (stream == TT_CU_PER_THREAD)
		return per_thread ? per_thread : (per_thread = make());
	if (stream && stream != TT_CU_LEGACY)
		return stream;
	pthread_mutex_lock(&stand_in_lock);
	if (!legacy)
		legacy = make();
	pthread_mutex_unlock(&stand_in_lock);
	return legacy;
}

int stand_in_add(tt_custream stream, const struct node *node)
{
	struct stream *s = stand_in_stream(stream);
	struct node *n = malloc(sizeof(*n)), ***last;

	if (!n)
		return TT_CU_NO_MEMORY;
	*n = *node;
	n->next = NULL;
	pthread_mutex_lock(&stand_in_lock);
	last = s->graph ? &s->graph->last : &s->last;
	**last = n;
	*last = &n->next;
	pthread_cond_broadcast(&stand_in_changed);
	pthread_mutex_unlock(&stand_in_lock);
	return 0;
}

EXPORT int cuStreamCreate(tt_custream *ret_stream, unsigned flags)
{
	ENTER_CONTEXT();
	(void)flags;
	*ret_stream = make();
	return 0;
}

static int settle(struct stream *s)
{
	bool capturing;

	pthread_mutex_lock(&stand_in_lock);
	capturing = s->graph != NULL;
	while (!capturing && (s->first || s->busy))
		pthread_cond_wait(&stand_in_changed, &stand_in_lock);
	pthread_mutex_unlock(&stand_in_lock);
	return capturing ? 900 : 0;            /* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED */
}

EXPORT int cuStreamSynchronize(tt_custream stream)
{
	ENTER_CONTEXT();
	return settle(stand_in_stream(stream));
}

EXPORT int cuStreamQuery(tt_custream stream)
{
	struct stream *s = stand_in_stream(stream);
	bool idle;

	ENTER_CONTEXT();
	pthread_mutex_lock(&stand_in_lock);
	idle = !s->first && !s->busy;
	pthread_mutex_unlock(&stand_in_lock);
	return idle ? 0 : TT_CU_NOT_READY;
}

EXPORT int cuStreamDestroy_v2(tt_custream stream)
{
	struct stream *s = stream;

	ENTER_CONTEXT();
	settle(s);
	pthread_mutex_lock(&stand_in_lock);
	s->stop = true;
	pthread_cond_broadcast(&stand_in_changed);
	pthread_mutex_unlock(&stand_in_lock);
	pthread_join(s->thread, NULL);
	free(s);
	return 0;
}

EXPORT int cuCtxSynchronize(void)
{
	ENTER_CONTEXT();
	return settle(stand_in_stream(NULL));
}

/* ---- events ---------------------------------------------------------------------------------- */

EXPORT int cuEventCreate(tt_cuevent *ret_event, unsigned flags)
{
	ENTER_CONTEXT();
	(void)flags;
	*ret_event = calloc(1, sizeof(struct event));
	return *ret_event ? 0 : TT_CU_NO_MEMORY;
}

EXPORT int cuEventDestroy_v2(tt_cuevent event)
{
	ENTER_CONTEXT();
	/* CUDA's go on until they are reached; ours is freed then */
	await(event, ((struct event *)event)->recorded);
	free(event);
	return 0;
}

EXPORT int cuEventRecord(tt_cuevent event, tt_custream stream)
{
	struct event *e = event;
	struct stream *s = stand_in_stream(stream);
	struct node n = { .kind = RECORD, .event = e };

	ENTER_CONTEXT();
	pthread_mutex_lock(&stand_in_lock);
	e->graph = s->graph;
	if (!s->graph)
		n.number = ++e->recorded;
	pthread_mutex_unlock(&stand_in_lock);
	return e->graph ? 0 : stand_in_add(stream, &n);
}

/* Waiting for what was recorded in a capture draws the stream into it. */
EXPORT int cuStreamWaitEvent(tt_custream stream, tt_cuevent event, unsigned flags)
{
	struct event *e = event;
	struct stream *s = stand_in_stream(stream);
	struct node n = { .kind = WAIT_EVENT, .event = e };
	bool foreign;

	ENTER_CONTEXT();
	(void)flags;
	pthread_mutex_lock(&stand_in_lock);
	n.number = e->recorded;
	foreign = s->graph && !e->graph && e->recorded;
	if (e->graph)
		s->graph = e->graph;
	pthread_mutex_unlock(&stand_in_lock);
	if (foreign)
		return 905;                    /* CUDA_ERROR_STREAM_CAPTURE_ISOLATION */
	return s->graph ? 0 : stand_in_add(stream, &n);
}

EXPORT int cuEventQuery(tt_cuevent event)
{
	struct event *e = event;
	bool done;

	ENTER_CONTEXT();
	pthread_mutex_lock(&stand_in_lock);
	done = e->done >= e->recorded;
	pthread_mutex_unlock(&stand_in_lock);
	return done ? 0 : TT_CU_NOT_READY;
}

EXPORT int cuEventSynchronize(tt_cuevent event)
{
	ENTER_CONTEXT();
	await(event, ((struct event *)event)->recorded);
	return 0;
}

EXPORT int cuEventElapsedTime(float *ret_ms, tt_cuevent from, tt_cuevent to)
{
	ENTER_CONTEXT();
	*ret_ms = (float)(((struct event *)to)->at_ms - ((struct event *)from)->at_ms);
	return 0;
}

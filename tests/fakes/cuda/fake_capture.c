/*
 * fake_capture.c - captures and graphs of the fake CUDA driver, and the calls that a capture
 * forbids
 *
 * As with CUDA, a thread that captures, or that runs during a global capture, may only enqueue work
 * on streams, unless its capture mode is relaxed. Any other call fails and invalidates the capture.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fakes/cuda/fake_cuda.h"

static __thread int own_mode; /* the driver's initial mode */

EXPORT int cuThreadExchangeStreamCaptureMode(int *mode)
{
	int was = own_mode;

	ENTER();
	own_mode = *mode;
	*mode = was;
	return 0;
}

/* Call under fake_lock. */
static bool forbids(const struct graph *g)
{
	if (!g || own_mode == TT_CU_CAPTURE_RELAXED || g->mode == TT_CU_CAPTURE_RELAXED)
		return false;
	return pthread_equal(g->thread, pthread_self()) ||
	       (g->mode == TT_CU_CAPTURE_GLOBAL && own_mode == TT_CU_CAPTURE_GLOBAL);
}

bool fake_forbidden(void)
{
	bool any = false;

	pthread_mutex_lock(&fake_lock);
	for (struct fake_stream *s = fake_all; s; s = s->next)
		if (forbids(s->graph))
			any = s->graph->spoiled = true;
	pthread_mutex_unlock(&fake_lock);
	return any;
}

EXPORT int cuStreamBeginCapture_v2(tt_custream stream, int mode)
{
	struct fake_stream *s = fake_stream(stream);
	struct graph *g;

	ENTER_CONTEXT();
	g = calloc(1, sizeof(*g));
	fake_count(A_GRAPH, 1);
	g->last = &g->first;
	g->mode = mode;
	g->thread = pthread_self();
	pthread_mutex_lock(&fake_lock);
	s->graph = g;
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

EXPORT int cuStreamIsCapturing(tt_custream stream, int *ret_status)
{
	struct fake_stream *s = fake_stream(stream);

	ENTER_CONTEXT();
	pthread_mutex_lock(&fake_lock);
	*ret_status = !s->graph ? 0 : s->graph->spoiled ? 2 : 1;
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

static int free_graph(struct graph *g)
{
	struct fake_node *next;

	for (struct fake_node *n = g->first; n; n = next) {
		next = n->next;
		free(n);
	}
	free(g);
	fake_count(A_GRAPH, -1);
	return 0;
}

/* The capture also ends on the streams that joined it by events. */
EXPORT int cuStreamEndCapture(tt_custream stream, void **ret_graph)
{
	struct graph *g;

	ENTER_CONTEXT();
	pthread_mutex_lock(&fake_lock);
	g = fake_stream(stream)->graph;
	for (struct fake_stream *s = fake_all; s; s = s->next)
		if (s->graph == g)
			s->graph = NULL;
	pthread_mutex_unlock(&fake_lock);
	*ret_graph = NULL;
	if (!g)
		return TT_CU_BAD_VALUE;
	if (g->spoiled) {
		free_graph(g);
		return 901; /* CUDA_ERROR_STREAM_CAPTURE_INVALIDATED */
	}
	*ret_graph = g;
	return 0;
}

EXPORT int cuGraphInstantiateWithFlags(void **ret_exec, void *graph, unsigned long long flags)
{
	const struct graph *from = graph;
	struct graph *g;

	ENTER_CONTEXT();
	(void)flags;
	g = calloc(1, sizeof(*g));
	fake_count(A_GRAPH, 1);
	g->last = &g->first;
	for (const struct fake_node *n = from->first; n; n = n->next) {
		struct fake_node *twin = malloc(sizeof(*twin));

		*twin = *n;
		twin->next = NULL;
		*g->last = twin;
		g->last = &twin->next;
	}
	*ret_exec = g;
	return 0;
}

static bool waits_for_words(const struct graph *g)
{
	for (const struct fake_node *n = g->first; n; n = n->next)
		for (unsigned i = 0; n->kind == BATCH && i < n->nops; i++)
			if (n->op[i].operation != TT_CU_WRITE_32)
				return true;
	return false;
}

/* Graphs that wait for words run one after the other on a device without `graphs`. */
EXPORT int cuGraphLaunch(void *exec, tt_custream stream)
{
	static pthread_mutex_t launching = PTHREAD_MUTEX_INITIALIZER;
	static struct fake_stream *newest[MAX_DEVICES]; /* with such a graph; under the lock */
	struct fake_stream *s = fake_stream(stream), **before;
	const struct graph *g = exec;
	int rc = 0;

	ENTER_CONTEXT();
	before = &newest[s->device < 0 ? 0 : s->device];
	pthread_mutex_lock(&launching);
	if (fake_lacks("graphs") && waits_for_words(g)) {
		rc = *before && *before != s ? fake_add_behind(s, *before) : 0;
		*before = s;
	}
	for (const struct fake_node *n = g->first; n && !rc; n = n->next)
		rc = fake_add(stream, n);
	pthread_mutex_unlock(&launching);
	return rc;
}

EXPORT int cuGraphExecDestroy(void *exec)
{
	ENTER_CONTEXT();
	return free_graph(exec);
}

EXPORT int cuGraphDestroy(void *graph)
{
	ENTER_CONTEXT();
	return free_graph(graph);
}

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

EXPORT int cuGraphLaunch(void *exec, tt_custream stream)
{
	const struct graph *g = exec;
	int rc = 0;

	ENTER_CONTEXT();
	for (const struct fake_node *n = g->first; n && !rc; n = n->next)
		rc = fake_add(stream, n);
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

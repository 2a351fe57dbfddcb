/*
 * bench_graph.c - calls captured once as a CUDA graph and replayed, a graph for each rank of a crew
 *
 * Called by measure.c. What is replayed is on the GPU already, so that the figures are without the
 * calls' own costs.
 */
#include "perf/bench/bench.h"

static int failed(const struct bench_rank *s, int rc, const char *what)
{
	tt_cuda_fail(rc, "%s", what);
	fprintf(stderr, "rank %d: %s\n", s->rank, tt_error_text());
	return 1;
}

int bench_graph_begin(struct bench_thread *c)
{
	for (int i = 0; i < c->nseats; i++) {
		const struct bench_rank *s = &c->seats[i];
		int rc = s->gpu.cu->begin_capture(s->own, TT_CU_CAPTURE_THREAD);

		if (rc)
			return failed(s, rc, "begin the capture of a graph");
	}
	return 0;
}

int bench_graph_end(struct bench_thread *c, struct bench_graph *graphs)
{
	for (int i = 0; i < c->nseats; i++) {
		const struct bench_rank *s = &c->seats[i];
		int rc = s->gpu.cu->end_capture(s->own, &graphs[i].graph);

		if (!rc)
			rc = s->gpu.cu->graph_instantiate(&graphs[i].exec, graphs[i].graph, 0);
		if (rc)
			return failed(s, rc, "make a graph of what was captured");
	}
	return 0;
}

int bench_graph_launch(struct bench_thread *c, const struct bench_graph *graphs)
{
	for (int i = 0; i < c->nseats; i++) {
		const struct bench_rank *s = &c->seats[i];
		int rc = s->gpu.cu->graph_launch(graphs[i].exec, s->own);

		if (rc)
			return failed(s, rc, "launch a graph");
	}
	return 0;
}

void bench_graph_free(struct bench_thread *c, struct bench_graph *graphs)
{
	for (int i = 0; i < c->nseats; i++) {
		const struct bench_rank *s = &c->seats[i];

		if (graphs[i].exec)
			s->gpu.cu->graph_exec_destroy(graphs[i].exec);
		if (graphs[i].graph)
			s->gpu.cu->graph_destroy(graphs[i].graph);
	}
}

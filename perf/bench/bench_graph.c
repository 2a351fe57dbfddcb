/*
 * bench_graph.c - captures calls once as a CUDA graph and replays the graph; one graph per rank
 *
 * Called by measure.c. The captured work is on the GPU before the replay, so the figures exclude the
 * host time of the calls.
 */
#include "perf/bench/bench.h"

static int failed(const struct bench_rank *r, int rc, const char *what)
{
	tt_cuda_fail(rc, "%s", what);
	fprintf(stderr, "rank %d: %s\n", r->rank, tt_error_text());
	return 1;
}

int bench_graph_begin(struct bench_thread *t)
{
	for (int i = 0; i < t->nown; i++) {
		const struct bench_rank *r = &t->ranks[i];
		int rc = r->gpu.cu->begin_capture(r->cu_stream, TT_CU_CAPTURE_THREAD);

		if (rc)
			return failed(r, rc, "begin the capture of a graph");
	}
	return 0;
}

int bench_graph_end(struct bench_thread *t, struct bench_graph *graphs)
{
	for (int i = 0; i < t->nown; i++) {
		const struct bench_rank *r = &t->ranks[i];
		int rc = r->gpu.cu->end_capture(r->cu_stream, &graphs[i].graph);

		if (!rc)
			rc = r->gpu.cu->graph_instantiate(&graphs[i].exec, graphs[i].graph, 0);
		if (rc)
			return failed(r, rc, "instantiate the captured graph");
	}
	return 0;
}

int bench_graph_launch(struct bench_thread *t, const struct bench_graph *graphs)
{
	for (int i = 0; i < t->nown; i++) {
		const struct bench_rank *r = &t->ranks[i];
		int rc = r->gpu.cu->graph_launch(graphs[i].exec, r->cu_stream);

		if (rc)
			return failed(r, rc, "launch a graph");
	}
	return 0;
}

void bench_graph_free(struct bench_thread *t, struct bench_graph *graphs)
{
	for (int i = 0; i < t->nown; i++) {
		const struct bench_rank *r = &t->ranks[i];

		if (graphs[i].exec)
			r->gpu.cu->graph_exec_destroy(graphs[i].exec);
		if (graphs[i].graph)
			r->gpu.cu->graph_destroy(graphs[i].graph);
	}
}

/*
 * trace_files.h - the files of the flight recorder, as `tutti trace` reads them
 *
 * cmd_trace.c has the command line, trace_files.c reads, trace_report.c prints who hangs and who is
 * late, trace_json.c writes for Perfetto and for readers of PyTorch's flight recorder.
 */
#ifndef TOOL_TRACE_FILES_H
#define TOOL_TRACE_FILES_H

#include <stdio.h>

#include "comm/trace.h"

/* A call, with times in ns since 1970 of its host's clock; end 0: it has not ended */
struct trace_call {
	uint64_t number, seq, bytes;
	int64_t start, end;
	struct tt_call call;
	int awaited;
	bool failed;
	unsigned way; /* index of head.way */
};

/* A rank of a communicator: a file */
struct trace_rank {
	char *path;
	struct tt_trace_head head;
	struct trace_call *calls; /* in their order */
	size_t ncalls;
};

/* A communicator: the files of its ranks that were found */
struct trace_comm {
	struct trace_rank *ranks; /* in order of rank */
	int nranks;
};

struct trace {
	struct trace_rank *ranks; /* in order of communicator, then rank */
	int nranks;
	struct trace_comm *comms; /* in order of their first call */
	int ncomms;
	int64_t now;
};

/* Read all files of a folder. 0 | 1: error printed */
int trace_read(const char *dir, struct trace *ret_trace);
void trace_free(struct trace *t);
/* The call with this number of the communicator, NULL: not in the ring */
const struct trace_call *trace_find(const struct trace_rank *rank, uint64_t seq);
/* The latest call, NULL: none */
static inline const struct trace_call *trace_last(const struct trace_rank *rank)
{
	return rank->ncalls ? &rank->calls[rank->ncalls - 1] : NULL;
}
/* "operation 4 (allreduce of 1024 float32, sum, ring)" */
void trace_call_text(const struct trace_call *call, char *text, size_t bytes);

void trace_report(const struct trace *t, FILE *to);
void trace_dump(const struct trace *t, FILE *to);
void trace_merge_json(const struct trace *t, FILE *to);
void trace_dump_json(const struct trace *t, FILE *to);

#endif

/*
 * trace_files.h - the files of the flight recorder, as `tutti trace` reads them
 *
 * cmd_trace.c and cmd_top.c have the command lines, trace_files.c reads, trace_report.c prints who hangs and who is
 * late (trace_late.c), trace_json.c writes for Perfetto and for readers of PyTorch's flight recorder.
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
	int process; /* number from 1, equal for the ranks of a process */
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
	int64_t now, first; /* first: start of the first call; INT64_MAX: none */
};

/* Read all files of a folder. 0 | 1: error printed, after the name of the tool */
int trace_read(const char *tool, const char *dir, const char *none, struct trace *ret_trace);
void trace_free(struct trace *t);
/* The call with this number of the communicator, NULL: not in the ring */
const struct trace_call *trace_find(const struct trace_rank *rank, uint64_t seq);
/* The latest call that some rank has started and not ended; NULL: none */
const struct trace_call *trace_open_call(const struct trace_comm *comm);
/* The head with the state of the communicator: of a rank whose calls failed, else of one that is
 * open, else of any */
const struct tt_trace_head *trace_head(const struct trace_comm *comm);
/* The rank that a call of comm waits for long; -1: none */
int trace_awaited(const struct trace_comm *comm);
/* The latest call, NULL: none */
static inline const struct trace_call *trace_last(const struct trace_rank *rank)
{
	return rank->ncalls ? &rank->calls[rank->ncalls - 1] : NULL;
}
/* "operation 4 (allreduce of 1024 float32, sum, ring)" */
void trace_call_text(const struct trace_call *call, char *text, size_t bytes);

/* trace_late.c: a rank of a communicator, over the calls that all ranks have recorded */
struct trace_lateness {
	int rank;
	uint64_t calls, last; /* calls in which the rank started last */
	double late;          /* sum of times after the first rank's start, in ns */
	double alone; /* sum of times in which all others waited for this rank alone, in ns */
	int64_t worst;
};
/* [c->nranks], most delay first; free(). NULL: no memory */
struct trace_lateness *trace_late(const struct trace_comm *c);
struct trace_rate {
	double calls, bytes; /* a second */
};
struct trace_rate trace_rate(const struct trace_comm *c, int64_t now);

/* ", stopped", ", gone", or "" where the process runs or is on another host */
const char *trace_process_text(const struct trace_rank *rank);

void trace_report(const struct trace *t, FILE *to);
/* As the report, for communicators that have not ended, with rates */
void trace_top(const struct trace *t, FILE *to);
void trace_dump(const struct trace *t, FILE *to);
void trace_merge_json(const struct trace *t, FILE *to);
void trace_top_json(const struct trace *t, FILE *to);
void trace_dump_json(const struct trace *t, FILE *to);

#endif

/*
 * top_job.h - a job as `tutti top` sees it over the network: reports of rank 0, in order of lateness
 *
 * cmd_top.c has the command line, top_job.c asks and compares, top_print.c prints.
 */
#ifndef TOOL_TOP_JOB_H
#define TOOL_TOP_JOB_H

#include <stdio.h>

#include "control/monitor.h"

struct top_rank {
	int rank;
	const struct tt_rank_report *report;
	uint64_t behind;  /* operations that some rank has started and this one has not */
	int awaited_by;   /* ranks that have waited for this one for long */
	uint64_t late_ns; /* others have waited for this one since then; 0: nobody waits for it */
};

struct top_comm {
	const struct tt_comm_report *report;
	struct top_rank *ranks; /* the latest first: gone, silent, behind, awaited */
	/* of the latest operation, a rank that is in it, the longest so; NULL: none */
	const struct tt_rank_report *current;
	uint64_t newest; /* the latest operation that some rank has started */
	int hosts;
	bool waits; /* for long: so a rank that is behind is late */
	/* a second, since the report before; NAN: not known */
	double calls, bytes, bus_bytes;
};

struct top_job {
	tuttiUniqueId id;
	char *name; /* HOST:PORT, or the file of the id; the caller's */
	char *why;  /* no report has come: the reason; NULL: no memory */
	struct tt_job_report report;
	uint64_t at_ns; /* arrival of the report; 0: none has come */
	struct top_comm *comms;
};

/* Ask once; rates are since the report before. 0 | 1: job->why. Thread: any, one per job */
int top_job_ask(struct top_job *job);
void top_job_free(struct top_job *job);
/* Is a rank of comm gone, silent or late, or has comm failed? */
bool top_comm_differs(const struct top_comm *comm);
/* Is the rank gone, silent or late? */
bool top_rank_differs(const struct top_comm *comm, const struct top_rank *rank);

/* top_print.c; rows: of the screen */
void top_print(const struct top_job *jobs, int n, int rows, FILE *to);
void top_print_json(const struct top_job *jobs, int n, FILE *to);

#endif

/*
 * monitor.h - a monitor: a process outside the job that asks rank 0 what all ranks do (`tutti top`)
 *
 * Rank 0 answers for its communicators, and names the ranks that answer for others. A monitor has the job's
 * key, and an identity of its own. A connection is a question:
 *
 *   monitor                                   server
 *   TLS, hello with TT_P_MONITOR          ->
 *                                        <-   verdict
 *                                        <-   report, 1.25 s later at the latest; end of the connection
 *
 * The monitor sends nothing behind its hello, so the server reads none of its bytes: what comes nevertheless
 * ends the connection. control_monitor.c has the server's side and its bounds; monitor.c is the monitor,
 * monitor_report.c the bytes of a report. The facts are those of control_report.c.
 */
#ifndef TT_MONITOR_H
#define TT_MONITOR_H

#include "control/control.h"
#include "control/frame.h"

#define TT_REPORT_MOST (4u << 20)  /* bytes of a report behind its length, of 4 bytes */
#define TT_REPORT_COMMS (3u << 20) /* ... of its communicators */

struct tt_comm_report {
	uint64_t mark; /* as in the files of TUTTI_TRACE; 0: the communicator is being made */
	char name[64];
	int rank, nranks; /* rank: of rank 0 of the job */
	bool failed;
	char error[1024]; /* the sentence of the failure */
	struct tt_rank_report *ranks;
};

struct tt_job_report {
	int ncomms;
	int left_out; /* communicators without a place in the report, and servers that did not answer */
	struct tt_comm_report *comms;
	int nservers; /* that have further communicators */
	struct tt_business_card *servers;
};

/* monitor.c: ask rank 0 of the job with this id once, and all servers that it names. 0 | TT_ARG: not an
 * id | TT_REMOTE: refused, or nobody is there | TT_TIMEOUT: rank 0 does not answer | TT_SYSTEM. Blocks: 5 s
 * at most */
int tt_monitor_ask(const tuttiUniqueId *id, struct tt_job_report *ret_report);
void tt_job_report_free(struct tt_job_report *report);

/* monitor_report.c. put: a communicator without its ranks, then each rank. get: the bytes behind the
 * length; false: malformed, or no memory */
void tt_put_comm_report(struct tt_writer *w, const struct tt_comm_report *comm);
void tt_put_rank_report(struct tt_writer *w, const struct tt_rank_report *rank);
bool tt_get_job_report(const uint8_t *data, size_t bytes, struct tt_job_report *ret_report);

#endif

/*
 * harness_control.h - ranks that join a control, as threads or forked processes, and report their
 * results
 *
 * For tests of control and race_control.c. The reports are in shared memory: a test reads the
 * result of every rank, and a rank reads the progress of the others.
 */
#ifndef HARNESS_CONTROL_H
#define HARNESS_CONTROL_H

#include <stdatomic.h>
#include <sys/types.h>

#include "control/control.h"

#define CONTROL_JOB_MOST 256
#define JOIN_TIMEOUT_MS 20000

struct control_report {
	atomic_int pid;
	atomic_int progress;                /* how far the rank is; the test defines the values */
	int joined, rc;                  /* results of the join, of the body */
	uint64_t took_ms;                /* of the join, or measured by the body */
	char text[1024];                 /* error text of the failure */
};

struct control_job {
	int n;
	bool threads;
	uint32_t timeout_ms;             /* of the join; 0: JOIN_TIMEOUT_MS */
	bool only_rank_0;                /* timeout_ms is of rank 0; others: JOIN_TIMEOUT_MS */
	tuttiUniqueId id;                /* made by control_job_start unless has_id */
	bool has_id;
	/* after the join; NULL: nothing */
	int (*body)(struct control_job *job, int rank, struct tt_control *ctl);
	/* before the join: may change the arguments of the join; or NULL */
	void (*before)(struct control_job *job, int rank, struct tt_join *join);
	bool (*absent)(int rank);        /* ranks that do not start; or NULL */
	void *arg;
	struct control_report *report;           /* [n], shared */
};

/* Start n ranks; wait for all ranks; both. A killed rank has rc -1. Each rank leaves its control
 * after the body. */
void control_job_start(struct control_job *job);
void control_job_wait(struct control_job *job);
void control_job_run(struct control_job *job);

/* Wait until rank (all ranks) reached progress, at most limit_ms; false: the limit is over. */
bool control_job_reached(struct control_job *job, int rank, int progress, int limit_ms);
bool control_job_all_reached(struct control_job *job, int progress, int limit_ms);

/* Stop the process of a rank (not with threads); returns when all its threads are stopped. */
void control_job_stop(const struct control_job *job, int rank);

/* In a body: wait until the control is broken, at most limit_ms, and store the error text in the
 * report. Returns the code; 0: not broken. */
int control_job_await_broken(struct control_job *job, int rank, struct tt_control *ctl, int limit_ms,
		      int *ret_culprit);

/* Note collective number seq, a sum of 1024 floats, as started, and as finished. */
extern const struct tt_call a_sum;
void note_sum(struct tt_control *ctl, uint64_t seq, bool finish);

void sleep_ms(int ms);

#endif

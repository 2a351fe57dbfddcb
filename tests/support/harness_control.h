/*
 * harness_control.h - ranks that join a control,
 * as threads or forked processes, and report what they saw
 *
 * For test_control.c and race_control.c. What each rank reports lies in memory that all of them
 * share, so that a test looks at every rank's result, and a rank at how far the others are.
 */
#ifndef HARNESS_CONTROL_H
#define HARNESS_CONTROL_H

#include <stdatomic.h>
#include <sys/types.h>

#include "control/control.h"

#define MEET_MOST 256
#define PATIENCE_MS 20000

struct control_report {
	atomic_int pid;
	atomic_int stage;                /* what the rank has reached; anything a test likes */
	int joined, rc;                  /* of joining, of the body */
	uint64_t took_ms;                /* the join, or what a body measures */
	char text[1024];                 /* the sentence of the failure */
};

struct meet {
	int n;
	bool threads;
	uint32_t timeout_ms;             /* of joining; 0: PATIENCE_MS */
	bool patient;                    /* that is rank 0's; all others have PATIENCE_MS */
	tuttiUniqueId id;                /* made by meet_start unless has_id */
	bool has_id;
	/* NULL: nothing after joining */
	int (*body)(struct meet *m, int rank, struct tt_control *ctl);
	/* Change what rank is going to join with, or do something before. May be NULL. */
	void (*before)(struct meet *m, int rank, struct tt_join *join);
	bool (*absent)(int rank);        /* never comes; may be NULL */
	void *arg;
	struct control_report *report;           /* [n], shared */
};

/* Start n ranks; wait for all; both. A rank that was killed has rc -1.
 * The body's control is left afterwards. */
void meet_start(struct meet *m);
void meet_wait(struct meet *m);
void meet_run(struct meet *m);

/* Wait until rank has reached stage, at most limit_ms; false: it has not. */
bool meet_reached(struct meet *m, int rank, int stage, int limit_ms);
bool meet_all_reached(struct meet *m, int stage, int limit_ms);

/* Stop a rank's process (m->threads is false); no thread of it does anything any more. */
void meet_stop(const struct meet *m, int rank);

/* In a body: wait until the control is broken, at most limit_ms; the sentence goes into the report.
 * Returns the code, 0 when it is not broken. */
int meet_await_broken(struct meet *m, int rank, struct tt_control *ctl, int limit_ms,
		      int *ret_culprit);

/* Note collective number seq, a sum of 1024 floats, as started, and as finished. */
extern const struct tt_call a_sum;
void note_sum(struct tt_control *ctl, uint64_t seq, bool finish);

void sleep_ms(int ms);

#endif

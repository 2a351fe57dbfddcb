/*
 * run_report.h - a training as one page of HTML (--report): losses, accuracies, time by phase and rank,
 * stragglers, bytes, and of a mesh the layout and the schedule
 *
 * Ranks record steps; at the start, at each evaluation and at the end rank 0 gathers the times of all ranks and
 * writes the page, which has no script and refers to no other file. Called by train.c; calls tools/svg.h and
 * schedules/.
 */
#ifndef TRAIN_RUN_REPORT_H
#define TRAIN_RUN_REPORT_H

#include "trainer/metrics.h"
#include "trainer/train.h"

enum { TRAIN_REPORT_POINTS = 1024 };

/* Values over steps. A long training keeps every second, fourth ... value. */
struct train_curve {
	double step[TRAIN_REPORT_POINTS], value[TRAIN_REPORT_POINTS];
	int n;
	uint64_t seen, every;
};

struct train_run_report {
	struct train_curve loss, test_loss, accuracy, step_ms;
	uint64_t training_ns, evaluate_ns, save_ns;
	int error; /* errno of the last page, if it could not be written */
	bool said; /* a failure has been reported */
};

/* On all workers, since another one may become rank 0. *ret_report NULL: not requested. Returns 0 | TRAIN_FAILED. */
int train_run_report_open(const struct train_rank *t, struct train_run_report **ret_report);
/* r may be NULL. */
void train_run_report_add(struct train_run_report *r, const struct train_step_record *record);

/* Rank 0 writes the page before the first step, or reports that it cannot be written. */
void train_run_report_begin(const struct train_rank *t, struct train_run_report *r);
/* Call by all workers. last: the result is that of the training. A page that cannot be written is reported once;
 * train_run_report_close then fails. Returns 0 | TRAIN_FAILED (of communication, or no memory). */
int train_run_report_write(struct train_rank *t, struct train_run_report *r,
			   const struct train_result *result, bool last);

/* Frees r, which may be NULL. end: of the training. Returns rc, that of the training | TRAIN_FAILED: the last page
 * could not be written, which is appended to an error of rc. */
int train_run_report_close(struct train_run_report *r, const struct train_config *config, int rc,
			   bool end);

#endif

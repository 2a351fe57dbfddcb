/*
 * run_report.h - a training as one page of HTML (--report): losses, accuracies, time by phase and rank, stragglers, bytes, and
 * of a mesh the layout and the schedule
 *
 * Rank 0 records steps; at the end it gathers the times of all ranks and writes the page, which has no script and refers to no
 * other file. Called by train.c; calls tools/svg.h and schedules/.
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
};

/* NULL: no memory, or not requested; the other calls then do nothing. */
struct train_run_report *train_run_report_open(const struct train_rank *t);
void train_run_report_add(struct train_run_report *r, const struct train_step_record *record);

/* Call by all workers if --report is given; frees r. Returns 0 | TRAIN_FAILED. */
int train_run_report_write(struct train_rank *t, struct train_run_report *r,
			   const struct train_result *result);

#endif

/*
 * metrics.h - what rank 0 tells while it trains: lines on stdout, progress on a terminal, CSV, JSON
 * lines, hashes
 *
 * Called by train.c; on other ranks every call does nothing.
 */
#ifndef TRAIN_METRICS_H
#define TRAIN_METRICS_H

#include "trainer/trainer.h"

#include <stdio.h>

/* Files that rank 0 writes as it goes. */
enum { TRAIN_FILE_CSV, TRAIN_FILE_JSONL, TRAIN_FILE_HASHES, TRAIN_FILES };

struct train_metrics {
	bool on;       /* rank 0 */
	bool terminal; /* stderr is one: show progress */
	FILE *file[TRAIN_FILES]; /* NULL: not asked for */
	uint64_t shown_ns;    /* when progress was shown last */
};

/* One step, or its evaluation too. */
struct train_note {
	uint64_t step, steps;   /* from 1; of the whole training */
	uint64_t epoch, epochs; /* from 1 */
	double loss;            /* of the step's batch */
	double samples_per_s;   /* of the step */
	double step_ms, exposed_ms, rate;
	bool evaluated;
	double accuracy, test_loss; /* if evaluated */
	double mean_samples_per_s;  /* of the training so far */
};

/* Can the files be written? Asked before ranks are started. Returns 0 | TRAIN_USAGE. */
int train_metrics_check(const struct train_config *config);

/* heir: another rank wrote before and died: go on in its files. Returns 0 | TRAIN_USAGE (a file
 * cannot be written). */
int train_metrics_open(struct train_metrics *m, const struct train_rank *t, bool heir);
void train_metrics_note(struct train_metrics *m, struct train_rank *t, const struct train_note *note);

/* Returns 0 | TRAIN_FAILED (a file could not be written to its end). */
int train_metrics_close(struct train_metrics *m, const struct train_config *config);

#endif

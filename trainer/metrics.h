/*
 * metrics.h - what rank 0 tells while it trains: lines on stdout, progress on a terminal, CSV, JSON
 * lines, hashes
 *
 * Called by train.c; on other ranks every call does nothing.
 */
#ifndef TT_TRAINER_METRICS_H
#define TT_TRAINER_METRICS_H

#include "trainer/trainer.h"

#include <stdio.h>

/* Files that rank 0 writes as it goes. */
enum { TT_FILE_CSV, TT_FILE_JSONL, TT_FILE_HASHES, TT_FILES };

struct tt_metrics {
	bool on;       /* rank 0 */
	bool terminal; /* stderr is one: show progress */
	FILE *file[TT_FILES]; /* NULL: not asked for */
	uint64_t shown_ns;    /* when progress was shown last */
};

/* One step, or its evaluation too. */
struct tt_note {
	uint64_t step, steps;   /* from 1; of the whole training */
	uint64_t epoch, epochs; /* from 1 */
	double loss;            /* of the step's batch */
	double samples_per_s;   /* of the step */
	double step_ms, exposed_ms, rate;
	bool evaluated;
	double accuracy, test_loss; /* if evaluated */
	double mean_samples_per_s;  /* of the training so far */
};

/* Can the files be written? Asked before ranks are started. Returns 0 | TT_TRAIN_USAGE. */
int tt_metrics_check(const struct tt_config *config);

/* heir: another rank wrote before and died: go on in its files. Returns 0 | TT_TRAIN_USAGE (a file
 * cannot be written). */
int tt_metrics_open(struct tt_metrics *m, const struct tt_trainer *t, bool heir);
void tt_metrics_note(struct tt_metrics *m, struct tt_trainer *t, const struct tt_note *note);

/* Returns 0 | TT_TRAIN_FAILED (a file could not be written to its end). */
int tt_metrics_close(struct tt_metrics *m, const struct tt_config *config);

#endif

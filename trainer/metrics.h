/*
 * metrics.h - rank 0's output during the training: lines on stdout, progress, CSV,
 * JSON lines, hashes, TensorBoard's events
 *
 * Called by train.c; on other ranks every call does nothing.
 */
#ifndef TRAIN_METRICS_H
#define TRAIN_METRICS_H

#include "trainer/rank/rank.h"

#include <stdio.h>

/* Files that rank 0 writes during the training. */
enum { TRAIN_FILE_CSV, TRAIN_FILE_JSONL, TRAIN_FILE_HASHES, TRAIN_FILE_EVENTS, TRAIN_FILES };

struct train_metrics {
	bool on;                 /* rank 0 */
	bool terminal;           /* stderr is a terminal: show progress */
	FILE *file[TRAIN_FILES]; /* NULL: not requested */
	int error[TRAIN_FILES];  /* errno of the first write that failed, which is reported once */
	uint64_t shown_ns;       /* time of the last progress line */
	uint64_t begun_ns;       /* time of open */
	uint64_t first_step;     /* steps done before */
	uint64_t hashed;         /* last step of --hashes */
};

/* The metrics of one step, and of its evaluation if there was one. */
struct train_step_record {
	uint64_t step, steps;   /* from 1; number of steps of the training */
	uint64_t epoch, epochs; /* from 1 */
	double loss;            /* mean loss of the step's batch */
	double samples_per_s;   /* of the step */
	double step_ms, exposed_ms, rate;
	bool evaluated;
	double accuracy, test_loss; /* if evaluated */
	double mean_samples_per_s;  /* of the training so far */
};

/* Checks that the files can be written, before ranks are started. Returns 0 | TRAIN_USAGE. */
int train_metrics_check(const struct train_config *config);

/* append: continue the files of a former rank 0, which died.
 * newest: step of this rank's parameters, after which the files continue; 0: they begin anew.
 * Returns 0 | TRAIN_USAGE (a file cannot be written). */
int train_metrics_open(struct train_metrics *m, struct train_rank *t, bool append, uint64_t newest);
void train_metrics_write(struct train_metrics *m, struct train_rank *t,
			 const struct train_step_record *record);

/* Returns 0 | TRAIN_FAILED (a file could not be written completely). */
int train_metrics_close(struct train_metrics *m, const struct train_config *config);

#endif

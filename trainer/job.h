/* job.h - a training from its command line to its exit status. Called by train_main.c and tutti_train.c. */
#ifndef TRAIN_JOB_H
#define TRAIN_JOB_H

#include "trainer/tutti_train.h"

/* user: the model of a program, in place of --model and --data; NULL: none. Returns the exit status. */
int train_job_run(int argc, char **argv, const tuttiTrainModel_t *user);

#endif

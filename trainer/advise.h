/* advise.h - tutti-train --advise: how many ranks to use, by measured steps. Called by job.c. */
#ifndef TRAIN_ADVISE_H
#define TRAIN_ADVISE_H

#include "trainer/rank/config.h"

/* Trains some steps with 1 to --np ranks, each time as another process of this program with the
 * options of argv; prints a table and the advice. --sim-compute-ms is the time of a whole batch on one
 * device. Returns the exit status. */
int train_advise(int argc, char **argv, const struct train_config *config);

#endif

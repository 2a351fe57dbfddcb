/*
 * survive.h - after a death: the ranks that are left become
 * a communicator, and agree on where they are
 *
 * --on-failure shrink, and strategies that survive anyhow. Called by train.c and strategies; calls
 * tuttiCommShrink.
 */
#ifndef TRAIN_SURVIVE_H
#define TRAIN_SURVIVE_H

#include "trainer/trainer.h"

/* Was it a death or a silence that broke comm, and nothing of our own? */
bool train_can_survive(tuttiComm_t comm);

/* *comm becomes one of those that are left. Called by all of them. Returns 0 | TRAIN_FAILED. */
int train_shrink(tuttiComm_t *comm, int *ret_rank, int *ret_nranks);

/* done: steps that this rank's parameters have seen. Some rank may have seen one more than others:
 * all get its parameters and velocity. *ret_done: what that comes to. Returns 0 | TRAIN_FAILED,
 * also when deaths go on happening meanwhile. */
int train_survive(struct train_rank *t, uint64_t done, uint64_t *ret_done);

/* The parts of train_survive: the workers that are left become t->comm; world stays, for messages.
 * Called by all that are left. */
int train_regroup(struct train_rank *t);
/* The first rank whose parameters have seen the most steps hands them out, and its velocity. */
int train_catch_up(struct train_rank *t, uint64_t done, uint64_t *ret_done);

#endif

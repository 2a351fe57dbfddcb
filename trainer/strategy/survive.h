/*
 * survive.h - recovery after a death: the surviving ranks form a communicator and agree on their
 * state
 *
 * For --on-failure shrink and for fault-tolerant strategies. Called by train.c and strategies;
 * calls tuttiCommShrink.
 */
#ifndef TRAIN_SURVIVE_H
#define TRAIN_SURVIVE_H

#include "trainer/rank/rank.h"

/* True if a death or a timeout of another rank broke comm, rather than a local error. */
bool train_is_recoverable(tuttiComm_t comm);

/* Replaces *comm by a communicator of the survivors. Call by all of them. Returns 0 |
 * TRAIN_FAILED. */
int train_shrink(tuttiComm_t *comm, int *ret_rank, int *ret_nranks);

/* train_recover - shrink t->comm and continue from the newest state of a survivor
 *
 *   done      steps that this rank's parameters include; a rank may be one step ahead of others, and
 *             then all receive its parameters and state
 *   ret_done  steps that the common state includes
 *   Returns   0 | TRAIN_FAILED, also if further ranks die meanwhile */
int train_recover(struct train_rank *t, uint64_t done, uint64_t *ret_done);

/* Waits until rank 0 of t->comm is here, too, or, if another rank dies, until rank 0 has left; for at most the deadline of
 * the communicator in each wait. Call by all of its ranks. Returns 0 | TRAIN_FAILED: rank 0 died. */
int train_await_rank0(struct train_rank *t);

/* Parts of train_recover. train_regroup: t->comm = a communicator of the surviving workers;
 * world stays, for messages. Call by all of them. */
int train_regroup(struct train_rank *t);
/* The first rank whose parameters include the most steps broadcasts them, with its state. */
int train_catch_up(struct train_rank *t, uint64_t done, uint64_t *ret_done);

#endif

/*
 * trainer.h - open and close one rank of a training
 *
 * Called by job.c; calls the strategy, device, model, sampler and checkpoint.c.
 */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "trainer/rank/rank.h"

/* train_rank_open - build a rank from an open communicator; the strategy's open distributes
 * parameters
 *
 *   world        owned by the trainer from now on, destroyed by train_rank_close
 *   config,data  must outlive the trainer
 *   Returns      0 | TRAIN_USAGE | TRAIN_FAILED; train_rank_close is due after a failure too
 *
 * Rank 0 has the initial parameters, the other ranks zeros until the strategy distributes them. */
int train_rank_open(struct train_rank *t, const struct train_config *config,
		    const struct train_data *data, tuttiComm_t world);
void train_rank_close(struct train_rank *t);

#endif

/*
 * arrival_order.h - in which order a server took what came:
 * written down by --record, taken again by --replay
 *
 * Called by ps_server.c, and by train_main.c before ranks are started.
 */
#ifndef TT_TRAINER_ARRIVALS_H
#define TT_TRAINER_ARRIVALS_H

#include "trainer/trainer.h"

#include <stdio.h>

struct tt_arrivals {
	FILE *record, *replay; /* or NULL */
	const char *path;      /* of record, without the server's number */
	int number;
};

/* Are the files of --replay there, one for each server? Returns 0 | TT_TRAIN_USAGE. */
int tt_arrivals_check(const struct tt_config *config);

/* Every rank, where it can read the first server's file: is it of such a training?
 * Returns 0 | TT_TRAIN_USAGE. */
int tt_arrivals_fit(const struct tt_trainer *t, int workers);

/* Returns 0 | TT_TRAIN_USAGE, TT_TRAIN_FAILED. Close after a failure too. */
int tt_arrivals_open(struct tt_arrivals *a, const struct tt_trainer *t, int workers, int number);

/* Returns 0 | TT_TRAIN_FAILED: what was recorded is not all there. */
int tt_arrivals_close(struct tt_arrivals *a);

/* The first line of a record says of what training it is; in that of another, a replay would wait
 * for what never comes. Also strategy_spare.c's. replay: 0 | TT_TRAIN_USAGE with both */
void tt_record_head(FILE *record, const struct tt_trainer *t, int workers);
int tt_replay_head(FILE *replay, const char *path, const struct tt_trainer *t, int workers);

/* A message was taken. */
void tt_arrivals_note(struct tt_arrivals *a, int tag, int worker);

/* The next to be taken; false: whatever comes. */
bool tt_arrivals_next(struct tt_arrivals *a, int *ret_tag, int *ret_worker);

#endif

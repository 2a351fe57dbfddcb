/*
 * arrival_order.h - in which order a server took what came:
 * written down by --record, taken again by --replay
 *
 * Called by ps_server.c, and by train_main.c before ranks are started.
 */
#ifndef TRAIN_ARRIVALS_H
#define TRAIN_ARRIVALS_H

#include "trainer/trainer.h"

#include <stdio.h>

struct train_arrival_order {
	FILE *record, *replay; /* or NULL */
	const char *path;      /* of record, without the server's number */
	int number;
};

/* Are the files of --replay there, one for each server? Returns 0 | TRAIN_USAGE. */
int train_arrival_order_check(const struct train_config *config);

/* Every rank, where it can read the first server's file: is it of such a training?
 * Returns 0 | TRAIN_USAGE. */
int train_arrival_order_fit(const struct train_rank *t, int workers);

/* Returns 0 | TRAIN_USAGE, TRAIN_FAILED. Close after a failure too. */
int train_arrival_order_open(struct train_arrival_order *a, const struct train_rank *t, int workers, int number);

/* Returns 0 | TRAIN_FAILED: what was recorded is not all there. */
int train_arrival_order_close(struct train_arrival_order *a);

/* The first line of a record says of what training it is; in that of another, a replay would wait
 * for what never comes. Also strategy_spare.c's. replay: 0 | TRAIN_USAGE with both */
void train_record_head(FILE *record, const struct train_rank *t, int workers);
int train_replay_head(FILE *replay, const char *path, const struct train_rank *t, int workers);

/* A message was taken. */
void train_arrival_order_note(struct train_arrival_order *a, int tag, int worker);

/* The next to be taken; false: whatever comes. */
bool train_arrival_order_next(struct train_arrival_order *a, int *ret_tag, int *ret_worker);

#endif

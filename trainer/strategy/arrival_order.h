/*
 * arrival_order.h - the order in which a server received messages: recorded by --record,
 * repeated by --replay
 *
 * Called by ps_server.c, ps_worker.c and strategy_spare.c, and by job.c before ranks are
 * started.
 */
#ifndef TRAIN_ARRIVAL_ORDER_H
#define TRAIN_ARRIVAL_ORDER_H

#include "trainer/rank/rank.h"

#include <stdio.h>

struct train_arrival_order {
	FILE *record, *replay; /* or NULL */
	const char *path;      /* of record, without the server's number */
	int number;            /* of the server */
};

/* Checks that --replay has one file for each server, and --record can have. Returns 0 | TRAIN_USAGE. */
int train_arrival_order_check(const struct train_config *config);

/* Checks on every rank that can read the first server's file that it belongs to a training of this
 * size. Returns 0 | TRAIN_USAGE. */
int train_arrival_order_match(const struct train_rank *t, int workers);

/* Returns 0 | TRAIN_USAGE | TRAIN_FAILED. Close after a failure too. */
int train_arrival_order_open(struct train_arrival_order *a, const struct train_rank *t, int workers,
			     int number);

/* Returns 0 | TRAIN_FAILED: the record is incomplete. */
int train_arrival_order_close(struct train_arrival_order *a);

/* The first line of a record holds the numbers of workers and steps. A replay of another
 * training would wait for messages that never arrive. check_head returns 0 | TRAIN_USAGE with
 * both numbers. */
void train_arrival_order_write_head(FILE *record, const struct train_rank *t, int workers);
int train_arrival_order_check_head(FILE *replay, const char *path, const struct train_rank *t,
				   int workers);

/* Records a message. */
void train_arrival_order_note(struct train_arrival_order *a, int tag, int worker);

/* The next message of the replay; false at its end or without replay: accept any message. */
bool train_arrival_order_next(struct train_arrival_order *a, int *ret_tag, int *ret_worker);

#endif

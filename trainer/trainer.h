/*
 * trainer.h - one rank that trains: its parts, and what strategies call
 *
 * main.c makes a trainer, train.c runs its steps, a strategy says what a step is.
 */
#ifndef TT_TRAINER_TRAINER_H
#define TT_TRAINER_TRAINER_H

#include "config.h"
#include "data.h"
#include "device.h"
#include "fail.h"
#include "model.h"
#include "sampler.h"
#include "tutti.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* What follows the gradients in their array and is summed over the ranks with them. */
enum { TT_TAIL_LOSS, TT_TAIL_STOP, TT_TAIL };

struct tt_trainer {
	const struct tt_config *config;
	const struct tt_data *data;
	tuttiComm_t comm;
	int rank, nranks;
	struct tt_device device;
	struct tt_model model;
	struct tt_sampler sampler;
	const struct tt_strategy_ops *strategy;
	void *strategy_state;         /* the strategy's own */
	float *parameters, *velocity; /* device memory, [model.parameters] */
	float *gradients;             /* device memory, [model.parameters + TT_TAIL] */
	float *x;                     /* device memory, the images of a batch */
	uint8_t *labels;              /* of a batch */
	uint64_t exposed_ns;          /* a strategy adds the time it only waited for others */
};

/* This rank's share of a step. */
struct tt_batch {
	const uint32_t *samples; /* in data->train */
	size_t rows;             /* may be 0 */
	bool stop;               /* this rank was asked to end the training */
};

/* comm is open already; config and data outlive the trainer. Rank 0 has the parameters to start
 * from, the others zeros: handing them out is the strategy's. Returns 0 | TT_TRAIN_USAGE |
 * TT_TRAIN_FAILED; close after a failure too. */
int tt_trainer_open(struct tt_trainer *t, const struct tt_config *config,
		    const struct tt_data *data, tuttiComm_t comm);
void tt_trainer_close(struct tt_trainer *t);

/* gradients = the sums over this rank's rows, the tail behind them. ready as in model.h, or NULL;
 * the tail is final before the first call of ready. Returns 0 or what ready->fn returned. */
int tt_gradient(struct tt_trainer *t, const struct tt_batch *batch, const struct tt_ready *ready);

/* One step of gradient descent by gradients, which hold the sums over the whole global batch. */
void tt_descend(struct tt_trainer *t);

/* How good are the parameters on the test set? Called by all ranks, each works on its share. */
int tt_evaluate(struct tt_trainer *t, double *ret_accuracy, double *ret_loss);

/* Passes a result of the library on: 0, or TT_TRAIN_FAILED with the library's sentence. */
int tt_library(tuttiResult_t result, tuttiComm_t comm);

static inline uint64_t tt_time_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif

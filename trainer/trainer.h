/*
 * trainer.h - one rank that trains: its parts, and what strategies call
 *
 * train_main.c makes a trainer, train.c runs its steps, a strategy says what a step is. A device may have
 * memory that the host cannot touch; strategies therefore work on t->wire, which train_gradient fills
 * and train_descend reads, and on what train_parameters_lend gives: memory of t->wire_on, which adds and
 * copies there. That is the device where the library's calls take its memory and nobody else
 * touches it (train_strategy_ops.by_calls), and else the host.
 */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "trainer/train_config.h"
#include "trainer/data/data.h"
#include "trainer/device/device.h"
#include "trainer/fail.h"
#include "trainer/strategy/leaves.h"
#include "trainer/model/model.h"
#include "trainer/data/sampler.h"
#include "trainer/timeline.h"
#include "tutti.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What follows the gradients in their array and is summed over the ranks with them. */
enum { TRAIN_TAIL_LOSS, TRAIN_TAIL_STOP, TRAIN_TAIL };

enum { TRAIN_EVALUATE_ROWS = 256 }; /* test samples at once */

struct train_rank {
	const struct train_config *config;
	const struct train_data *data;
	tuttiComm_t world;            /* workers, then servers */
	tuttiComm_t comm;             /* the workers; without servers it is world */
	int rank, nranks;             /* among the workers; a server counts on behind them */
	int servers, first_server;    /* the latter in world */
	int world_rank;               /* at the start: what --slow, --kill and messages mean */
	struct train_device device;
	struct train_model model;
	struct train_sampler sampler;
	struct train_leaves leaves;
	struct train_gradient_sum sum;            /* this rank's part of the leaves */
	const struct train_strategy_ops *strategy;
	void *strategy_state;         /* the strategy's own */
	float *parameters, *velocity; /* device memory; velocity NULL: the optimizer is elsewhere */
	float *gradients;             /* device memory, [sum.nodes, at least 1][sum.stride] */
	size_t floats;                /* model.parameters + TRAIN_TAIL, of each node in use */
	float *wire;                  /* as gradients; the same memory where that can be */
	struct train_device *wire_on;    /* which wire is memory of: device, or host */
	struct train_device host;        /* for a wire that is a copy of a device's memory */
	tuttiStream_t beside;         /* NULL until train_overlap_open */
	float *host_parameters;       /* of a device that is apart, else NULL */
	int64_t *whole;               /* fixed64.h: as wire's first node; made when needed */
	int32_t *exponent;            /* fixed64.h: of each tensor and of the tail */
	float *x;                     /* device memory, the images of a batch */
	uint8_t *labels;              /* of a batch */
	float rate;                   /* learning rate of this step */
	uint64_t first_step;          /* done before, by the training that is resumed */
	uint64_t step;                /* being done, from 1; a strategy that took several says so */
	bool stopping;                /* own_pace: the strategy says that this is the last step */
	double wanted_ns;             /* fault.h: so long this gradient is to take; 0: as it does */
	uint64_t begin_ns, slept_ns;  /* when it was begun; how much of it was slept */
	uint64_t compute_ns;          /* the last one took, without sleep */
	uint64_t exposed_ns;          /* of waiting for others only */
	uint64_t message_bytes;       /* sent as messages, which the library's counters leave out */
	float *resumed;               /* rank 0 of a resumed training: its optimizer, or NULL */
	struct train_timeline timeline;
};

/* This rank's share of a step. */
struct train_batch {
	const uint32_t *samples; /* in data->train */
	size_t rows;             /* may be 0 */
	bool stop;               /* this rank was asked to end the training */
};

/* world is open already, and closed by close; config and data outlive the trainer. Rank 0 has the
 * parameters to start from, the others zeros: handing them out is the strategy's.
 * Returns 0 | TRAIN_USAGE | TRAIN_FAILED; close after a failure too. */
int train_rank_open(struct train_rank *t, const struct train_config *config,
		    const struct train_data *data, tuttiComm_t world);
void train_rank_close(struct train_rank *t);

/* The host cannot touch wire. */
static inline bool train_wire_apart(const struct train_rank *t) { return t->wire_on->ops->apart; }

static inline bool train_serves(const struct train_rank *t) { return t->rank >= t->nranks; }

/* This rank's part of the batch has changed, since t->comm has. Returns 0 | TRAIN_FAILED. */
int train_rank_share(struct train_rank *t);

/* wire = the sums over this rank's rows, node by node, the tail
 * behind each. ready as in model.h, or NULL; the tail is final before
 * the first call of ready. Returns 0 or what ready->fn returned. */
int train_gradient(struct train_rank *t, const struct train_batch *batch, const struct train_ready *ready);

/* The tail of wire's first node. */
void train_tail(struct train_rank *t, float ret_tail[TRAIN_TAIL]);

/* A stream for the library's calls on wire beside the backward pass. lead:
 * the calls from now on come behind all that is computed. wait: until all calls are done. */
int train_overlap_open(struct train_rank *t);
void train_overlap_lead(struct train_rank *t);
int train_overlap_wait(struct train_rank *t);
void train_overlap_close(struct train_rank *t);

/* One step of gradient descent by the first node of wire,
 * which holds the sums over `samples` samples. */
void train_descend(struct train_rank *t, size_t samples);

/* From since_ns until now this rank only waited for others. */
void train_exposed(struct train_rank *t, uint64_t since_ns);

/* The parameters in memory that the host and the library can read and write; changes count after
 * train_parameters_in. */
float *train_parameters_out(struct train_rank *t);
void train_parameters_in(struct train_rank *t);

/* The same in memory of wire_on, for the library and for wire_on's operations; what wire_on is
 * still at has to settle before the library takes it. */
float *train_parameters_lend(struct train_rank *t);
void train_parameters_return(struct train_rank *t);

/* These become the parameters; from is memory of wire_on. */
void train_parameters_adopt(struct train_rank *t, const float *host);
void train_parameters_take(struct train_rank *t, const float *from);

/* Every worker gets rank 0's parameters, and its velocity where there is one. */
int train_parameters_share(struct train_rank *t);
int train_parameters_share_from(struct train_rank *t, int root);

/* How good are the parameters on the test set? Called by all workers, each works on its share. */
int train_evaluate(struct train_rank *t, double *ret_accuracy, double *ret_loss);

/* Passes a result of the library on: 0, or TRAIN_FAILED with the library's sentence. */
int train_library(tuttiResult_t result, tuttiComm_t comm);

#endif

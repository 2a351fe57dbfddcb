/*
 * rank.h - one rank of a training: its state, gradients, parameters and communication buffer
 *
 * trainer.c opens a rank, train.c runs its steps, a strategy defines a step. A device may have
 * memory that the host cannot access. Strategies therefore use t->comm_buffer, which
 * train_gradient fills and train_descend reads, and the result of train_parameters_map. Both are
 * memory of t->comm_device, whose operations add and copy there. comm_device is the device if
 * the library accepts device memory and if only collectives and device operations touch the
 * buffer (train_strategy_ops.collectives_only); otherwise comm_device is the host.
 */
#ifndef TRAIN_RANK_H
#define TRAIN_RANK_H

#include "trainer/base/fail.h"
#include "trainer/data/data.h"
#include "trainer/data/sampler.h"
#include "trainer/data/shard.h"
#include "trainer/device/device.h"
#include "trainer/model/leaves.h"
#include "trainer/model/model.h"
#include "trainer/rank/config.h"
#include "trainer/rank/mesh.h"
#include "trainer/rank/rollout.h"
#include "trainer/rank/timeline.h"
#include "tutti.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The tail: floats behind the gradients in their array, summed over the ranks with the
 * gradients. */
enum { TRAIN_TAIL_LOSS, TRAIN_TAIL_STOP, TRAIN_TAIL };

enum { TRAIN_EVALUATE_ROWS = 256 }; /* test predictions of one forward pass */

struct train_rank {
	const struct train_config *config;
	const struct train_data *data;
	tuttiComm_t world;   /* workers, then servers */
	tuttiComm_t grown;   /* of these ranks and further ones, whose training follows; or NULL */
	char grown_mesh[64]; /* its --mesh; "": none */
	tuttiComm_t comm;    /* the workers; without servers the same as world */
	struct train_mesh mesh;          /* with a pipeline, comm contains the ranks of one stage */
	struct train_pipeline *pipeline; /* NULL: the model is not cut */
	int rank, nranks;                /* among the workers; servers are numbered from nranks */
	int servers, first_server;       /* number of servers; rank of the first in world */
	int world_rank;                  /* initial rank in world: --slow, --kill, messages */
	struct train_device device;
	struct train_model model;
	struct train_sampler sampler;
	struct train_shard shard; /* of --shard-data */
	struct train_leaves leaves;
	struct train_leaf_sum sum; /* this rank's part of the leaves */
	const struct train_strategy_ops *strategy;
	bool collectives_only; /* of strategy */
	void *strategy_state;  /* the strategy's own */
	float *parameters;     /* device memory */
	float *state; /* of the optimizer: device memory, [arrays][parameters]; NULL: a store has it */
	float *gradients; /* device memory, [sum.nodes, at least 1][sum.stride] */
	uint64_t bytes; /* of parameters, gradients and optimizer, on the rank that has the most */
	size_t tail_at, floats;           /* of a node: offset of its tail; used floats */
	float *comm_buffer;               /* shape of gradients; the same memory where possible */
	struct train_device *comm_device; /* owner of comm_buffer's memory: &device or &host */
	struct train_device host;      /* owner of a comm_buffer that copies a device's gradients */
	tuttiStream_t comm_stream;     /* NULL until train_comm_stream_open */
	float *host_parameters;        /* host copy of a separate device memory, else NULL */
	int64_t *fixed_sum;            /* fixed64.h: shape of a node; allocated on use */
	int32_t *exponent;             /* fixed64.h: of each tensor and float of the tail */
	float *x;                      /* device memory, images of a batch */
	uint8_t *labels;               /* labels of a batch */
	struct train_rollout *rollout; /* of a worker that plays; NULL: x and labels are data */
	float momentum;                /* of SGD; 0: the strategy has it (compress.h) */
	float rate;                    /* learning rate of this step */
	uint64_t first_step;           /* steps done before by the resumed training */
	uint64_t done;                 /* steps that the parameters include */
	uint64_t saved;                /* step of the last checkpoint of this training; 0: none */
	uint64_t step;                 /* current step, from 1; a strategy may advance it */
	bool stopping;                 /* local_replicas without ask: set in the last step */
	double pace_ns;                /* fault.h: simulated time of this gradient; 0: real time */
	uint64_t begin_ns, slept_ns;   /* start of this gradient; time slept in it */
	uint64_t compute_ns;           /* time of the last gradient, without sleep */
	uint64_t computed_ns;          /* total time of gradients, with sleep */
	uint64_t exposed_ns;           /* total exposed communication: waiting only */
	uint64_t message_bytes; /* bytes sent as messages; the library's counters omit them */
	float *resumed_state;   /* rank 0 of a resumed training: optimizer state, or NULL */
	size_t resumed_arrays;  /* arrays of each rank's own state in the checkpoint, or 0 */
	float *resumed_own;     /* rank 0: these arrays, of one rank after the other */
	struct train_timeline timeline;
};

/* This rank's share of a step. */
struct train_batch {
	const uint32_t *samples; /* indices in train_training_set */
	size_t rows;             /* may be 0 */
	bool stop;               /* a signal asked this rank to end the training */
};

/* A server of a strategy with parameter servers. */
static inline bool train_is_server(const struct train_rank *t)
{
	return t->rank >= t->nranks;
}

/* Test samples of one forward pass. */
static inline size_t train_evaluate_rows(const struct train_rank *t)
{
	size_t positions = t->data->positions;

	return positions < TRAIN_EVALUATE_ROWS ? TRAIN_EVALUATE_ROWS / positions : 1;
}

/* The factor of a sum of gradients over `samples` samples: a loss is the mean over predictions. */
static inline float train_mean_scale(const struct train_rank *t, size_t samples)
{
	return 1.0f / (float)(samples * t->data->positions);
}

/* The training set, or this rank's shard of the current epoch. */
static inline const struct train_set *train_training_set(const struct train_rank *t)
{
	return t->data->sharded ? &t->shard.train.set : &t->data->train;
}

/* Loads samples to t->x, and their labels to t->labels. */
void train_load(struct train_rank *t, const struct train_set *set, const uint32_t *samples,
		size_t rows);

/* comm_buffer is device memory, which the host cannot access. */
static inline bool train_comm_on_device(const struct train_rank *t)
{
	return t->comm_device->ops->separate_memory;
}

/* train_rank_partition - compute this rank's share of the batch and allocate gradients and
 * comm_buffer
 *
 *   Call      after every change of t->comm
 *   Returns   0 | TRAIN_FAILED (no memory) */
int train_rank_partition(struct train_rank *t);
void train_rank_partition_free(struct train_rank *t);

/* train_gradient - comm_buffer = the sums over this rank's rows, node by node, each with its tail
 *
 *   ready     callback as in model.h, or NULL; the tail is final before its first call
 *   Returns   0 | TRAIN_FAILED | the code of ready->fn */
int train_gradient(struct train_rank *t, const struct train_batch *batch,
		   const struct train_ready *ready);

/* Reads the tail of comm_buffer's first node. */
void train_read_tail(struct train_rank *t, float ret_tail[TRAIN_TAIL]);

/* A stream for library calls on a comm_buffer of device memory that overlap with the backward pass.
 * open returns 0 | TRAIN_FAILED. after_compute orders later calls behind all computation submitted so far. wait
 * blocks until all calls are done and returns 0 | TRAIN_FAILED. */
int train_comm_stream_open(struct train_rank *t);
void train_comm_stream_after_compute(struct train_rank *t);
int train_comm_stream_wait(struct train_rank *t);
void train_comm_stream_close(struct train_rank *t);

/* One step of gradient descent by comm_buffer's first node, the sum over `samples` samples. */
void train_descend(struct train_rank *t, size_t samples);

/* Adds the time from since_ns until now to the exposed communication. */
void train_add_exposed(struct train_rank *t, uint64_t since_ns);

/* The parameters in memory that the host and the library can read and write. Changes take effect
 * with train_parameters_upload. */
float *train_parameters_download(struct train_rank *t);
void train_parameters_upload(struct train_rank *t);

/* The parameters in memory of comm_device, for the library and for comm_device's operations.
 * comm_device must be synchronized before the library uses the pointer. Changes take effect with
 * train_parameters_unmap. */
float *train_parameters_map(struct train_rank *t);
void train_parameters_unmap(struct train_rank *t);

/* Replaces the parameters; `host` is host memory, `from` memory of comm_device. */
void train_parameters_set_host(struct train_rank *t, const float *host);
void train_parameters_set(struct train_rank *t, const float *from);

/* Broadcasts the parameters of rank 0 (or root) to every worker, with the optimizer's state: always by
 * _from, otherwise after a resume. Returns 0 | TRAIN_FAILED. */
int train_parameters_bcast(struct train_rank *t);
int train_parameters_bcast_from(struct train_rank *t, int root);

/* Accuracy and mean loss on the test set; of an environment the mean return as a share of the greatest, and 0.
 * Call by all workers; each evaluates its share. Returns 0 | TRAIN_FAILED. */
int train_evaluate(struct train_rank *t, double *ret_accuracy, double *ret_loss);

/* Converts a result of the library: 0 | TRAIN_FAILED with the library's error text. */
int train_check(tuttiResult_t result, tuttiComm_t comm);

#endif

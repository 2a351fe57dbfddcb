/*
 * pipeline_state.h - the state of a stage: passes of micro-batches, and sums of their gradients
 *
 * Shared by pipeline.c, which runs the schedule, and pipeline_sums.c.
 */
#ifndef TRAIN_PIPELINE_STATE_H
#define TRAIN_PIPELINE_STATE_H

#include "trainer/rank/pipeline.h"

/* The memory of a micro-batch's pass through a chunk. */
struct pipeline_slot {
	struct train_activations activations;
	float *x; /* received input; NULL: the chunk gets its input without a message */
	bool used;
};

/* The slots of a chunk of this stage, and the slot of each micro-batch. */
struct pipeline_chunk {
	struct pipeline_slot *slot; /* [micro] */
	int slots;                  /* that have memory */
	int *slot_of;               /* [micro] */
};

/* The sum of a range of floats over micro-batches: nodes that no further addition combines. */
struct pipeline_sum {
	size_t at, count; /* range in the gradients; at = model.parameters: the loss */
	struct train_node *node;
	size_t n;
};

struct train_pipeline {
	struct train_schedule schedule;
	struct train_schedule_proof proof;
	int micro, stage;
	size_t rows;                  /* greatest number of samples of a micro-batch */
	struct pipeline_chunk *chunk; /* [schedule.chunks]; only those of this stage have slots */
	struct pipeline_sum *sum;     /* [schedule.chunks + 1]; the last is that of the loss */
	float *partial;               /* device memory, [capacity][sum.stride] */
	size_t capacity;              /* nodes of partial */
	void **place;                 /* [capacity]: used by a fold */
	int used, peak;               /* slots in use; greatest number */
	uint64_t busy_ns;             /* time in computations of this gradient */
	double busy, span;            /* totals of all stages, of all steps */
	int *activations;             /* [stages]: greatest number of slots of each stage */
	double *message;              /* [stages][tail of each node, then 3 figures] */
};

/* The leaves of a micro-batch of this rank's share. */
struct train_node train_pipeline_leaves(const struct train_rank *t, int micro);

/* Allocates the sums. Returns 0 | TRAIN_FAILED. */
int train_pipeline_sums_open(struct train_rank *t);
void train_pipeline_sums_close(struct train_rank *t);

/* Where the sums of a micro-batch's leaves go; fn of train_pipeline_add adds them to the sum. */
struct train_pipeline_part {
	struct train_leaf_sum sum;
	float *gradients;
};
struct train_pipeline_part train_pipeline_part(struct train_rank *t, struct pipeline_sum *s,
					       int micro);
void train_pipeline_add(struct train_rank *t, struct pipeline_sum *s, int micro);

/* t->gradients = the sum over all micro-batches, which is empty afterwards. */
void train_pipeline_store(struct train_rank *t, struct pipeline_sum *s);

#endif

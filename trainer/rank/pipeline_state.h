/*
 * pipeline_state.h - the state of a stage: links to its neighbors, passes of micro-batches, and sums
 * of their gradients
 *
 * Shared by the files pipeline*.c: pipeline.c opens and closes a stage, pipeline_run.c runs its list,
 * pipeline_compute.c its computations, pipeline_links.c its messages, pipeline_time.c those of a
 * part of a sequence.
 */
#ifndef TRAIN_PIPELINE_STATE_H
#define TRAIN_PIPELINE_STATE_H

#include "trainer/rank/pipeline.h"

/* The messages of a stage, by what they carry and where they go. */
enum pipeline_message {
	PIPELINE_INPUT,  /* x from the stage of the previous chunk */
	PIPELINE_OUTPUT, /* y to the stage of the next chunk */
	PIPELINE_DY,     /* the gradient of y from the stage of the next chunk */
	PIPELINE_DX,     /* the gradient of x to the stage of the previous chunk */
	PIPELINE_LINKS
};

/* One neighbor and direction. Calls of a communicator run in their order, so each link has its own:
 * a receive that waits delays no other message. */
struct pipeline_link {
	tuttiComm_t comm; /* of both stages; NULL: there is no such neighbor */
	tuttiStream_t stream;
	int peer;
	uint64_t end_ns; /* of its last message in the timeline */
};

/* The memory of a micro-batch's pass through a chunk. Parts of a sequence share the activations and
 * x of the chunk's first slot. */
struct pipeline_slot {
	tuttiEvent_t event[PIPELINE_LINKS]; /* end of the latest message of each kind */
	uint64_t posted_ns[PIPELINE_LINKS]; /* its begin */
	struct train_activations activations;
	float *x; /* received input; NULL: the chunk gets its input without a message */
	float *part[PIPELINE_LINKS]; /* messages of a part of a sequence; NULL: none, or no parts */
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

enum { PIPELINE_FIGURES = 3 }; /* of a stage and a step: peak, busy, span */

struct train_pipeline {
	struct pipeline_link link[PIPELINE_LINKS];
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

/* Doubles that a stage tells the others in a step. */
static inline size_t train_pipeline_tail(const struct train_rank *t)
{
	return t->sum.nodes * TRAIN_TAIL + PIPELINE_FIGURES;
}

/* ---- slots ------------------------------------------------------------------------------------- */

struct pipeline_slot *train_slot_of(struct train_pipeline *p, int chunk, int micro);
float *train_slot_output(struct pipeline_slot *slot);

/* Gives the micro-batch a slot of the chunk, whose sends are complete. Returns 0 | TRAIN_FAILED. */
int train_slot_take(struct train_rank *t, int chunk, int micro);
void train_slot_free(struct train_pipeline *p, int chunk, int micro);
/* Call after train_links_close. */
void train_slots_close(struct train_rank *t, struct pipeline_chunk *chunk);

/* ---- messages ---------------------------------------------------------------------------------- */

/* Call by all stages of a replica. Returns 0 | TRAIN_FAILED. */
int train_links_open(struct train_rank *t);
/* Ends messages that are under way after a failure. */
void train_links_close(struct train_pipeline *p);

/* Begins the message of a step. Returns 0 | TRAIN_FAILED. */
int train_links_pass(struct train_rank *t, struct train_schedule_step step);
/* Wait for the data that a computation receives; until a slot's data is sent. Return 0 |
 * TRAIN_FAILED. */
int train_links_wait(struct train_rank *t, struct train_schedule_step step);
int train_links_sent(struct train_rank *t, struct pipeline_slot *slot);

/* ---- parts of a sequence ----------------------------------------------------------------------- */

/* The positions of a micro-batch; empty if it has whole sequences. */
struct train_node train_part_positions(const struct train_rank *t, int micro);

/* Memory for the messages of a slot of the chunk. Returns 0 | TRAIN_FAILED. */
int train_part_open(struct train_rank *t, int chunk, struct pipeline_slot *slot);
void train_part_close(struct train_rank *t, struct pipeline_slot *slot);

/* Copies the micro-batch's part of data[rows][width] to the slot's message, or back. */
void train_part_copy(struct train_rank *t, struct pipeline_slot *slot, int micro,
		     enum pipeline_message message, float *data, size_t width);

/* ---- computations ------------------------------------------------------------------------------ */

/* Runs a computation when its data is there. Returns 0 | TRAIN_FAILED. */
int train_pipeline_compute(struct train_rank *t, struct train_schedule_step step);

/* ---- sums -------------------------------------------------------------------------------------- */

/* The rows of a micro-batch within this rank's share, of which gradients of weights are summed; those
 * of its forward and backward_input, which are all rows if it is a part of a sequence. */
struct train_node train_pipeline_micro(const struct train_rank *t, int micro);
struct train_node train_pipeline_rows_of(const struct train_rank *t, int micro);

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

/*
 * schedule.h - training schedules as data: for each stage of a pipeline a list of steps
 *
 * A model is cut into chunks, a global batch into micro-batches. Chunk c is on stage c % stages;
 * with one chunk a stage, chunk and stage are the same number. A recurrent schedule cuts time
 * instead: a micro-batch is a part of the sequence, which begins with the hidden state that the part
 * before it left. Only in BACKWARD_WEIGHTS a micro-batch is some samples there, with their whole
 * sequences.
 *
 * A schedule is one file schedule_NAME.c, whose builder appends the computations of a stage in
 * their order, and one row of the table in schedule.c. schedule_messages.c adds sends, receives
 * and the ends of activations. schedule_check.c proves the result, schedule_simulate.c gives each
 * step a time, schedule_draw.c draws the times. Called by schedule_command.c.
 */
#ifndef TRAIN_SCHEDULE_H
#define TRAIN_SCHEDULE_H

#include <stdbool.h>
#include <stdio.h>

enum { TRAIN_STAGES_MAX = 64, TRAIN_MICRO_MAX = 1024, TRAIN_CHUNKS_MAX = 26 * TRAIN_STAGES_MAX };

/* The steps of a stage. x is the input of a chunk, y its output; dx and dy are their gradients. */
enum train_step_kind {
	TRAIN_STEP_FORWARD,          /* y = chunk(x); keeps the activations */
	TRAIN_STEP_BACKWARD,         /* BACKWARD_INPUT and BACKWARD_WEIGHTS as one step */
	TRAIN_STEP_BACKWARD_INPUT,   /* dx, of the activations and dy */
	TRAIN_STEP_BACKWARD_WEIGHTS, /* gradients += those of the activations and dy */
	TRAIN_STEP_FREE,             /* the activations end */
	TRAIN_STEP_SEND_OUTPUT,      /* y to the stage of the next chunk */
	TRAIN_STEP_RECEIVE_INPUT,    /* x from the stage of the previous chunk */
	TRAIN_STEP_SEND_GRADIENT,    /* dx to the stage of the previous chunk */
	TRAIN_STEP_RECEIVE_GRADIENT, /* dy from the stage of the next chunk */
	TRAIN_STEP_REDUCE,           /* sum the chunk's gradients over the data axis */
	TRAIN_STEP_UPDATE            /* the optimizer changes the chunk's parameters */
};

struct train_schedule_step {
	enum train_step_kind kind;
	int chunk, micro; /* micro: 0 for REDUCE and UPDATE */
};

struct train_step_list {
	struct train_schedule_step *step;
	int n, capacity;
};

/* Durations. Computations are those of one chunk and one micro-batch. */
struct train_costs {
	double forward, backward_input, backward_weights;
	double send; /* from the begin of a send until the receiver has the message */
};

struct train_schedule {
	const struct train_schedule_ops *ops;
	int stages, chunks, micro;
	struct train_step_list list[TRAIN_STAGES_MAX];
	int gradients
		[TRAIN_CHUNKS_MAX]; /* used by builders: micro-batches that a chunk has summed */
	bool failed;                /* no memory for a step */
};

struct train_schedule_ops {
	const char *name, *help;
	bool chunked;   /* the name takes ":V", chunks a stage */
	bool recurrent; /* micro-batches are parts of a sequence */

	/* Appends the computations of a stage, by the verbs below. */
	void (*build)(struct train_schedule *s, int stage);

	/* Formulas: the time of the whole schedule if messages take no time, and the greatest
	 * number of activations that a stage keeps. Negative: no formula for these values. */
	double (*span)(const struct train_schedule *s, const struct train_costs *costs);
	int (*activations)(const struct train_schedule *s, int stage);
};

extern const struct train_schedule_ops train_schedule_gpipe, train_schedule_1f1b,
	train_schedule_interleaved, train_schedule_zero_bubble, train_schedule_wavefront;
extern const struct train_schedule_ops *const train_schedules[]; /* ends with NULL */

/* train_schedule_open - build the schedule `text` (NAME or NAME:V)
 *
 *   stages, micro   1 to TRAIN_STAGES_MAX, 1 to TRAIN_MICRO_MAX
 *   Returns         0 | TRAIN_USAGE (no such schedule, or a bad number) | TRAIN_FAILED (no memory).
 *                   Close it in any case. */
int train_schedule_open(struct train_schedule *s, const char *text, int stages, int micro);
void train_schedule_close(struct train_schedule *s);

/* ---- verbs of builders ----------------------------------------------------------------------- */

/* The computations of the stage that has the chunk. backward_weights of a chunk's last micro-batch
 * is followed by REDUCE. */
void train_schedule_forward(struct train_schedule *s, int chunk, int micro);
void train_schedule_backward(struct train_schedule *s, int chunk, int micro);
void train_schedule_backward_input(struct train_schedule *s, int chunk, int micro);
void train_schedule_backward_weights(struct train_schedule *s, int chunk, int micro);

static inline int train_schedule_smaller(int a, int b)
{
	return a < b ? a : b;
}

/* ---- parts ----------------------------------------------------------------------------------- */

void train_step_append(struct train_schedule *s, int stage, enum train_step_kind kind, int chunk,
		       int micro);

/* The stage at the other end of a send or receive. */
int train_step_peer(const struct train_schedule *s, struct train_schedule_step step);
bool train_step_is_send(enum train_step_kind kind);
bool train_step_is_receive(enum train_step_kind kind);
/* "forward", "send-output" ... */
const char *train_step_name(enum train_step_kind kind);

/* Adds sends, receives and the ends of activations to lists of computations. A send follows the
 * computation of its data. A receive precedes the computation that needs its data, and comes
 * earlier only where stages would otherwise wait for each other. Returns 0 | TRAIN_FAILED (no
 * memory, or the computations cannot run in this order). */
int train_schedule_connect(struct train_schedule *s);

/* ---- proof, simulation, drawing --------------------------------------------------------------- */

struct train_schedule_proof {
	int activations[TRAIN_STAGES_MAX]; /* greatest number that the stage keeps at once */
	int sends;
};

/* train_schedule_check - prove a schedule for its number of stages and micro-batches
 *
 *   Proves    every receive gets the data that it names; no deadlock even if every send waits for
 *             its receive; data is made before its use and ends once; the gradient of each weight
 *             is the same expression as on one device: each micro-batch once, in the same order;
 *             REDUCE follows the last gradient, UPDATE follows REDUCE
 *   Returns   0 | TRAIN_FAILED: the error text names the stage, the step and the fault */
int train_schedule_check(const struct train_schedule *s, struct train_schedule_proof *ret_proof);

struct train_step_time {
	double begin, end;
};

struct train_schedule_times {
	struct train_step_time *of[TRAIN_STAGES_MAX]; /* of[stage][step of its list] */
	double span;                                  /* end of the last step */
	double busy[TRAIN_STAGES_MAX];                /* time in computations */
	double bubble; /* share of the stages' time without computation */
};

/* Gives each step of a proved schedule a time. Messages run beside computations; a computation
 * waits for its data. REDUCE, UPDATE and FREE take no time. Returns 0 | TRAIN_FAILED (no memory, or
 * a computation whose data is never sent). Free in any case. */
int train_schedule_simulate(const struct train_schedule *s, const struct train_costs *costs,
			    struct train_schedule_times *ret_times);
void train_schedule_times_free(struct train_schedule_times *times);

/* Draws a row for each stage over time: as text, with a column for each unit of time (durations are
 * whole numbers), or as SVG. */
void train_schedule_draw_text(FILE *to, const struct train_schedule *s,
			      const struct train_schedule_times *times);
void train_schedule_draw_svg(FILE *to, const struct train_schedule *s,
			     const struct train_schedule_times *times);

#endif

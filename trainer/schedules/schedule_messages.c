/*
 * schedule_messages.c - sends, receives and ends of activations for lists of computations
 * (schedule.h)
 *
 * All stages walk through their computations together. A stage whose data the next stage needs
 * stops until that stage receives. A stage receives when its next computation needs the data.
 * Where stages wait for each other in a circle, one of them receives before its own send: a
 * gradient if there is one, since it costs no activation. As a message is one event of both
 * stages, the lists cannot deadlock. Called by schedule.c.
 */
#include "trainer/schedules/schedule.h"

#include "trainer/base/fail.h"

#include <stdlib.h>
#include <string.h>

struct message_walk {
	struct train_schedule *s;
	struct train_step_list computations[TRAIN_STAGES_MAX];
	int next[TRAIN_STAGES_MAX];                        /* index in computations */
	bool sending[TRAIN_STAGES_MAX];                    /* the stage waits for its receiver */
	struct train_schedule_step send[TRAIN_STAGES_MAX]; /* while sending */
	bool *input, *gradient; /* x and dy of [chunk][micro] are on the chunk's stage */
};

static size_t index_of(const struct train_schedule *s, int chunk, int micro)
{
	return (size_t)chunk * (size_t)s->micro + (size_t)micro;
}

static bool finished(const struct message_walk *w, int stage)
{
	return !w->sending[stage] && w->next[stage] == w->computations[stage].n;
}

/* Sets *ret_step to the receive that the stage's next computation needs; false: none. */
static bool find_receive(const struct message_walk *w, int stage,
			 struct train_schedule_step *ret_step)
{
	struct train_schedule_step step;
	bool input = false, gradient = false;
	size_t i;

	if (w->sending[stage] || finished(w, stage))
		return false;
	step = w->computations[stage].step[w->next[stage]];
	i = index_of(w->s, step.chunk, step.micro);
	if (step.kind == TRAIN_STEP_FORWARD)
		input = step.chunk > 0 && !w->input[i];
	else if (step.kind != TRAIN_STEP_REDUCE && step.kind != TRAIN_STEP_UPDATE)
		gradient = !w->gradient[i];
	step.kind = input ? TRAIN_STEP_RECEIVE_INPUT : TRAIN_STEP_RECEIVE_GRADIENT;
	*ret_step = step;
	return input || gradient;
}

/* The receive of the message that the stage sends. */
static struct train_schedule_step receive_of(const struct message_walk *w, int stage)
{
	struct train_schedule_step step = w->send[stage];

	if (step.kind == TRAIN_STEP_SEND_OUTPUT)
		return (struct train_schedule_step){ TRAIN_STEP_RECEIVE_INPUT, step.chunk + 1,
						     step.micro };
	return (struct train_schedule_step){ TRAIN_STEP_RECEIVE_GRADIENT, step.chunk - 1,
					     step.micro };
}

static void arrive(struct message_walk *w, struct train_schedule_step receive)
{
	bool *at = receive.kind == TRAIN_STEP_RECEIVE_INPUT ? w->input : w->gradient;

	at[index_of(w->s, receive.chunk, receive.micro)] = true;
}

/* Appends the message that the stage sends to the lists of both stages. */
static void deliver(struct message_walk *w, int stage)
{
	struct train_schedule_step send = w->send[stage], receive = receive_of(w, stage);

	train_step_append(w->s, stage, send.kind, send.chunk, send.micro);
	train_step_append(w->s, train_step_peer(w->s, send), receive.kind, receive.chunk,
			  receive.micro);
	arrive(w, receive);
	w->sending[stage] = false;
}

/* y or dx has been computed. */
static void offer(struct message_walk *w, int stage, struct train_schedule_step step)
{
	bool forward = step.kind == TRAIN_STEP_FORWARD;

	if (forward && step.chunk == w->s->chunks - 1) {
		w->gradient[index_of(w->s, step.chunk, step.micro)] = true; /* of the loss */
		return;
	}
	if (!forward && step.chunk == 0)
		return;
	step.kind = forward ? TRAIN_STEP_SEND_OUTPUT : TRAIN_STEP_SEND_GRADIENT;
	w->send[stage] = step;
	if (train_step_peer(w->s, step) == stage)
		arrive(w, receive_of(w, stage));
	else
		w->sending[stage] = true;
}

/* Appends the ends of activations after gradients of weights. Those of a recurrent schedule need the
 * whole sequence. */
static void end_activations(struct message_walk *w, int stage, struct train_schedule_step step)
{
	if (!w->s->ops->recurrent)
		train_step_append(w->s, stage, TRAIN_STEP_FREE, step.chunk, step.micro);
	else if (step.micro == w->s->micro - 1)
		for (int m = 0; m < w->s->micro; m++)
			train_step_append(w->s, stage, TRAIN_STEP_FREE, step.chunk, m);
}

/* Appends the stage's next computation. Returns false if the stage waits. */
static bool compute(struct message_walk *w, int stage)
{
	struct train_schedule_step step, receive;

	if (w->sending[stage] || finished(w, stage) || find_receive(w, stage, &receive))
		return false;
	step = w->computations[stage].step[w->next[stage]++];
	train_step_append(w->s, stage, step.kind, step.chunk, step.micro);
	if (step.kind == TRAIN_STEP_BACKWARD || step.kind == TRAIN_STEP_BACKWARD_WEIGHTS)
		end_activations(w, stage, step);
	if (step.kind == TRAIN_STEP_FORWARD || step.kind == TRAIN_STEP_BACKWARD ||
	    step.kind == TRAIN_STEP_BACKWARD_INPUT)
		offer(w, stage, step);
	return true;
}

/* Delivers the stage's message if its receiver waits for it. */
static bool send_to_waiting(struct message_walk *w, int stage)
{
	struct train_schedule_step wanted, receive;

	if (!w->sending[stage])
		return false;
	receive = receive_of(w, stage);
	if (!find_receive(w, train_step_peer(w->s, w->send[stage]), &wanted) ||
	    wanted.kind != receive.kind || wanted.chunk != receive.chunk ||
	    wanted.micro != receive.micro)
		return false;
	deliver(w, stage);
	return true;
}

/* The stage that this one waits for; itself if it is finished. */
static int waits_for(const struct message_walk *w, int stage)
{
	struct train_schedule_step receive;

	if (w->sending[stage])
		return train_step_peer(w->s, w->send[stage]);
	return find_receive(w, stage, &receive) ? train_step_peer(w->s, receive) : stage;
}

/* Delivers one message of a circle of waiting stages. Returns false if the circle has none. */
static bool break_circle(struct message_walk *w)
{
	int at = 0, found = -1;

	while (finished(w, at))
		at++;
	for (int i = 0; i < w->s->stages; i++)
		at = waits_for(w, at);
	for (int i = 0; i < w->s->stages; i++, at = waits_for(w, at))
		if (w->sending[at] && (found < 0 || w->send[at].kind == TRAIN_STEP_SEND_GRADIENT))
			found = at;
	if (found >= 0)
		deliver(w, found);
	return found >= 0;
}

static int walk(struct message_walk *w)
{
	for (int left = w->s->stages; left > 0;) {
		bool moved = false;

		left = 0;
		for (int stage = 0; stage < w->s->stages; stage++) {
			while (compute(w, stage) || send_to_waiting(w, stage))
				moved = true;
			left += !finished(w, stage);
		}
		if (left && !moved && !break_circle(w))
			return train_fail(TRAIN_FAILED,
					  "schedule %s: %d stages and %d micro-batches: "
					  "computations wait for each other in a circle",
					  w->s->ops->name, w->s->stages, w->s->micro);
	}
	return TRAIN_OK;
}

int train_schedule_connect(struct train_schedule *s)
{
	size_t count = (size_t)s->chunks * (size_t)s->micro;
	struct message_walk *w = calloc(1, sizeof(*w));
	int rc = TRAIN_FAILED;

	if (w) {
		w->s = s;
		w->input = calloc(count, sizeof(*w->input));
		w->gradient = calloc(count, sizeof(*w->gradient));
		memcpy(w->computations, s->list, sizeof(s->list));
		memset(s->list, 0, sizeof(s->list));
	}
	if (!w || !w->input || !w->gradient)
		s->failed = true;
	else if (!s->failed)
		rc = walk(w);
	if (s->failed)
		rc = train_fail(TRAIN_FAILED, "no memory for a schedule of %d micro-batches",
				s->micro);
	for (int stage = 0; w && stage < s->stages; stage++)
		free(w->computations[stage].step);
	if (w) {
		free(w->input);
		free(w->gradient);
	}
	free(w);
	return rc;
}

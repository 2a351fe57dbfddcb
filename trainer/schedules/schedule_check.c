/*
 * schedule_check.c - the proof of a schedule: its lists are executed with facts about data in place
 * of data (schedule.h)
 *
 * A message is one event of two stages that have both come to it, which is the strictest kind of
 * send: who does not deadlock here, deadlocks nowhere. The order in which the stages are executed
 * does not matter, since each of them waits for one certain peer. Called by schedule_command.c and
 * by the rank that runs a schedule; knows nothing of builders and schedule_messages.c.
 */
#include "trainer/schedules/schedule.h"

#include "trainer/base/fail.h"

#include <stdarg.h>
#include <stdlib.h>

/* Facts about a micro-batch on a chunk. */
enum {
	FACT_INPUT = 1,   /* x is here */
	FACT_FORWARD = 2, /* y was computed */
	FACT_SENT_OUTPUT = 4,
	FACT_GRADIENT = 8,  /* dy is here */
	FACT_BACKWARD = 16, /* dx was computed */
	FACT_SENT_GRADIENT = 32,
	FACT_SUMMED = 64, /* the gradient of the weights was added */
	FACT_FREED = 128,
	FACT_ALIVE = 256 /* the activations take memory */
};

struct chunk_facts {
	int summed; /* gradients in the sum */
	bool reduced, updated;
};

struct schedule_proof {
	const struct train_schedule *s;
	int *facts; /* [chunk][micro] */
	struct chunk_facts chunk[TRAIN_CHUNKS_MAX];
	int next[TRAIN_STAGES_MAX];
	int alive[TRAIN_STAGES_MAX];
	struct train_schedule_proof result;
};

static int __attribute__((format(printf, 3, 4)))
refute(const struct schedule_proof *p, int stage, const char *format, ...)
{
	const struct train_schedule *s = p->s;
	char fault[200], where[120] = "at its end";
	va_list args;

	va_start(args, format);
	vsnprintf(fault, sizeof(fault), format, args);
	va_end(args);
	if (p->next[stage] < s->list[stage].n) {
		struct train_schedule_step step = s->list[stage].step[p->next[stage]];

		snprintf(where, sizeof(where), "step %d (%s, chunk %d, micro-batch %d)",
			 p->next[stage], train_step_name(step.kind), step.chunk, step.micro);
	}
	return train_fail(TRAIN_FAILED,
			  "schedule %s, %d stages, %d micro-batches: stage %d, %s: %s",
			  s->ops->name, s->stages, s->micro, stage, where, fault);
}

static int *facts_of(const struct schedule_proof *p, int chunk, int micro)
{
	return &p->facts[(size_t)chunk * (size_t)p->s->micro + (size_t)micro];
}

static void keep(struct schedule_proof *p, int stage, int *facts)
{
	if (*facts & FACT_ALIVE)
		return;
	*facts |= FACT_ALIVE;
	if (++p->alive[stage] > p->result.activations[stage])
		p->result.activations[stage] = p->alive[stage];
}

/* ---- computations ------------------------------------------------------------------------------ */

/* The recurrent neighbor of a micro-batch has the fact, if there is such a neighbor. */
static bool neighbor_has(const struct schedule_proof *p, struct train_schedule_step step, int by,
			 int fact)
{
	int micro = step.micro + by;

	if (!p->s->ops->recurrent || micro < 0 || micro >= p->s->micro)
		return true;
	return *facts_of(p, step.chunk, micro) & fact;
}

static int check_forward(struct schedule_proof *p, int stage, struct train_schedule_step step)
{
	int *facts = facts_of(p, step.chunk, step.micro);
	bool local = step.chunk > 0 && p->s->stages == 1;

	if (*facts & FACT_FORWARD)
		return refute(p, stage, "the second forward pass of a micro-batch");
	if (step.chunk == 0 || (local && *facts_of(p, step.chunk - 1, step.micro) & FACT_FORWARD))
		*facts |= FACT_INPUT;
	if (!(*facts & FACT_INPUT))
		return refute(p, stage, "its input is not here");
	if (!neighbor_has(p, step, -1, FACT_FORWARD))
		return refute(p, stage, "the micro-batch before it has left no hidden state");
	if (p->chunk[step.chunk].updated)
		return refute(p, stage, "the parameters were changed before");
	*facts |= FACT_FORWARD;
	if (step.chunk == p->s->chunks - 1)
		*facts |= FACT_GRADIENT;
	keep(p, stage, facts);
	return TRAIN_OK;
}

static int check_backward_input(struct schedule_proof *p, int stage,
				struct train_schedule_step step)
{
	int *facts = facts_of(p, step.chunk, step.micro);
	bool local = step.chunk + 1 < p->s->chunks && p->s->stages == 1;

	if (*facts & FACT_BACKWARD)
		return refute(p, stage, "the second gradient of a micro-batch's input");
	if (local && *facts_of(p, step.chunk + 1, step.micro) & FACT_BACKWARD)
		*facts |= FACT_GRADIENT;
	if (!(*facts & FACT_GRADIENT))
		return refute(p, stage, "the gradient of its output is not here");
	if (!(*facts & FACT_FORWARD) || *facts & FACT_FREED)
		return refute(p, stage, "its activations are not here");
	if (!neighbor_has(p, step, 1, FACT_BACKWARD))
		return refute(p, stage, "the micro-batch behind it has no gradient yet");
	if (p->chunk[step.chunk].updated)
		return refute(p, stage, "the parameters were changed before");
	*facts |= FACT_BACKWARD;
	return TRAIN_OK;
}

/* The backward passes of all parts of a sequence are done, in a recurrent schedule. */
static bool sequence_done(const struct schedule_proof *p, int chunk)
{
	bool done = true;

	for (int micro = 0; p->s->ops->recurrent && micro < p->s->micro; micro++)
		done &= (*facts_of(p, chunk, micro) & FACT_BACKWARD) != 0;
	return done;
}

/* One device adds gradients in the order of micro-batches. */
static int check_backward_weights(struct schedule_proof *p, int stage,
				  struct train_schedule_step step)
{
	struct chunk_facts *chunk = &p->chunk[step.chunk];
	int *facts = facts_of(p, step.chunk, step.micro);

	if (*facts & FACT_SUMMED)
		return refute(p, stage, "the gradient of a micro-batch counts twice");
	if (!(*facts & FACT_BACKWARD))
		return refute(p, stage, "the gradient of its input is not computed");
	if (*facts & FACT_FREED)
		return refute(p, stage, "its activations are not here");
	if (!sequence_done(p, step.chunk))
		return refute(p, stage, "a part of the sequence has no gradient yet");
	if (step.micro != chunk->summed)
		return refute(p, stage, "one device would add micro-batch %d here", chunk->summed);
	*facts |= FACT_SUMMED;
	chunk->summed++;
	return TRAIN_OK;
}

static int check_free(struct schedule_proof *p, int stage, struct train_schedule_step step)
{
	int *facts = facts_of(p, step.chunk, step.micro);

	if (*facts & FACT_FREED)
		return refute(p, stage, "these activations ended before");
	if (!(*facts & FACT_SUMMED) ||
	    (p->s->ops->recurrent && p->chunk[step.chunk].summed < p->s->micro))
		return refute(p, stage, "the gradient of the weights still needs the activations");
	*facts = (*facts | FACT_FREED) & ~FACT_ALIVE;
	p->alive[stage]--;
	return TRAIN_OK;
}

static int check_reduce(struct schedule_proof *p, int stage, struct train_schedule_step step)
{
	struct chunk_facts *chunk = &p->chunk[step.chunk];

	if (chunk->reduced)
		return refute(p, stage, "the gradients were reduced before");
	if (chunk->summed < p->s->micro)
		return refute(p, stage, "the gradients have %d micro-batches of %d", chunk->summed,
			      p->s->micro);
	chunk->reduced = true;
	return TRAIN_OK;
}

static int check_update(struct schedule_proof *p, int stage, struct train_schedule_step step)
{
	struct chunk_facts *chunk = &p->chunk[step.chunk];

	if (chunk->updated)
		return refute(p, stage, "the parameters were changed before");
	if (!chunk->reduced)
		return refute(p, stage, "the gradients are not reduced");
	chunk->updated = true;
	return TRAIN_OK;
}

static int check_computation(struct schedule_proof *p, int stage, struct train_schedule_step step)
{
	int rc;

	switch (step.kind) {
	case TRAIN_STEP_FORWARD:
		return check_forward(p, stage, step);
	case TRAIN_STEP_BACKWARD:
		rc = check_backward_input(p, stage, step);
		return rc ? rc : check_backward_weights(p, stage, step);
	case TRAIN_STEP_BACKWARD_INPUT:
		return check_backward_input(p, stage, step);
	case TRAIN_STEP_BACKWARD_WEIGHTS:
		return check_backward_weights(p, stage, step);
	case TRAIN_STEP_FREE:
		return check_free(p, stage, step);
	case TRAIN_STEP_REDUCE:
		return check_reduce(p, stage, step);
	default:
		return check_update(p, stage, step);
	}
}

/* ---- messages ---------------------------------------------------------------------------------- */

/* Both stages have come to the message. */
static int check_message(struct schedule_proof *p, int stage, struct train_schedule_step send,
			 struct train_schedule_step receive)
{
	bool output = send.kind == TRAIN_STEP_SEND_OUTPUT;
	int *facts = facts_of(p, send.chunk, send.micro);
	int *at = facts_of(p, receive.chunk, receive.micro);
	int made = output ? FACT_FORWARD : FACT_BACKWARD;
	int sent = output ? FACT_SENT_OUTPUT : FACT_SENT_GRADIENT;

	if (receive.kind != (output ? TRAIN_STEP_RECEIVE_INPUT : TRAIN_STEP_RECEIVE_GRADIENT) ||
	    receive.chunk != send.chunk + (output ? 1 : -1) || receive.micro != send.micro)
		return refute(p, stage, "stage %d expects %s of chunk %d, micro-batch %d",
			      train_step_peer(p->s, send), train_step_name(receive.kind),
			      receive.chunk, receive.micro);
	if (!(*facts & made))
		return refute(p, stage, "the data is not computed");
	if (*facts & sent)
		return refute(p, stage, "the data was sent before");
	*facts |= sent;
	*at |= output ? FACT_INPUT : FACT_GRADIENT;
	if (output)
		keep(p, train_step_peer(p->s, send), at);
	p->result.sends++;
	return TRAIN_OK;
}

/* The step exists and belongs to the stage. */
static int check_place(const struct schedule_proof *p, int stage, struct train_schedule_step step)
{
	const struct train_schedule *s = p->s;
	bool down = step.kind == TRAIN_STEP_SEND_GRADIENT || step.kind == TRAIN_STEP_RECEIVE_INPUT;
	bool message = train_step_is_send(step.kind) || train_step_is_receive(step.kind);

	if (step.chunk < 0 || step.chunk >= s->chunks || step.micro < 0 || step.micro >= s->micro)
		return refute(p, stage, "there is no such chunk or micro-batch");
	if (step.chunk % s->stages != stage)
		return refute(p, stage, "the chunk is on stage %d", step.chunk % s->stages);
	if (message && (s->stages == 1 || step.chunk == (down ? 0 : s->chunks - 1)))
		return refute(p, stage, "there is no stage at the other end");
	return TRAIN_OK;
}

/* Executes the stage's next step; *moved is set unless the stage waits. */
static int execute_step(struct schedule_proof *p, int stage, bool *moved)
{
	const struct train_schedule *s = p->s;
	struct train_schedule_step step = s->list[stage].step[p->next[stage]], other;
	int rc = check_place(p, stage, step), peer;

	if (rc || train_step_is_receive(step.kind))
		return rc;
	if (!train_step_is_send(step.kind)) {
		rc = check_computation(p, stage, step);
		p->next[stage] += !rc;
		*moved = true;
		return rc;
	}
	peer = train_step_peer(s, step);
	if (p->next[peer] == s->list[peer].n)
		return TRAIN_OK;
	other = s->list[peer].step[p->next[peer]];
	if (!train_step_is_receive(other.kind) || check_place(p, peer, other) ||
	    train_step_peer(s, other) != stage)
		return TRAIN_OK;
	rc = check_message(p, stage, step, other);
	p->next[stage] += !rc;
	p->next[peer] += !rc;
	*moved = true;
	return rc;
}

/* ---- the proof --------------------------------------------------------------------------------- */

/* Executes all lists to their ends. */
static int execute(struct schedule_proof *p)
{
	const struct train_schedule *s = p->s;
	int waiting = 0;
	bool moved = true;

	while (moved) {
		moved = false;
		waiting = -1;
		for (int stage = s->stages - 1; stage >= 0; stage--) {
			bool stepped = true;

			while (stepped && p->next[stage] < s->list[stage].n) {
				int rc;

				stepped = false;
				rc = execute_step(p, stage, &stepped);
				if (rc)
					return rc;
				moved |= stepped;
			}
			if (p->next[stage] < s->list[stage].n)
				waiting = stage;
		}
	}
	if (waiting >= 0)
		return refute(p, waiting, "deadlock: its peer never comes to this message");
	return TRAIN_OK;
}

/* Nothing is missing at the end. */
static int check_end(const struct schedule_proof *p)
{
	const struct train_schedule *s = p->s;

	for (int chunk = 0; chunk < s->chunks; chunk++) {
		for (int micro = 0; micro < s->micro; micro++)
			if (!(*facts_of(p, chunk, micro) & FACT_FREED))
				return refute(
					p, chunk % s->stages,
					"the activations of chunk %d, micro-batch %d never end",
					chunk, micro);
		if (!p->chunk[chunk].updated)
			return refute(p, chunk % s->stages, "chunk %d is not updated", chunk);
	}
	return TRAIN_OK;
}

int train_schedule_check(const struct train_schedule *s, struct train_schedule_proof *ret_proof)
{
	struct schedule_proof *p = calloc(1, sizeof(*p));
	int rc = TRAIN_FAILED;

	if (p)
		p->facts = calloc((size_t)s->chunks * (size_t)s->micro, sizeof(*p->facts));
	if (!p || !p->facts) {
		free(p);
		return train_fail(TRAIN_FAILED, "no memory to check %d micro-batches", s->micro);
	}
	p->s = s;
	rc = execute(p);
	if (!rc)
		rc = check_end(p);
	if (!rc)
		*ret_proof = p->result;
	free(p->facts);
	free(p);
	return rc;
}

/*
 * schedule_simulate.c - times of a schedule's steps, for given durations (schedule.h)
 *
 * Each stage has a clock. Messages run beside computations: a send begins at the clock and does not
 * wait; a computation begins when its data has arrived. Called by schedule_command.c.
 */
#include "trainer/schedules/schedule.h"

#include "trainer/base/fail.h"

#include <stdlib.h>
#include <string.h>

struct schedule_clock {
	const struct train_schedule *s;
	const struct train_costs *costs;
	struct train_schedule_times *times;
	double *input, *gradient;   /* arrival of x and dy of [chunk][micro]; negative: not sent */
	int next[TRAIN_STAGES_MAX]; /* steps done */
	double now[TRAIN_STAGES_MAX];
};

static double cost_of(const struct train_costs *costs, enum train_step_kind kind)
{
	switch (kind) {
	case TRAIN_STEP_FORWARD:
		return costs->forward;
	case TRAIN_STEP_BACKWARD:
		return costs->backward_input + costs->backward_weights;
	case TRAIN_STEP_BACKWARD_INPUT:
		return costs->backward_input;
	case TRAIN_STEP_BACKWARD_WEIGHTS:
		return costs->backward_weights;
	default:
		return 0;
	}
}

/* The arrival of the data that a step sends or needs; NULL: it needs no message. */
static double *arrival(const struct schedule_clock *c, struct train_schedule_step step)
{
	const struct train_schedule *s = c->s;
	int chunk = step.chunk + (step.kind == TRAIN_STEP_SEND_OUTPUT) -
		    (step.kind == TRAIN_STEP_SEND_GRADIENT);
	size_t i = (size_t)chunk * (size_t)s->micro + (size_t)step.micro;

	switch (step.kind) {
	case TRAIN_STEP_FORWARD:
		return s->stages > 1 && chunk > 0 ? &c->input[i] : NULL;
	case TRAIN_STEP_SEND_OUTPUT:
		return &c->input[i];
	case TRAIN_STEP_BACKWARD:
	case TRAIN_STEP_BACKWARD_INPUT:
		return s->stages > 1 && chunk < s->chunks - 1 ? &c->gradient[i] : NULL;
	case TRAIN_STEP_SEND_GRADIENT:
		return &c->gradient[i];
	default:
		return NULL;
	}
}

/* Takes the stage's next step. Returns false if the stage is finished, or its data is not sent. */
static bool advance(struct schedule_clock *c, int stage)
{
	const struct train_step_list *list = &c->s->list[stage];
	struct train_schedule_step step;
	double cost, *at;

	if (c->next[stage] == list->n)
		return false;
	step = list->step[c->next[stage]];
	cost = cost_of(c->costs, step.kind);
	at = arrival(c, step);
	if (train_step_is_send(step.kind))
		*at = c->now[stage] + c->costs->send;
	else if (at && *at < 0)
		return false;
	else if (at && *at > c->now[stage])
		c->now[stage] = *at;
	c->times->of[stage][c->next[stage]++] = (struct train_step_time){ c->now[stage],
									  c->now[stage] + cost };
	c->now[stage] += cost;
	c->times->busy[stage] += cost;
	return true;
}

static int run_clocks(struct schedule_clock *c)
{
	struct train_schedule_times *times = c->times;
	double busy = 0;

	for (bool moved = true; moved;) {
		moved = false;
		for (int stage = 0; stage < c->s->stages; stage++)
			while (advance(c, stage))
				moved = true;
	}
	for (int stage = 0; stage < c->s->stages; stage++) {
		if (c->next[stage] < c->s->list[stage].n)
			return train_fail(TRAIN_FAILED, "schedule %s: stage %d waits for ever",
					  c->s->ops->name, stage);
		times->span = c->now[stage] > times->span ? c->now[stage] : times->span;
		busy += times->busy[stage];
	}
	if (times->span > 0)
		times->bubble = 1 - busy / (times->span * c->s->stages);
	return TRAIN_OK;
}

int train_schedule_simulate(const struct train_schedule *s, const struct train_costs *costs,
			    struct train_schedule_times *ret_times)
{
	size_t count = (size_t)s->chunks * (size_t)s->micro;
	struct schedule_clock c = { .s = s, .costs = costs, .times = ret_times };
	bool memory = true;
	int rc;

	memset(ret_times, 0, sizeof(*ret_times));
	for (int stage = 0; stage < s->stages; stage++) {
		ret_times->of[stage] = calloc((size_t)s->list[stage].n + 1,
					      sizeof(*ret_times->of[stage]));
		memory &= ret_times->of[stage] != NULL;
	}
	c.input = malloc(count * sizeof(*c.input));
	c.gradient = malloc(count * sizeof(*c.gradient));
	for (size_t i = 0; c.input && c.gradient && i < count; i++)
		c.input[i] = c.gradient[i] = -1;
	if (!memory || !c.input || !c.gradient)
		rc = train_fail(TRAIN_FAILED, "no memory to simulate %d micro-batches", s->micro);
	else
		rc = run_clocks(&c);
	free(c.input);
	free(c.gradient);
	return rc;
}

void train_schedule_times_free(struct train_schedule_times *times)
{
	for (int stage = 0; stage < TRAIN_STAGES_MAX; stage++)
		free(times->of[stage]);
	memset(times, 0, sizeof(*times));
}

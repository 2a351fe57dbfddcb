/* schedule.c - the table of schedules, and the verbs of their builders (schedule.h) */
#include "trainer/schedules/schedule.h"

#include "tools/plural.h"
#include "trainer/base/fail.h"

#include <stdlib.h>
#include <string.h>

const struct train_schedule_ops *const train_schedules[] = {
	&train_schedule_gpipe,       &train_schedule_1f1b,      &train_schedule_interleaved,
	&train_schedule_zero_bubble, &train_schedule_wavefront, NULL
};

/* ---- steps ------------------------------------------------------------------------------------ */

const char *train_step_name(enum train_step_kind kind)
{
	static const char *const names[] = {
		"forward",     "backward",      "backward-input", "backward-weights", "free",
		"send-output", "receive-input", "send-gradient",  "receive-gradient", "reduce",
		"update"
	};

	return names[kind];
}

bool train_step_is_send(enum train_step_kind kind)
{
	return kind == TRAIN_STEP_SEND_OUTPUT || kind == TRAIN_STEP_SEND_GRADIENT;
}

bool train_step_is_receive(enum train_step_kind kind)
{
	return kind == TRAIN_STEP_RECEIVE_INPUT || kind == TRAIN_STEP_RECEIVE_GRADIENT;
}

int train_step_peer(const struct train_schedule *s, struct train_schedule_step step)
{
	bool up = step.kind == TRAIN_STEP_SEND_OUTPUT || step.kind == TRAIN_STEP_RECEIVE_GRADIENT;

	return (step.chunk + (up ? 1 : s->chunks - 1)) % s->chunks % s->stages;
}

void train_step_append(struct train_schedule *s, int stage, enum train_step_kind kind, int chunk,
		       int micro)
{
	struct train_step_list *list = &s->list[stage];

	if (list->n == list->capacity) {
		int capacity = list->capacity ? 2 * list->capacity : 64;
		struct train_schedule_step *more = realloc(list->step,
							   (size_t)capacity * sizeof(*more));

		if (!more) {
			s->failed = true;
			return;
		}
		list->step = more;
		list->capacity = capacity;
	}
	list->step[list->n++] = (struct train_schedule_step){ kind, chunk, micro };
}

/* ---- verbs ------------------------------------------------------------------------------------ */

void train_schedule_forward(struct train_schedule *s, int chunk, int micro)
{
	train_step_append(s, chunk % s->stages, TRAIN_STEP_FORWARD, chunk, micro);
}

/* Counts a gradient of the chunk; the last one is followed by REDUCE. */
static void count_gradient(struct train_schedule *s, int chunk)
{
	if (++s->gradients[chunk] == s->micro)
		train_step_append(s, chunk % s->stages, TRAIN_STEP_REDUCE, chunk, 0);
}

void train_schedule_backward(struct train_schedule *s, int chunk, int micro)
{
	train_step_append(s, chunk % s->stages, TRAIN_STEP_BACKWARD, chunk, micro);
	count_gradient(s, chunk);
}

void train_schedule_backward_input(struct train_schedule *s, int chunk, int micro)
{
	train_step_append(s, chunk % s->stages, TRAIN_STEP_BACKWARD_INPUT, chunk, micro);
}

void train_schedule_backward_weights(struct train_schedule *s, int chunk, int micro)
{
	train_step_append(s, chunk % s->stages, TRAIN_STEP_BACKWARD_WEIGHTS, chunk, micro);
	count_gradient(s, chunk);
}

/* ---- open and close --------------------------------------------------------------------------- */

/* Finds the schedule of NAME or NAME:V and its chunks a stage. */
static int find(struct train_schedule *s, const char *text, int *ret_chunks)
{
	size_t bytes = strcspn(text, ":");
	char *end = "";
	long chunks = 1;

	for (const struct train_schedule_ops *const *at = train_schedules; *at; at++)
		if (strlen((*at)->name) == bytes && !memcmp((*at)->name, text, bytes))
			s->ops = *at;
	if (!s->ops)
		return train_fail(TRAIN_USAGE,
				  "schedule %s: there is no such schedule; use gpipe, 1f1b, "
				  "interleaved:2, zero-bubble or wavefront",
				  text);
	if (text[bytes] && !s->ops->chunked)
		return train_fail(TRAIN_USAGE, "schedule %s: %s takes no number; use %s", text,
				  s->ops->name, s->ops->name);
	if (s->ops->chunked)
		chunks = text[bytes] ? strtol(text + bytes + 1, &end, 10) : 2;
	if (*end || chunks < 1 || chunks > 26)
		return train_fail(TRAIN_USAGE,
				  "schedule %s: the chunks of a stage are a number from 1 to 26, "
				  "such as %s:2",
				  text, s->ops->name);
	*ret_chunks = (int)chunks;
	return TRAIN_OK;
}

int train_schedule_open(struct train_schedule *s, const char *text, int stages, int micro)
{
	int chunks = 1, rc;

	memset(s, 0, sizeof(*s));
	rc = find(s, text, &chunks);
	if (rc)
		return rc;
	if (stages < 1 || stages > TRAIN_STAGES_MAX || micro < 1 || micro > TRAIN_MICRO_MAX)
		return train_fail(
			TRAIN_USAGE,
			"schedule %s: %d stage%s and %d micro-batch%s; use 1 to %d stages "
			"and 1 to %d micro-batches",
			text, stages, tool_s(stages), micro, micro == 1 ? "" : "es",
			TRAIN_STAGES_MAX, TRAIN_MICRO_MAX);
	s->stages = stages;
	s->chunks = stages * chunks;
	s->micro = micro;
	for (int stage = 0; stage < stages; stage++) {
		s->ops->build(s, stage);
		for (int chunk = stage; chunk < s->chunks; chunk += stages)
			train_step_append(s, stage, TRAIN_STEP_UPDATE, chunk, 0);
	}
	return train_schedule_connect(s);
}

void train_schedule_close(struct train_schedule *s)
{
	for (int stage = 0; stage < s->stages; stage++)
		free(s->list[stage].step);
	memset(s, 0, sizeof(*s));
}

/*
 * pipeline_links.c - messages between stages, beside computations (pipeline_state.h)
 *
 * A link is a neighbor and a direction of data: a communicator of two stages and a host stream. A
 * receive begins at its place in the list, a send as soon as its data is computed; each ends with an
 * event of its slot. A computation waits for the event of its data; a slot is used again when its
 * sends are complete. Called by pipeline.c, pipeline_run.c, pipeline_compute.c, pipeline_slots.c.
 */
#include "trainer/rank/pipeline_state.h"

/* ---- open and close ---------------------------------------------------------------------------- */

/* Edge i goes from stage i to the next one. Edges of a round have no stage in common; the last edge
 * of an odd circle has a round of its own. */
enum { EDGE_ROUNDS = 3 };

static int round_of(int edge, int stages)
{
	return edge % 2 == 0 && edge == stages - 1 ? 2 : edge % 2;
}

/* The edge of a stage in a round; TUTTI_SPLIT_NOCOLOR: none. */
static int edge_in(const struct train_pipeline *p, int round)
{
	int stages = p->schedule.stages, before = (p->stage + stages - 1) % stages;
	int edges = p->schedule.chunks > stages ? stages : stages - 1; /* the circle is closed */

	if (p->stage < edges && round_of(p->stage, stages) == round)
		return p->stage;
	if (before < edges && round_of(before, stages) == round)
		return before;
	return TUTTI_SPLIT_NOCOLOR;
}

/* One direction of the edges of a round. */
static int open_link(struct train_rank *t, int round, bool gradients)
{
	struct train_pipeline *p = t->pipeline;
	int edge = edge_in(p, round), last = edge != p->stage, rc;
	enum pipeline_message message = gradients ? last ? PIPELINE_DX : PIPELINE_DY
					: last    ? PIPELINE_INPUT
						  : PIPELINE_OUTPUT;
	struct pipeline_link none = { 0 };
	struct pipeline_link *link = edge == TUTTI_SPLIT_NOCOLOR ? &none : &p->link[message];

	link->peer = !last;
	rc = train_check(tuttiCommSplit(t->mesh.comm, edge, last, &link->comm, NULL), t->mesh.comm);
	if (rc || !link->comm)
		return rc;
	return train_check(tuttiStreamCreate(&link->stream), link->comm);
}

int train_links_open(struct train_rank *t)
{
	int stages = t->mesh.stages, rc = TRAIN_OK;

	for (int round = 0; stages > 1 && round < EDGE_ROUNDS && !rc; round++) {
		rc = open_link(t, round, false);
		if (!rc)
			rc = open_link(t, round, true);
	}
	return rc;
}

void train_links_close(struct train_pipeline *p)
{
	for (int i = 0; i < PIPELINE_LINKS; i++) {
		struct pipeline_link *link = &p->link[i];

		if (link->stream && tuttiStreamQuery(link->stream) == tuttiInProgress) {
			tuttiCommAbort(link->comm);
			link->comm = NULL;
		}
		if (link->stream)
			tuttiStreamDestroy(link->stream);
		if (link->comm)
			tuttiCommDestroy(link->comm);
		*link = (struct pipeline_link){ 0 };
	}
}

/* ---- messages ---------------------------------------------------------------------------------- */

static enum pipeline_message message_of(enum train_step_kind kind)
{
	return kind == TRAIN_STEP_RECEIVE_INPUT      ? PIPELINE_INPUT
	       : kind == TRAIN_STEP_SEND_OUTPUT      ? PIPELINE_OUTPUT
	       : kind == TRAIN_STEP_RECEIVE_GRADIENT ? PIPELINE_DY
						     : PIPELINE_DX;
}

/* The data of a message, and its floats per sample. */
static float *data_of(struct train_rank *t, struct pipeline_slot *slot,
		      enum pipeline_message message, size_t *ret_width)
{
	struct train_activations *a = &slot->activations;
	bool x = message == PIPELINE_INPUT || message == PIPELINE_DX;

	*ret_width = x ? t->model.layer[a->first].inputs : t->model.layer[a->last - 1].outputs;
	switch (message) {
	case PIPELINE_INPUT:
		return slot->x;
	case PIPELINE_OUTPUT:
		return train_slot_output(slot);
	case PIPELINE_DY:
		return a->dy;
	default:
		return a->dx;
	}
}

/* The number of a message: the same for its sender and its receiver, which are one chunk apart. */
static uint64_t number_of(const struct train_rank *t, struct train_schedule_step step)
{
	uint64_t chunks = (uint64_t)t->model.chunks, micro = (uint64_t)t->pipeline->micro;
	bool gradient = step.kind == TRAIN_STEP_SEND_GRADIENT ||
			step.kind == TRAIN_STEP_RECEIVE_GRADIENT;
	uint64_t column = (uint64_t)(t->rank * t->mesh.tensor + t->mesh.tensor_rank);
	uint64_t columns = (uint64_t)(t->nranks * t->mesh.tensor);
	uint64_t from = (uint64_t)step.chunk;

	if (step.kind == TRAIN_STEP_RECEIVE_INPUT)
		from--;
	if (step.kind == TRAIN_STEP_RECEIVE_GRADIENT)
		from++;
	return (((t->step * columns + column) * 2 + gradient) * chunks + from) * micro +
	       (uint64_t)step.micro + 1;
}

/* A message in the timeline: a send from its call to the call's return, a receive from its call, or the end of the one
 * before, until the data is there. */
static void record_message(struct train_rank *t, struct train_schedule_step step, uint64_t begin)
{
	enum pipeline_message message = message_of(step.kind);
	struct pipeline_link *link = &t->pipeline->link[message];
	uint64_t now = train_time_ns();

	if (!t->timeline.on)
		return;
	begin = begin > link->end_ns ? begin : link->end_ns;
	train_timeline_add_span(&t->timeline, (struct train_span){
						      .step = t->step,
						      .begin_ns = begin,
						      .end_ns = now,
						      .activity = TRAIN_TIME_STEPS + step.kind,
						      .row = TRAIN_ROW_LINKS + message,
						      .message = number_of(t, step),
						      .chunk = (uint64_t)step.chunk,
						      .micro = (uint64_t)step.micro,
					      });
	link->end_ns = now > begin ? now : begin + 1;
}

int train_links_pass(struct train_rank *t, struct train_schedule_step step)
{
	struct train_node rows = train_pipeline_rows_of(t, step.micro);
	struct train_node part = train_part_positions(t, step.micro);
	enum pipeline_message message = message_of(step.kind);
	struct pipeline_link *link = &t->pipeline->link[message];
	struct pipeline_slot *slot;
	size_t count, width;
	tuttiResult_t result;
	float *data;
	uint64_t begin = train_time_ns();
	int rc = TRAIN_OK;

	if (message == PIPELINE_INPUT)
		rc = train_slot_take(t, step.chunk, step.micro);
	if (rc)
		return rc;
	slot = train_slot_of(t->pipeline, step.chunk, step.micro);
	data = data_of(t, slot, message, &width);
	count = (rows.last - rows.first) * width;
	if (part.last) {
		if (train_step_is_send(step.kind))
			train_part_copy(t, slot, step.micro, message, data, width);
		data = slot->part[message];
		count = count / t->data->positions * (part.last - part.first);
	}
	if (train_step_is_send(step.kind)) {
		t->message_bytes += count * sizeof(*data);
		result = tuttiSend(data, count, tuttiFloat32, link->peer, link->comm, link->stream);
	} else {
		result = tuttiRecv(data, count, tuttiFloat32, link->peer, link->comm, link->stream);
	}
	rc = train_check(result, link->comm);
	slot->posted_ns[message] = begin;
	if (!rc && train_step_is_send(step.kind))
		record_message(t, step, begin);
	return rc ? rc
		  : train_check(tuttiEventRecord(slot->event[message], link->stream), link->comm);
}

/* ---- waits ------------------------------------------------------------------------------------- */

static int wait_for(struct train_rank *t, struct pipeline_slot *slot, enum pipeline_message message)
{
	return train_check(tuttiEventSynchronize(slot->event[message]),
			   t->pipeline->link[message].comm);
}

/* The data of a computation comes from another stage. */
static bool is_received(const struct train_rank *t, struct train_schedule_step step)
{
	int none = step.kind == TRAIN_STEP_FORWARD ? 0 : t->model.chunks - 1;

	return t->mesh.stages > 1 && step.chunk != none;
}

int train_links_wait(struct train_rank *t, struct train_schedule_step step)
{
	enum pipeline_message message = step.kind == TRAIN_STEP_FORWARD ? PIPELINE_INPUT
									: PIPELINE_DY;
	struct pipeline_slot *slot;
	size_t width;
	float *data;
	int rc;

	if (step.kind == TRAIN_STEP_FORWARD && (step.chunk == 0 || t->mesh.stages == 1))
		return TRAIN_OK; /* takes its slot first */
	if (step.kind == TRAIN_STEP_BACKWARD_WEIGHTS)
		return TRAIN_OK; /* backward_input has waited */
	slot = train_slot_of(t->pipeline, step.chunk, step.micro);
	rc = wait_for(t, slot, message);
	if (!rc && is_received(t, step))
		record_message(t,
			       (struct train_schedule_step){ step.kind == TRAIN_STEP_FORWARD
								     ? TRAIN_STEP_RECEIVE_INPUT
								     : TRAIN_STEP_RECEIVE_GRADIENT,
							     step.chunk, step.micro },
			       slot->posted_ns[message]);
	if (rc || !slot->part[message])
		return rc;
	data = data_of(t, slot, message, &width);
	train_part_copy(t, slot, step.micro, message, data, width);
	return TRAIN_OK;
}

int train_links_sent(struct train_rank *t, struct pipeline_slot *slot)
{
	int rc = wait_for(t, slot, PIPELINE_OUTPUT);

	return rc ? rc : wait_for(t, slot, PIPELINE_DX);
}

/* pipeline.c - one stage of a pipeline: runs its list of a training schedule (pipeline.h) */
#include "trainer/rank/pipeline.h"

#include "trainer/rank/fault.h"
#include "trainer/rank/pipeline_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIGURES = 3 }; /* of a stage and a step: peak, busy, span */

/* ---- open and close ---------------------------------------------------------------------------- */

int train_pipeline_chunks(const struct train_rank *t, int *ret_chunks)
{
	const struct train_config *c = t->config;
	struct train_schedule s;
	int micro = c->micro ? (int)c->micro : t->mesh.stages, rc;

	*ret_chunks = 0;
	if (!c->mesh)
		return TRAIN_OK;
	rc = train_schedule_open(&s, c->schedule, t->mesh.stages, micro);
	*ret_chunks = s.chunks;
	if (!rc && s.ops->recurrent)
		rc = train_fail(TRAIN_USAGE,
				"--schedule %s: is for recurrent models, and --model %s is none; "
				"use gpipe, 1f1b, interleaved:2 or zero-bubble",
				c->schedule, c->model);
	train_schedule_close(&s);
	return rc;
}

static int open_chunks(struct train_pipeline *p)
{
	size_t micro = (size_t)p->micro;

	p->chunk = calloc((size_t)p->schedule.chunks, sizeof(*p->chunk));
	p->activations = calloc((size_t)p->schedule.stages, sizeof(*p->activations));
	for (int c = p->stage; p->chunk && c < p->schedule.chunks; c += p->schedule.stages) {
		p->chunk[c].slot = calloc(micro, sizeof(*p->chunk[c].slot));
		p->chunk[c].slot_of = calloc(micro, sizeof(*p->chunk[c].slot_of));
		if (!p->chunk[c].slot || !p->chunk[c].slot_of)
			return train_fail(TRAIN_FAILED, "no memory for %d micro-batches", p->micro);
	}
	if (!p->chunk || !p->activations)
		return train_fail(TRAIN_FAILED, "no memory for %d chunks", p->schedule.chunks);
	return TRAIN_OK;
}

static size_t tail_floats(const struct train_rank *t)
{
	return t->sum.nodes * TRAIN_TAIL + FIGURES;
}

int train_pipeline_open(struct train_rank *t)
{
	const struct train_config *c = t->config;
	struct train_pipeline *p = calloc(1, sizeof(*p));
	int rc;

	if (t->device.ops->separate_memory)
		return train_fail(
			TRAIN_USAGE,
			"--mesh %s: stages exchange host memory, and --device %s has memory "
			"of its own; use --device cpu",
			c->mesh, c->device);
	if (!p)
		return train_fail(TRAIN_FAILED, "no memory for a pipeline");
	t->pipeline = p;
	p->stage = t->mesh.stage;
	p->micro = c->micro ? (int)c->micro : t->mesh.stages;
	rc = train_schedule_open(&p->schedule, c->schedule, t->mesh.stages, p->micro);
	if (!rc)
		rc = train_schedule_check(&p->schedule, &p->proof);
	if (!rc)
		rc = open_chunks(p);
	for (int m = 0; m < p->micro && !rc; m++) {
		struct train_node rows = train_leaves_rows(&t->leaves, train_pipeline_leaves(t, m));

		p->rows = rows.last - rows.first > p->rows ? rows.last - rows.first : p->rows;
	}
	p->rows = p->rows ? p->rows : 1;
	p->message = calloc((size_t)t->mesh.stages * tail_floats(t), sizeof(*p->message));
	if (!rc && !p->message)
		rc = train_fail(TRAIN_FAILED, "no memory for %d stages", t->mesh.stages);
	return rc ? rc : train_pipeline_sums_open(t);
}

static void close_chunk(struct train_rank *t, struct pipeline_chunk *chunk)
{
	for (int i = 0; i < chunk->slots; i++) {
		train_activations_close(&t->model, &chunk->slot[i].activations);
		t->device.ops->free(&t->device, chunk->slot[i].x);
	}
	free(chunk->slot);
	free(chunk->slot_of);
}

void train_pipeline_close(struct train_rank *t)
{
	struct train_pipeline *p = t->pipeline;

	if (!p)
		return;
	for (int c = 0; p->chunk && c < p->schedule.chunks; c++)
		close_chunk(t, &p->chunk[c]);
	train_pipeline_sums_close(t);
	train_schedule_close(&p->schedule);
	free(p->chunk);
	free(p->activations);
	free(p->message);
	free(p);
	t->pipeline = NULL;
}

/* ---- slots ------------------------------------------------------------------------------------- */

static struct pipeline_slot *slot_of(struct train_pipeline *p, int chunk, int micro)
{
	return &p->chunk[chunk].slot[p->chunk[chunk].slot_of[micro]];
}

static int open_slot(struct train_rank *t, int chunk, struct pipeline_slot *slot)
{
	struct train_pipeline *p = t->pipeline;
	struct train_model *m = &t->model;
	size_t first = m->chunk_first[chunk];

	if (chunk > 0 && m->stages > 1) {
		slot->x = t->device.ops->alloc(&t->device,
					       p->rows * m->layer[first].inputs * sizeof(float));
		if (!slot->x)
			return train_fail(TRAIN_FAILED, "no memory for %zu samples", p->rows);
	}
	return train_activations_open(m, first, m->chunk_first[chunk + 1], p->rows,
				      &slot->activations);
}

/* Gives the micro-batch a slot of the chunk. */
static int take_slot(struct train_rank *t, int chunk, int micro)
{
	struct train_pipeline *p = t->pipeline;
	struct pipeline_chunk *of = &p->chunk[chunk];
	int i = 0, rc = TRAIN_OK;

	while (i < of->slots && of->slot[i].used)
		i++;
	if (i == of->slots) {
		of->slots++;
		rc = open_slot(t, chunk, &of->slot[i]);
	}
	of->slot[i].used = true;
	of->slot_of[micro] = i;
	if (++p->used > p->peak)
		p->peak = p->used;
	return rc;
}

static void free_slot(struct train_pipeline *p, int chunk, int micro)
{
	slot_of(p, chunk, micro)->used = false;
	p->used--;
}

/* ---- computations ------------------------------------------------------------------------------ */

/* The rows of a micro-batch within this rank's share. */
static struct train_node rows_of(const struct train_rank *t, int micro)
{
	size_t first = train_leaves_rows(&t->leaves, t->sum.run).first;
	struct train_node rows = train_leaves_rows(&t->leaves, train_pipeline_leaves(t, micro));

	return (struct train_node){ rows.first - first, rows.last - first };
}

/* The input of a chunk: the images, a received output, or that of the chunk before it. */
static const float *input_of(struct train_rank *t, int chunk, int micro)
{
	struct train_pipeline *p = t->pipeline;
	const struct train_activations *before;

	if (chunk == 0)
		return t->x + rows_of(t, micro).first * t->data->pixels;
	if (p->schedule.stages > 1)
		return slot_of(p, chunk, micro)->x;
	before = &slot_of(p, chunk - 1, micro)->activations;
	return before->pass[before->last - before->first - 1].y;
}

static float *output_of(struct pipeline_slot *slot)
{
	struct train_activations *a = &slot->activations;

	return a->pass[a->last - a->first - 1].y;
}

/* A micro-batch whose logits become their gradient. */
struct micro_loss {
	struct train_rank *t;
	const uint8_t *labels;
	float *logits;
};

static void loss_leaf(void *arg, size_t row, size_t rows, float *out)
{
	const struct micro_loss *l = arg;
	size_t classes = l->t->data->classes;

	l->t->device.ops->loss(&l->t->device, rows, classes, l->labels + row,
			       l->logits + row * classes, out);
}

static void add_loss(struct train_rank *t, int micro, float *logits)
{
	struct train_node rows = rows_of(t, micro);
	struct micro_loss loss = { t, t->labels + rows.first, logits };
	struct pipeline_sum *s = &t->pipeline->sum[t->model.chunks];
	struct train_pipeline_part part = train_pipeline_part(t, s, micro);

	train_leaves_each(&part.sum, rows.last - rows.first, 1, loss_leaf, &loss,
			  part.gradients + s->at);
	train_pipeline_add(t, s, micro);
}

static int forward_step(struct train_rank *t, struct train_schedule_step step)
{
	struct train_pipeline *p = t->pipeline;
	struct train_node rows = rows_of(t, step.micro);
	int rc = TRAIN_OK;
	float *y;

	if (step.chunk == 0 || p->schedule.stages == 1)
		rc = take_slot(t, step.chunk, step.micro);
	if (rc)
		return rc;
	y = train_chunk_forward(&slot_of(p, step.chunk, step.micro)->activations, t->parameters,
				input_of(t, step.chunk, step.micro), rows.last - rows.first);
	if (step.chunk == t->model.chunks - 1)
		add_loss(t, step.micro, y);
	return TRAIN_OK;
}

static void backward_input_step(struct train_rank *t, struct train_schedule_step step)
{
	struct train_pipeline *p = t->pipeline;
	struct pipeline_slot *slot = slot_of(p, step.chunk, step.micro);
	struct train_activations *a = &slot->activations;
	struct train_node rows = rows_of(t, step.micro);

	train_chunk_backward_input(a, t->parameters, a->dy ? a->dy : output_of(slot));
	if (step.chunk > 0 && p->schedule.stages == 1)
		t->device.ops->copy(&t->device,
				    slot_of(p, step.chunk - 1, step.micro)->activations.dy, a->dx,
				    (rows.last - rows.first) * t->model.layer[a->first].inputs *
					    sizeof(float));
}

static int backward_weights_step(struct train_rank *t, struct train_schedule_step step)
{
	struct train_pipeline *p = t->pipeline;
	struct pipeline_sum *s = &p->sum[step.chunk];
	struct train_pipeline_part part = train_pipeline_part(t, s, step.micro);
	int rc = train_chunk_backward_weights(&slot_of(p, step.chunk, step.micro)->activations,
					      &part.sum, part.gradients, NULL);

	train_pipeline_add(t, s, step.micro);
	return rc;
}

/* A share of the simulated time of a gradient: a third is forward. */
static double pace_of(const struct train_rank *t, enum train_step_kind kind)
{
	double share = t->pace_ns / 3 / t->pipeline->micro / t->model.chunks;

	return kind == TRAIN_STEP_BACKWARD ? 2 * share : share;
}

static int compute(struct train_rank *t, struct train_schedule_step step)
{
	uint64_t begin = train_time_ns();
	int rc = TRAIN_OK;

	if (step.kind == TRAIN_STEP_FORWARD)
		rc = forward_step(t, step);
	if (step.kind == TRAIN_STEP_BACKWARD || step.kind == TRAIN_STEP_BACKWARD_INPUT)
		backward_input_step(t, step);
	if (step.kind == TRAIN_STEP_BACKWARD || step.kind == TRAIN_STEP_BACKWARD_WEIGHTS)
		rc = backward_weights_step(t, step);
	if (!rc)
		rc = train_device_sync(&t->device);
	train_fault_sleep(t, begin + (uint64_t)pace_of(t, step.kind));
	t->pipeline->busy_ns += train_time_ns() - begin;
	return rc;
}

/* ---- messages ---------------------------------------------------------------------------------- */

static int send_array(struct train_rank *t, const float *from, size_t floats, int peer)
{
	t->message_bytes += floats * sizeof(float);
	return train_check(tuttiSend(from, floats, tuttiFloat32, peer, t->mesh.comm, NULL),
			   t->mesh.comm);
}

static int receive_array(struct train_rank *t, float *to, size_t floats, int peer)
{
	return train_check(tuttiRecv(to, floats, tuttiFloat32, peer, t->mesh.comm, NULL),
			   t->mesh.comm);
}

static int pass_message(struct train_rank *t, struct train_schedule_step step)
{
	struct train_pipeline *p = t->pipeline;
	struct train_node rows = rows_of(t, step.micro);
	const struct train_model *m = &t->model;
	size_t in = (rows.last - rows.first) * m->layer[m->chunk_first[step.chunk]].inputs;
	size_t out = (rows.last - rows.first) *
		     m->layer[m->chunk_first[step.chunk + 1] - 1].outputs;
	int peer = train_step_peer(&p->schedule, step), rc;
	struct pipeline_slot *slot;

	if (step.kind == TRAIN_STEP_RECEIVE_INPUT) {
		rc = take_slot(t, step.chunk, step.micro);
		if (rc)
			return rc;
	}
	slot = slot_of(p, step.chunk, step.micro);
	switch (step.kind) {
	case TRAIN_STEP_RECEIVE_INPUT:
		return receive_array(t, slot->x, in, peer);
	case TRAIN_STEP_SEND_OUTPUT:
		return send_array(t, output_of(slot), out, peer);
	case TRAIN_STEP_RECEIVE_GRADIENT:
		return receive_array(t, slot->activations.dy, out, peer);
	default:
		return send_array(t, slot->activations.dx, in, peer);
	}
}

/* Neighboring sends and receives from step *i on, as one group; *i is the step behind them. */
static int pass_messages(struct train_rank *t, const struct train_step_list *list, int *i)
{
	int rc = train_check(tuttiGroupStart(), t->mesh.comm), ended;

	for (; *i < list->n && (train_step_is_send(list->step[*i].kind) ||
				train_step_is_receive(list->step[*i].kind));
	     ++*i)
		if (!rc)
			rc = pass_message(t, list->step[*i]);
	ended = train_check(tuttiGroupEnd(), t->mesh.comm);
	return rc ? rc : ended;
}

/* ---- a gradient -------------------------------------------------------------------------------- */

/* All computations and messages of the list; REDUCE and UPDATE are the strategy's. */
static int run_list(struct train_rank *t)
{
	struct train_pipeline *p = t->pipeline;
	const struct train_step_list *list = &p->schedule.list[p->stage];
	int rc = TRAIN_OK;

	for (int i = 0; i < list->n && !rc;) {
		struct train_schedule_step step = list->step[i];

		if (train_step_is_send(step.kind) || train_step_is_receive(step.kind)) {
			rc = pass_messages(t, list, &i);
			continue;
		}
		if (step.kind <= TRAIN_STEP_BACKWARD_WEIGHTS)
			rc = compute(t, step);
		else if (step.kind == TRAIN_STEP_FREE)
			free_slot(p, step.chunk, step.micro);
		else if (step.kind == TRAIN_STEP_REDUCE)
			train_pipeline_store(t, &p->sum[step.chunk]);
		i++;
	}
	return rc;
}

/* Adds up the tails of all stages: only the last stage has a loss. Exchanges figures with it. */
static int exchange_tails(struct train_rank *t, bool stop, uint64_t span_ns)
{
	struct train_pipeline *p = t->pipeline;
	size_t each = tail_floats(t), stride = t->sum.stride;
	double *own = p->message + (size_t)p->stage * each, busy = 0, span = 0;
	float *tail = t->gradients + t->model.parameters;
	int rc;

	for (size_t i = 0; i < t->sum.nodes; i++) {
		bool loss = p->stage == (t->model.chunks - 1) % t->model.stages;

		own[i * TRAIN_TAIL + TRAIN_TAIL_LOSS] =
			loss ? (double)tail[i * stride + TRAIN_TAIL_LOSS] : 0;
		own[i * TRAIN_TAIL + TRAIN_TAIL_STOP] = stop && i == 0;
	}
	own[each - 3] = p->peak;
	own[each - 2] = (double)p->busy_ns;
	own[each - 1] = (double)span_ns;
	rc = train_check(tuttiAllGather(own, p->message, each, tuttiFloat64, t->mesh.comm, NULL),
			 t->mesh.comm);
	for (size_t i = 0; i < t->sum.nodes; i++)
		for (int j = 0; j < TRAIN_TAIL; j++) {
			double sum = 0;

			for (int stage = 0; stage < t->mesh.stages; stage++)
				sum += p->message[(size_t)stage * each + i * TRAIN_TAIL +
						  (size_t)j];
			tail[i * stride + (size_t)j] = (float)sum;
		}
	for (int stage = 0; stage < t->mesh.stages; stage++) {
		const double *figures = p->message + (size_t)(stage + 1) * each - FIGURES;

		p->activations[stage] = (int)figures[0];
		busy += figures[1];
		span = figures[2] > span ? figures[2] : span;
	}
	p->busy += busy;
	p->span += span * t->mesh.stages;
	return rc;
}

/* The first stage needs the images, the last one the labels. */
static void load_batch(struct train_rank *t, const struct train_set *set, const uint32_t *samples,
		       size_t rows)
{
	if (t->mesh.stage == 0)
		t->device.ops->gather(&t->device, set->images, samples, rows, t->data->pixels,
				      t->data->mean, t->x);
	for (size_t i = 0; i < rows; i++)
		t->labels[i] = set->labels[samples[i]];
}

int train_pipeline_gradient(struct train_rank *t, const struct train_batch *batch,
			    const struct train_ready *ready)
{
	struct train_pipeline *p = t->pipeline;
	uint64_t begin = train_time_ns(), end;
	int rc;

	train_fault_begin(t, begin);
	p->busy_ns = 0;
	load_batch(t, &t->data->train, batch->samples, batch->rows);
	rc = run_list(t);
	if (rc)
		return rc;
	train_pipeline_store(t, &p->sum[t->model.chunks]);
	end = train_time_ns();
	t->compute_ns = p->busy_ns;
	rc = exchange_tails(t, batch->stop, end - begin);
	return rc ? rc : train_ready_notify(ready, 0);
}

/* ---- evaluation and report --------------------------------------------------------------------- */

size_t train_pipeline_rows(const struct train_rank *t)
{
	return t->pipeline->rows;
}

int train_pipeline_forward(struct train_rank *t, size_t rows, float **ret_logits)
{
	struct train_pipeline *p = t->pipeline;
	const struct train_model *m = &t->model;
	float *y = NULL;
	int rc = TRAIN_OK;

	*ret_logits = NULL;
	for (int c = p->stage; c < m->chunks && !rc; c += m->stages) {
		size_t in = rows * m->layer[m->chunk_first[c]].inputs;
		size_t out = rows * m->layer[m->chunk_first[c + 1] - 1].outputs;
		struct pipeline_slot *slot;
		const float *x = c ? y : t->x;

		rc = take_slot(t, c, 0);
		slot = slot_of(p, c, 0);
		if (!rc && c > 0 && m->stages > 1) {
			rc = receive_array(t, slot->x, in, (c - 1) % m->stages);
			x = slot->x;
		}
		if (!rc)
			y = train_chunk_forward(&slot->activations, t->parameters, x, rows);
		if (!rc)
			rc = train_device_sync(&t->device);
		if (!rc && c + 1 < m->chunks && m->stages > 1)
			rc = send_array(t, y, out, (c + 1) % m->stages);
		if (!rc && c + 1 == m->chunks)
			*ret_logits = y;
		free_slot(p, c, 0);
	}
	return rc;
}

void train_pipeline_report(const struct train_rank *t)
{
	const struct train_pipeline *p = t->pipeline;

	printf("\"mesh\":\"data=%d,pipeline=%d\",\"schedule\":\"%s\",\"micro\":%d,", t->mesh.data,
	       t->mesh.stages, t->config->schedule, p->micro);
	printf("\"bubble\":%.4f,\"activations\":[", p->span > 0 ? 1 - p->busy / p->span : 0.0);
	for (int stage = 0; stage < t->mesh.stages; stage++)
		printf("%s%d", stage ? "," : "", p->activations[stage]);
	printf("],\"activations_proved\":[");
	for (int stage = 0; stage < t->mesh.stages; stage++)
		printf("%s%d", stage ? "," : "", p->proof.activations[stage]);
	printf("],");
}

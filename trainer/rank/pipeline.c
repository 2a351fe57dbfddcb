/* pipeline.c - one stage of a pipeline: open, close and report (pipeline.h) */
#include "trainer/rank/pipeline.h"

#include "trainer/rank/pipeline_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

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

static int check_recurrent(const struct train_rank *t)
{
	const struct train_config *c = t->config;
	int micro = t->pipeline->micro;

	if (!t->pipeline->schedule.ops->recurrent)
		return TRAIN_OK;
	if (!t->model.ops->recurrent)
		return train_fail(TRAIN_USAGE,
				  "--schedule %s: is for recurrent models, and --model %s is none; "
				  "use gpipe, 1f1b, interleaved:2 or zero-bubble",
				  c->schedule, c->model);
	if ((size_t)micro > t->data->positions)
		return train_fail(
			TRAIN_USAGE,
			"--micro %d: --schedule %s cuts a sequence into as many parts, and "
			"it has --context %zu characters; use at most that",
			micro, c->schedule, t->data->positions);
	return TRAIN_OK;
}

/* A micro-batch without samples computes nothing, but its messages take as long as others. The limit is that of the
 * batch, not of a replica's share, so that it holds for each number of replicas: a mesh grows and shrinks. */
static int check_micro(const struct train_rank *t)
{
	const struct train_config *c = t->config;

	if (t->pipeline->schedule.ops->recurrent || (size_t)c->micro <= t->leaves.count)
		return TRAIN_OK;
	return train_fail(TRAIN_USAGE,
			  "--micro %d: a micro-batch is at least a leaf, and a batch of %d samples "
			  "has %zu of --leaf %d; use at most %zu, or a smaller --leaf",
			  (int)c->micro, (int)c->global_batch, t->leaves.count, (int)c->leaf,
			  t->leaves.count);
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
		rc = check_recurrent(t);
	if (!rc)
		rc = check_micro(t);
	if (!rc)
		rc = open_chunks(p);
	for (int m = 0; m < p->micro && !rc; m++) {
		struct train_node rows = train_pipeline_rows_of(t, m);

		p->rows = rows.last - rows.first > p->rows ? rows.last - rows.first : p->rows;
	}
	p->rows = p->rows ? p->rows : 1;
	p->message = calloc((size_t)t->mesh.stages * train_pipeline_tail(t), sizeof(*p->message));
	if (!rc && !p->message)
		rc = train_fail(TRAIN_FAILED, "no memory for %d stages", t->mesh.stages);
	if (!rc)
		rc = train_links_open(t);
	return rc ? rc : train_pipeline_sums_open(t);
}

void train_pipeline_abort(struct train_rank *t)
{
	train_links_close(t->pipeline);
}

void train_pipeline_close(struct train_rank *t)
{
	struct train_pipeline *p = t->pipeline;

	if (!p)
		return;
	train_links_close(p);
	for (int c = 0; p->chunk && c < p->schedule.chunks; c++)
		train_slots_close(t, &p->chunk[c]);
	train_pipeline_sums_close(t);
	train_schedule_close(&p->schedule);
	free(p->chunk);
	free(p->activations);
	free(p->message);
	free(p);
	t->pipeline = NULL;
}

/* ---- report ------------------------------------------------------------------------------------- */

void train_pipeline_report(const struct train_rank *t)
{
	const struct train_pipeline *p = t->pipeline;

	tuttiCounters_t tensor = { .size = sizeof(tensor) };

	printf("\"mesh\":\"data=%d,tensor=%d,pipeline=%d\",\"schedule\":\"%s\",\"micro\":%d,",
	       t->mesh.data, t->mesh.tensor, t->mesh.stages, t->config->schedule, p->micro);
	if (t->mesh.tensor_comm &&
	    tuttiCommGetCounters(t->mesh.tensor_comm, &tensor) == tuttiSuccess)
		printf("\"tensor_sent\":%" PRIu64 ",\"tensor_read\":%" PRIu64 ",",
		       tensor.sent_bytes, tensor.read_bytes);
	printf("\"rank_parameters\":%zu,", t->model.parameters);
	printf("\"bubble\":%.4f,\"activations\":[", p->span > 0 ? 1 - p->busy / p->span : 0.0);
	for (int stage = 0; stage < t->mesh.stages; stage++)
		printf("%s%d", stage ? "," : "", p->activations[stage]);
	printf("],\"activations_proved\":[");
	for (int stage = 0; stage < t->mesh.stages; stage++)
		printf("%s%d", stage ? "," : "", p->proof.activations[stage]);
	printf("],");
}

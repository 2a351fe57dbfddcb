/* pipeline_run.c - a gradient and an evaluation of a stage (pipeline.h) */
#include "trainer/rank/fault.h"
#include "trainer/rank/pipeline_state.h"
#include "trainer/rank/tensor_sum.h"

/* ---- a gradient -------------------------------------------------------------------------------- */

/* All computations and messages of the list; REDUCE and UPDATE are the strategy's. */
static int run_list(struct train_rank *t)
{
	struct train_pipeline *p = t->pipeline;
	const struct train_step_list *list = &p->schedule.list[p->stage];
	int rc = TRAIN_OK;

	for (int i = 0; i < list->n && !rc; i++) {
		struct train_schedule_step step = list->step[i];

		if (train_step_is_send(step.kind) || train_step_is_receive(step.kind))
			rc = train_links_pass(t, step);
		else if (step.kind <= TRAIN_STEP_BACKWARD_WEIGHTS)
			rc = train_pipeline_compute(t, step);
		else if (step.kind == TRAIN_STEP_FREE)
			train_slot_free(p, step.chunk, step.micro);
		else if (step.kind == TRAIN_STEP_REDUCE)
			train_pipeline_store(t, &p->sum[step.chunk]);
	}
	return rc;
}

/* Adds up the tails of all stages: only the last stage has a loss. Exchanges figures with it. */
static int exchange_tails(struct train_rank *t, bool stop, uint64_t span_ns)
{
	struct train_pipeline *p = t->pipeline;
	size_t each = train_pipeline_tail(t), stride = t->sum.stride;
	double *own = p->message + (size_t)p->stage * each, busy = 0, span = 0;
	float *tail = t->gradients + t->tail_at;
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
		const double *figures = p->message + (size_t)(stage + 1) * each - PIPELINE_FIGURES;

		p->activations[stage] = (int)figures[0];
		busy += figures[1];
		span = figures[2] > span ? figures[2] : span;
	}
	p->busy += busy;
	p->span += span * t->mesh.stages;
	return rc;
}

int train_pipeline_gradient(struct train_rank *t, const struct train_batch *batch,
			    const struct train_ready *ready)
{
	struct train_pipeline *p = t->pipeline;
	uint64_t begin = train_time_ns(), end;
	bool stop = batch->stop;
	int rc = train_tensor_agree(t, &stop);

	if (rc)
		return rc;
	train_fault_begin(t, begin);
	p->busy_ns = 0;
	train_load(t, train_training_set(t), batch->samples, batch->rows);
	rc = run_list(t);
	if (rc)
		return rc;
	train_pipeline_store(t, &p->sum[t->model.chunks]);
	end = train_time_ns();
	t->compute_ns = p->busy_ns;
	t->computed_ns += p->busy_ns;
	rc = exchange_tails(t, stop, end - begin);
	return rc ? rc : train_ready_notify(ready, 0);
}

/* ---- evaluation --------------------------------------------------------------------------------- */

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

		rc = train_slot_take(t, c, 0);
		slot = train_slot_of(p, c, 0);
		slot->activations.part = (struct train_node){ 0, 0 };
		if (!rc && c > 0 && m->stages > 1) {
			rc = train_check(tuttiRecv(slot->x, in, tuttiFloat32, (c - 1) % m->stages,
						   t->mesh.comm, NULL),
					 t->mesh.comm);
			x = slot->x;
		}
		if (!rc)
			y = train_chunk_forward(&slot->activations, t->parameters, x, rows);
		if (!rc)
			rc = t->model.failed ? TRAIN_FAILED : train_device_sync(&t->device);
		if (!rc && c + 1 < m->chunks && m->stages > 1)
			rc = train_check(tuttiSend(y, out, tuttiFloat32, (c + 1) % m->stages,
						   t->mesh.comm, NULL),
					 t->mesh.comm);
		if (!rc && c + 1 == m->chunks)
			*ret_logits = y;
		train_slot_free(p, c, 0);
	}
	return rc;
}

/* pipeline_compute.c - forward and backward passes of micro-batches (pipeline_state.h). Called by
 * pipeline_run.c; calls chunk.c. */
#include "trainer/rank/fault.h"
#include "trainer/rank/pipeline_state.h"

/* The input of a chunk: the images, a received output, or that of the chunk before it. */
static const float *input_of(struct train_rank *t, int chunk, int micro)
{
	struct train_pipeline *p = t->pipeline;
	const struct train_activations *before;

	if (chunk == 0)
		return t->x + train_pipeline_rows_of(t, micro).first * t->data->pixels;
	if (p->schedule.stages > 1)
		return train_slot_of(p, chunk, micro)->x;
	before = &train_slot_of(p, chunk - 1, micro)->activations;
	return before->pass[before->last - before->first - 1].y;
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
	size_t classes = l->t->data->classes, positions = l->t->data->positions;

	l->t->device.ops->loss(&l->t->device, rows * positions, classes,
			       l->labels + row * positions, l->logits + row * positions * classes,
			       out);
}

/* logits: of the micro-batch's samples */
static void add_loss(struct train_rank *t, int micro, float *logits)
{
	struct train_node rows = train_pipeline_micro(t, micro);
	struct micro_loss loss = { t, t->labels + rows.first * t->data->positions, logits };
	struct pipeline_sum *s = &t->pipeline->sum[t->model.chunks];
	struct train_pipeline_part part = train_pipeline_part(t, s, micro);

	train_leaves_each(&part.sum, rows.last - rows.first, 1, loss_leaf, &loss,
			  part.gradients + s->at);
	train_pipeline_add(t, s, micro);
}

/* The last chunk's logits of a micro-batch. The loss of a sequence is one sum over its parts. */
static void add_losses(struct train_rank *t, int micro, float *logits)
{
	size_t each = t->data->positions * t->data->classes;
	struct train_pipeline *p = t->pipeline;

	if (!p->schedule.ops->recurrent)
		add_loss(t, micro, logits);
	else if (micro == p->micro - 1)
		for (int m = 0; m < p->micro; m++)
			add_loss(t, m, logits + train_pipeline_micro(t, m).first * each);
}

static int forward_step(struct train_rank *t, struct train_schedule_step step)
{
	struct train_pipeline *p = t->pipeline;
	struct train_node rows = train_pipeline_rows_of(t, step.micro);
	struct train_activations *a;
	int rc = TRAIN_OK;
	float *y;

	if (step.chunk == 0 || p->schedule.stages == 1)
		rc = train_slot_take(t, step.chunk, step.micro);
	if (rc)
		return rc;
	a = &train_slot_of(p, step.chunk, step.micro)->activations;
	a->part = train_part_positions(t, step.micro);
	y = train_chunk_forward(a, t->parameters, input_of(t, step.chunk, step.micro),
				rows.last - rows.first);
	if (step.chunk == t->model.chunks - 1)
		add_losses(t, step.micro, y);
	return TRAIN_OK;
}

static void backward_input_step(struct train_rank *t, struct train_schedule_step step)
{
	struct train_pipeline *p = t->pipeline;
	struct pipeline_slot *slot = train_slot_of(p, step.chunk, step.micro);
	struct train_activations *a = &slot->activations;
	struct train_node rows = train_pipeline_micro(t, step.micro);

	train_chunk_backward_input(a, t->parameters, a->dy ? a->dy : train_slot_output(slot));
	if (step.chunk > 0 && p->schedule.stages == 1)
		t->device.ops->copy(&t->device,
				    train_slot_of(p, step.chunk - 1, step.micro)->activations.dy,
				    a->dx,
				    (rows.last - rows.first) * t->model.layer[a->first].inputs *
					    sizeof(float));
}

static int backward_weights_step(struct train_rank *t, struct train_schedule_step step)
{
	struct train_pipeline *p = t->pipeline;
	struct pipeline_sum *s = &p->sum[step.chunk];
	struct train_pipeline_part part = train_pipeline_part(t, s, step.micro);
	int rc;

	if (p->schedule.ops->recurrent) /* the pass has all rows */
		part.sum.skip = train_pipeline_micro(t, step.micro).first;
	rc = train_chunk_backward_weights(&train_slot_of(p, step.chunk, step.micro)->activations,
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

int train_pipeline_compute(struct train_rank *t, struct train_schedule_step step)
{
	int rc = train_links_wait(t, step);
	uint64_t begin = train_time_ns();

	if (rc)
		return rc;
	if (step.kind == TRAIN_STEP_FORWARD)
		rc = forward_step(t, step);
	if (step.kind == TRAIN_STEP_BACKWARD || step.kind == TRAIN_STEP_BACKWARD_INPUT)
		backward_input_step(t, step);
	if (step.kind == TRAIN_STEP_BACKWARD || step.kind == TRAIN_STEP_BACKWARD_WEIGHTS)
		rc = backward_weights_step(t, step);
	if (!rc)
		rc = t->model.failed ? TRAIN_FAILED : train_device_sync(&t->device);
	train_fault_sleep(t, begin + (uint64_t)pace_of(t, step.kind));
	t->pipeline->busy_ns += train_time_ns() - begin;
	train_timeline_add_span(&t->timeline, (struct train_span){
						      .step = t->step,
						      .begin_ns = begin,
						      .end_ns = train_time_ns(),
						      .activity = TRAIN_TIME_STEPS + step.kind,
						      .chunk = (uint64_t)step.chunk,
						      .micro = (uint64_t)step.micro,
					      });
	return rc;
}

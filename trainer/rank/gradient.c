/* gradient.c - a rank's computation: gradients, descent, parameters, evaluation (rank.h) */
#include "trainer/rank/rank.h"

#include "trainer/device/exact.h"
#include "trainer/rank/fault.h"
#include "trainer/rank/optimizer.h"
#include "trainer/rank/pipeline.h"
#include "trainer/rank/user_model.h"

#include <stdlib.h>
#include <string.h>

enum { ZEROS = 16384 }; /* floats that have no gradient, at once */

void train_load(struct train_rank *t, const struct train_set *set, const uint32_t *samples,
		size_t rows)
{
	size_t positions = t->data->positions;

	t->device.ops->gather(&t->device, set->images, samples, rows, t->data->pixels,
			      t->data->mean, t->x);
	for (size_t i = 0; i < rows; i++)
		memcpy(t->labels + i * positions, set->labels + samples[i] * positions, positions);
}

/* Returns the logits. */
static float *forward(struct train_rank *t, const struct train_set *set, const uint32_t *samples,
		      size_t rows)
{
	if (t->rollout)
		train_rollout_play(t, rows);
	else
		train_load(t, set, samples, rows);
	return train_model_forward(&t->model, t->parameters, t->x, rows);
}

/* ---- a gradient ----------------------------------------------------------------------------- */

/* A backward pass that fills comm_buffer. */
struct gradient_output {
	struct train_rank *t;
	const struct train_ready *ready; /* the strategy's */
	size_t end;                      /* comm_buffer has the gradients from here on */
	float *logits;
};

static void loss_leaf(void *arg, size_t row, size_t rows, float *out)
{
	const struct gradient_output *o = arg;
	struct train_rank *t = o->t;
	size_t classes = t->data->classes, positions = t->data->positions;

	if (t->rollout)
		train_rollout_loss(t, row, rows, o->logits + row * classes, out);
	else
		t->device.ops->loss(&t->device, rows * positions, classes,
				    t->labels + row * positions,
				    o->logits + row * positions * classes, out);
}

static void copy_final(struct gradient_output *o, size_t from)
{
	struct train_rank *t = o->t;

	for (size_t i = 0; t->comm_buffer != t->gradients && i < t->sum.nodes; i++)
		t->device.ops->get(&t->device, t->comm_buffer + i * t->sum.stride + from,
				   t->gradients + i * t->sum.stride + from,
				   (o->end - from) * sizeof(float));
	o->end = from;
}

static int on_final(void *arg, size_t from)
{
	struct gradient_output *o = arg;

	train_fault_delay(o->t, from);
	copy_final(o, from);
	return train_ready_notify(o->ready, from);
}

/* Fills the tail of each node; the stop flag is set in one node only. */
static void fill_tail(struct gradient_output *o, size_t rows, bool stop)
{
	struct train_rank *t = o->t;
	float *tail = t->gradients + t->tail_at;

	train_leaves_each(&t->sum, rows, 1, loss_leaf, o, tail + TRAIN_TAIL_LOSS);
	for (size_t i = 0; i < t->sum.nodes; i++) {
		float flag = stop && i == 0;

		t->device.ops->put(&t->device, tail + i * t->sum.stride + TRAIN_TAIL_STOP, &flag,
				   sizeof(flag));
	}
}

int train_gradient(struct train_rank *t, const struct train_batch *batch,
		   const struct train_ready *ready)
{
	struct gradient_output o = { t, ready, t->floats, NULL };
	struct train_ready pass = { .fn = on_final,
				    .arg = &o,
				    .grain = ready ? ready->grain : t->floats };
	uint64_t begin = train_time_ns(), end;
	int rc;

	if (t->pipeline)
		return train_pipeline_gradient(t, batch, ready);
	if (t->config->user)
		return train_user_gradient(t, batch, ready);
	train_fault_begin(t, begin);
	o.logits = forward(t, train_training_set(t), batch->samples, batch->rows);
	fill_tail(&o, batch->rows, batch->stop);
	train_fault_delay(t, t->model.parameters + TRAIN_TAIL);
	rc = train_model_backward(&t->model, t->parameters, o.logits, &t->sum, t->gradients, &pass);
	if (!rc)
		rc = t->model.failed ? TRAIN_FAILED : train_device_sync(&t->device);
	end = train_time_ns();
	t->compute_ns = end - begin - t->slept_ns;
	t->computed_ns += end - begin;
	train_timeline_add(&t->timeline, TRAIN_TIME_COMPUTE, t->step, begin, end);
	return rc;
}

void train_read_tail(struct train_rank *t, float ret_tail[TRAIN_TAIL])
{
	const float *tail = t->comm_buffer + t->tail_at;

	if (train_comm_on_device(t))
		t->device.ops->get(&t->device, ret_tail, tail, TRAIN_TAIL * sizeof(*tail));
	else
		memcpy(ret_tail, tail, TRAIN_TAIL * sizeof(*tail));
}

/* Updates count parameters from `at` on. */
static void update(struct train_rank *t, float scale, size_t at, size_t count,
		   const float *gradient)
{
	train_optimizer_update(t, &(struct train_update){
					  .on = &t->device,
					  .count = count,
					  .scale = scale,
					  .gradient = gradient,
					  .state = t->state + at,
					  .stride = t->model.parameters,
					  .weight = t->parameters + at,
				  });
}

/* Of a table the gradient has the touched rows; that of the others is 0, but they may have momentum. */
static void descend_rows(struct train_rank *t, float scale)
{
	static const float zeros[ZEROS];
	const struct train_model *m = &t->model;
	size_t width = m->tensors[0].columns, table = m->tensors[0].count, at = 0;

	for (size_t i = 0; i <= m->ntouched; i++) {
		size_t end = i < m->ntouched ? m->touched[i] * width : table;

		for (size_t count; at < end; at += count) {
			count = end - at < ZEROS ? end - at : ZEROS;
			update(t, scale, at, count, zeros);
		}
		if (i < m->ntouched)
			update(t, scale, at, width, t->gradients + i * width);
		at = end + width;
	}
	update(t, scale, table, m->parameters - table, t->gradients + table);
}

void train_descend(struct train_rank *t, size_t samples)
{
	float scale = train_mean_scale(t, samples);

	if (t->model.touched) {
		descend_rows(t, scale);
		return;
	}
	if (t->comm_buffer != t->gradients)
		t->device.ops->put(&t->device, t->gradients, t->comm_buffer,
				   t->model.parameters * sizeof(float));
	update(t, scale, 0, t->model.parameters, t->gradients);
}

void train_add_exposed(struct train_rank *t, uint64_t since_ns)
{
	uint64_t now = train_time_ns();

	t->exposed_ns += now - since_ns;
	train_timeline_add(&t->timeline, TRAIN_TIME_EXPOSED, t->step, since_ns, now);
}

/* ---- parameters ----------------------------------------------------------------------------- */

float *train_parameters_download(struct train_rank *t)
{
	if (!t->host_parameters)
		return t->parameters;
	t->device.ops->get(&t->device, t->host_parameters, t->parameters,
			   t->model.parameters * sizeof(float));
	return t->host_parameters;
}

void train_parameters_upload(struct train_rank *t)
{
	if (t->host_parameters)
		t->device.ops->put(&t->device, t->parameters, t->host_parameters,
				   t->model.parameters * sizeof(float));
}

float *train_parameters_map(struct train_rank *t)
{
	return train_comm_on_device(t) ? t->parameters : train_parameters_download(t);
}

void train_parameters_unmap(struct train_rank *t)
{
	if (!train_comm_on_device(t))
		train_parameters_upload(t);
}

void train_parameters_set_host(struct train_rank *t, const float *host)
{
	t->device.ops->put(&t->device, t->parameters, host, t->model.parameters * sizeof(float));
}

void train_parameters_set(struct train_rank *t, const float *from)
{
	const struct train_device_ops *d = t->device.ops;

	(train_comm_on_device(t) ? d->copy : d->put)(&t->device, t->parameters, from,
						     t->model.parameters * sizeof(float));
}

/* Broadcasts a device array of the size of the parameters. comm_buffer is the bounce buffer
 * where the library does not accept device memory. */
static int bcast_array(struct train_rank *t, float *array, int root)
{
	size_t count = t->model.parameters, bytes = count * sizeof(float);
	const struct train_device_ops *d = t->device.ops;
	bool copied = d->separate_memory && !d->tutti_aware;
	float *at = copied ? t->comm_buffer : array;
	int rc = train_device_sync(&t->device);

	if (!rc && copied)
		d->get(&t->device, at, array, bytes);
	if (!rc)
		rc = train_check(tuttiBcast(at, count, tuttiFloat32, root, t->comm, NULL), t->comm);
	if (!rc && copied)
		d->put(&t->device, array, at, bytes);
	return rc;
}

int train_parameters_bcast_from(struct train_rank *t, int root)
{
	size_t n = t->model.parameters, arrays = t->state ? train_optimizer_arrays(t->config) : 0;
	int rc = bcast_array(t, t->parameters, root);

	for (size_t i = 0; i < arrays && !rc; i++)
		rc = bcast_array(t, t->state + i * n, root);
	return rc;
}

int train_parameters_bcast(struct train_rank *t)
{
	return t->first_step ? train_parameters_bcast_from(t, 0) : bcast_array(t, t->parameters, 0);
}

/* ---- the test set --------------------------------------------------------------------------- */

/* Adds to sums: correct predictions of these samples, and their loss. */
static void count_correct(const struct train_rank *t, const float *logits, size_t samples,
			  double sums[2])
{
	size_t classes = t->data->classes;

	for (size_t row = 0; row < samples * t->data->positions; row++, logits += classes) {
		size_t best = 0;

		for (size_t i = 1; i < classes; i++)
			best = logits[i] > logits[best] ? i : best;
		sums[0] += best == t->labels[row];
		sums[1] += train_cross_entropy(logits, classes, t->labels[row]);
	}
}

/* Logits of test samples; with a pipeline, NULL on all stages but the last. */
static int forward_test(struct train_rank *t, const uint32_t *samples, size_t rows,
			float **ret_logits)
{
	const struct train_set *set = t->data->sharded ? &t->shard.test.set : &t->data->test;

	if (!t->pipeline) {
		*ret_logits = forward(t, set, samples, rows);
		return TRAIN_OK;
	}
	train_load(t, set, samples, rows);
	return train_pipeline_forward(t, rows, ret_logits);
}

/* Adds to sums the results of this rank's share of the test set, `most` samples at once. */
static int evaluate_share(struct train_rank *t, size_t most, float *host, double sums[2])
{
	struct train_share share = train_share_of(t->data->test.samples, t->rank, t->nranks);
	size_t first = t->data->sharded ? 0 : share.first;
	int rc = t->data->sharded ? train_shard_test(&t->shard, t->data, share) : TRAIN_OK;

	for (size_t done = 0; done < share.count && !rc; done += most) {
		size_t left = share.count - done, rows = left < most ? left : most;
		uint32_t samples[TRAIN_EVALUATE_ROWS];
		float *logits;

		for (size_t i = 0; i < rows; i++)
			samples[i] = (uint32_t)(first + done + i);
		rc = forward_test(t, samples, rows, &logits);
		if (rc || !logits)
			continue;
		t->device.ops->get(&t->device, host, logits,
				   rows * t->data->positions * t->data->classes * sizeof(*host));
		count_correct(t, host, rows, sums);
	}
	return rc ? rc : train_device_sync(&t->device);
}

static int evaluate_data(struct train_rank *t, double *ret_accuracy, double *ret_loss)
{
	double predictions = (double)(t->data->test.samples * t->data->positions);
	size_t rows = train_evaluate_rows(t), most = t->pipeline ? train_pipeline_rows(t) : rows;
	float *host = malloc(rows * t->data->positions * t->data->classes * sizeof(*host));
	double sums[2] = { 0.0, 0.0 };
	int rc;

	if (!host)
		return train_fail(TRAIN_FAILED, "no memory to evaluate %zu samples", rows);
	rc = evaluate_share(t, most < rows ? most : rows, host, sums);
	free(host);
	if (!rc)
		rc = train_check(tuttiAllReduce(sums, sums, 2, tuttiFloat64, tuttiSum, t->comm,
						NULL),
				 t->comm);
	if (!rc && t->pipeline)
		rc = train_check(tuttiBcast(sums, 2, tuttiFloat64,
					    (t->model.chunks - 1) % t->mesh.stages, t->mesh.comm,
					    NULL),
				 t->mesh.comm);
	*ret_accuracy = sums[0] / predictions;
	*ret_loss = sums[1] / predictions;
	return rc;
}

int train_evaluate(struct train_rank *t, double *ret_accuracy, double *ret_loss)
{
	if (t->config->user)
		return train_user_evaluate(t, ret_accuracy, ret_loss);
	if (!t->rollout)
		return evaluate_data(t, ret_accuracy, ret_loss);
	*ret_loss = 0.0;
	return train_rollout_test(t, ret_accuracy);
}

/* gradient.c - what a rank computes: gradients, the step along them, the test set (trainer.h) */
#include "trainer/trainer.h"

#include "trainer/device/exact.h"
#include "trainer/fault.h"

#include <stdlib.h>
#include <string.h>

/* The images go to t->x, the labels to t->labels; returns the logits. */
static float *forward(struct train_rank *t, const struct train_set *set, const uint32_t *samples,
		      size_t rows)
{
	t->device.ops->gather(&t->device, set->images, samples, rows, t->data->pixels,
			      t->data->mean, t->x);
	for (size_t i = 0; i < rows; i++)
		t->labels[i] = set->labels[samples[i]];
	return t->model.ops->forward(&t->model, t->parameters, t->x, rows);
}

/* ---- a gradient ----------------------------------------------------------------------------- */

/* A backward pass on its way to wire. */
struct outgoing {
	struct train_rank *t;
	const struct train_ready *ready; /* the strategy's */
	size_t end;                   /* from here on wire has it */
	float *logits;
};

static void loss_leaf(void *arg, size_t row, size_t rows, float *out)
{
	const struct outgoing *o = arg;
	struct train_rank *t = o->t;
	size_t classes = t->data->classes;

	t->device.ops->loss(&t->device, rows, classes, t->labels + row, o->logits + row * classes,
			    out);
}

static void copy_out(struct outgoing *o, size_t from)
{
	struct train_rank *t = o->t;

	for (size_t i = 0; t->wire != t->gradients && i < t->sum.nodes; i++)
		t->device.ops->get(&t->device, t->wire + i * t->sum.stride + from,
				   t->gradients + i * t->sum.stride + from,
				   (o->end - from) * sizeof(float));
	o->end = from;
}

static int pass_on(void *arg, size_t from)
{
	struct outgoing *o = arg;

	train_fault_linger(o->t, from);
	copy_out(o, from);
	return train_ready_tell(o->ready, from);
}

/* The tail of each node; stop is said once. */
static void fill_tail(struct outgoing *o, size_t rows, bool stop)
{
	struct train_rank *t = o->t;
	float *tail = t->gradients + t->model.parameters;

	train_leaves_each(&t->sum, rows, 1, loss_leaf, o, tail + TRAIN_TAIL_LOSS);
	for (size_t i = 0; i < t->sum.nodes; i++) {
		float said = stop && i == 0;

		t->device.ops->put(&t->device, tail + i * t->sum.stride + TRAIN_TAIL_STOP, &said,
				   sizeof(said));
	}
}

int train_gradient(struct train_rank *t, const struct train_batch *batch, const struct train_ready *ready)
{
	struct outgoing o = { t, ready, t->floats, NULL };
	struct train_ready pass = { pass_on, &o, ready ? ready->grain : t->floats };
	uint64_t begin = train_time_ns(), end;
	int rc;

	train_fault_pace(t, begin);
	o.logits = forward(t, &t->data->train, batch->samples, batch->rows);
	fill_tail(&o, batch->rows, batch->stop);
	train_fault_linger(t, t->floats);
	rc = t->model.ops->backward(&t->model, t->parameters, t->x, batch->rows, o.logits, &t->sum,
				    t->gradients, &pass);
	if (!rc)
		rc = train_device_settle(&t->device);
	end = train_time_ns();
	t->compute_ns = end - begin - t->slept_ns;
	train_timeline_add(&t->timeline, TRAIN_TIME_COMPUTE, t->step, begin, end);
	return rc;
}

void train_tail(struct train_rank *t, float ret_tail[TRAIN_TAIL])
{
	const float *tail = t->wire + t->model.parameters;

	if (train_wire_apart(t))
		t->device.ops->get(&t->device, ret_tail, tail, TRAIN_TAIL * sizeof(*tail));
	else
		memcpy(ret_tail, tail, TRAIN_TAIL * sizeof(*tail));
}

void train_descend(struct train_rank *t, size_t samples)
{
	if (t->wire != t->gradients)
		t->device.ops->put(&t->device, t->gradients, t->wire,
				   t->model.parameters * sizeof(float));
	t->device.ops->descend(&t->device, t->model.parameters, 1.0f / (float)samples, t->rate,
			       (float)t->config->momentum, t->gradients, t->velocity,
			       t->parameters);
}

void train_exposed(struct train_rank *t, uint64_t since_ns)
{
	uint64_t now = train_time_ns();

	t->exposed_ns += now - since_ns;
	train_timeline_add(&t->timeline, TRAIN_TIME_EXPOSED, t->step, since_ns, now);
}

/* ---- parameters ----------------------------------------------------------------------------- */

float *train_parameters_out(struct train_rank *t)
{
	if (!t->host_parameters)
		return t->parameters;
	t->device.ops->get(&t->device, t->host_parameters, t->parameters,
			   t->model.parameters * sizeof(float));
	return t->host_parameters;
}

void train_parameters_in(struct train_rank *t)
{
	if (t->host_parameters)
		t->device.ops->put(&t->device, t->parameters, t->host_parameters,
				   t->model.parameters * sizeof(float));
}

float *train_parameters_lend(struct train_rank *t)
{
	return train_wire_apart(t) ? t->parameters : train_parameters_out(t);
}

void train_parameters_return(struct train_rank *t)
{
	if (!train_wire_apart(t))
		train_parameters_in(t);
}

void train_parameters_adopt(struct train_rank *t, const float *host)
{
	t->device.ops->put(&t->device, t->parameters, host, t->model.parameters * sizeof(float));
}

void train_parameters_take(struct train_rank *t, const float *from)
{
	const struct train_device_ops *d = t->device.ops;

	(train_wire_apart(t) ? d->copy : d->put)(&t->device, t->parameters, from,
					      t->model.parameters * sizeof(float));
}

/* A device's array of as many floats as there are parameters; where the library does not take its
 * memory, wire's serves on the way. */
static int share_array(struct train_rank *t, float *array, int root)
{
	size_t count = t->model.parameters, bytes = count * sizeof(float);
	const struct train_device_ops *d = t->device.ops;
	bool copied = d->apart && !d->reached;
	float *at = copied ? t->wire : array;
	int rc = train_device_settle(&t->device);

	if (!rc && copied)
		d->get(&t->device, at, array, bytes);
	if (!rc)
		rc = train_library(tuttiBcast(at, count, tuttiFloat32, root, t->comm, NULL), t->comm);
	if (!rc && copied)
		d->put(&t->device, array, at, bytes);
	return rc;
}

int train_parameters_share_from(struct train_rank *t, int root)
{
	int rc = share_array(t, t->parameters, root);

	return rc || !t->velocity ? rc : share_array(t, t->velocity, root);
}

int train_parameters_share(struct train_rank *t)
{
	return t->first_step ? train_parameters_share_from(t, 0) : share_array(t, t->parameters, 0);
}

/* ---- the test set --------------------------------------------------------------------------- */

/* Adds up what these rows say: how many are right, and the loss. */
static void judge(const struct train_rank *t, const float *logits, size_t rows, double sums[2])
{
	size_t classes = t->data->classes;

	for (size_t row = 0; row < rows; row++, logits += classes) {
		size_t best = 0;

		for (size_t i = 1; i < classes; i++)
			best = logits[i] > logits[best] ? i : best;
		sums[0] += best == t->labels[row];
		sums[1] += train_cross_entropy(logits, classes, t->labels[row]);
	}
}

int train_evaluate(struct train_rank *t, double *ret_accuracy, double *ret_loss)
{
	const struct train_set *set = &t->data->test;
	struct train_share share = train_share_of(set->samples, t->rank, t->nranks);
	float *host = malloc(TRAIN_EVALUATE_ROWS * t->data->classes * sizeof(*host));
	double sums[2] = { 0.0, 0.0 };
	int rc;

	for (size_t done = 0; host && done < share.count; done += TRAIN_EVALUATE_ROWS) {
		size_t left = share.count - done;
		size_t rows = left < TRAIN_EVALUATE_ROWS ? left : TRAIN_EVALUATE_ROWS;
		uint32_t samples[TRAIN_EVALUATE_ROWS];

		for (size_t i = 0; i < rows; i++)
			samples[i] = (uint32_t)(share.first + done + i);
		t->device.ops->get(&t->device, host, forward(t, set, samples, rows),
				   rows * t->data->classes * sizeof(*host));
		judge(t, host, rows, sums);
	}
	if (!host)
		return train_fail(TRAIN_FAILED, "no memory to evaluate %zu samples",
				     share.count);
	free(host);
	rc = train_device_settle(&t->device);
	if (rc)
		return rc;
	rc = train_library(tuttiAllReduce(sums, sums, 2, tuttiFloat64, tuttiSum, t->comm, NULL),
			t->comm);
	*ret_accuracy = sums[0] / (double)set->samples;
	*ret_loss = sums[1] / (double)set->samples;
	return rc;
}

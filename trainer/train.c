/* train.c - the training from its first step to its last (train.h) */
#include "train.h"

#include "metrics.h"
#include "replicas.h"
#include "strategy.h"

#include <inttypes.h>
#include <math.h>

volatile sig_atomic_t tt_stop_signal;

struct progress {
	struct tt_metrics metrics;
	uint64_t per_epoch, steps; /* of an epoch; in all */
	uint64_t training_ns;      /* spent in steps, without evaluations and checks */
};

/* Does this step (from 1) end a period? 0: no periods. */
static bool due(uint64_t step, uint64_t period) { return period && step % period == 0; }

/* One step; fills in the note. *ret_stop: some rank was asked to end. */
static int take_step(struct tt_trainer *t, struct progress *p, uint64_t step, struct tt_note *note,
		     bool *ret_stop)
{
	uint64_t begin = tt_time_ns(), took;
	struct tt_batch batch = { .stop = tt_stop_signal != 0 };
	float tail[TT_TAIL];
	int rc;

	batch.samples = tt_sampler_rows(&t->sampler, step - 1, t->rank, t->nranks, &batch.rows);
	rc = t->strategy->step(t, &batch);
	if (rc)
		return rc;
	t->device.ops->get(&t->device, tail, t->gradients + t->model.parameters, sizeof(tail));
	took = tt_time_ns() - begin;
	p->training_ns += took;
	*note = (struct tt_note){
		.step = step,
		.steps = p->steps,
		.epoch = (step - 1) / p->per_epoch + 1,
		.epochs = (p->steps - 1) / p->per_epoch + 1,
		.loss = (double)tail[TT_TAIL_LOSS] / (double)t->sampler.batch,
		.samples_per_s = (double)t->sampler.batch * 1e9 / (double)took,
		.mean_samples_per_s =
			(double)step * (double)t->sampler.batch * 1e9 / (double)p->training_ns,
	};
	*ret_stop = tail[TT_TAIL_STOP] > 0.0f;
	if (!isfinite(note->loss))
		return tt_train_fail(TT_TRAIN_FAILED,
				     "step %" PRIu64 ": the loss is %g: the training diverged; use "
						     "a smaller --lr",
				     step, note->loss);
	return TT_TRAIN_OK;
}

/* What is done between steps, when it is due. */
static int look_back(struct tt_trainer *t, struct progress *p, bool last, struct tt_note *note,
		     struct tt_result *result)
{
	const struct tt_config *c = t->config;
	int rc = TT_TRAIN_OK;

	if (last || due(note->step, (uint64_t)c->check_replicas))
		rc = tt_replicas_check(t, note->step, &result->hash);
	if (!rc &&
	    (last || due(note->step, c->eval_every ? (uint64_t)c->eval_every : p->per_epoch))) {
		note->evaluated = true;
		rc = tt_evaluate(t, &note->accuracy, &note->test_loss);
	}
	if (!rc)
		tt_metrics_note(&p->metrics, note);
	return rc;
}

static int all_steps(struct tt_trainer *t, struct progress *p, struct tt_result *result)
{
	struct tt_note note = { 0 };

	for (uint64_t step = 1; step <= p->steps && !result->stopped; step++) {
		bool last;
		int rc = take_step(t, p, step, &note, &result->stopped);

		last = step == p->steps || result->stopped;
		if (!rc)
			rc = look_back(t, p, last, &note, result);
		if (rc)
			return rc;
	}
	result->steps = note.step;
	result->accuracy = note.accuracy;
	result->loss = note.test_loss;
	result->samples_per_s = note.mean_samples_per_s;
	result->exposed_share = (double)t->exposed_ns / (double)p->training_ns;
	return TT_TRAIN_OK;
}

int tt_train(struct tt_trainer *t, struct tt_result *ret_result)
{
	struct progress p = { .per_epoch = tt_sampler_steps(&t->sampler) };
	struct tt_result result = { 0 };
	int rc, closed;

	p.steps = t->config->steps ? (uint64_t)t->config->steps
				   : (uint64_t)t->config->epochs * p.per_epoch;
	rc = tt_metrics_open(&p.metrics, t);
	if (rc)
		return rc;
	rc = all_steps(t, &p, &result);
	closed = tt_metrics_close(&p.metrics);
	if (!rc)
		rc = closed;
	if (!rc)
		*ret_result = result;
	return rc;
}

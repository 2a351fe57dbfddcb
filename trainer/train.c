/* train.c - the training from its first step to its last (train.h) */
#include "trainer/train.h"

#include "trainer/checkpoint.h"
#include "trainer/fault.h"
#include "trainer/metrics.h"
#include "trainer/replicas.h"
#include "trainer/schedule.h"
#include "trainer/strategy/strategy.h"
#include "trainer/strategy/survive.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

volatile sig_atomic_t tt_stop_signal;

struct progress {
	struct tt_metrics metrics;
	uint64_t per_epoch, steps; /* of an epoch; in all */
	uint64_t training_ns;      /* spent in steps, without evaluations and checks */
	uint64_t taken;            /* steps, in this run */
};

/* Does this step (from 1) end a period? 0: no periods. */
static bool due(uint64_t step, int64_t period) { return period && step % (uint64_t)period == 0; }

/* Adds what has been moved for t since the last call, if `count`. */
static void count_bytes(const struct tt_trainer *t, struct tt_result *result, bool count)
{
	uint64_t *sent = &result->sent_before, *read = &result->read_before;
	tuttiCounters_t now = { .size = sizeof(now) };

	if (tuttiCommGetCounters(t->comm, &now) != tuttiSuccess)
		return;
	now.sent_bytes += t->message_bytes;
	/* else comm is a new one */
	if (count && now.sent_bytes >= *sent && now.read_bytes >= *read) {
		result->sent_bytes += now.sent_bytes - *sent;
		result->read_bytes += now.read_bytes - *read;
	}
	*sent = now.sent_bytes;
	*read = now.read_bytes;
}

/* ---- a step --------------------------------------------------------------------------------- */

static int note_step(struct tt_trainer *t, struct progress *p, const struct tt_batch *batch,
		     const float tail[TT_TAIL], uint64_t before, uint64_t took,
		     struct tt_note *note)
{
	double all = (double)t->leaves.batch;
	double of = t->strategy->own_pace ? (double)batch->rows : all;
	uint64_t step = t->step, steps = step - before; /* spare may have taken several */

	p->training_ns += took;
	p->taken += steps;
	*note = (struct tt_note){
		.step = step,
		.steps = p->steps,
		.epoch = (step - 1) / p->per_epoch + 1,
		.epochs = (p->steps - 1) / p->per_epoch + 1,
		.loss = of > 0.0 ? (double)tail[TT_TAIL_LOSS] / of : 0.0,
		.rate = (double)t->rate,
		.step_ms = (double)took / 1e6,
		.samples_per_s = (double)steps * all * 1e9 / (double)took,
		.mean_samples_per_s = (double)p->taken * all * 1e9 / (double)p->training_ns,
	};
	if (isfinite(note->loss))
		return TT_TRAIN_OK;
	return tt_train_fail(TT_TRAIN_FAILED,
			     "step %" PRIu64 ": the loss is %g: the training diverged; use "
			     "a smaller --lr",
			     step, note->loss);
}

/* One step; fills in the note. result->stopped: some rank was asked to end. */
static int take_step(struct tt_trainer *t, struct progress *p, uint64_t step, struct tt_note *note,
		     struct tt_result *result)
{
	uint64_t begin = tt_time_ns(), exposed = t->exposed_ns;
	struct tt_batch batch = { .stop = tt_stop_signal != 0 };
	struct tt_node rows = tt_leaves_rows(&t->leaves, t->sum.run);
	float tail[TT_TAIL];
	int rc;

	t->step = step;
	t->rate = (float)tt_schedule(t->config, step, p->steps);
	tt_fault_kill(t);
	batch.rows = rows.last - rows.first;
	batch.samples = tt_sampler_rows(&t->sampler, step - 1, rows.first);
	count_bytes(t, result, false);
	rc = t->strategy->step(t, &batch);
	if (rc)
		return rc;
	count_bytes(t, result, true);
	tt_tail(t, tail);
	result->stopped = t->strategy->own_pace ? t->stopping : tail[TT_TAIL_STOP] > 0.0f;
	rc = note_step(t, p, &batch, tail, step - 1, tt_time_ns() - begin, note);
	note->exposed_ms = (double)(t->exposed_ns - exposed) / 1e6;
	return rc;
}

/* What is done between steps, when it is due. */
static int look_back(struct tt_trainer *t, struct progress *p, bool last, struct tt_note *note,
		     struct tt_result *result)
{
	const struct tt_config *c = t->config;
	bool own = t->strategy->own_pace;
	bool evaluate =
		last || due(note->step, c->eval_every ? c->eval_every : (int64_t)p->per_epoch);
	bool save = c->save && (last || due(note->step, c->save_every));
	int rc = TT_TRAIN_OK;

	count_bytes(t, result, false);
	if (t->strategy->settle && (evaluate || save))
		rc = t->strategy->settle(t, last);
	count_bytes(t, result, true);
	if (!rc && (last || (!own && due(note->step, c->check_replicas)) || (own && evaluate)))
		rc = tt_replicas_check(t, note->step, &result->hash);
	if (!rc && evaluate) {
		note->evaluated = true;
		rc = tt_evaluate(t, &note->accuracy, &note->test_loss);
	}
	if (!rc && save)
		rc = tt_checkpoint_save(t, c->save, note->step);
	if (!rc)
		tt_metrics_note(&p->metrics, t, note);
	return rc;
}

/* ---- all steps ------------------------------------------------------------------------------ */

/* Adds to the sentence what could be done. */
static int hint(void)
{
	char text[900];

	snprintf(text, sizeof(text), "%s", tt_train_error());
	return tt_train_fail(TT_TRAIN_FAILED, "%s; with --on-failure shrink the others go on",
			     text);
}

/* After a failure in the step after `done`:
 * may the others go on? *ret_done: what they have done. */
static int go_on(struct tt_trainer *t, struct progress *p, uint64_t done, struct tt_note *note,
		 struct tt_result *result, uint64_t *ret_done)
{
	bool was_first = t->rank == 0;
	int rc;

	if (!tt_can_survive(t->comm))
		return TT_TRAIN_FAILED;
	if (t->config->on_failure != TT_FAILURE_SHRINK)
		return t->strategy->no_shrink ? TT_TRAIN_FAILED : hint();
	count_bytes(t, result, false);
	rc = tt_survive(t, done, ret_done);
	if (!rc && t->rank == 0 && !was_first)
		rc = tt_metrics_open(&p->metrics, t, true);
	count_bytes(t, result, false);
	if (rc || *ret_done < p->steps)
		return rc;
	note->step = *ret_done; /* it was the last step, and some rank had taken it */
	return look_back(t, p, true, note, result);
}

static void conclude(const struct tt_trainer *t, const struct progress *p,
		     const struct tt_note *note, struct tt_result *result)
{
	result->steps = note->step;
	result->accuracy = note->accuracy;
	result->loss = note->test_loss;
	result->samples_per_s = note->mean_samples_per_s;
	result->step_ms = (double)p->training_ns / 1e6 / (double)p->taken;
	result->exposed_share = (double)t->exposed_ns / (double)p->training_ns;
}

static int all_steps(struct tt_trainer *t, struct progress *p, struct tt_result *result)
{
	struct tt_note note = { 0 };

	for (uint64_t done = t->first_step; done < p->steps && !result->stopped;) {
		int rc = take_step(t, p, done + 1, &note, result);

		if (!rc)
			rc = look_back(t, p, t->step >= p->steps || result->stopped, &note, result);
		if (!rc)
			done = t->step;
		else if (go_on(t, p, done, &note, result, &done))
			return TT_TRAIN_FAILED;
	}
	conclude(t, p, &note, result);
	return TT_TRAIN_OK;
}

int tt_train(struct tt_trainer *t, struct tt_result *ret_result)
{
	struct progress p = { .per_epoch = tt_sampler_steps(&t->sampler) };
	struct tt_result result = { 0 };
	int rc, closed;

	p.steps = tt_schedule_steps(t);
	if (t->first_step >= p.steps)
		return tt_train_fail(TT_TRAIN_USAGE,
				     "--resume %s: that training has taken %" PRIu64 " steps, and "
				     "%" PRIu64 " were asked for; use a larger --steps or --epochs",
				     t->config->resume, t->first_step, p.steps);
	/* train_main.c has looked where it started the ranks; here others did */
	rc = t->rank == 0 && !t->config->np ? tt_checkpoint_check(t->config) : TT_TRAIN_OK;
	if (!rc)
		rc = tt_metrics_open(&p.metrics, t, false);
	if (rc)
		return rc;
	rc = all_steps(t, &p, &result);
	if (!rc && t->config->timeline)
		rc = tt_timeline_write(t, t->config->timeline);
	closed = tt_metrics_close(&p.metrics, t->config);
	*ret_result = result;
	return rc ? rc : closed;
}

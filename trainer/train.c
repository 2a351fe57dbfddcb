/* train.c - the training loop (train.h) */
#include "trainer/train.h"

#include "trainer/checkpoint.h"
#include "trainer/metrics.h"
#include "trainer/rank/fault.h"
#include "trainer/rank/schedule.h"
#include "trainer/replicas.h"
#include "trainer/strategy/strategy.h"
#include "trainer/strategy/survive.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { LOSS_MAX = 1000 };

volatile sig_atomic_t train_stop_signal;

struct train_progress {
	struct train_metrics metrics;
	uint64_t per_epoch, steps; /* steps of an epoch; of the training */
	uint64_t training_ns;      /* time in steps, without evaluations and checks */
	uint64_t taken;            /* steps of this run */
};

/* True if step (from 1) ends a period; period 0: never. */
static bool due(uint64_t step, int64_t period)
{
	return period && step % (uint64_t)period == 0;
}

/* Reads the counters; if `count`, adds the bytes since the last call to result. */
static void count_bytes(const struct train_rank *t, struct train_result *result, bool count)
{
	uint64_t *sent = &result->sent_before, *read = &result->read_before;
	tuttiCounters_t now = { .size = sizeof(now) };

	if (tuttiCommGetCounters(t->comm, &now) != tuttiSuccess)
		return;
	now.sent_bytes += t->message_bytes;
	/* smaller counters belong to a new communicator */
	if (count && now.sent_bytes >= *sent && now.read_bytes >= *read) {
		result->sent_bytes += now.sent_bytes - *sent;
		result->read_bytes += now.read_bytes - *read;
	}
	*sent = now.sent_bytes;
	*read = now.read_bytes;
}

/* ---- a step --------------------------------------------------------------------------------- */

/* A training has diverged if its loss is not finite, or LOSS_MAX times that of equal probabilities
 * for all classes. */
static int check_loss(const struct train_rank *t, uint64_t step, double loss)
{
	if (isfinite(loss) && loss < LOSS_MAX * log((double)t->data->classes + 1.0))
		return TRAIN_OK;
	return train_fail(TRAIN_FAILED,
			  "step %" PRIu64 ": the loss is %g, the training diverged; use "
			  "a smaller --lr",
			  step, loss);
}

static int record_step(struct train_rank *t, struct train_progress *p,
		       const struct train_batch *batch, const float tail[TRAIN_TAIL],
		       uint64_t before, uint64_t took, struct train_step_record *record)
{
	double all = (double)t->leaves.batch;
	double of = t->strategy->local_replicas ? (double)batch->rows : all;
	uint64_t step = t->step, steps = step - before; /* more than one in spare */

	p->training_ns += took;
	p->taken += steps;
	*record = (struct train_step_record){
		.step = step,
		.steps = p->steps,
		.epoch = (step - 1) / p->per_epoch + 1,
		.epochs = (p->steps - 1) / p->per_epoch + 1,
		.loss = of > 0.0 ? (double)tail[TRAIN_TAIL_LOSS] / of : 0.0,
		.rate = (double)t->rate,
		.step_ms = (double)took / 1e6,
		.samples_per_s = (double)steps * all * 1e9 / (double)took,
		.mean_samples_per_s = (double)p->taken * all * 1e9 / (double)p->training_ns,
	};
	return check_loss(t, step, record->loss);
}

/* Takes one step and fills record. result->stopped: a rank received a stop signal. */
static int take_step(struct train_rank *t, struct train_progress *p, uint64_t step,
		     struct train_step_record *record, struct train_result *result)
{
	uint64_t begin = train_time_ns(), exposed = t->exposed_ns;
	struct train_batch batch = { .stop = train_stop_signal != 0 };
	struct train_node rows = train_leaves_rows(&t->leaves, t->sum.run);
	float tail[TRAIN_TAIL];
	int rc;

	t->step = step;
	t->rate = (float)train_schedule(t->config, step, p->steps);
	train_fault_kill(t);
	batch.rows = rows.last - rows.first;
	batch.samples = train_sampler_rows(&t->sampler, step - 1, rows.first);
	count_bytes(t, result, false);
	rc = t->strategy->step(t, &batch);
	if (rc)
		return rc;
	count_bytes(t, result, true);
	train_read_tail(t, tail);
	result->stopped = t->strategy->local_replicas ? t->stopping : tail[TRAIN_TAIL_STOP] > 0.0f;
	rc = record_step(t, p, &batch, tail, step - 1, train_time_ns() - begin, record);
	record->exposed_ms = (double)(t->exposed_ns - exposed) / 1e6;
	return rc;
}

/* The periodic work between steps: checks, evaluations, checkpoints, metrics. */
static int between_steps(struct train_rank *t, struct train_progress *p, bool last,
			 struct train_step_record *record, struct train_result *result)
{
	const struct train_config *c = t->config;
	bool local = t->strategy->local_replicas;
	bool evaluate = last ||
			due(record->step, c->eval_every ? c->eval_every : (int64_t)p->per_epoch);
	bool save = c->save && (last || due(record->step, c->save_every));
	bool settle = t->strategy->settle && (evaluate || save);
	enum train_settle why = last   ? TRAIN_SETTLE_END
				: save ? TRAIN_SETTLE_SAVE
				       : TRAIN_SETTLE_EVALUATE;
	int rc = TRAIN_OK;

	count_bytes(t, result, false);
	if (settle)
		rc = t->strategy->settle(t, why);
	count_bytes(t, result, last);
	if (!rc &&
	    (last || (!local && due(record->step, c->check_replicas)) || (local && evaluate)))
		rc = train_replicas_check(t, record->step, &result->hash);
	if (!rc && evaluate) {
		record->evaluated = true;
		rc = train_evaluate(t, &record->accuracy, &record->test_loss);
		if (!rc)
			rc = check_loss(t, record->step, record->test_loss);
	}
	if (!rc && save)
		rc = train_checkpoint_save(t, c->save, record->step);
	if (settle && !last && t->strategy->unsettle)
		t->strategy->unsettle(t, why);
	if (!rc)
		train_metrics_write(&p->metrics, t, record);
	return rc;
}

/* ---- all steps ------------------------------------------------------------------------------ */

/* Appends advice to the error text. */
static int suggest_shrink(void)
{
	char text[900];

	snprintf(text, sizeof(text), "%s", train_error());
	return train_fail(TRAIN_FAILED, "%s; with --on-failure shrink the others continue", text);
}

/* After a failure in step done + 1: recovers with the survivors if possible. *ret_done: steps of
 * the common state. */
static int recover(struct train_rank *t, struct train_progress *p, uint64_t done,
		   struct train_step_record *record, struct train_result *result,
		   uint64_t *ret_done)
{
	bool was_rank0 = t->rank == 0;
	int rc;

	if (!train_is_recoverable(t->comm))
		return TRAIN_FAILED;
	if (t->config->on_failure != TRAIN_FAILURE_SHRINK)
		return t->strategy->no_shrink ? TRAIN_FAILED : suggest_shrink();
	count_bytes(t, result, false);
	rc = train_recover(t, done, ret_done);
	if (!rc && t->rank == 0 && !was_rank0)
		rc = train_metrics_open(&p->metrics, t, true);
	count_bytes(t, result, false);
	if (rc || *ret_done < p->steps)
		return rc;
	record->step = *ret_done; /* a survivor had completed the last step */
	return between_steps(t, p, true, record, result);
}

static void fill_result(const struct train_rank *t, const struct train_progress *p,
			const struct train_step_record *record, struct train_result *result)
{
	result->steps = record->step;
	result->accuracy = record->accuracy;
	result->loss = record->test_loss;
	result->samples_per_s = record->mean_samples_per_s;
	result->step_ms = (double)p->training_ns / 1e6 / (double)p->taken;
	result->exposed_share = (double)t->exposed_ns / (double)p->training_ns;
}

static int all_steps(struct train_rank *t, struct train_progress *p, struct train_result *result)
{
	struct train_step_record record = { 0 };

	for (uint64_t done = t->first_step; done < p->steps && !result->stopped;) {
		int rc = take_step(t, p, done + 1, &record, result);

		if (!rc)
			rc = between_steps(t, p, t->step >= p->steps || result->stopped, &record,
					   result);
		if (!rc)
			done = t->step;
		else if (recover(t, p, done, &record, result, &done))
			return TRAIN_FAILED;
	}
	fill_result(t, p, &record, result);
	return TRAIN_OK;
}

int train_run(struct train_rank *t, struct train_result *ret_result)
{
	struct train_progress p = { .per_epoch = train_sampler_steps(&t->sampler) };
	struct train_result result = { 0 };
	int rc, closed;

	p.steps = train_schedule_steps(t);
	if (t->first_step >= p.steps)
		return train_fail(TRAIN_USAGE,
				  "--resume %s: that training has done %" PRIu64 " steps, and "
				  "%" PRIu64 " were requested; use a larger --steps or --epochs",
				  t->config->resume, t->first_step, p.steps);
	/* with --np, train_main.c has already checked the file */
	rc = t->rank == 0 && !t->config->np ? train_checkpoint_check(t->config) : TRAIN_OK;
	if (!rc)
		rc = train_metrics_open(&p.metrics, t, false);
	if (rc)
		return rc;
	rc = all_steps(t, &p, &result);
	if (!rc && t->config->timeline)
		rc = train_timeline_write(t, t->config->timeline);
	closed = train_metrics_close(&p.metrics, t->config);
	*ret_result = result;
	return rc ? rc : closed;
}

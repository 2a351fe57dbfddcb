/* train.c - the training loop (train.h) */
#include "trainer/train.h"

#include "trainer/checkpoint.h"
#include "trainer/export.h"
#include "trainer/grow.h"
#include "trainer/keep.h"
#include "trainer/metrics.h"
#include "trainer/option_check.h"
#include "trainer/rank/fault.h"
#include "trainer/rank/due_steps.h"
#include "trainer/rank/learning_rate.h"
#include "trainer/replicas.h"
#include "trainer/run_report.h"
#include "trainer/strategy/strategy.h"
#include "trainer/strategy/survive.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOSS_MAX = 1000 };

volatile sig_atomic_t train_stop_signal;

struct train_progress {
	struct train_metrics metrics;
	struct train_run_report *report; /* NULL: not requested */
	uint64_t evaluate_ns, save_ns;
	uint64_t per_epoch, steps; /* steps of an epoch; of the training */
	uint64_t training_ns;      /* time of steps, of work handed out, and of waits for workers */
	double samples;            /* of all ranks in this run */
	uint64_t asked_ns;         /* time of the last question for work */
	char unwritten
		[TRAIN_ERROR_BYTES]; /* why the last --save and --export failed; "": they did not */
};

/* The work between two steps. */
struct train_break {
	bool evaluate, save, check, export, last;
};

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
 * for all classes. The loss of a program's model may have any size. */
static int check_loss(const struct train_rank *t, uint64_t step, double loss)
{
	if (isfinite(loss) &&
	    (t->config->user || loss < LOSS_MAX * log((double)t->data->classes + 1.0)))
		return TRAIN_OK;
	return train_fail(TRAIN_FAILED,
			  "step %" PRIu64 ": the loss is %g, the training diverged; use "
			  "a smaller --lr",
			  step, loss);
}

/* The samples per second of the training so far. */
static double mean_rate(const struct train_progress *p)
{
	return p->samples * 1e9 / (double)p->training_ns;
}

static void count_epochs(const struct train_progress *p, struct train_step_record *record)
{
	record->epoch = record->step ? (record->step - 1) / p->per_epoch + 1 : 0;
	record->epochs = (p->steps - 1) / p->per_epoch + 1;
}

/* samples: that all ranks computed since the last record, in `took` */
static int record_step(struct train_rank *t, struct train_progress *p,
		       const struct train_batch *batch, const float tail[TRAIN_TAIL],
		       double samples, uint64_t took, struct train_step_record *record)
{
	double of = t->strategy->local_replicas ? (double)batch->rows : (double)t->leaves.batch;

	p->training_ns += took;
	p->samples += samples;
	*record = (struct train_step_record){
		.step = t->step,
		.steps = p->steps,
		.loss = of > 0.0 ? (double)tail[TRAIN_TAIL_LOSS] / of / (double)t->data->positions
				 : 0.0,
		.rate = (double)t->rate,
		.step_ms = (double)took / 1e6,
		.samples_per_s = samples * 1e9 / (double)took,
		.mean_samples_per_s = mean_rate(p),
	};
	count_epochs(p, record);
	return check_loss(t, t->step, record->loss);
}

/* Rows of the batch of a step, counted from 0. */
static int find_samples(struct train_rank *t, uint64_t step, struct train_node rows,
			const uint32_t **ret_samples)
{
	if (t->data->sharded)
		return train_shard_rows(&t->shard, t->data, &t->sampler, step, rows.first,
					rows.last, ret_samples);
	*ret_samples = train_sampler_rows(&t->sampler, step, rows.first);
	return TRAIN_OK;
}

/* Takes one step on these rows of its batch. */
static int compute_step(struct train_rank *t, struct train_progress *p, uint64_t step,
			struct train_node rows, struct train_batch *batch,
			struct train_result *result)
{
	int rc;

	t->step = step;
	t->rate = (float)train_learning_rate(t->config, step, p->steps);
	train_fault_kill(t);
	batch->stop = train_stop_signal != 0;
	batch->rows = rows.last - rows.first;
	rc = find_samples(t, step - 1, rows, &batch->samples);
	if (rc)
		return rc;
	count_bytes(t, result, false);
	rc = t->strategy->step(t, batch);
	if (rc)
		return rc;
	t->done = t->step;
	count_bytes(t, result, true);
	return TRAIN_OK;
}

/* Takes this rank's share of a step and fills record. result->stopped: a rank received a stop
 * signal. */
static int take_step(struct train_rank *t, struct train_progress *p, uint64_t step,
		     struct train_step_record *record, struct train_result *result)
{
	uint64_t begin = train_time_ns(), exposed = t->exposed_ns;
	struct train_batch batch;
	float tail[TRAIN_TAIL];
	int rc = compute_step(t, p, step, train_leaves_rows(&t->leaves, t->sum.run), &batch,
			      result);

	if (rc) {
		t->exposed_ns = exposed; /* the time of a step that failed does not count */
		return rc;
	}
	train_read_tail(t, tail);
	result->stopped = t->strategy->local_replicas ? t->stopping : tail[TRAIN_TAIL_STOP] > 0.0f;
	/* more than one step in spare */
	rc = record_step(t, p, &batch, tail, (double)(t->step - step + 1) * (double)t->leaves.batch,
			 train_time_ns() - begin, record);
	record->exposed_ms = (double)(t->exposed_ns - exposed) / 1e6;
	return rc;
}

/* Lets the workers settle. Their waits for each other are time of the training. */
static int settle(struct train_rank *t, struct train_progress *p, enum train_settle why,
		  struct train_step_record *record, struct train_result *result)
{
	uint64_t begin = train_time_ns();
	int rc;

	count_bytes(t, result, false);
	rc = t->strategy->settle(t, why);
	count_bytes(t, result, why == TRAIN_SETTLE_END);
	p->training_ns += train_time_ns() - begin;
	record->mean_samples_per_s = p->samples > 0.0 ? mean_rate(p) : 0.0;
	return rc;
}

static void fill_result(const struct train_rank *t, const struct train_progress *p,
			const struct train_step_record *record, struct train_result *result)
{
	result->steps = record->step;
	result->accuracy = record->accuracy;
	result->loss = record->test_loss;
	if (p->samples == 0.0) /* no step */
		return;
	result->samples_per_s = record->mean_samples_per_s;
	result->step_ms = (double)p->training_ns / 1e6 * (double)t->leaves.batch / p->samples;
	result->exposed_share = (double)t->exposed_ns / (double)p->training_ns;
}

/* Rank 0 begins the files of --report and --timeline, so that a full disk is reported at once. */
static void begin_pages(struct train_rank *t, struct train_progress *p)
{
	if (p->report && train_is_lead(t))
		train_run_report_begin(t, p->report);
	if (t->config->timeline)
		train_timeline_begin(t);
}

/* Call by all workers: --report and --timeline as they are now. last: no further call for t follows. */
static int write_pages(struct train_rank *t, struct train_progress *p,
		       const struct train_result *result, bool last)
{
	int rc = TRAIN_OK;

	if (p->report) {
		p->report->training_ns = p->training_ns;
		p->report->evaluate_ns = p->evaluate_ns;
		p->report->save_ns = p->save_ns;
	}
	if (t->config->report)
		rc = train_run_report_write(t, p->report, result, last && !t->grown);
	return !rc && t->config->timeline ? train_timeline_write(t, last) : rc;
}

/* Checks and measures the parameters. A death does not stop the others where it does not in a step. */
static int look(struct train_rank *t, struct train_break due, struct train_step_record *record,
		struct train_result *result)
{
	int rc = due.check ? train_replicas_check(t, record->step, &result->hash) : TRAIN_OK;

	if (!rc && due.evaluate)
		rc = train_evaluate(t, &record->accuracy, &record->test_loss);
	if (!rc || !t->strategy->ask || !t->strategy->fault_tolerant ||
	    !train_is_recoverable(t->comm) || train_regroup(t))
		return rc;
	return look(t, due, record, result);
}

/* Shows the evaluation in --report, and the steps before it in --timeline. A death is an error of this call on some
 * ranks only: all of them recover from it in the next one. */
static int show(struct train_rank *t, struct train_progress *p,
		const struct train_step_record *record, const struct train_result *so_far)
{
	struct train_result result = *so_far;
	int rc;

	result.hash = 0; /* of the end only */
	fill_result(t, p, record, &result);
	rc = write_pages(t, p, &result, false);
	return rc && train_is_recoverable(t->config->mesh ? t->world : t->comm) ? TRAIN_OK : rc;
}

/* A file that cannot be written does not stop the training: reports it, for train_run to fail at the end. */
static int note_unwritten(struct train_progress *p, int rc, bool last)
{
	size_t used = strlen(p->unwritten);

	if (rc != TRAIN_UNWRITTEN)
		return rc;
	snprintf(p->unwritten + used, sizeof(p->unwritten) - used, "%s%s", used ? "; " : "",
		 train_error());
	if (!last)
		fprintf(stderr, "tutti-train: %s; the training goes on\n", train_error());
	return TRAIN_OK;
}

/* Writes the checkpoint and the export that are due, and lets further ranks join from the checkpoint. */
static int write_files(struct train_rank *t, struct train_progress *p, struct train_break due,
		       const struct train_step_record *record)
{
	uint64_t begin = train_time_ns(), step = record->step;
	int rc = due.save ? train_checkpoint_save(t, t->config->save, step) : TRAIN_OK;
	int32_t saved = due.save && !rc;
	bool exported = false;

	if (due.save || due.export)
		p->unwritten[0] = '\0';
	rc = note_unwritten(p, rc, due.last);
	if (!rc && due.export) {
		rc = train_export(t, step);
		exported = !rc;
		rc = note_unwritten(p, rc, due.last);
	}
	if (!rc && saved && t->config->keep && train_is_lead(t))
		rc = note_unwritten(p, train_keep(t, record, exported), due.last);
	if (!rc && due.save && (t->config->mesh || t->config->grow)) /* all continue from it */
		rc = train_check(tuttiBcast(&saved, 1, tuttiInt32, 0, t->world, NULL), t->world);
	if (!rc && saved)
		t->saved = step;
	p->save_ns += train_time_ns() - begin;
	return !rc && saved && t->config->grow && !due.last ? train_grow(t) : rc;
}

/* Where workers go on without dead ones, the first that is alive writes the metrics. */
static int take_over_metrics(struct train_rank *t, struct train_progress *p)
{
	tuttiRankState_t state = tuttiRankDead;

	if (p->metrics.on || !t->strategy->ask)
		return TRAIN_OK;
	for (int r = 0; r < t->world_rank && state == tuttiRankDead; r++)
		tuttiCommRankState(t->world, r, &state);
	if (state != tuttiRankDead)
		return TRAIN_OK;
	return train_metrics_open(&p->metrics, t, true, UINT64_MAX);
}

/* The periodic work between steps: checks, evaluations, checkpoints, metrics. */
static int between_steps(struct train_rank *t, struct train_progress *p, struct train_break due,
			 struct train_step_record *record, struct train_result *result)
{
	bool settles = t->strategy->settle && (due.evaluate || due.save || due.check);
	enum train_settle why = due.last   ? TRAIN_SETTLE_END
				: due.save ? TRAIN_SETTLE_SAVE
					   : TRAIN_SETTLE_EVALUATE;
	int rc = settles ? settle(t, p, why, record, result) : TRAIN_OK;
	uint64_t begin;

	record->evaluated = due.evaluate;
	if (due.evaluate)
		train_fault_kill_in_evaluation(t, record->step);
	begin = train_time_ns();
	if (!rc)
		rc = look(t, due, record, result);
	p->evaluate_ns += train_time_ns() - begin;
	if (!rc && due.evaluate)
		rc = check_loss(t, record->step, record->test_loss);
	if (!rc)
		rc = write_files(t, p, due, record);
	if (settles && !due.last && t->strategy->unsettle)
		t->strategy->unsettle(t, why);
	if (!rc)
		rc = take_over_metrics(t, p);
	if (!rc) {
		train_fault_kill_before_record(t, record->step);
		train_metrics_write(&p->metrics, t, record);
		train_run_report_add(p->report, record);
	}
	if (!rc && due.evaluate && !due.last)
		rc = show(t, p, record, result);
	if (!rc && due.last && t->config->on_failure == TRAIN_FAILURE_SHRINK && !t->config->mesh)
		rc = train_await_rank0(t); /* has written the metrics */
	return rc;
}

/* The work that is due after a step that all workers have completed. */
static struct train_break break_after(const struct train_rank *t, uint64_t step, bool last)
{
	uint64_t check = (uint64_t)t->config->check_replicas;
	bool local = t->strategy->local_replicas;
	struct train_break due = {
		.evaluate = last || train_evaluation_due(t, step),
		.save = t->config->save && (last || train_checkpoint_due(t, step)),
		.last = last,
	};

	due.export = t->config->export && (last || due.save);
	due.evaluate |= due.save && t->config->keep; /* the best has a loss */
	due.check = last || (local ? due.evaluate : check && step % check == 0);
	return due;
}

/* ---- all steps ------------------------------------------------------------------------------ */

/* The command by which the launcher of this rank lets others live when one dies, if it does not or may not;
 * "": it does, or there is none (tutti_launch(7)) */
static const char *surviving_command(bool *ret_certain)
{
	bool open_mpi = getenv("OMPI_COMM_WORLD_RANK");

	*ret_certain = open_mpi && !getenv("OMPI_MCA_orte_enable_recovery") &&
		       !getenv("PRTE_MCA_prte_enable_recovery");
	if (open_mpi)
		return *ret_certain ? "mpirun --enable-recovery" : "";
	return getenv("PMI_FD") ? "mpiexec.hydra -disable-auto-cleanup" : "";
}

/* Appends advice to the error text. */
static int suggest_shrink(void)
{
	bool certain;
	const char *command = surviving_command(&certain);
	char text[900];

	snprintf(text, sizeof(text), "%s", train_error());
	return train_fail(TRAIN_FAILED, "%s; with --on-failure shrink%s%s the others continue",
			  text, *command ? " under " : "", command);
}

static void warn_of_launcher(const struct train_rank *t)
{
	bool certain;
	const char *command = surviving_command(&certain);

	if (certain && t->rank == 0 && t->config->on_failure == TRAIN_FAILURE_SHRINK)
		fprintf(stderr,
			"tutti-train: --on-failure shrink: this launcher ends all ranks when one dies; use %s\n",
			command);
}

/* After a failure in step done + 1, or in the work after step `done`: recovers with the survivors if
 * possible. *ret_done: steps of the common state. */
static int recover(struct train_rank *t, struct train_progress *p, uint64_t done,
		   struct train_result *result, uint64_t *ret_done)
{
	bool was_rank0 = t->rank == 0;
	int rc;

	if (t->config->mesh || !train_is_recoverable(t->comm)) /* rebuild.h */
		return TRAIN_FAILED;
	if (t->config->on_failure != TRAIN_FAILURE_SHRINK)
		return t->strategy->no_shrink ? TRAIN_FAILED : suggest_shrink();
	count_bytes(t, result, false);
	rc = train_recover(t, done, ret_done);
	if (!rc && t->rank == 0 && !was_rank0)
		rc = train_metrics_open(&p->metrics, t, true, *ret_done);
	count_bytes(t, result, false);
	return rc;
}

/* The evaluation and the checkpoint after step `done`, which a death may have cut off. */
static int repeat_due(struct train_rank *t, struct train_progress *p, uint64_t done,
		      struct train_step_record *record, struct train_result *result)
{
	struct train_break due = break_after(t, done, done >= p->steps);

	result->stopped = false; /* a rank that has the signal says so again in the next step */
	if (done == t->first_step || !(due.evaluate || due.save))
		return TRAIN_OK;
	record->step = done;
	return between_steps(t, p, due, record, result);
}

static int all_steps(struct train_rank *t, struct train_progress *p, struct train_result *result)
{
	struct train_step_record record = { 0 };

	for (uint64_t done = t->first_step; done < p->steps && !result->stopped && !t->grown;) {
		int rc = take_step(t, p, done + 1, &record, result);

		if (!rc) {
			done = t->step;
			rc = between_steps(t, p,
					   break_after(t, done,
						       done >= p->steps || result->stopped),
					   &record, result);
		}
		while (rc) {
			if (recover(t, p, done, result, &done))
				return TRAIN_FAILED;
			rc = repeat_due(t, p, done, &record, result);
		}
	}
	fill_result(t, p, &record, result);
	return TRAIN_OK;
}

/* ---- work that servers hand out ------------------------------------------------------------- */

static int ask(struct train_rank *t, struct train_progress *p, struct train_handout *ret_handout)
{
	int rc;

	p->asked_ns = train_time_ns();
	rc = t->strategy->ask(t, train_stop_signal != 0, ret_handout);
	if (!rc && ret_handout->kind != TRAIN_HANDOUT_SHARE)
		p->training_ns += train_time_ns() - p->asked_ns;
	return rc;
}

/* Computes a share and asks for the next one. */
static int take_share(struct train_rank *t, struct train_progress *p, struct train_handout *handout,
		      struct train_step_record *record, struct train_result *result)
{
	struct train_leaves shares = train_leaves_of(TRAIN_CANONICAL_OFF, t->leaves.batch, 1,
						     (int)handout->shares);
	struct train_node share = { handout->share, handout->share + 1 };
	uint64_t exposed = t->exposed_ns;
	float tail[TRAIN_TAIL];
	struct train_batch batch;
	double samples;
	int rc = compute_step(t, p, handout->step, train_leaves_rows(&shares, share), &batch,
			      result);

	samples = (double)handout->handed * (double)t->leaves.batch / (double)handout->shares;
	if (!rc) {
		train_read_tail(t, tail);
		rc = record_step(t, p, &batch, tail, samples - p->samples,
				 train_time_ns() - p->asked_ns, record);
	}
	record->exposed_ms = (double)(t->exposed_ns - exposed) / 1e6;
	return rc ? rc : ask(t, p, handout);
}

/* Until all steps are handed out; all workers settle for evaluations and checkpoints. */
static int all_shares(struct train_rank *t, struct train_progress *p, struct train_result *result)
{
	struct train_step_record record = { .step = t->first_step, .steps = p->steps };
	struct train_handout handout;
	int rc = ask(t, p, &handout);
	bool end = false;

	while (!rc && !end) {
		struct train_break due = { 0 };

		if (handout.kind == TRAIN_HANDOUT_SHARE)
			rc = take_share(t, p, &handout, &record, result);
		end = handout.kind == TRAIN_HANDOUT_END;
		if (rc || handout.kind == TRAIN_HANDOUT_SHARE) {
			if (!rc)
				rc = between_steps(t, p, due, &record, result);
			continue;
		}
		record.step = handout.step;
		count_epochs(p, &record); /* this worker may have had no share */
		p->samples = (double)handout.handed * (double)t->leaves.batch /
			     (double)handout.shares;
		rc = between_steps(t, p, break_after(t, record.step, end), &record, result);
		if (!rc && !end)
			rc = ask(t, p, &handout);
	}
	if (rc)
		return TRAIN_FAILED;
	result->stopped = record.step < p->steps;
	fill_result(t, p, &record, result);
	return TRAIN_OK;
}

/* --evaluate, and the work after the last step that a death has cut off */
static int evaluate_only(struct train_rank *t, struct train_progress *p,
			 struct train_result *result)
{
	uint64_t step = t->first_step;
	struct train_step_record record = { .step = step, .steps = p->steps };
	int rc;

	count_epochs(p, &record);
	rc = between_steps(t, p, break_after(t, step, true), &record, result);

	fill_result(t, p, &record, result);
	return rc;
}

int train_run(struct train_rank *t, struct train_result *ret_result)
{
	struct train_progress p = { .per_epoch = train_sampler_steps(&t->sampler) };
	struct train_result result = { 0 };
	int rc, closed;
	bool ended; /* no step is left */

	p.steps = train_steps(t);
	t->done = t->first_step;
	ended = t->config->evaluate || (t->config->restarts && t->first_step >= p.steps);
	if (t->first_step >= p.steps && !ended)
		return train_fail(TRAIN_USAGE,
				  "--resume %s: that training has done %" PRIu64 " of the "
				  "%" PRIu64 " requested steps; use a larger --steps or --epochs",
				  t->config->resume, t->first_step, p.steps);
	/* with --np, job.c has already checked the files */
	rc = train_is_lead(t) && !t->config->np ? train_option_check_files(t->config) : TRAIN_OK;
	if (!rc)
		rc = train_metrics_open(&p.metrics, t, false, t->first_step);
	if (!rc)
		rc = train_run_report_open(t, &p.report);
	if (rc)
		return rc;
	if (t->config->grow && t->world_rank == 0)
		rc = train_grow_begin(t);
	if (rc)
		return rc;
	warn_of_launcher(t);
	begin_pages(t, &p);
	rc = ended              ? evaluate_only(t, &p, &result)
	     : t->strategy->ask ? all_shares(t, &p, &result)
				: all_steps(t, &p, &result);
	if (!rc)
		rc = write_pages(t, &p, &result, true);
	result.ended = !rc;
	if (!rc && p.unwritten[0] && !t->grown) /* a grown training writes the files again */
		rc = train_fail(TRAIN_FAILED, "%s", p.unwritten);
	/* a grown training writes the whole page again */
	rc = train_run_report_close(p.report, t->config, rc, !t->grown);
	if (t->config->grow && t->world_rank == 0 && !t->grown)
		train_grow_dismiss(t);
	closed = train_metrics_close(&p.metrics, t->config);
	*ret_result = result;
	return rc ? rc : closed;
}

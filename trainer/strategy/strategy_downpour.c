/*
 * strategy_downpour.c - Downpour SGD: workers train independently, with periodic fetch and push
 *
 *	worker, while server 0 hands out shares of batches (strategy_ps_async.c), in each step:
 *		if a fetch is complete: parameters = those fetched
 *		every --n-fetch steps: begin a fetch
 *		g = gradient(parameters, share)
 *		parameters -= rate * g / samples of the share;  accumulated += g
 *		every --n-push steps: begin a push of accumulated; accumulated = 0
 *	server, for its shard, on each push:
 *		parameters = descend(parameters, accumulated / global batch)
 *				--adagrad: each divided by the root of its sum of squares
 *
 * Fetches and pushes are messages of two threads, beside the computing; a fetch or a push begins when
 * the one before it is complete. A worker asks for its next share before it computes one, since an
 * answer may stand behind a push. Within an epoch the shares are disjoint and cover the training set. The death
 * of a worker does not stop the others. Row of the table in strategy.c; calls ps_threads.c.
 *
 * Source: Dean et al. 2012, Large scale distributed deep networks.
 */
#include "trainer/strategy/ps.h"
#include "trainer/strategy/ps_threads.h"
#include "trainer/strategy/strategy.h"

#include <stdlib.h>
#include <string.h>

struct downpour_state {
	struct train_ps ps;
	struct train_ps_threads *threads; /* NULL: a server */
	bool asked;                       /* for the next share */
	float *accumulated;
	float *own;                    /* this worker's parameters during an evaluation */
	int64_t steps_since, unpushed; /* steps since a fetch began; since the last push */
};

/* Steps of a period that count as done when the training begins: --stagger spreads the workers' first
 * pushes and fetches over the period. */
static int64_t head_start(const struct train_rank *t, int64_t period)
{
	return t->config->stagger ? (t->rank + 1) % t->nranks * period / t->nranks : 0;
}

static int downpour_open(struct train_rank *t)
{
	struct downpour_state *d = calloc(1, sizeof(*d));
	int rc;

	if (!d)
		return train_fail(TRAIN_FAILED, "no memory for a strategy");
	t->strategy_state = d;
	d->steps_since = head_start(t, t->config->n_fetch);
	d->unpushed = head_start(t, t->config->n_push);
	d->accumulated = calloc(t->floats, sizeof(*d->accumulated));
	d->own = calloc(t->floats, sizeof(*d->own));
	if (!d->accumulated || !d->own)
		return train_fail(TRAIN_FAILED, "no memory for %zu gradients", t->floats);
	rc = train_ps_open(t, &d->ps, (struct train_ps_rule){ .adagrad = true });
	return rc || train_is_server(t) ? rc : train_ps_threads_open(t, &d->ps, &d->threads);
}

static void downpour_close(struct train_rank *t)
{
	struct downpour_state *d = t->strategy_state;

	train_ps_threads_close(d->threads);
	train_ps_close(t, &d->ps);
	free(d->accumulated);
	free(d->own);
	free(d);
}

static int push(struct train_rank *t, struct downpour_state *d)
{
	int rc = train_ps_push_begin(d->threads, d->accumulated);

	memset(d->accumulated, 0, t->floats * sizeof(*d->accumulated));
	d->unpushed = 0;
	return rc;
}

static void accumulate_and_descend(struct train_rank *t, struct downpour_state *d, size_t rows)
{
	float *own = train_parameters_download(t),
	      scale = t->rate / (float)((rows ? rows : 1) * t->data->positions);

	for (size_t i = 0; i < t->model.parameters; i++) {
		d->accumulated[i] += t->comm_buffer[i];
		own[i] -= scale * t->comm_buffer[i];
	}
	train_parameters_upload(t);
}

static int downpour_step(struct train_rank *t, const struct train_batch *batch)
{
	struct downpour_state *d = t->strategy_state;
	bool fetches = d->steps_since % t->config->n_fetch == 0;
	int rc = train_ps_fetched(d->threads, fetches);

	if (!rc && fetches)
		rc = train_ps_fetch_begin(d->threads);
	d->steps_since = d->steps_since % t->config->n_fetch + 1;
	if (!rc)
		rc = train_gradient(t, batch, NULL);
	if (rc)
		return rc;
	accumulate_and_descend(t, d, batch->rows);
	return ++d->unpushed == t->config->n_push ? push(t, d) : TRAIN_OK;
}

static int downpour_ask(struct train_rank *t, bool stop, struct train_handout *ret_handout)
{
	struct downpour_state *d = t->strategy_state;
	int rc = d->asked ? TRAIN_OK : train_ps_question_begin(d->threads, stop);

	if (!rc)
		rc = train_ps_answer(t, t->first_server, ret_handout);
	d->asked = !rc && ret_handout->kind == TRAIN_HANDOUT_SHARE;
	return d->asked ? train_ps_question_begin(d->threads, stop) : rc;
}

/* Before a checkpoint and the end a worker pushes the accumulated gradients; after a checkpoint it
 * has the servers' parameters, as a resumed training has. */
static int downpour_settle(struct train_rank *t, enum train_settle why)
{
	struct downpour_state *d = t->strategy_state;
	int rc = TRAIN_OK;

	memcpy(d->own, train_parameters_download(t), t->model.parameters * sizeof(*d->own));
	if (d->unpushed && why != TRAIN_SETTLE_EVALUATE)
		rc = push(t, d);
	if (!rc)
		rc = train_ps_threads_wait(d->threads);
	return rc ? rc : train_ps_settle(t, &d->ps, why == TRAIN_SETTLE_END);
}

static void downpour_unsettle(struct train_rank *t, enum train_settle why)
{
	struct downpour_state *d = t->strategy_state;

	if (why == TRAIN_SETTLE_EVALUATE) {
		train_parameters_set_host(t, d->own);
		return;
	}
	train_ps_fetch_drop(d->threads);
	d->steps_since = 0;
}

static int downpour_serve(struct train_rank *t)
{
	struct downpour_state *d = t->strategy_state;

	return train_ps_server_run(t, &d->ps);
}

static void downpour_report(const struct train_rank *t)
{
	const struct downpour_state *d = t->strategy_state;

	train_ps_report(&d->ps);
}

static int downpour_state(struct train_rank *t, float *host)
{
	struct downpour_state *d = t->strategy_state;

	return train_ps_state(t, &d->ps, host);
}

const struct train_strategy_ops train_strategy_downpour = {
	.name = "downpour",
	.help = "workers train independently, with periodic push to and fetch from --ps servers",
	.optimizer = TRAIN_OPTIMIZER_STORE,
	.local_replicas = true,
	.fault_tolerant = true,
	.no_shrink = "downpour always continues without dead workers, and never without servers; "
		     "omit the option",
	.open = downpour_open,
	.close = downpour_close,
	.step = downpour_step,
	.ask = downpour_ask,
	.settle = downpour_settle,
	.unsettle = downpour_unsettle,
	.serve = downpour_serve,
	.state = downpour_state,
	.report = downpour_report,
};

/*
 * strategy_average.c - ranks train alone and average their parameters now and then
 *
 *	each step:
 *		parameters = descend(parameters, gradient(parameters, my share of the batch))
 *	after every H steps, by --average:
 *		allreduce	parameters = sum of all / ranks			(local SGD)
 *		supervisor	the same; rank 0 gathers, adds in rank order, hands out
 *		easgd		d = alpha * (parameters - centre)
 *				parameters -= d; centre += sum of all d
 *		diloco		outer = start - mean of all
 *				parameters = start = Nesterov(start, outer)
 *
 * Momentum stays with its rank; averages being linear, H = 1 is then the same mathematics as
 * mirrored. 1/H of mirrored's bytes are sent. For a check, an evaluation and at the end the ranks
 * average as well (easgd: take the centre). Row of the table in strategy.c.
 *
 * Sources: McDonald et al. 2010, Distributed training strategies for the structured perceptron;
 * Zhang, Choromanska, LeCun 2015, Elastic averaging SGD; Stich 2019, Local SGD converges fast;
 * Douillard et al. 2023, DiLoCo.
 */
#include "strategy.h"

#include <stdlib.h>
#include <string.h>

struct average {
	int64_t since; /* steps since the last average */
	float *kept;   /* easgd: the centre; diloco: where the round started */
	float *more;   /* easgd: d; diloco: the outer velocity; supervisor's rank 0: all parameters */
};

static int average_open(struct tt_trainer *t)
{
	struct average *a = calloc(1, sizeof(*a));
	size_t bytes = t->model.parameters * sizeof(float), more = bytes;
	int how = t->config->average, rc;

	if (!a)
		return tt_train_fail(TT_TRAIN_FAILED, "no memory for a strategy");
	t->strategy_state = a;
	if (how == TT_AVERAGE_SUPERVISOR)
		more *= t->rank == 0 ? (size_t)t->nranks : 0;
	a->kept = calloc(1, bytes);
	a->more = calloc(1, more ? more : 1);
	if (!a->kept || !a->more)
		return tt_train_fail(TT_TRAIN_FAILED, "no memory to average %zu bytes", bytes);
	rc = tt_parameters_share(t);
	if (!rc)
		memcpy(a->kept, tt_parameters_out(t), bytes);
	return rc;
}

static void average_close(struct tt_trainer *t)
{
	struct average *a = t->strategy_state;

	free(a->kept);
	free(a->more);
	free(a);
}

static int allreduce(struct tt_trainer *t, float *at)
{
	return tt_library(tuttiAllReduce(at, at, t->model.parameters, tuttiFloat32, tuttiSum,
					 t->comm, NULL),
			  t->comm);
}

static int supervise(struct tt_trainer *t, float *at, float *all)
{
	size_t n = t->model.parameters;
	int rc = tt_library(tuttiGather(at, all, n, tuttiFloat32, 0, t->comm, NULL), t->comm);

	if (rc)
		return rc;
	for (int r = 1; t->rank == 0 && r < t->nranks; r++)
		for (size_t i = 0; i < n; i++)
			all[i] += all[(size_t)r * n + i];
	if (t->rank == 0)
		memcpy(at, all, n * sizeof(*at));
	return tt_library(tuttiBcast(at, n, tuttiFloat32, 0, t->comm, NULL), t->comm);
}

static void divide(float *at, size_t count, int by)
{
	for (size_t i = 0; i < count; i++)
		at[i] /= (float)by;
}

static int easgd(struct tt_trainer *t, struct average *a, float *at)
{
	float alpha = (float)t->config->alpha;
	int rc;

	for (size_t i = 0; i < t->model.parameters; i++) {
		a->more[i] = alpha * (at[i] - a->kept[i]);
		at[i] -= a->more[i];
	}
	rc = allreduce(t, a->more);
	for (size_t i = 0; i < t->model.parameters; i++)
		a->kept[i] += a->more[i];
	return rc;
}

/* at: the mean of all */
static void outer_step(struct tt_trainer *t, struct average *a, float *at)
{
	float rate = (float)t->config->outer_lr, momentum = (float)t->config->outer_momentum;

	for (size_t i = 0; i < t->model.parameters; i++) {
		float outer = a->kept[i] - at[i];

		a->more[i] = momentum * a->more[i] + outer;
		at[i] = a->kept[i] - rate * (outer + momentum * a->more[i]);
		a->kept[i] = at[i];
	}
}

/* One average, and the agreement on whether to stop. */
static int meet(struct tt_trainer *t)
{
	struct average *a = t->strategy_state;
	float *at = tt_parameters_out(t), stop = t->stopping;
	uint64_t waits = tt_time_ns();
	int how = t->config->average, rc;

	if (how == TT_AVERAGE_EASGD)
		rc = easgd(t, a, at);
	else if (how == TT_AVERAGE_SUPERVISOR)
		rc = supervise(t, at, a->more);
	else
		rc = allreduce(t, at);
	if (how != TT_AVERAGE_EASGD)
		divide(at, t->model.parameters, t->nranks);
	if (how == TT_AVERAGE_DILOCO)
		outer_step(t, a, at);
	tt_parameters_in(t);
	if (!rc)
		rc = tt_library(tuttiAllReduce(&stop, &stop, 1, tuttiFloat32, tuttiMax, t->comm,
					       NULL),
				t->comm);
	t->stopping = stop > 0.0f;
	tt_exposed(t, waits);
	a->since = 0;
	return rc;
}

static int average_step(struct tt_trainer *t, const struct tt_batch *batch)
{
	struct average *a = t->strategy_state;
	int rc = tt_gradient(t, batch, NULL);

	if (rc)
		return rc;
	if (batch->rows)
		tt_descend(t, batch->rows);
	t->stopping = batch->stop;
	if (++a->since < t->config->local_steps) {
		t->stopping = false; /* all at the next average */
		return TT_TRAIN_OK;
	}
	return meet(t);
}

static int average_settle(struct tt_trainer *t, bool last)
{
	struct average *a = t->strategy_state;
	int rc = a->since ? meet(t) : TT_TRAIN_OK;

	(void)last;
	if (!rc && t->config->average == TT_AVERAGE_EASGD)
		tt_parameters_adopt(t, a->kept);
	return rc;
}

const struct tt_strategy_ops tt_strategy_average = {
	.name = "average",
	.help = "ranks train alone, and average their parameters every --H steps",
	.own_pace = true,
	.open = average_open,
	.close = average_close,
	.step = average_step,
	.settle = average_settle,
};

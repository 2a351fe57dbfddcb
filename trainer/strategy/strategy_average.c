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
#include "trainer/strategy/strategy.h"
#include "trainer/strategy/survive.h"

#include <stdlib.h>

struct average {
	int64_t since; /* steps since the last average */
	uint64_t met;  /* averages so far */
	/* memory of wire_on: */
	float *own;    /* this rank's parameters before the average under way */
	float *kept;   /* easgd: the centre; diloco: where the round started */
	float *more;   /* easgd: d; diloco: the outer velocity; supervisor's rank 0: all of them */
};

/* to = keep * to + take * from, of all parameters */
static void blend(struct train_rank *t, float keep, float *to, float take, const float *from)
{
	t->wire_on->ops->blend(t->wire_on, t->model.parameters, keep, take, from, to);
}

static void copy(struct train_rank *t, float *to, const float *from)
{
	t->wire_on->ops->copy(t->wire_on, to, from, t->model.parameters * sizeof(float));
}

static int average_open(struct train_rank *t)
{
	struct average *a = calloc(1, sizeof(*a));
	size_t bytes = t->model.parameters * sizeof(float), more = bytes;
	int how = t->config->average, rc;

	if (!a)
		return train_fail(TRAIN_FAILED, "no memory for a strategy");
	t->strategy_state = a;
	if (how == TRAIN_AVERAGE_SUPERVISOR) /* whoever is rank 0, also after deaths */
		more *= t->rank == 0 || t->config->on_failure == TRAIN_FAILURE_SHRINK ? t->nranks : 0;
	a->own = t->wire_on->ops->alloc(t->wire_on, bytes);
	a->kept = t->wire_on->ops->alloc(t->wire_on, bytes);
	a->more = t->wire_on->ops->alloc(t->wire_on, more ? more : 1);
	if (!a->own || !a->kept || !a->more)
		return train_fail(TRAIN_FAILED, "no memory to average %zu bytes", bytes);
	rc = train_parameters_share(t);
	if (!rc)
		copy(t, a->kept, train_parameters_lend(t));
	return rc;
}

static void average_close(struct train_rank *t)
{
	struct average *a = t->strategy_state;

	t->wire_on->ops->free(t->wire_on, a->own);
	t->wire_on->ops->free(t->wire_on, a->kept);
	t->wire_on->ops->free(t->wire_on, a->more);
	free(a);
}

static int allreduce(struct train_rank *t, float *at)
{
	int rc = train_device_settle(t->wire_on);

	return rc ? rc : train_library(tuttiAllReduce(at, at, t->model.parameters, tuttiFloat32,
						   tuttiSum, t->comm, NULL),
				    t->comm);
}

static int supervise(struct train_rank *t, float *at, float *all)
{
	size_t n = t->model.parameters;
	int rc = train_device_settle(t->wire_on);

	if (!rc)
		rc = train_library(tuttiGather(at, all, n, tuttiFloat32, 0, t->comm, NULL), t->comm);
	for (int r = 1; !rc && t->rank == 0 && r < t->nranks; r++)
		t->wire_on->ops->add(t->wire_on, n, all + (size_t)r * n, all);
	if (!rc && t->rank == 0) {
		copy(t, at, all);
		rc = train_device_settle(t->wire_on);
	}
	return rc ? rc : train_library(tuttiBcast(at, n, tuttiFloat32, 0, t->comm, NULL), t->comm);
}

static int easgd(struct train_rank *t, struct average *a, float *at)
{
	float alpha = (float)t->config->alpha;

	copy(t, a->more, at);
	blend(t, 1.0f, a->more, -1.0f, a->kept);
	blend(t, alpha, a->more, 0.0f, NULL);
	blend(t, 1.0f, at, -1.0f, a->more);
	return allreduce(t, a->more);
}

/* at: the mean of all; own is free by now */
static void outer_step(struct train_rank *t, struct average *a, float *at)
{
	float rate = (float)t->config->outer_lr, momentum = (float)t->config->outer_momentum;

	copy(t, a->own, a->kept);
	blend(t, 1.0f, a->own, -1.0f, at);              /* outer */
	blend(t, momentum, a->more, 1.0f, a->own);
	blend(t, 1.0f, a->own, momentum, a->more);
	blend(t, 1.0f, a->kept, -rate, a->own);
	copy(t, at, a->kept);
}

/* One average, and the agreement on whether to stop. */
static int meet(struct train_rank *t)
{
	struct average *a = t->strategy_state;
	float *at = train_parameters_lend(t), stop = t->stopping;
	uint64_t waits = train_time_ns();
	int how = t->config->average, rc;

	copy(t, a->own, at);
	if (how == TRAIN_AVERAGE_EASGD)
		rc = easgd(t, a, at);
	else if (how == TRAIN_AVERAGE_SUPERVISOR)
		rc = supervise(t, at, a->more);
	else
		rc = allreduce(t, at);
	if (!rc)
		rc = train_library(tuttiAllReduce(&stop, &stop, 1, tuttiFloat32, tuttiMax, t->comm,
					       NULL),
				t->comm);
	train_exposed(t, waits);
	if (rc) { /* somebody died: as if it had not been begun */
		copy(t, at, a->own);
		return rc;
	}
	if (how == TRAIN_AVERAGE_EASGD)
		blend(t, 1.0f, a->kept, 1.0f, a->more);
	else
		blend(t, 1.0f / (float)t->nranks, at, 0.0f, NULL);
	if (how == TRAIN_AVERAGE_DILOCO)
		outer_step(t, a, at);
	train_parameters_return(t);
	t->stopping = stop > 0.0f;
	a->since = 0;
	a->met++;
	return rc;
}

static int average_step(struct train_rank *t, const struct train_batch *batch)
{
	struct average *a = t->strategy_state;
	int rc = train_gradient(t, batch, NULL);

	if (rc)
		return rc;
	if (batch->rows)
		train_descend(t, batch->rows);
	t->stopping = batch->stop;
	if (++a->since < t->config->local_steps) {
		t->stopping = false; /* all at the next average */
		return TRAIN_OK;
	}
	return meet(t);
}

static int average_settle(struct train_rank *t, bool last)
{
	struct average *a = t->strategy_state;
	int rc = a->since ? meet(t) : TRAIN_OK;

	(void)last;
	if (!rc && t->config->average == TRAIN_AVERAGE_EASGD)
		train_parameters_take(t, a->kept);
	return rc;
}

/* A rank that has met once more than others hands its parameters out, and what it keeps; where all
 * have met as often each goes on from its own. */
static int share_newest(struct train_rank *t, struct average *a, uint64_t met[2])
{
	size_t n = t->model.parameters;
	bool behind = a->met < met[0];
	float *at = train_parameters_lend(t);
	int root = (int)(UINT64_MAX - met[1]), rc = TRAIN_OK;
	float *arrays[] = { at, a->kept,
			    t->config->average == TRAIN_AVERAGE_DILOCO ? a->more : a->kept };

	for (int i = 0; i < 3 && !rc; i++) {
		copy(t, a->own, arrays[i]);
		rc = train_device_settle(t->wire_on);
		if (!rc)
			rc = train_library(tuttiBcast(a->own, n, tuttiFloat32, root, t->comm, NULL),
					t->comm);
		if (!rc && behind)
			copy(t, arrays[i], a->own);
	}
	train_parameters_return(t);
	a->met = met[0];
	a->since = t->config->local_steps; /* all meet after the next step */
	return rc;
}

/* Those that are left take their last step again, at the newest of their parameters. */
static int average_rejoin(struct train_rank *t, uint64_t done, uint64_t *ret_done)
{
	struct average *a = t->strategy_state;
	uint64_t met[3]; /* the most; the complement of the first rank that has; steps done */
	int rc = train_regroup(t);

	met[0] = a->met;
	if (!rc)
		rc = train_library(tuttiAllReduce(met, met, 1, tuttiUint64, tuttiMax, t->comm, NULL),
				t->comm);
	met[1] = a->met == met[0] ? UINT64_MAX - (uint64_t)t->rank : 0;
	met[2] = done;
	if (!rc)
		rc = train_library(tuttiAllReduce(met + 1, met + 1, 2, tuttiUint64, tuttiMax, t->comm,
					       NULL),
				t->comm);
	*ret_done = met[2];
	return rc ? rc : share_newest(t, a, met);
}

const struct train_strategy_ops train_strategy_average = {
	.name = "average",
	.help = "ranks train alone, and average their parameters every --H steps",
	.own_pace = true,
	.by_calls = true,
	.open = average_open,
	.close = average_close,
	.step = average_step,
	.settle = average_settle,
	.rejoin = average_rejoin,
};

/*
 * strategy_average.c - local SGD: replicas train independently and average their parameters
 *
 *	each step:
 *		parameters = descend(parameters, gradient(parameters, my share of the batch))
 *	after steps H, 2H, 3H, .., by --average:
 *		allreduce	parameters = sum over all replicas / ranks	(local SGD)
 *		supervisor	the same; rank 0 gathers, adds in rank order, broadcasts
 *		easgd		d = alpha * (parameters - center)
 *				parameters -= d; center += sum of all d
 *		diloco		outer gradient = start - mean over all replicas
 *				parameters = start = Nesterov(start, outer gradient)
 *
 * Momentum stays with its rank; since averaging is linear, H = 1 is then mathematically equal to
 * mirrored. The strategy sends 1/H of mirrored's bytes. At the end the ranks average as well
 * (easgd: they adopt the center). An evaluation sees the parameters of a training that ends there;
 * then every rank continues with its own. Row of the table in strategy.c.
 *
 * Sources: McDonald et al. 2010, Distributed training strategies for the structured perceptron;
 * Zhang, Choromanska, LeCun 2015, Elastic averaging SGD; Stich 2019, Local SGD converges fast;
 * Douillard et al. 2023, DiLoCo.
 */
#include "trainer/strategy/average_state.h"
#include "trainer/strategy/strategy.h"
#include "trainer/strategy/survive.h"

#include <stdlib.h>

#define EASGD_BETA 0.9 /* --alpha 0: the center moves by this part of its mean distance */

/* to = keep * to + take * from, for all parameters */
static void blend(struct train_rank *t, float keep, float *to, float take, const float *from)
{
	t->comm_device->ops->blend(t->comm_device, t->model.parameters, keep, take, from, to);
}

static void copy(struct train_rank *t, float *to, const float *from)
{
	t->comm_device->ops->copy(t->comm_device, to, from, t->model.parameters * sizeof(float));
}

/* --alpha, or beta / ranks as in the paper; follows the number of ranks after deaths */
static double alpha_of(const struct train_rank *t)
{
	return t->config->alpha > 0.0 ? t->config->alpha : EASGD_BETA / t->nranks;
}

/* The center moves by alpha of the sum of all distances: from alpha * ranks = 2 on, further than
 * to the other side. */
static int check_alpha(const struct train_rank *t)
{
	if (t->config->average != TRAIN_AVERAGE_EASGD || alpha_of(t) * t->nranks < 2.0)
		return TRAIN_OK;
	return train_fail(TRAIN_USAGE,
			  "--alpha %g: easgd diverges on %d ranks unless alpha is below %g; use "
			  "less, or omit the option for %.2g",
			  t->config->alpha, t->nranks, 2.0 / t->nranks, EASGD_BETA / t->nranks);
}

static int average_open(struct train_rank *t)
{
	struct train_average_state *a = calloc(1, sizeof(*a));
	int rc = check_alpha(t);

	if (!a)
		return train_fail(TRAIN_FAILED, "no memory for a strategy");
	t->strategy_state = a;
	if (!rc)
		rc = train_average_open(t, a);
	if (!rc)
		rc = train_parameters_bcast(t);
	if (!rc)
		copy(t, a->center, train_parameters_map(t));
	return rc;
}

static void average_close(struct train_rank *t)
{
	train_average_close(t, t->strategy_state);
	free(t->strategy_state);
}

static int allreduce(struct train_rank *t, float *at)
{
	int rc = train_device_sync(t->comm_device);

	return rc ? rc
		  : train_check(tuttiAllReduce(at, at, t->model.parameters, tuttiFloat32, tuttiSum,
					       t->comm, NULL),
				t->comm);
}

static int by_supervisor(struct train_rank *t, float *at, float *all)
{
	size_t n = t->model.parameters;
	int rc = train_device_sync(t->comm_device);

	if (!rc)
		rc = train_check(tuttiGather(at, all, n, tuttiFloat32, 0, t->comm, NULL), t->comm);
	for (int r = 1; !rc && t->rank == 0 && r < t->nranks; r++)
		t->comm_device->ops->add(t->comm_device, n, all + (size_t)r * n, all);
	if (!rc && t->rank == 0) {
		copy(t, at, all);
		rc = train_device_sync(t->comm_device);
	}
	return rc ? rc : train_check(tuttiBcast(at, n, tuttiFloat32, 0, t->comm, NULL), t->comm);
}

static int easgd(struct train_rank *t, struct train_average_state *a, float *at)
{
	float alpha = (float)alpha_of(t);

	copy(t, a->extra, at);
	blend(t, 1.0f, a->extra, -1.0f, a->center);
	blend(t, alpha, a->extra, 0.0f, NULL);
	blend(t, 1.0f, at, -1.0f, a->extra);
	return allreduce(t, a->extra);
}

/* at: the mean over all replicas; saved serves as scratch */
static void outer_step(struct train_rank *t, struct train_average_state *a, float *at)
{
	float rate = (float)t->config->outer_lr, momentum = (float)t->config->outer_momentum;

	copy(t, a->saved, a->center);
	blend(t, 1.0f, a->saved, -1.0f, at); /* outer gradient */
	blend(t, momentum, a->extra, 1.0f, a->saved);
	blend(t, 1.0f, a->saved, momentum, a->extra);
	blend(t, 1.0f, a->center, -rate, a->saved);
	copy(t, at, a->center);
}

/* Averages once, and agrees on whether to stop. */
static int average_now(struct train_rank *t)
{
	struct train_average_state *a = t->strategy_state;
	float *at = train_parameters_map(t), stop = t->stopping;
	uint64_t wait_begin = train_time_ns();
	int how = t->config->average, rc;

	copy(t, a->saved, at);
	if (how == TRAIN_AVERAGE_EASGD)
		rc = easgd(t, a, at);
	else if (how == TRAIN_AVERAGE_SUPERVISOR)
		rc = by_supervisor(t, at, a->extra);
	else
		rc = allreduce(t, at);
	if (!rc)
		rc = train_check(tuttiAllReduce(&stop, &stop, 1, tuttiFloat32, tuttiMax, t->comm,
						NULL),
				 t->comm);
	train_add_exposed(t, wait_begin);
	if (rc) { /* a rank died: undo */
		copy(t, at, a->saved);
		return rc;
	}
	if (how == TRAIN_AVERAGE_EASGD)
		blend(t, 1.0f, a->center, 1.0f, a->extra);
	else
		blend(t, 1.0f / (float)t->nranks, at, 0.0f, NULL);
	if (how == TRAIN_AVERAGE_DILOCO)
		outer_step(t, a, at);
	train_parameters_unmap(t);
	t->stopping = stop > 0.0f;
	a->apart = a->soon = false;
	a->averages++;
	return rc;
}

static int average_step(struct train_rank *t, const struct train_batch *batch)
{
	struct train_average_state *a = t->strategy_state;
	int rc = train_gradient(t, batch, NULL);

	if (rc)
		return rc;
	if (batch->rows)
		train_descend(t, batch->rows);
	t->stopping = batch->stop;
	a->apart = true;
	if (t->step % (uint64_t)t->config->local_steps && !a->soon) {
		t->stopping = false; /* agreed at the next average */
		return TRAIN_OK;
	}
	return average_now(t);
}

static int average_settle(struct train_rank *t, enum train_settle why)
{
	struct train_average_state *a = t->strategy_state;
	int rc = TRAIN_OK;

	(void)why;
	train_average_keep(t, a);
	if (a->apart)
		rc = average_now(t);
	if (!rc && t->config->average == TRAIN_AVERAGE_EASGD)
		train_parameters_set(t, a->center);
	return rc;
}

static void average_unsettle(struct train_rank *t, enum train_settle why)
{
	(void)why;
	train_average_put_back(t, t->strategy_state);
}

static void average_own_state(struct train_rank *t, float *host)
{
	train_average_own_state(t, t->strategy_state, host);
}

static void average_own_restore(struct train_rank *t, const float *host)
{
	train_average_own_restore(t, t->strategy_state, host);
}

/* A rank with one more average than others broadcasts its parameters, center and extra to them.
 * Ranks with the same number of averages keep their own. */
static int share_newest(struct train_rank *t, struct train_average_state *a, uint64_t averages[2])
{
	size_t n = t->model.parameters;
	bool outdated = a->averages < averages[0];
	float *at = train_parameters_map(t);
	int root = (int)(UINT64_MAX - averages[1]), rc = TRAIN_OK;
	float *arrays[] = { at, a->center,
			    t->config->average == TRAIN_AVERAGE_DILOCO ? a->extra : a->center };

	for (int i = 0; i < 3 && !rc; i++) {
		copy(t, a->saved, arrays[i]);
		rc = train_device_sync(t->comm_device);
		if (!rc)
			rc = train_check(tuttiBcast(a->saved, n, tuttiFloat32, root, t->comm, NULL),
					 t->comm);
		if (!rc && outdated)
			copy(t, arrays[i], a->saved);
	}
	train_parameters_unmap(t);
	a->averages = averages[0];
	a->soon = true;
	return rc;
}

/* The survivors repeat their last step, from the newest parameters among them. */
static int average_rejoin(struct train_rank *t, uint64_t done, uint64_t *ret_done)
{
	struct train_average_state *a = t->strategy_state;
	uint64_t averages[3]; /* greatest number; ~first rank with it; steps done */
	int rc = train_regroup(t);

	averages[0] = a->averages;
	if (!rc)
		rc = train_check(tuttiAllReduce(averages, averages, 1, tuttiUint64, tuttiMax,
						t->comm, NULL),
				 t->comm);
	averages[1] = a->averages == averages[0] ? UINT64_MAX - (uint64_t)t->rank : 0;
	averages[2] = done;
	if (!rc)
		rc = train_check(tuttiAllReduce(averages + 1, averages + 1, 2, tuttiUint64,
						tuttiMax, t->comm, NULL),
				 t->comm);
	*ret_done = averages[2];
	return rc ? rc : share_newest(t, a, averages);
}

const struct train_strategy_ops train_strategy_average = {
	.name = "average",
	.help = "local SGD: ranks average their parameters every --H steps",
	.local_replicas = true,
	.collectives_only = true,
	.open = average_open,
	.close = average_close,
	.step = average_step,
	.settle = average_settle,
	.unsettle = average_unsettle,
	.own_arrays = train_average_own_arrays,
	.own_state = average_own_state,
	.own_restore = average_own_restore,
	.rejoin = average_rejoin,
};

/*
 * strategy_mirrored.c - synchronous data parallelism: every rank keeps a replica, gradients are
 * summed in every step
 *
 *	parameters = broadcast(rank 0's parameters)
 *	each step:
 *		gradients = gradient(parameters, my share of the batch)
 *			as soon as a bucket is final, last layer first: allreduce it behind the pass
 *		wait for all buckets
 *		parameters = descend(parameters, gradients / global batch)
 *
 * With --canonical a bucket is added up over leaves instead: every rank adds up a part of it, then
 * all hand their parts out. fixed64 does so when the pass has ended, and so does a device whose
 * memory the host cannot touch. All replicas apply the same bits to the same bits, so they stay
 * equal. How the sums are made is --algo: reduction to one device, hierarchical copies, rings and
 * trees are this strategy over other plans of the library. Row of the table in strategy.c.
 *
 * Sources: Goyal et al. 2017, Accurate, large minibatch SGD; Sergeev and Del Balso 2018, Horovod;
 * Li et al. 2020, PyTorch distributed.
 */
#include "trainer/strategy/overlap_leaves.h"
#include "trainer/strategy/strategy.h"
#include "trainer/strategy/gradient_sum.h"

#include <stdlib.h>

struct mirrored {
	struct tt_behind *behind; /* tree and chain */
	size_t bucket;            /* floats of one; the lowest may be smaller */
	uint64_t first_ns;        /* when the first was given to the stream */
	size_t end;               /* gradients from here on have been given to it in this step */
};

static int mirrored_open(struct tt_trainer *t)
{
	struct mirrored *m = calloc(1, sizeof(*m));
	int rc;

	if (!m)
		return tt_train_fail(TT_TRAIN_FAILED, "no memory for a strategy");
	t->strategy_state = m;
	m->bucket = (size_t)t->config->bucket_kb * 1024 / sizeof(float);
	if (t->leaves.kind == TT_CANONICAL_OFF)
		rc = tt_beside_open(t);
	else
		rc = tt_behind_open(t, m->bucket, &m->behind);
	return rc ? rc : tt_parameters_share(t);
}

static void mirrored_close(struct tt_trainer *t)
{
	struct mirrored *m = t->strategy_state;

	tt_beside_close(t);
	tt_behind_close(m->behind);
	free(m);
}

/* Gives every bucket that is final now to the stream. All ranks do so at the same places, so in the
 * same order. */
static int launch(void *arg, size_t from)
{
	struct tt_trainer *t = arg;
	struct mirrored *m = t->strategy_state;

	while (m->end > from) {
		size_t first = m->end > m->bucket ? m->end - m->bucket : 0;
		float *bucket = t->wire + first;
		tuttiResult_t result;

		if (first < from)
			break;
		tt_beside_lead(t);
		result = tuttiAllReduce(bucket, bucket, m->end - first, tuttiFloat32, tuttiSum,
					t->comm, t->beside);
		if (result != tuttiSuccess)
			return tt_library(result, t->comm);
		m->first_ns = m->end == t->floats ? tt_time_ns() : m->first_ns;
		m->end = first;
	}
	return TT_TRAIN_OK;
}

static int step_by_stream(struct tt_trainer *t, const struct tt_batch *batch)
{
	struct mirrored *m = t->strategy_state;
	struct tt_ready ready = { launch, t, m->bucket };
	uint64_t waits;
	int rc, waited;

	m->end = t->floats;
	rc = tt_gradient(t, batch, &ready);
	waits = tt_time_ns();
	waited = tt_beside_wait(t);
	tt_timeline_add(&t->timeline, TT_TIME_HIDDEN, t->step, m->first_ns, waits);
	tt_exposed(t, waits);
	return rc ? rc : waited;
}

/* The same for sums over leaves. */
static int step_by_leaves(struct tt_trainer *t, const struct tt_batch *batch)
{
	struct mirrored *m = t->strategy_state;
	struct tt_ready ready = { tt_behind_tell, m->behind, m->bucket };
	int rc = tt_behind_begin(m->behind), waited;

	if (rc)
		return rc;
	rc = tt_gradient(t, batch, &ready);
	waited = tt_behind_wait(m->behind);
	return rc ? rc : waited;
}

/* fixed64 wants to know all leaves before it sums any; one rank has nobody to wait for. */
static int step_after(struct tt_trainer *t, const struct tt_batch *batch)
{
	int rc = tt_gradient(t, batch, NULL);
	uint64_t waits = tt_time_ns();

	if (!rc)
		rc = tt_total(t);
	tt_exposed(t, waits);
	return rc;
}

static int mirrored_step(struct tt_trainer *t, const struct tt_batch *batch)
{
	int rc;

	if (t->leaves.kind == TT_CANONICAL_OFF)
		rc = step_by_stream(t, batch);
	else if (t->leaves.kind == TT_CANONICAL_FIXED64 || t->nranks == 1)
		rc = step_after(t, batch);
	else
		rc = step_by_leaves(t, batch);
	if (!rc)
		tt_descend(t, t->leaves.batch);
	return rc;
}

const struct tt_strategy_ops tt_strategy_mirrored = {
	.name = "mirrored",
	.help = "a replica on every rank, gradients are allreduced in every step",
	.leaves = true,
	.by_calls = true,
	.open = mirrored_open,
	.close = mirrored_close,
	.step = mirrored_step,
};

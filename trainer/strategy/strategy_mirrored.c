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
#include "trainer/strategy/bucket_sums.h"
#include "trainer/strategy/strategy.h"
#include "trainer/strategy/gradient_sum.h"

#include <stdlib.h>

struct mirrored_state {
	struct train_buckets *buckets; /* tree and chain */
	size_t bucket;            /* floats of one; the lowest may be smaller */
	uint64_t first_ns;        /* when the first was given to the stream */
	size_t end;               /* gradients from here on have been given to it in this step */
};

static int mirrored_open(struct train_rank *t)
{
	struct mirrored_state *m = calloc(1, sizeof(*m));
	int rc;

	if (!m)
		return train_fail(TRAIN_FAILED, "no memory for a strategy");
	t->strategy_state = m;
	m->bucket = (size_t)t->config->bucket_kb * 1024 / sizeof(float);
	if (t->leaves.kind == TRAIN_CANONICAL_OFF)
		rc = train_comm_stream_open(t);
	else
		rc = train_buckets_open(t, m->bucket, &m->buckets);
	return rc ? rc : train_parameters_bcast(t);
}

static void mirrored_close(struct train_rank *t)
{
	struct mirrored_state *m = t->strategy_state;

	train_comm_stream_close(t);
	train_buckets_close(m->buckets);
	free(m);
}

/* Gives every bucket that is final now to the stream. All ranks do so at the same places, so in the
 * same order. */
static int allreduce_ready(void *arg, size_t from)
{
	struct train_rank *t = arg;
	struct mirrored_state *m = t->strategy_state;

	while (m->end > from) {
		size_t first = m->end > m->bucket ? m->end - m->bucket : 0;
		float *bucket = t->comm_buffer + first;
		tuttiResult_t result;

		if (first < from)
			break;
		train_comm_stream_after_compute(t);
		result = tuttiAllReduce(bucket, bucket, m->end - first, tuttiFloat32, tuttiSum,
					t->comm, t->comm_stream);
		if (result != tuttiSuccess)
			return train_check(result, t->comm);
		m->first_ns = m->end == t->floats ? train_time_ns() : m->first_ns;
		m->end = first;
	}
	return TRAIN_OK;
}

static int step_overlapped(struct train_rank *t, const struct train_batch *batch)
{
	struct mirrored_state *m = t->strategy_state;
	struct train_ready ready = { allreduce_ready, t, m->bucket };
	uint64_t waiting_ns;
	int rc, waited;

	m->end = t->floats;
	rc = train_gradient(t, batch, &ready);
	waiting_ns = train_time_ns();
	waited = train_comm_stream_wait(t);
	train_timeline_add(&t->timeline, TRAIN_TIME_HIDDEN, t->step, m->first_ns, waiting_ns);
	train_add_exposed(t, waiting_ns);
	return rc ? rc : waited;
}

/* The same for sums over leaves. */
static int step_by_leaves(struct train_rank *t, const struct train_batch *batch)
{
	struct mirrored_state *m = t->strategy_state;
	struct train_ready ready = { train_buckets_ready, m->buckets, m->bucket };
	int rc = train_buckets_begin(m->buckets), waited;

	if (rc)
		return rc;
	rc = train_gradient(t, batch, &ready);
	waited = train_buckets_wait(m->buckets);
	return rc ? rc : waited;
}

/* fixed64 wants to know all leaves before it sums any; one rank has nobody to wait for. */
static int step_sequential(struct train_rank *t, const struct train_batch *batch)
{
	int rc = train_gradient(t, batch, NULL);
	uint64_t waiting_ns = train_time_ns();

	if (!rc)
		rc = train_sum_gradients(t);
	train_add_exposed(t, waiting_ns);
	return rc;
}

static int mirrored_step(struct train_rank *t, const struct train_batch *batch)
{
	int rc;

	if (t->leaves.kind == TRAIN_CANONICAL_OFF)
		rc = step_overlapped(t, batch);
	else if (t->leaves.kind == TRAIN_CANONICAL_FIXED64 || t->nranks == 1)
		rc = step_sequential(t, batch);
	else
		rc = step_by_leaves(t, batch);
	if (!rc)
		train_descend(t, t->leaves.batch);
	return rc;
}

const struct train_strategy_ops train_strategy_mirrored = {
	.name = "mirrored",
	.help = "a replica on every rank, gradients are allreduced in every step",
	.leaves = true,
	.collectives_only = true,
	.open = mirrored_open,
	.close = mirrored_close,
	.step = mirrored_step,
};

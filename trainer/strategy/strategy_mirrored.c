/*
 * strategy_mirrored.c - synchronous data parallelism: a replica per rank, gradients are
 * allreduced in every step
 *
 *	parameters = broadcast(rank 0's parameters)
 *	each step:
 *		gradients = gradient(parameters, my share of the batch)
 *			as soon as a gradient bucket is final, last layer first: allreduce it,
 *			overlapped with the backward pass
 *		wait for all buckets
 *		parameters = descend(parameters, gradients / global batch)
 *
 * With --canonical a bucket is summed over leaves instead: every rank sums a part of it, then
 * all parts are allgathered. With fixed64, and on a device whose memory the host cannot access,
 * this happens after the backward pass. All replicas apply the same bits to the same bits, so
 * they stay equal. --algo selects the algorithm of the sums: reduction to one device,
 * hierarchical copies, rings and trees are this strategy over other plans of the library. Row of
 * the table in strategy.c.
 *
 * Sources: Goyal et al. 2017, Accurate, large minibatch SGD; Sergeev and Del Balso 2018,
 * Horovod; Li et al. 2020, PyTorch distributed.
 */
#include "trainer/strategy/bucket_sums.h"
#include "trainer/strategy/gradient_sum.h"
#include "trainer/strategy/strategy.h"

#include <stdlib.h>

struct mirrored_state {
	struct train_buckets *buckets; /* unless by_stream */
	size_t bucket;                 /* floats of a bucket; the lowest may be smaller */
	size_t end;                    /* by_stream: gradients from here on have been submitted */
};

/* Allreduces of device memory are calls on the device's stream, after its computation. */
static bool by_stream(const struct train_rank *t)
{
	return t->leaves.kind == TRAIN_CANONICAL_OFF && train_comm_on_device(t);
}

static int mirrored_open(struct train_rank *t)
{
	struct mirrored_state *m = calloc(1, sizeof(*m));
	int rc;

	if (!m)
		return train_fail(TRAIN_FAILED, "no memory for a strategy");
	t->strategy_state = m;
	m->bucket = (size_t)t->config->bucket_kb * 1024 / sizeof(float);
	if (by_stream(t))
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

/* Submits every final bucket to the stream. All ranks cut the array into the same buckets, so
 * their calls are in the same order. */
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
		m->end = first;
	}
	return TRAIN_OK;
}

static int step_by_stream(struct train_rank *t, const struct train_batch *batch)
{
	struct mirrored_state *m = t->strategy_state;
	struct train_ready ready = { .fn = allreduce_ready, .arg = t, .grain = m->bucket };
	uint64_t wait_begin;
	int rc, waited;

	m->end = t->floats;
	rc = train_gradient(t, batch, &ready);
	wait_begin = train_time_ns();
	waited = train_comm_stream_wait(t);
	train_add_exposed(t, wait_begin);
	return rc ? rc : waited;
}

/* Sums by a thread, overlapped with the backward pass. */
static int step_by_buckets(struct train_rank *t, const struct train_batch *batch)
{
	struct mirrored_state *m = t->strategy_state;
	struct train_ready ready = { .fn = train_buckets_ready,
				     .arg = m->buckets,
				     .grain = m->bucket };
	int rc = train_buckets_begin(m->buckets);

	if (!rc)
		rc = train_gradient(t, batch, &ready);
	/* what a failed gradient leaves must not become part of the others' sums */
	return rc ? rc : train_buckets_wait(m->buckets);
}

/* Without overlap: fixed64 needs all leaves before the first sum; one rank does not communicate. */
static int step_sequential(struct train_rank *t, const struct train_batch *batch)
{
	int rc = train_gradient(t, batch, NULL);
	uint64_t wait_begin = train_time_ns();

	if (!rc)
		rc = train_sum_gradients(t);
	train_add_exposed(t, wait_begin);
	return rc;
}

static int mirrored_step(struct train_rank *t, const struct train_batch *batch)
{
	int rc;

	if (by_stream(t))
		rc = step_by_stream(t, batch);
	else if (t->leaves.kind == TRAIN_CANONICAL_FIXED64 || t->nranks == 1)
		rc = step_sequential(t, batch);
	else
		rc = step_by_buckets(t, batch);
	if (!rc)
		train_descend(t, t->leaves.batch);
	return rc;
}

const struct train_strategy_ops train_strategy_mirrored = {
	.name = "mirrored",
	.help = "a replica on every rank; gradients are allreduced in every step",
	.leaves = true,
	.collectives_only = true,
	.touched_rows = true,
	.open = mirrored_open,
	.close = mirrored_close,
	.step = mirrored_step,
};

/*
 * nccl_train_calls.c - PyTorch's calls of NCCL around a step of training, in its order, on its streams, with its events
 *
 * Called by nccl_train_model.c. DDP sums buckets of gradients, beside the backward pass. FSDP2 gathers a layer's parameters
 * before each use and releases them behind it, prefetches in the backward pass, and scatters sums of gradients. Tensor parallel
 * sums outputs on the stream that computes, and gradients of inputs beside it. Without communicators the same sums are made
 * on one device, in rank order.
 */
#include "tests/nccl/nccl_train.h"

static size_t bytes_of(size_t floats)
{
	return floats * sizeof(float);
}

/* ---- FSDP2 ----------------------------------------------------------------------------------- */

/* Copies between all parameters of a layer and the ranks' shards of them, which lie one after the other. */
static int copy_shards(struct training *t, struct layer *l, float *whole, float *shards,
		       bool to_shards, cudaStream_t stream)
{
	size_t total = l->in * l->out;
	int rc = 0;

	for (int r = 0; r < t->way->data; r++)
		for (int bias = 0; bias < 2; bias++) {
			size_t most = bias ? l->shard - l->shard_w : l->shard_w;
			size_t all = bias ? l->out : total, first = (size_t)r * most;
			size_t n = first >= all ? 0 : all - first < most ? all - first : most;
			float *at = shards + (size_t)r * l->shard + (bias ? l->shard_w : 0);
			float *in = whole + (bias ? total : 0) + first;

			if (n)
				rc |= t->cu->dtod_async((uintptr_t)(to_shards ? at : in),
							(uintptr_t)(to_shards ? in : at),
							bytes_of(n), stream);
		}
	return rc;
}

static int shard_open(struct training *t, struct layer *l)
{
	struct client_rank *client = t->client;
	size_t n = (size_t)t->way->data;

	l->shard_w = (l->in + n - 1) / n * l->out;
	l->shard = l->shard_w + (l->out + n - 1) / n;
	l->own = training_alloc(t, l->shard);
	l->sum = training_alloc(t, l->shard);
	l->gathered = training_alloc(t, n * l->shard);
	l->scattered = training_alloc(t, n * l->shard);
	EXPECT(l->scattered);
	EXPECT(!copy_shards(t, l, l->parameters, l->gathered, true, t->compute));
	t->device.ops->copy(&t->device, l->own, l->gathered + (size_t)t->rank * l->shard,
			    bytes_of(l->shard));
	return parameters_release(t, (int)(l - t->layer[0]));
}

int parameters_prefetch(struct training *t, int i)
{
	struct client_rank *client = t->client;
	struct layer *l = &t->layer[0][i];
	float *mine = l->gathered + (size_t)t->rank * l->shard;

	if (l->state != ABSENT)
		return 0;
	EXPECT(!t->cu->dtod_async((uintptr_t)mine, (uintptr_t)l->own, bytes_of(l->shard),
				  t->gather_in));
	EXPECT(!memory_behind(t->gather_in, t->gather));
	OK(ncclAllGather(mine, l->gathered, l->shard, ncclFloat, t->data, t->gather));
	l->state = ON_THE_WAY;
	return 0;
}

int parameters_fetch(struct training *t, int i)
{
	struct client_rank *client = t->client;
	struct layer *l = &t->layer[0][i];

	if (l->state == HERE)
		return 0;
	EXPECT(!parameters_prefetch(t, i));
	EXPECT(!memory_behind(t->gather, t->compute));
	EXPECT(!copy_shards(t, l, l->parameters, l->gathered, false, t->compute));
	EXPECT(!memory_behind(t->compute, t->gather_in)); /* next time: the memory is free */
	l->state = HERE;
	return 0;
}

/* What computes without fetching gets NaN. */
int parameters_release(struct training *t, int i)
{
	struct client_rank *client = t->client;
	struct layer *l = &t->layer[0][i];

	if (!l->own)
		return 0;
	EXPECT(!t->cu->memset8_async((uintptr_t)l->parameters, 0xff, bytes_of(layer_count(l)),
				     t->compute));
	l->state = ABSENT;
	return 0;
}

/* The gradients of the layer above must have left, as PyTorch frees their memory. */
static int scatter(struct training *t, int i)
{
	struct client_rank *client = t->client;
	struct layer *l = &t->layer[0][i];

	if (i < LAYERS - 1)
		EXPECT(!memory_behind(t->reduce, t->compute));
	EXPECT(!memory_behind(t->compute, t->reduce));
	EXPECT(!copy_shards(t, l, l->gradients, l->scattered, true, t->reduce));
	OK(ncclReduceScatter(l->scattered, l->sum, l->shard, ncclFloat, ncclAvg, t->data,
			     t->reduce));
	return 0;
}

/* ---- DDP ------------------------------------------------------------------------------------- */

/* The first rank's parameters are broadcast, after all ranks have shown how many they have. */
static int replicate(struct training *t)
{
	struct client_rank *client = t->client;
	size_t all = 0, counts[8];
	void *got = training_alloc(t, 2 * 8), *mine = training_alloc(t, 2);

	for (int i = LAYERS - 1; i >= 0; all += layer_count(&t->layer[0][i--]))
		t->layer[0][i].at = all;
	t->buckets = training_alloc(t, all);
	EXPECT(t->buckets);
	t->device.ops->put(&t->device, mine, &all, sizeof(all));
	OK(ncclAllGather(mine, got, 1, ncclInt64, t->data, t->compute));
	t->device.ops->get(&t->device, counts, got, sizeof(counts));
	for (int r = 0; r < t->way->data; r++)
		EXPECT(counts[r] == all);
	for (int i = 0; i < LAYERS; i++) {
		struct layer *l = &t->layer[0][i];

		l->sum = t->buckets + l->at;
		t->device.ops->copy(&t->device, l->sum, l->parameters, bytes_of(layer_count(l)));
	}
	EXPECT(!memory_behind(t->compute, t->reduce));
	OK(ncclBroadcast(t->buckets, t->buckets, all, ncclFloat, 0, t->data, t->reduce));
	EXPECT(!memory_behind(t->reduce, t->compute));
	for (int i = 0; i < LAYERS; i++) {
		struct layer *l = &t->layer[0][i];

		t->device.ops->copy(&t->device, l->parameters, l->sum, bytes_of(layer_count(l)));
	}
	return 0;
}

/* The first bucket has the two last layers, the second one the first layer. */
static int sum_bucket(struct training *t, int i)
{
	struct client_rank *client = t->client;
	struct layer *l = &t->layer[0][i], *first = i ? &t->layer[0][LAYERS - 1] : l;

	t->device.ops->copy(&t->device, l->sum, l->gradients, bytes_of(layer_count(l)));
	if (i == LAYERS - 1)
		return 0;
	EXPECT(!memory_behind(t->compute, t->reduce));
	OK(ncclAllReduce(first->sum, first->sum, l->at + layer_count(l) - first->at, ncclFloat,
			 ncclSum, t->data, t->reduce));
	return 0;
}

/* ---- gradients ------------------------------------------------------------------------------- */

static void sum_here(struct training *t, struct layer *l, int share)
{
	struct train_device *d = &t->device;

	if (share)
		d->ops->add(d, layer_count(l), l->gradients, l->sum);
	else
		d->ops->copy(d, l->sum, l->gradients, bytes_of(layer_count(l)));
}

int gradients_ready(struct training *t, int i, int share)
{
	float mean = 1.0f / (float)t->way->data;

	if (t->data && t->way->sharded)
		return scatter(t, i);
	for (int p = 0; p < t->parts; p++) {
		struct layer *l = &t->layer[p][i];

		t->device.ops->blend(&t->device, layer_count(l), mean, 0, NULL, l->gradients);
		if (!t->data)
			sum_here(t, l, share);
	}
	return t->data ? sum_bucket(t, i) : 0;
}

int gradients_wait(struct training *t)
{
	return t->data ? memory_behind(t->reduce, t->compute) : 0;
}

int parameters_changed(struct training *t)
{
	return t->data ? memory_behind(t->compute, t->gather_in) : 0;
}

/* ---- tensor parallel ------------------------------------------------------------------------- */

/* y or dy of all parts */
static void sum_parts_here(struct training *t, float *const *part, size_t count)
{
	struct train_device *d = &t->device;

	for (int p = 1; p < t->parts; p++)
		d->ops->add(d, count, part[p], part[0]);
	for (int p = 1; p < t->parts; p++)
		d->ops->copy(d, part[p], part[0], bytes_of(count));
}

int parts_sum(struct training *t, int i)
{
	struct client_rank *client = t->client;
	float *part[PARTS] = { t->layer[0][i].y, t->layer[1][i].y };
	size_t count = t->rows * t->layer[0][i].out;

	if (t->tensor)
		OK(ncclAllReduce(part[0], part[0], count, ncclFloat, ncclSum, t->tensor,
				 t->compute));
	else
		sum_parts_here(t, part, count);
	return 0;
}

int parts_sum_back_start(struct training *t, int i)
{
	struct client_rank *client = t->client;
	float *part[PARTS] = { t->layer[0][i].dy, t->layer[1][i].dy };
	size_t count = t->rows * t->layer[0][i].out;

	if (!t->tensor) {
		sum_parts_here(t, part, count);
		return 0;
	}
	EXPECT(!memory_behind(t->compute, t->partial));
	OK(ncclAllReduce(part[0], part[0], count, ncclFloat, ncclSum, t->tensor, t->partial));
	return 0;
}

int parts_sum_back_wait(struct training *t)
{
	return t->tensor ? memory_behind(t->partial, t->compute) : 0;
}

/* ---- all ------------------------------------------------------------------------------------- */

int losses_sum(struct training *t, int step)
{
	struct client_rank *client = t->client;
	float *at = t->losses + step;

	if (t->data)
		OK(ncclAllReduce(at, at, 1, ncclFloat, ncclSum, t->data, t->compute));
	return 0;
}

int calls_open(struct training *t)
{
	struct client_rank *client = t->client;
	cudaStream_t *const streams[] = { &t->reduce, &t->gather_in, &t->gather, &t->partial };

	for (int i = 0; i < 4; i++)
		EXPECT(!memory_stream(streams[i]));
	if (t->data && !t->way->sharded)
		return replicate(t);
	for (int p = 0; p < t->parts; p++)
		for (int i = 0; i < LAYERS; i++) {
			struct layer *l = &t->layer[p][i];

			if (t->data)
				EXPECT(!shard_open(t, l));
			else
				EXPECT((l->sum = training_alloc(t, layer_count(l))));
		}
	return parameters_changed(t);
}

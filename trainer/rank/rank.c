/* rank.c - one rank of a training: its share of the batch, gradients and communication buffer
 * (rank.h) */
#include "trainer/rank/rank.h"

#include <stdlib.h>

int train_check(tuttiResult_t result, tuttiComm_t comm)
{
	const char *text = result == tuttiSuccess ? "" : tuttiGetLastError(comm);

	if (result == tuttiSuccess)
		return TRAIN_OK;
	return train_fail(TRAIN_FAILED, "%s", *text ? text : tuttiGetErrorString(result));
}

void train_rank_partition_free(struct train_rank *t)
{
	const struct train_device_ops *d = t->device.ops;

	if (t->comm_buffer != t->gradients)
		t->comm_device->ops->free(t->comm_device, t->comm_buffer);
	d->free(&t->device, t->gradients);
	d->free(&t->device, t->sum.scratch);
	free(t->sum.node);
	tuttiMemFree(t->fixed_sum);
	free(t->exponent);
	t->fixed_sum = NULL;
	t->exponent = NULL;
	t->gradients = t->comm_buffer = t->sum.scratch = NULL;
	t->sum.node = NULL;
}

static int alloc_gradients(struct train_rank *t)
{
	const struct train_device_ops *d = t->device.ops;
	int canonical = t->config->canonical;
	bool leaves = canonical != TRAIN_CANONICAL_OFF;
	size_t bytes = (t->sum.nodes ? t->sum.nodes : 1) * t->sum.stride * sizeof(float);
	bool shared = !d->separate_memory || (d->tutti_aware && t->collectives_only &&
					      canonical != TRAIN_CANONICAL_FIXED64);

	t->gradients = d->alloc(&t->device, bytes);
	t->host = (struct train_device){ .ops = &train_device_cpu };
	t->comm_device = shared ? &t->device : &t->host;
	t->comm_buffer = shared ? t->gradients : t->host.ops->alloc(&t->host, bytes);
	if (leaves)
		t->sum.scratch = d->alloc(&t->device, train_leaves_levels(t->sum.run) *
							      t->sum.piece * sizeof(float));
	if (!t->gradients || !t->comm_buffer || (leaves && !t->sum.scratch))
		return train_fail(TRAIN_FAILED, "no memory for %zu gradients of %zu floats",
				  t->sum.nodes, t->floats);
	return TRAIN_OK;
}

/* The parameters of the largest layer, in equal parts for all ranks. */
static size_t largest_layer(const struct train_rank *t)
{
	size_t ranks = (size_t)t->nranks, most = 0;

	for (size_t i = 0; i < t->model.layers; i++) {
		size_t count = t->model.layer[i].parameters;

		most = count > most ? count : most;
	}
	return (most + ranks - 1) / ranks * ranks;
}

int train_rank_partition(struct train_rank *t)
{
	const struct train_config *c = t->config;
	size_t ranks = (size_t)t->nranks, part, run;

	train_rank_partition_free(t);
	t->leaves = train_leaves_of((enum train_canonical)c->canonical, (size_t)c->global_batch,
				    (size_t)c->leaf, t->nranks);
	t->tail_at = c->zero > 1 ? largest_layer(t) : t->model.parameters;
	t->floats = t->tail_at + TRAIN_TAIL;
	part = (t->floats + ranks - 1) / ranks;
	t->sum = (struct train_leaf_sum){ .leaves = &t->leaves, .device = &t->device };
	if (!train_is_server(t))
		t->sum.run = train_leaves_share(&t->leaves, t->rank, t->nranks);
	run = t->sum.run.last - t->sum.run.first;
	t->sum.node = calloc(run ? run : 1, sizeof(*t->sum.node));
	if (!t->sum.node)
		return train_fail(TRAIN_FAILED, "no memory for %zu leaves", run);
	t->sum.nodes = train_leaves_nodes(&t->leaves, t->sum.run, t->sum.node);
	t->sum.stride = part * ranks; /* equal parts of the array for all ranks */
	t->sum.piece = t->model.piece;
	return alloc_gradients(t);
}

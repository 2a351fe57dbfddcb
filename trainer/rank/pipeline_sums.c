/*
 * pipeline_sums.c - gradients of micro-batches, folded in the order of --canonical
 * (pipeline_state.h)
 *
 * A micro-batch is a run of leaves, and its gradient some nodes. They are written behind the nodes
 * of the micro-batches before it, and neighbors are added as far as the expression allows; after
 * the last micro-batch the nodes are those of the rank's whole run of leaves.
 */
#include "trainer/rank/pipeline_state.h"

#include <stdlib.h>

struct train_node train_pipeline_leaves(const struct train_rank *t, int micro)
{
	struct train_node run = t->sum.run;
	struct train_share share = train_share_of(run.last - run.first, micro, t->pipeline->micro);

	return (struct train_node){ run.first + share.first,
				    run.first + share.first + share.count };
}

/* The greatest number of nodes at once: a fold of no floats. */
static size_t count_capacity(struct train_rank *t, struct train_node *node, void **place)
{
	size_t n = 0, most = 1;

	for (int m = 0; m < t->pipeline->micro; m++) {
		n += train_leaves_nodes(&t->leaves, train_pipeline_leaves(t, m), node + n);
		most = n > most ? n : most;
		train_leaves_fold(&t->leaves, &t->device, node, place, &n, 0);
	}
	return most;
}

static int open_sums(struct train_rank *t)
{
	struct train_pipeline *p = t->pipeline;
	const struct train_model *m = &t->model;

	for (int c = 0; c <= m->chunks; c++) {
		struct pipeline_sum *s = &p->sum[c];

		s->node = calloc(p->capacity, sizeof(*s->node));
		if (!s->node)
			return train_fail(TRAIN_FAILED, "no memory for %zu nodes", p->capacity);
		s->at = m->parameters;
		s->count = c == m->chunks;
		if (c == m->chunks || c % m->stages != m->stage)
			continue;
		s->at = m->layer[m->chunk_first[c]].at;
		for (size_t l = m->chunk_first[c]; l < m->chunk_first[c + 1]; l++)
			s->count += m->layer[l].parameters;
	}
	return TRAIN_OK;
}

int train_pipeline_sums_open(struct train_rank *t)
{
	struct train_pipeline *p = t->pipeline;
	size_t leaves = t->sum.run.last - t->sum.run.first + 1;
	struct train_node *node = calloc(leaves, sizeof(*node));

	p->place = calloc(leaves, sizeof(*p->place));
	p->sum = calloc((size_t)t->model.chunks + 1, sizeof(*p->sum));
	if (!node || !p->place || !p->sum) {
		free(node);
		return train_fail(TRAIN_FAILED, "no memory for %zu leaves", leaves);
	}
	p->capacity = count_capacity(t, node, p->place);
	free(node);
	p->partial = t->device.ops->alloc(&t->device, p->capacity * t->sum.stride * sizeof(float));
	if (!p->partial)
		return train_fail(TRAIN_FAILED, "no memory for %zu gradients of %zu floats",
				  p->capacity, t->floats);
	return open_sums(t);
}

void train_pipeline_sums_close(struct train_rank *t)
{
	struct train_pipeline *p = t->pipeline;

	for (int c = 0; p->sum && c <= t->model.chunks; c++)
		free(p->sum[c].node);
	free(p->sum);
	free(p->place);
	t->device.ops->free(&t->device, p->partial);
}

struct train_pipeline_part train_pipeline_part(struct train_rank *t, struct pipeline_sum *s,
					       int micro)
{
	struct train_pipeline_part part = {
		.sum = t->sum, .gradients = t->pipeline->partial + s->n * t->sum.stride
	};

	part.sum.run = train_pipeline_leaves(t, micro);
	part.sum.node = s->node + s->n;
	part.sum.nodes = train_leaves_nodes(&t->leaves, part.sum.run, part.sum.node);
	return part;
}

void train_pipeline_add(struct train_rank *t, struct pipeline_sum *s, int micro)
{
	struct train_pipeline *p = t->pipeline;
	struct train_device *d = &t->device;
	size_t stride = t->sum.stride;

	s->n += train_leaves_nodes(&t->leaves, train_pipeline_leaves(t, micro), NULL);
	for (size_t i = 0; i < s->n; i++)
		p->place[i] = p->partial + i * stride + s->at;
	train_leaves_fold(&t->leaves, d, s->node, p->place, &s->n, s->count);
	for (size_t i = 0; i < s->n; i++)
		d->ops->copy(d, p->partial + i * stride + s->at, p->place[i],
			     s->count * sizeof(float));
}

void train_pipeline_store(struct train_rank *t, struct pipeline_sum *s)
{
	struct train_device *d = &t->device;

	for (size_t i = 0; i < s->n; i++)
		d->ops->copy(d, t->gradients + i * t->sum.stride + s->at,
			     t->pipeline->partial + i * t->sum.stride + s->at,
			     s->count * sizeof(float));
	s->n = 0;
}

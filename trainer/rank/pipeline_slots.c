/* pipeline_slots.c - slots: the memory of micro-batches between their passes (pipeline_state.h) */
#include "trainer/rank/pipeline_state.h"

#include <stdlib.h>

struct train_node train_pipeline_micro(const struct train_rank *t, int micro)
{
	size_t first = train_leaves_rows(&t->leaves, t->sum.run).first;
	struct train_node rows = train_leaves_rows(&t->leaves, train_pipeline_leaves(t, micro));

	return (struct train_node){ rows.first - first, rows.last - first };
}

struct pipeline_slot *train_slot_of(struct train_pipeline *p, int chunk, int micro)
{
	return &p->chunk[chunk].slot[p->chunk[chunk].slot_of[micro]];
}

static int open_events(struct pipeline_slot *slot)
{
	for (int i = 0; i < PIPELINE_LINKS; i++)
		if (tuttiEventCreate(&slot->event[i]) != tuttiSuccess)
			return train_fail(TRAIN_FAILED,
					  "no memory for the events of a micro-batch");
	return TRAIN_OK;
}

static int open_slot(struct train_rank *t, int chunk, struct pipeline_slot *slot)
{
	struct train_pipeline *p = t->pipeline;
	struct train_model *m = &t->model;
	size_t first = m->chunk_first[chunk];
	const struct pipeline_slot *shared = &p->chunk[chunk].slot[0];
	bool parts = p->schedule.ops->recurrent;
	int rc = open_events(slot);

	if (!rc && parts)
		rc = train_part_open(t, chunk, slot);
	if (!rc && parts && slot != shared) {
		slot->activations = shared->activations;
		slot->x = shared->x;
	}
	if (rc || (parts && slot != shared))
		return rc;
	if (chunk > 0 && m->stages > 1) {
		slot->x = t->device.ops->alloc(&t->device,
					       p->rows * m->layer[first].inputs * sizeof(float));
		if (!slot->x)
			return train_fail(TRAIN_FAILED, "no memory for %zu samples", p->rows);
	}
	return train_activations_open(m, first, m->chunk_first[chunk + 1], p->rows,
				      &slot->activations);
}

int train_slot_take(struct train_rank *t, int chunk, int micro)
{
	struct train_pipeline *p = t->pipeline;
	struct pipeline_chunk *of = &p->chunk[chunk];
	int i = 0, rc = TRAIN_OK;

	while (i < of->slots && of->slot[i].used)
		i++;
	if (i == of->slots) {
		of->slots++;
		rc = open_slot(t, chunk, &of->slot[i]);
	} else {
		rc = train_links_sent(t, &of->slot[i]);
	}
	of->slot[i].used = true;
	of->slot_of[micro] = i;
	if (++p->used > p->peak)
		p->peak = p->used;
	return rc;
}

void train_slot_free(struct train_pipeline *p, int chunk, int micro)
{
	train_slot_of(p, chunk, micro)->used = false;
	p->used--;
}

float *train_slot_output(struct pipeline_slot *slot)
{
	struct train_activations *a = &slot->activations;

	return a->pass[a->last - a->first - 1].y;
}

void train_slots_close(struct train_rank *t, struct pipeline_chunk *chunk)
{
	for (int i = 0; i < chunk->slots; i++) {
		struct pipeline_slot *slot = &chunk->slot[i];

		for (int e = 0; e < PIPELINE_LINKS; e++)
			if (slot->event[e])
				tuttiEventDestroy(slot->event[e]);
		train_part_close(t, slot);
		if (i > 0 && t->pipeline->schedule.ops->recurrent)
			continue; /* the first slot has the memory */
		train_activations_close(&t->model, &slot->activations);
		t->device.ops->free(&t->device, slot->x);
	}
	free(chunk->slot);
	free(chunk->slot_of);
}

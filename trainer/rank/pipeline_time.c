/*
 * pipeline_time.c - micro-batches that are parts of a sequence (pipeline_state.h)
 *
 * Activations are [rows][positions], so that gradients of weights are sums over whole samples. A part
 * is some positions of every row, and its messages are copied together in memory of its slot.
 * Called by pipeline_links.c, pipeline_slots.c and pipeline_compute.c.
 */
#include "trainer/rank/pipeline_state.h"

struct train_node train_part_positions(const struct train_rank *t, int micro)
{
	struct train_share share;

	if (!t->pipeline->schedule.ops->recurrent)
		return (struct train_node){ 0, 0 };
	share = train_share_of(t->data->positions, micro, t->pipeline->micro);
	return (struct train_node){ share.first, share.first + share.count };
}

struct train_node train_pipeline_rows_of(const struct train_rank *t, int micro)
{
	struct train_node all = train_leaves_rows(&t->leaves, t->sum.run);

	if (!t->pipeline->schedule.ops->recurrent)
		return train_pipeline_micro(t, micro);
	return (struct train_node){ 0, all.last - all.first };
}

int train_part_open(struct train_rank *t, int chunk, struct pipeline_slot *slot)
{
	const struct train_model *m = &t->model;
	size_t positions = t->data->positions, micro = (size_t)t->pipeline->micro;
	size_t vectors = t->pipeline->rows * ((positions + micro - 1) / micro);

	for (int i = 0; i < PIPELINE_LINKS; i++) {
		bool below = i == PIPELINE_INPUT || i == PIPELINE_DX;
		size_t width = below ? m->layer[m->chunk_first[chunk]].inputs
				     : m->layer[m->chunk_first[chunk + 1] - 1].outputs;

		if (chunk == (below ? 0 : m->chunks - 1))
			continue;
		slot->part[i] = t->device.ops->alloc(&t->device,
						     vectors * width / positions * sizeof(float));
		if (!slot->part[i])
			return train_fail(TRAIN_FAILED, "no memory for a part of %zu sequences",
					  t->pipeline->rows);
	}
	return TRAIN_OK;
}

void train_part_close(struct train_rank *t, struct pipeline_slot *slot)
{
	for (int i = 0; i < PIPELINE_LINKS; i++)
		t->device.ops->free(&t->device, slot->part[i]);
}

void train_part_copy(struct train_rank *t, struct pipeline_slot *slot, int micro,
		     enum pipeline_message message, float *data, size_t width)
{
	struct train_node part = train_part_positions(t, micro), rows;
	size_t each = width / t->data->positions, count = (part.last - part.first) * each;
	bool send = message == PIPELINE_OUTPUT || message == PIPELINE_DX;
	float *at = slot->part[message];

	rows = train_pipeline_rows_of(t, micro);
	data += part.first * each;
	for (size_t row = rows.first; row < rows.last; row++, data += width, at += count)
		t->device.ops->copy(&t->device, send ? at : data, send ? data : at,
				    count * sizeof(*data));
}

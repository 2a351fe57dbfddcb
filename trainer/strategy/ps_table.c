/* ps_table.c - the rows of a sparse table on a parameter server (ps_table.h) */
#include "trainer/strategy/ps_table.h"

#include <stdlib.h>
#include <string.h>

int train_ps_table_open(struct train_ps_table *p, struct train_rank *t, const struct train_ps *ps,
			int number)
{
	size_t nodes = ps->rule.sync ? t->leaves.count : 1, tail = ps->rule.sync ? TRAIN_TAIL : 0;

	*p = (struct train_ps_table){ .sparse = ps->sparse };
	if (!ps->sparse)
		return TRAIN_OK;
	p->rows = ps->shards.rows[number];
	p->width = train_sparse_width(t);
	p->rest = ps->shards.count[number] - p->rows * p->width + tail;
	p->merge = (struct train_row_merge){
		.leaves = &t->leaves, .on = t->comm_device, .rows = p->rows, .width = p->width
	};
	if (ps->rule.sync)
		p->capacity = nodes * (1 + p->rest) +
			      t->leaves.batch * t->data->positions * (1 + p->width);
	p->rest_at = calloc(nodes, sizeof(*p->rest_at));
	p->node = calloc(nodes, sizeof(*p->node));
	p->kept = malloc((p->capacity ? p->capacity : 1) * sizeof(*p->kept));
	p->moves = calloc(p->rows + 1, sizeof(*p->moves));
	p->changed = calloc(p->rows + 1, sizeof(*p->changed));
	p->zeros = calloc(p->width, sizeof(*p->zeros));
	if (!p->rest_at || !p->node || !p->kept || !p->moves || !p->changed || !p->zeros)
		return train_fail(TRAIN_FAILED, "no memory to serve %zu rows", p->rows);
	return train_row_merge_open(&p->merge, nodes);
}

void train_ps_table_close(struct train_ps_table *p)
{
	train_row_merge_close(&p->merge);
	free(p->rest_at);
	free(p->node);
	free(p->kept);
	free(p->moves);
	free(p->changed);
	free(p->zeros);
}

size_t train_ps_table_words(const struct train_ps_table *p)
{
	size_t all = 1 + p->rows * (1 + p->width) + p->rest;

	return all > p->capacity ? all : p->capacity;
}

static bool is_zero(const float *row, size_t width)
{
	for (size_t k = 0; k < width; k++)
		if (row[k] != 0.0f)
			return false;
	return true;
}

void train_ps_table_start(struct train_ps_table *p, const struct train_ps_store *store)
{
	for (size_t row = 0; row < p->rows && !store->adagrad; row++)
		p->moves[row] = !is_zero(store->state + row * p->width, p->width);
}

/* ---- pushes --------------------------------------------------------------------------------- */

bool train_ps_table_push(struct train_ps_table *p, const uint32_t *message, size_t words,
			 const struct train_node *node, size_t first, size_t n)
{
	const uint32_t *end = message + words;

	if (p->capacity && words > p->capacity - p->used)
		return false;
	if (p->capacity) {
		message = memcpy(p->kept + p->used, message, words * sizeof(*message));
		end = message + words;
		p->used += words;
	}
	for (size_t i = first; i < first + n; i++) {
		struct train_row_list *l = &p->merge.list[i];
		size_t read = train_row_list_open(l, message, (size_t)(end - message), p->rows,
						  p->width);

		message += read;
		if (!read || (size_t)(end - message) < p->rest)
			return false;
		l->node = p->node[i] = node[i - first];
		p->rest_at[i] = (void *)message; /* the copy, or the receiver's own memory */
		message += p->rest;
	}
	p->merge.n += n;
	return message == end;
}

void train_ps_table_drop(struct train_ps_table *p)
{
	p->merge.n = p->used = 0;
}

/* ---- the descent ---------------------------------------------------------------------------- */

/* gradient NULL: zeros */
static void descend_row(struct train_ps_table *p, struct train_ps_store *store, size_t row,
			const float *gradient, const float step[2], uint64_t version)
{
	size_t at = row * p->width;

	train_ps_store_descend(store, at, p->width, gradient ? gradient : p->zeros, step[0],
			       step[1]);
	p->moves[row] = !store->adagrad && !is_zero(store->state + at, p->width);
	if (gradient || p->moves[row])
		p->changed[row] = version;
}

const float *train_ps_table_descend(struct train_ps_table *p, struct train_ps_store *store,
				    float scale, float rate, uint64_t version)
{
	size_t nodes = p->merge.n, table = p->rows * p->width, row = 0, next;
	const float step[2] = { scale, rate }, *sum, *rest;

	train_leaves_fold(p->merge.leaves, p->merge.on, p->node, p->rest_at, &nodes, p->rest);
	rest = p->rest_at[0];
	do {
		sum = train_row_merge_next(&p->merge, &next);
		for (; row < next; row++)
			if (p->moves[row])
				descend_row(p, store, row, NULL, step, version);
		if (sum)
			descend_row(p, store, row++, sum, step, version);
	} while (sum);
	train_ps_store_descend(store, table, store->count - table, rest, scale, rate);
	train_ps_table_drop(p);
	return rest + (store->count - table);
}

/* ---- answers -------------------------------------------------------------------------------- */

bool train_ps_table_has(const struct train_ps_table *p, const uint32_t *row, size_t n)
{
	if (n > p->rows)
		return false;
	for (size_t i = 0; i < n; i++)
		if (row[i] >= p->rows || (i && row[i] <= row[i - 1]))
			return false;
	return true;
}

/* Packs the rows numbered by message[1..n], and the parameters behind the table. */
static size_t pack_rows(const struct train_ps_table *p, const struct train_ps_store *store,
			size_t n, uint32_t *message)
{
	size_t bytes = p->width * sizeof(float), table = p->rows * p->width;
	uint32_t *to = message + 1 + n;

	message[0] = (uint32_t)n;
	for (size_t i = 1; i <= n; i++, to += p->width)
		memcpy(to, store->parameters + message[i] * p->width, bytes);
	memcpy(to, store->parameters + table, (store->count - table) * sizeof(float));
	return (size_t)(to - message) + store->count - table;
}

size_t train_ps_table_pack(const struct train_ps_table *p, const struct train_ps_store *store,
			   const uint32_t *row, size_t n, uint32_t *message)
{
	if (n)
		memcpy(message + 1, row, n * sizeof(*row));
	return pack_rows(p, store, n, message);
}

size_t train_ps_table_pack_changes(const struct train_ps_table *p,
				   const struct train_ps_store *store, uint64_t since,
				   uint32_t *message)
{
	size_t n = 0;

	for (size_t row = 0; row < p->rows; row++)
		if (p->changed[row] > since)
			message[++n] = (uint32_t)row;
	return pack_rows(p, store, n, message);
}

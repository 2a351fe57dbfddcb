/* sparse_rows.c - the rows of a table that a batch touches (sparse_rows.h) */
#include "trainer/strategy/sparse_rows.h"

#include <stdlib.h>
#include <string.h>

size_t train_sparse_rows(const struct train_rank *t)
{
	const struct train_tensor *table = t->model.ntensors ? &t->model.tensors[0] : NULL;

	if (!table || !table->sparse || train_comm_on_device(t) ||
	    t->leaves.kind == TRAIN_CANONICAL_FIXED64)
		return 0;
	return table->rows > t->leaves.batch * t->data->positions ? table->rows : 0;
}

size_t train_sparse_width(const struct train_rank *t)
{
	return t->model.tensors[0].columns;
}

/* The characters of a sample choose rows as device_host_sequence.c says. */
static size_t rows_of_sample(const struct train_embedding *e, const uint8_t *text, uint32_t *row)
{
	for (size_t i = 0; i < e->length; i++) {
		uint64_t hash = 0;

		for (size_t back = 0; back < e->grams && back <= i; back++)
			hash = train_embedding_hash(hash, text[i - back]);
		row[i] = e->grams == 1 ? text[i] : (uint32_t)train_embedding_row(e, hash);
	}
	return e->length;
}

size_t train_touched_rows(const struct train_rank *t, const struct train_batch *batch,
			  uint32_t *row)
{
	const struct train_embedding *e = &t->model.layer[0].embedding;
	const uint8_t *text = train_training_set(t)->images;
	size_t n = 0;

	for (size_t i = 0; i < batch->rows; i++)
		n += rows_of_sample(e, text + batch->samples[i] * t->data->pixels, row + n);
	return train_rows_sort(row, n);
}

bool train_row_is_zero(const float *row, size_t width)
{
	for (size_t k = 0; k < width; k++) {
		uint32_t bits;

		memcpy(&bits, row + k, sizeof(bits));
		if (bits)
			return false;
	}
	return true;
}

size_t train_rows_pack(const float *table, size_t rows, size_t width, uint32_t *message)
{
	uint32_t n = 0, *to;

	for (size_t row = 0; row < rows; row++)
		if (!train_row_is_zero(table + row * width, width) && ++n && message)
			message[n] = (uint32_t)row;
	if (!message)
		return 1 + n * (1 + width);
	message[0] = n;
	to = message + 1 + n;
	for (uint32_t i = 1; i <= n; i++, to += width)
		memmove(to, table + message[i] * width, width * sizeof(*to));
	return (size_t)(to - message);
}

size_t train_row_list_open(struct train_row_list *l, const uint32_t *message, size_t words,
			   size_t rows, size_t width)
{
	uint32_t n = words ? message[0] : 0;

	if (!words || n > rows || n * (1 + width) > words - 1)
		return 0;
	*l = (struct train_row_list){ .n = n,
				      .row = message + 1,
				      .value = (const float *)(message + 1 + n) };
	for (uint32_t i = 0; i < n; i++)
		if (l->row[i] >= rows || (i && l->row[i] <= l->row[i - 1]))
			return 0;
	return 1 + n * (1 + width);
}

/* ---- the sum over packed nodes ------------------------------------------------------------------ */

int train_row_merge_open(struct train_row_merge *m, size_t capacity)
{
	m->list = calloc(capacity, sizeof(*m->list));
	m->node = calloc(capacity, sizeof(*m->node));
	m->sum = calloc(capacity, sizeof(*m->sum));
	m->scratch = malloc(capacity * m->width * sizeof(*m->scratch));
	if (m->list && m->node && m->sum && m->scratch)
		return TRAIN_OK;
	return train_fail(TRAIN_FAILED, "no memory for the rows of %zu gradients", capacity);
}

void train_row_merge_close(struct train_row_merge *m)
{
	free(m->list);
	free(m->node);
	free(m->sum);
	free(m->scratch);
	*m = (struct train_row_merge){ 0 };
}

/* The lowest row that a list has next; `rows`: none has one. */
static size_t next_row(const struct train_row_merge *m)
{
	size_t least = m->rows;

	for (size_t i = 0; i < m->n; i++)
		if (m->list[i].n && *m->list[i].row < least)
			least = *m->list[i].row;
	return least;
}

/* Puts a row of all lists into scratch, 0 where a list has none. */
static void take_row(struct train_row_merge *m, size_t row)
{
	for (size_t i = 0; i < m->n; i++) {
		struct train_row_list *l = &m->list[i];
		float *to = m->scratch + i * m->width;

		m->node[i] = l->node;
		m->sum[i] = to;
		if (!l->n || *l->row != row) {
			memset(to, 0, m->width * sizeof(*to));
			continue;
		}
		memcpy(to, l->value, m->width * sizeof(*to));
		l->value += m->width;
		l->row++;
		l->n--;
	}
}

const float *train_row_merge_next(struct train_row_merge *m, size_t *ret_row)
{
	size_t nodes = m->n, row = next_row(m);

	*ret_row = row;
	if (row == m->rows)
		return NULL;
	take_row(m, row);
	train_leaves_fold(m->leaves, m->on, m->node, m->sum, &nodes, m->width);
	return m->sum[0];
}

/* ---- the sum over all workers ------------------------------------------------------------------ */

int train_row_sums_open(struct train_rank *t, struct train_row_sums *s)
{
	size_t vectors = t->leaves.batch * t->data->positions, nodes = t->leaves.count;
	size_t ranks = (size_t)t->nranks, rows = train_sparse_rows(t);

	*s = (struct train_row_sums){ 0 };
	if (!rows)
		return TRAIN_OK;
	s->merge = (struct train_row_merge){
		.leaves = &t->leaves,
		.on = t->comm_device,
		.rows = rows - rows % ranks, /* buckets are multiples of the ranks */
		.width = train_sparse_width(t),
	};
	s->dense_at = s->merge.rows * s->merge.width;
	if (t->model.touched)
		s->merge.rows = rows;
	s->capacity = nodes + vectors * (1 + s->merge.width);
	s->received = malloc(s->capacity * sizeof(*s->received));
	s->words = calloc(2 * ranks, sizeof(*s->words));
	if (!s->received || !s->words)
		return train_fail(TRAIN_FAILED, "no memory for the rows of %zu characters",
				  vectors);
	s->at = s->words + ranks;
	return train_row_merge_open(&s->merge, nodes);
}

void train_row_sums_close(struct train_row_sums *s)
{
	free(s->received);
	free(s->words);
	train_row_merge_close(&s->merge);
	*s = (struct train_row_sums){ 0 };
}

/* Packs a node of this worker. Returns the number of words. */
static size_t pack_node(const struct train_rank *t, const struct train_row_merge *m,
			const float *node, uint32_t *message)
{
	const uint32_t *touched = t->model.touched;
	size_t words = train_rows_pack(node, touched ? t->model.ntouched : m->rows, m->width,
				       message);

	for (uint32_t i = 1; touched && i <= message[0]; i++)
		message[i] = touched[message[i]];
	return words;
}

/* Allgathers the packed nodes of all workers. */
static int gather(struct train_rank *t, struct train_row_sums *s)
{
	size_t words = 0, all = 0;
	uint32_t *own;
	int rc;

	for (size_t i = 0; i < t->sum.nodes; i++)
		words += pack_node(t, &s->merge, t->comm_buffer + i * t->sum.stride,
				   s->received + words);
	rc = train_check(tuttiAllGather(&words, s->words, 1, tuttiUint64, t->comm, NULL), t->comm);
	for (int r = 0; r < t->nranks && !rc; r++) {
		s->at[r] = all;
		all += s->words[r];
	}
	if (!rc && all > s->capacity)
		rc = train_fail(TRAIN_FAILED,
				"%zu words of touched rows, and a batch has at most %zu", all,
				s->capacity);
	if (rc)
		return rc;
	own = s->received + s->at[t->rank];
	memmove(own, s->received, words * sizeof(*own));
	return train_check(tuttiAllGatherv(own, words, s->received, s->words, s->at, tuttiUint32,
					   t->comm, NULL),
			   t->comm);
}

/* A list for each node of all workers. */
static int read_lists(struct train_rank *t, struct train_row_sums *s)
{
	struct train_row_merge *m = &s->merge;

	m->n = 0;
	for (int r = 0; r < t->nranks; r++) {
		size_t first = m->n, at = s->at[r], end = at + s->words[r], read;

		m->n += train_leaves_nodes(&t->leaves, train_leaves_share(&t->leaves, r, t->nranks),
					   m->node + first);
		for (size_t i = first; i < m->n; i++, at += read) {
			read = train_row_list_open(&m->list[i], s->received + at, end - at, m->rows,
						   m->width);
			if (!read)
				return train_fail(TRAIN_FAILED,
						  "the touched rows of rank %d are damaged", r);
			m->list[i].node = m->node[i];
		}
	}
	return TRAIN_OK;
}

int train_row_sums_make(struct train_rank *t, struct train_row_sums *s)
{
	size_t width = s->merge.width, n = 0, row;
	uint32_t *touched = t->model.touched;
	const float *sum;
	int rc = gather(t, s);

	if (!rc)
		rc = read_lists(t, s);
	for (; !rc && (sum = train_row_merge_next(&s->merge, &row)); n++) {
		memcpy(t->comm_buffer + (touched ? n : row) * width, sum, width * sizeof(*sum));
		if (touched)
			touched[n] = (uint32_t)row;
	}
	if (touched)
		t->model.ntouched = n;
	return rc;
}

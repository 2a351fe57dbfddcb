/* sparse_rows.c - gradients of a table as the rows that a batch touches (sparse_rows.h) */
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

static bool is_zero(const float *row, size_t width)
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
		if (!is_zero(table + row * width, width) && ++n && message)
			message[n] = (uint32_t)row;
	if (!message)
		return 1 + n * (1 + width);
	message[0] = n;
	to = message + 1 + n;
	for (uint32_t i = 1; i <= n; i++, to += width)
		memmove(to, table + message[i] * width, width * sizeof(*to));
	return (size_t)(to - message);
}

/* A packed node while its rows are read. */
struct train_row_list {
	struct train_node node;
	uint32_t n;
	const uint32_t *row; /* numbers of the rows that follow */
	const uint32_t *value;
};

/* Returns the words of the list; 0: they are not one of such a table. */
static size_t open_list(struct train_row_list *l, const uint32_t *message, size_t words,
			size_t rows, size_t width)
{
	uint32_t n = words ? message[0] : 0;

	if (!words || n > rows || n * (1 + width) > words - 1)
		return 0;
	*l = (struct train_row_list){ .n = n, .row = message + 1, .value = message + 1 + n };
	for (uint32_t i = 0; i < n; i++)
		if (l->row[i] >= rows || (i && l->row[i] <= l->row[i - 1]))
			return 0;
	return 1 + n * (1 + width);
}

size_t train_rows_unpack(const uint32_t *message, size_t words, size_t rows, size_t width,
			 float *table)
{
	struct train_row_list l;
	size_t read = open_list(&l, message, words, rows, width);

	if (!read)
		return 0;
	memset(table, 0, rows * width * sizeof(*table));
	for (uint32_t i = 0; i < l.n; i++)
		memcpy(table + l.row[i] * width, l.value + i * width, width * sizeof(*table));
	return read;
}

/* ---- the sum over all workers ------------------------------------------------------------------ */

int train_row_sums_open(struct train_rank *t, struct train_row_sums *s)
{
	size_t vectors = t->leaves.batch * t->data->positions, nodes = t->leaves.count;
	size_t ranks = (size_t)t->nranks;

	*s = (struct train_row_sums){ .rows = train_sparse_rows(t) };
	if (!s->rows)
		return TRAIN_OK;
	s->rows -= s->rows % ranks; /* buckets are multiples of the ranks */
	s->width = train_sparse_width(t);
	s->capacity = nodes + vectors * (1 + s->width);
	s->received = malloc(s->capacity * sizeof(*s->received));
	s->words = calloc(2 * ranks, sizeof(*s->words));
	s->list = calloc(nodes, sizeof(*s->list));
	s->node = calloc(nodes, sizeof(*s->node));
	s->sum = calloc(nodes, sizeof(*s->sum));
	s->scratch = malloc(nodes * s->width * sizeof(*s->scratch));
	if (!s->received || !s->words || !s->list || !s->node || !s->sum || !s->scratch)
		return train_fail(TRAIN_FAILED, "no memory for the rows of %zu characters",
				  vectors);
	s->at = s->words + ranks;
	return TRAIN_OK;
}

void train_row_sums_close(struct train_row_sums *s)
{
	free(s->received);
	free(s->words);
	free(s->list);
	free(s->node);
	free(s->sum);
	free(s->scratch);
	*s = (struct train_row_sums){ 0 };
}

/* Allgathers the packed nodes of all workers. */
static int gather(struct train_rank *t, struct train_row_sums *s)
{
	size_t words = 0, all = 0;
	uint32_t *own;
	int rc;

	for (size_t i = 0; i < t->sum.nodes; i++)
		words += train_rows_pack(t->comm_buffer + i * t->sum.stride, s->rows, s->width,
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
static int read_lists(struct train_rank *t, struct train_row_sums *s, size_t *ret_nodes)
{
	size_t nodes = 0;

	for (int r = 0; r < t->nranks; r++) {
		size_t first = nodes, at = s->at[r], end = at + s->words[r], read;

		nodes += train_leaves_nodes(&t->leaves,
					    train_leaves_share(&t->leaves, r, t->nranks),
					    s->node + nodes);
		for (size_t i = first; i < nodes; i++, at += read) {
			read = open_list(&s->list[i], s->received + at, end - at, s->rows,
					 s->width);
			if (!read)
				return train_fail(TRAIN_FAILED,
						  "the touched rows of rank %d are damaged", r);
			s->list[i].node = s->node[i];
		}
	}
	*ret_nodes = nodes;
	return TRAIN_OK;
}

/* The lowest row that a list has next; `rows`: none has one. */
static size_t next_row(const struct train_row_sums *s, size_t nodes)
{
	size_t least = s->rows;

	for (size_t i = 0; i < nodes; i++)
		if (s->list[i].n && *s->list[i].row < least)
			least = *s->list[i].row;
	return least;
}

/* Puts a row of all nodes into scratch, 0 where a node has none. */
static void take_row(struct train_row_sums *s, size_t nodes, size_t row)
{
	for (size_t i = 0; i < nodes; i++) {
		struct train_row_list *l = &s->list[i];
		float *to = s->scratch + i * s->width;

		s->node[i] = l->node;
		s->sum[i] = to;
		if (!l->n || *l->row != row) {
			memset(to, 0, s->width * sizeof(*to));
			continue;
		}
		memcpy(to, l->value, s->width * sizeof(*to));
		l->value += s->width;
		l->row++;
		l->n--;
	}
}

int train_row_sums_make(struct train_rank *t, struct train_row_sums *s)
{
	size_t nodes = 0, row;
	int rc = gather(t, s);

	if (!rc)
		rc = read_lists(t, s, &nodes);
	if (rc)
		return rc;
	while ((row = next_row(s, nodes)) < s->rows) {
		size_t n = nodes;

		take_row(s, nodes, row);
		train_leaves_fold(&t->leaves, t->comm_device, s->node, s->sum, &n, s->width);
		memcpy(t->comm_buffer + row * s->width, s->sum[0], s->width * sizeof(float));
	}
	return TRAIN_OK;
}

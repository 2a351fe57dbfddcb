/*
 * sparse_rows.h - a table of which a batch touches few rows: these rows in messages, and their sums
 *
 * A model whose first tensor is sparse has a gradient of 0 in all other rows of it. A node is packed
 * as 32-bit words: the number of its rows, their numbers in ascending order, then the rows. Called by
 * bucket_sums.c, ps_worker.c and ps_table.c; calls leaves.c and the library.
 */
#ifndef TRAIN_SPARSE_ROWS_H
#define TRAIN_SPARSE_ROWS_H

#include "trainer/base/row_set.h"
#include "trainer/rank/rank.h"

/* The rows of the first tensor if they are sent one by one; 0: gradients are sent as the whole, since
 * it is not sparse, a batch may touch all rows, or the host cannot read them. */
size_t train_sparse_rows(const struct train_rank *t);
/* Floats of a row. */
size_t train_sparse_width(const struct train_rank *t);

/* The rows that a batch touches, ascending: row has place for one of each character of the batch.
 * Returns their number. */
size_t train_touched_rows(const struct train_rank *t, const struct train_batch *batch,
			  uint32_t *row);

/* True if all floats of a row are 0, without sign. */
bool train_row_is_zero(const float *row, size_t width);

/* Packs the rows that are not 0. message has place for 1 + rows * (1 + width) words, of which the last may
 * be the table itself, or is NULL. Returns the number of words. */
size_t train_rows_pack(const float *table, size_t rows, size_t width, uint32_t *message);

/* A packed node while its rows are read. */
struct train_row_list {
	struct train_node node;
	uint32_t n;
	const uint32_t *row; /* numbers of the rows that follow */
	const float *value;
};

/* Returns the words of the list; 0: they are not one of such a table. list->node is not set. */
size_t train_row_list_open(struct train_row_list *list, const uint32_t *message, size_t words,
			   size_t rows, size_t width);

/* ---- the sum over packed nodes ------------------------------------------------------------------ */

struct train_row_merge {
	const struct train_leaves *leaves;
	struct train_device *on; /* memory of the host */
	size_t rows, width;      /* of the table */
	size_t n;                /* lists, in the order of their nodes */
	struct train_row_list *list;
	struct train_node *node; /* list, node, sum: [capacity] */
	void **sum;
	float *scratch; /* a row of each list */
};

/* Allocates for `capacity` lists. Returns 0 | TRAIN_FAILED; close it in any case. */
int train_row_merge_open(struct train_row_merge *m, size_t capacity);
void train_row_merge_close(struct train_row_merge *m);

/* The lowest row that a list still has, and its sum over all lists in the order of leaves, valid until
 * the next call; *ret_row is m->rows and the result NULL if no list has one. */
const float *train_row_merge_next(struct train_row_merge *m, size_t *ret_row);

/* ---- the sum over all workers ------------------------------------------------------------------ */

struct train_row_sums {
	uint32_t *received;           /* packed nodes of all workers */
	size_t *words, *at;           /* [workers], in received */
	size_t capacity;              /* words of received */
	size_t dense_at;              /* the floats of a node from here on are summed otherwise */
	struct train_row_merge merge; /* rows 0: there is no table */
};

/* Allocates for the current t->leaves. Returns 0 | TRAIN_FAILED (no memory); close it in any case. */
int train_row_sums_open(struct train_rank *t, struct train_row_sums *s);
void train_row_sums_close(struct train_row_sums *s);

/* The first merge.rows rows of comm_buffer's first node = the sums over all workers, in the order of
 * --canonical or of ranks: an allgather of packed nodes. Where a gradient has touched rows only, the model's touched and
 * the rows are those of all workers. Returns 0 | TRAIN_FAILED. */
int train_row_sums_make(struct train_rank *t, struct train_row_sums *s);

#endif

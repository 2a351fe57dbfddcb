/*
 * sparse_rows.h - gradients of a table, sent as the rows that a batch touches
 *
 * A model whose first tensor is sparse has a gradient of 0 in all other rows of it. A node is packed
 * as 32-bit words: the number of its rows, their numbers in ascending order, then the rows. Called by
 * bucket_sums.c, ps_worker.c and ps_server.c; calls leaves.c and the library.
 */
#ifndef TRAIN_SPARSE_ROWS_H
#define TRAIN_SPARSE_ROWS_H

#include "trainer/rank/rank.h"

/* The rows of the first tensor if they are sent one by one; 0: gradients are sent as the whole, since
 * it is not sparse, a batch may touch all rows, or the host cannot read them. */
size_t train_sparse_rows(const struct train_rank *t);
/* Floats of a row. */
size_t train_sparse_width(const struct train_rank *t);

/* Packs the rows that are not 0. message has place for 1 + rows * (1 + width) words, of which the last may
 * be the table itself, or is NULL. Returns the number of words. */
size_t train_rows_pack(const float *table, size_t rows, size_t width, uint32_t *message);

/* Unpacks them into a table, whose other rows become 0. Returns the number of words that it read; 0: the
 * message is not one of such a table. */
size_t train_rows_unpack(const uint32_t *message, size_t words, size_t rows, size_t width,
			 float *table);

/* ---- the sum over all workers ------------------------------------------------------------------ */

struct train_row_sums {
	size_t rows, width; /* of the table; rows 0: there is none */
	uint32_t *received; /* packed nodes of all workers */
	size_t *words, *at; /* [workers], in received */
	size_t capacity;    /* words of received */
	struct train_row_list *list;
	struct train_node *node; /* [leaves.count]: a list for each node of all workers */
	void **sum;
	float *scratch; /* a row of each node */
};

/* Allocates for the current t->leaves. Returns 0 | TRAIN_FAILED (no memory); close it in any case. */
int train_row_sums_open(struct train_rank *t, struct train_row_sums *s);
void train_row_sums_close(struct train_row_sums *s);

/* The first `rows` rows of comm_buffer's first node = the sums over all workers, in the order of
 * --canonical or of ranks: an allgather of packed nodes. Returns 0 | TRAIN_FAILED. */
int train_row_sums_make(struct train_rank *t, struct train_row_sums *s);

#endif

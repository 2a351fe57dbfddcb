/* row_set.h - the rows of a table that some vectors choose, as a set. Called by layer_embed.c, sparse_rows.c and strategies. */
#ifndef TRAIN_ROW_SET_H
#define TRAIN_ROW_SET_H

#include <stddef.h>
#include <stdint.h>

/* Sorts row[n] and removes duplicates. Returns the number of rows left. */
size_t train_rows_sort(uint32_t *row, size_t n);
/* The index of `number`, one of the sorted row[n]. */
size_t train_rows_find(const uint32_t *row, size_t n, uint32_t number);

#endif

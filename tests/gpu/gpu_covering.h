/* gpu_covering.h - pairwise coverage: few rows that contain every pair of factor values; gpu_pairs.c
 * runs an allreduce per row */
#ifndef TESTS_GPU_COVERING_H
#define TESTS_GPU_COVERING_H

#include <stdbool.h>

enum factor { TYPE, OP, ALGORITHM, RANKS, SIZE, IN_PLACE, PROCESSES, FACTORS };
#define MOST_VALUES 24
#define MOST_ROWS 600

/* values: number of values of each factor. may: can one row contain both values? */
struct covering {
	int values[FACTORS];
	bool (*may)(enum factor f, int v, enum factor g, int w);
	int nrows, row[MOST_ROWS][FACTORS];
	bool covered[FACTORS][MOST_VALUES][FACTORS][MOST_VALUES];
};

/* Fills the rows, the same in every rank. Returns the number of possible pairs that no row covers. */
int covering_make(struct covering *c);

#endif

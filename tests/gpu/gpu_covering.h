/* gpu_covering.h - few allreduces in which every pair of properties occurs;
 * gpu_pairs.c makes them */
#ifndef TESTS_GPU_COVERING_H
#define TESTS_GPU_COVERING_H

#include <stdbool.h>

enum factor { TYPE, OP, ALGORITHM, RANKS, SIZE, PLACE, WAY, FACTORS };
#define MOST_VALUES 24
#define MOST_ROWS 600

/* values: of each factor. may: can these two be in one row? */
struct covering {
	int values[FACTORS];
	bool (*may)(enum factor f, int v, enum factor g, int w);
	int nrows, row[MOST_ROWS][FACTORS];
	bool covered[FACTORS][MOST_VALUES][FACTORS][MOST_VALUES];
};

/* Fills the rows; the same ones whoever asks. Pairs that are in none and could be: */
int covering_make(struct covering *c);

#endif

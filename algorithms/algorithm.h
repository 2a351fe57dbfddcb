/*
 * algorithm.h - one row of the table of algorithms; adding one is a file and a line in algorithms.c
 */
#ifndef TT_ALGORITHM_H
#define TT_ALGORITHM_H

#include "plan/builder.h"

struct tt_algorithm {
	enum tt_collective collective;
	const char *name;                /* as --algo takes it */
	const char *help;                /* one line: when it is good */
	const char *source;              /* author, year, title */
	/* Can it be built for this shape? Returns NULL, or the reason why not as a sentence. NULL member: always. */
	const char *(*refuses)(const struct tt_shape *shape);
	/* Append this rank's steps. argument is what stood behind "name:" ("" if nothing). Errors are sticky in b. */
	void (*build)(struct tt_builder *b, const char *argument);
};

extern const struct tt_algorithm *const tt_algorithms[];       /* NULL-terminated; the index is the wire number */

/* The row for (collective, "name" or "name:argument"), or NULL with the known names in the error text. */
const struct tt_algorithm *tt_algorithm_find(enum tt_collective collective, const char *name);

#endif

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
	const char *argument;            /* for "name" alone, of "name:..."; NULL: it takes none */
	const char *form;                /* what else may stand there, in words: "INNER/OUTER" */
	/* other arguments that auto tries on several hosts, with blanks between; NULL: none */
	const char *variants;
	bool in_place;                   /* may be run by reading peers' buffers (local/single_copy.c) */
	/* Is this an argument of it? NULL member: only what `argument` says. */
	bool (*takes)(const char *argument);
	/* Calls tt_fail with the part of the argument that is wrong. NULL member: there is no more
	 * to say than `form`. */
	void (*explain)(const char *argument);
	/* Can it be built for this shape? Returns NULL, or the reason why not as a sentence. NULL
	 * member: always. */
	const char *(*refuses)(const struct tt_shape *shape);
	/* Into how many blocks the buffer is cut (EVEN), and how many lanes are used. NULL member:
	 * one and one. The same on all ranks: looks at everything in the shape but the rank. */
	struct tt_cut (*cut)(const struct tt_shape *shape, const char *argument);
	/* Append this rank's steps. argument is what stood behind "name:" ("" if nothing). Errors
	 * are sticky in b. */
	void (*build)(struct tt_builder *b, const char *argument);
};

/* NULL-terminated; the index is the wire number */
extern const struct tt_algorithm *const tt_algorithms[];

/* The row for (collective, "name" or "name:argument"), or NULL: the error text has what is wrong
 * and what there is. */
const struct tt_algorithm *tt_algorithm_find(enum tt_collective collective, const char *name);
/* The same without a word, for asking only. */
const struct tt_algorithm *tt_algorithm_look(enum tt_collective collective, const char *name);
/* ", ring, tree": the names of a collective, of all for TT_COLLECTIVES;
 * none twice. Returns text. */
const char *tt_algorithm_names(enum tt_collective collective, char text[512]);
/* The argument in "name" or "name:argument": points into name, or at the default. 0 | TT_ARG: the
 * row takes no such. */
int tt_algorithm_argument(const struct tt_algorithm *algorithm, const char *name,
			  const char **ret_argument);
/* "name:argument", or "name" where there is no argument: so one algorithm has one name. */
void tt_algorithm_full_name(const struct tt_algorithm *algorithm, const char *argument,
			    char ret_name[64]);

#endif

/*
 * algorithm.h - one entry of the table of algorithms
 *
 * Each file of algorithms/ defines one or more entries; algorithms/algorithms.c collects them in a
 * table (algorithms/algorithms.h). plan.c builds plans from an entry. A new algorithm is a file and
 * a line in algorithms.c.
 */
#ifndef TT_ALGORITHM_H
#define TT_ALGORITHM_H

#include "plan/builder.h"

/* Renaming of ranks that maps the plans of an algorithm onto each other, with their blocks:
 * ROTATION r -> r + k mod n, EXCHANGE r -> r ^ k. NEARLY: some ranks cut messages or order operands
 * differently, but all send and reduce the same bytes. */
struct tt_symmetry {
	enum { TT_ASYMMETRIC, TT_ROTATION, TT_EXCHANGE } kind;
	bool nearly;
};

struct tt_algorithm {
	enum tt_collective collective;
	const char *name;     /* as --algo takes it */
	const char *help;     /* one line: suitable sizes and numbers of ranks */
	const char *source;   /* author, year, title */
	const char *argument; /* default argument of "name:argument"; NULL: takes none */
	const char *form;     /* form of other arguments, for messages: "INNER/OUTER" */
	/* further arguments that auto tries on several hosts, separated by blanks; NULL: none */
	const char *variants;
	bool in_place; /* can run by single copy (local/single_copy.c) */
	/* can run by shared-memory slots (local/express.c): every rank takes the inputs of all
	 * ranks, or its parts of them, in one step; sums are in rank order */
	bool slots;
	/* takes - is the argument valid? NULL: only the default argument. */
	bool (*takes)(const char *argument);
	/* explain - report the wrong part of an argument by tt_fail. NULL: the error names form. */
	void (*explain)(const char *argument);
	/* refuses - NULL if a plan can be built for the shape, else the reason as a sentence.
	 * NULL: every shape is allowed. */
	const char *(*refuses)(const struct tt_shape *shape);
	/* cut - number of blocks of the buffer (EVEN) and number of lanes. Equal on all ranks: does
	 * not depend on shape->rank. NULL: one block, one lane. */
	struct tt_cut (*cut)(const struct tt_shape *shape, const char *argument);
	/* symmetry - of the ranks; of the hosts, if the algorithm treats hosts alike and there are
	 * several with several ranks each. NULL: TT_ASYMMETRIC. */
	struct tt_symmetry (*symmetry)(const struct tt_shape *shape, const char *argument);
	/* build - append this rank's steps. argument: the text behind "name:", "" if none. Errors
	 * stick in b. Never NULL. */
	void (*build)(struct tt_builder *b, const char *argument);
};

/* Is this the algorithm of "name" or "name:argument", whatever the argument? */
bool tt_algorithm_is_named(const struct tt_algorithm *algorithm, const char *name);
/* Is the argument of "name:argument" valid? True without an argument. Sets no error text. */
bool tt_algorithm_accepts(const struct tt_algorithm *algorithm, const char *name);
/* The argument of "name" or "name:argument": points into name, or at the default. 0 | TT_ARG: the
 * algorithm has another name or takes no such argument (error text set). */
int tt_algorithm_argument(const struct tt_algorithm *algorithm, const char *name,
			  const char **ret_argument);
/* "name:argument", or "name" if the argument is empty: the unique name of a plan. */
void tt_algorithm_full_name(const struct tt_algorithm *algorithm, const char *argument,
			    char ret_name[64]);

#endif

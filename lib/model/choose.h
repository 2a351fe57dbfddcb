/*
 * choose.h - the one place that decides which algorithm a call uses
 *
 * Called by run (plan_cache.c), by tuttiCommDescribe through it,
 * and by the tools, which also print the candidates.
 */
#ifndef TT_CHOOSE_H
#define TT_CHOOSE_H

#include "model/simulate.h"

/* Facts about a call that all its ranks agree on. The topology stands in the shape. */
struct tt_call_facts {
	size_t bytes;                    /* of the larger buffer */
	bool over_tcp;                   /* tcp or verbs was asked for, also inside hosts */
	bool nic_only;                  /* verbs was asked for: there is no tcp */
	uint8_t card;                    /* class of the cards between all hosts, 0 none */
	int cores;                       /* of the host that has fewest for its ranks; 0: enough */
	size_t message_bytes;            /* 0: as run chooses */
	const struct tt_cost *cost;      /* NULL: the built-in table */
};

/* Sizes of a class are served alike: those above half of its largest, up to it. */
enum { TT_SIZE_CLASSES = 65 };
int tt_size_class(size_t bytes);

struct tt_candidate {
	const struct tt_algorithm *algorithm;
	char name[64];                   /* its full name */
	int number;                      /* for tt_candidate_number */
	uint8_t card;                    /* by which it goes between hosts; 0: tcp */
	bool applies;                    /* can be built for the shape */
	bool extrapolated;               /* from the same on fewer ranks */
	bool in_place;                   /* peers can read buffers where they lie (local/single_copy.c) */
	/* of the largest size of the class, corrected by what was measured */
	uint64_t predicted_ps;
	/* by which the choice is made: less than predicted where in_place, see choose.c */
	uint64_t counts_ps;
	uint64_t model_ps;      /* what the model says alone, and what it is made of: */
	uint64_t part_ps[TT_PARTS];
};
enum { TT_MOST_CANDIDATES = 64 };

/* Candidate number i of a collective: its algorithm and name; false: there are no more. */
bool tt_candidate_number(enum tt_collective collective, int i, struct tt_candidate *ret_candidate);

/* Predict all candidates of a call, each for tcp and for cards; *ret_best is the place of the one
 * to take. Returns how many there are | < 0. */
int tt_plan_candidates(const struct tt_shape *shape, const struct tt_call_facts *facts,
		       struct tt_candidate list[TT_MOST_CANDIDATES], int *ret_best);

/* The same for an algorithm that was named: the class of the cards that are to carry it, 0 tcp |
 * < 0. What does not apply goes by tcp. */
int tt_plan_nic(const struct tt_shape *shape, const struct tt_call_facts *facts,
		 const struct tt_algorithm *algorithm, const char name[64]);

/* name: "auto" or an algorithm. The row, and the full name to build it by. */
int tt_plan_choose(const char *name, const struct tt_shape *shape,
		   const struct tt_call_facts *facts, const struct tt_algorithm **ret_algorithm,
		   char ret_name[64]);
/* Is this name left to tt_plan_choose's own choice for that collective? 1 | 0 | TT_ARG: it is no
 * name at all. */
int tt_plan_is_free(const char *name, enum tt_collective collective);

#endif

/*
 * choose.h - choice of the algorithm for a call
 *
 * Called by run (plan_cache.c), by tuttiCommDescribe through run, and by the tools, which also
 * print the candidates. All functions: any thread, no blocking.
 */
#ifndef TT_CHOOSE_H
#define TT_CHOOSE_H

#include "model/simulate.h"

/* Facts about a call, agreed on by all its ranks. The topology is in the shape. */
struct tt_call_facts {
	size_t bytes;               /* of the larger buffer */
	bool over_tcp;              /* tcp or verbs was asked for, also inside hosts */
	bool nic_only;              /* verbs was asked for: no tcp path */
	uint8_t nic_class;          /* link class of the NICs of all hosts; 0: none */
	int cores;                  /* of the host with the fewest for its ranks; 0: enough */
	bool readers_own;           /* as in tt_connectivity */
	size_t message_bytes;       /* 0: as run chooses */
	const struct tt_cost *cost; /* NULL: the built-in table */
};

/* Size class k covers sizes above 2^(k-1) up to 2^k bytes; one choice serves the whole class. */
enum { TT_SIZE_CLASSES = 65 };
int tt_size_class(size_t bytes);

struct tt_candidate {
	const struct tt_algorithm *algorithm;
	char name[64];     /* full name */
	int number;        /* argument of tt_candidate_number */
	uint8_t nic_class; /* link class used between hosts; 0: tcp */
	bool applies;      /* a plan can be built for the shape */
	bool extrapolated; /* predicted from smaller groups of ranks */
	bool overlaps;     /* with further calls of the same kind */
	bool in_place;     /* single copy is possible (local/single_copy.c) */
	/* predicted time of the largest size of the class, corrected by measured factors */
	uint64_t predicted_ps;
	/* time that candidates are compared by: below predicted_ps if in_place, or if calls overlap; above it if the
	 * first call has to connect many ranks, see choose.c */
	uint64_t counts_ps;
	uint64_t busiest_ps; /* work of the rank that works longest, corrected; 0: not known */
	uint64_t links;      /* that a core makes, counted above 16 ranks only */
	uint64_t model_ps;   /* uncorrected prediction of the model, and its parts: */
	uint64_t part_ps[TT_PARTS];
};
enum { TT_MOST_CANDIDATES = 64 };

/* Candidate i of a collective: sets algorithm and name. false: i is past the last. */
bool tt_candidate_number(enum tt_collective collective, int i, struct tt_candidate *ret_candidate);

/* Predict all candidates of a call, each for tcp and for NICs; *ret_best: index of the quickest.
 * Returns the number of candidates | < 0: TT_SYSTEM, TT_INTERNAL (none applies). */
int tt_plan_candidates(const struct tt_shape *shape, const struct tt_call_facts *facts,
		       struct tt_candidate list[TT_MOST_CANDIDATES], int *ret_best);

/* Link class between hosts for an algorithm chosen by name: a class of NICs | 0 tcp, also if the
 * algorithm does not apply | < 0. */
int tt_plan_nic(const struct tt_shape *shape, const struct tt_call_facts *facts,
		const struct tt_algorithm *algorithm, const char name[64]);

/* Algorithm and full name for "auto" or the name of an algorithm. 0 | TT_ARG | < 0 */
int tt_plan_choose(const char *name, const struct tt_shape *shape,
		   const struct tt_call_facts *facts, const struct tt_algorithm **ret_algorithm,
		   char ret_name[64]);
/* Does this name leave the choice for that collective to tt_plan_choose? 1 | 0 | TT_ARG: unknown
 * name. */
int tt_plan_is_auto(const char *name, enum tt_collective collective);

#endif

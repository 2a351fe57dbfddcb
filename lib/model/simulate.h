/*
 * simulate.h - how long would a call take: the very plans that
 * run carries out, walked over a table of costs
 *
 * A discrete-event simulation: every rank walks the cursors of its lanes over tiles as lib/run
 * does, and each message of a step costs what the table says, on its core, its link and its host's
 * network. Called by choose.c and the tools.
 */
#ifndef TT_SIMULATE_H
#define TT_SIMULATE_H

#include "plan/bind.h"
#include "model/cost.h"

/* The ranks and what they run on. Valid until tt_sim_close. */
struct tt_sim_world {
	int nranks;
	const struct tt_topology *topology;      /* NULL: one host */
	struct tt_placement_facts paths;
	size_t message_bytes;
	int cores;                               /* of each host; 0: one for every rank */
	const struct tt_cost *cost;
};

/* What the time of a call went to, along the chain of steps and messages that ended last. */
enum tt_sim_part {
	TT_PART_LATENCY,                         /* messages on their way, beside their bytes */
	TT_PART_BYTES,                           /* copying, sending, receiving; links, networks */
	TT_PART_REDUCE,
	TT_PART_MESSAGES,                        /* the price of a call, a step, a message */
	TT_PART_WAIT,                            /* for a core, for room at the receiver */
	TT_PARTS
};
extern const char *const tt_sim_part_name[TT_PARTS];

struct tt_sim_result {
	uint64_t time_ps, part_ps[TT_PARTS];     /* the parts sum up to the time */
	uint64_t bytes[TT_LINK_CLASSES], messages[TT_LINK_CLASSES];
	double idle_min, idle_mean, idle_max;    /* of ranks: the share of the time without work */
	uint64_t events;                         /* messages walked */
	uint32_t ntiles, tiles_walked;           /* fewer: the rest is extrapolated */
};

struct tt_sim;

/* Build the plans of all ranks, in a compact form. 0 | TT_ARG the algorithm does not apply |
 * TT_SYSTEM. progress: called now and then, NULL: not; when it gives other than 0 that ends it and
 * is returned. */
struct tt_sim_watch {
	int (*progress)(void *ctx, const char *what, uint64_t done, uint64_t all);
	void *ctx;
};
int tt_sim_open(const struct tt_sim_world *world, const struct tt_algorithm *algorithm,
		const char *name, int root, const struct tt_sim_watch *watch,
		struct tt_sim **ret_sim);
void tt_sim_close(struct tt_sim *sim);

/* A call of so many bytes (of the buffer, or of a block: as tt_plan_bind), at most most_tiles of
 * them (0: all) walked. */
int tt_sim_run(struct tt_sim *sim, size_t bytes, uint32_t most_tiles,
	       struct tt_sim_result *ret_result);

/* Tiles of a lane that such a call has in flight at once. */
uint32_t tt_sim_width(const struct tt_sim *sim, size_t bytes);

/* What rank sent in the last run, by its i-th peer; false: it has no more peers. */
bool tt_sim_sent(const struct tt_sim *sim, int rank, uint32_t i, int *ret_peer,
		 enum tt_link_class *ret_class, uint64_t *ret_bytes);

#endif

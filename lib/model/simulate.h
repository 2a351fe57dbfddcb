/*
 * simulate.h - simulator: predicted time of a call, from the plans that run executes
 *
 * A discrete-event simulation. Every rank walks the cursors of its lanes over tiles as lib/run
 * does; each message of a step takes the time of the cost table on its core, its link and its
 * host's network. Called by choose.c and the tools.
 */
#ifndef TT_SIMULATE_H
#define TT_SIMULATE_H

#include "plan/bind.h"
#include "model/cost.h"

#define TT_SIM_RANKS (1 << 20) /* most ranks of a simulation */

/* The simulated ranks and hosts. Pointers must stay valid until tt_sim_close. */
struct tt_sim_world {
	int nranks;
	const struct tt_topology *topology; /* NULL: one host */
	struct tt_connectivity paths;
	size_t message_bytes;
	int cores; /* of each host; 0: one for every rank */
	const struct tt_cost *cost;
	uint64_t most_steps; /* refuse larger plans: steps of all ranks; 0: no limit */
	bool fold;           /* simulate one rank for all ranks that are alike (simulate_fold.c) */
};

/* Parts of the time of a call, along the critical path: the chain of steps and messages that ended
 * last. */
enum tt_sim_part {
	TT_PART_LATENCY, /* messages in flight, without their bytes */
	TT_PART_BYTES,   /* copying, sending, receiving; links, networks */
	TT_PART_REDUCE,
	TT_PART_MESSAGES, /* overhead of the call, each step, each message */
	TT_PART_WAIT,     /* for a core, or for room at the receiver */
	TT_PARTS
};
extern const char *const tt_sim_part_name[TT_PARTS];

/* Folding of a result: none; with the times of all ranks; with nearly these times, since some ranks
 * cut messages or order operands differently */
enum tt_sim_folded { TT_SIM_UNFOLDED, TT_SIM_FOLDED, TT_SIM_NEARLY };

struct tt_sim_result {
	uint64_t time_ps, part_ps[TT_PARTS]; /* the parts add up to the time */
	uint64_t busiest_ps;                 /* work of the rank that works longest */
	uint64_t bytes[TT_LINK_CLASSES], messages[TT_LINK_CLASSES];
	double idle_min, idle_mean, idle_max; /* over ranks: share of the time without work */
	uint64_t events;                      /* simulated messages */
	uint32_t ranks;                       /* simulated ranks */
	enum tt_sim_folded folded;
	bool equal_blocks; /* folded: short last blocks were taken for blocks of the mean length */
	uint32_t ntiles, tiles_walked; /* tiles beyond tiles_walked are extrapolated */
	/* peers of all ranks; of the rank with the most; 0 by slots, which need no links */
	uint64_t links, most_links;
};

struct tt_sim;

/* Report of progress, called now and then; NULL: no reports. A result other than 0 ends the
 * simulation, which returns that result. */
struct tt_sim_watch {
	int (*progress)(void *ctx, const char *what, uint64_t done, uint64_t all);
	void *ctx;
};
#define TT_SIM_TOO_LARGE 2
/* Build the plans of all ranks, in a compact form. watch may be NULL. 0 | TT_SIM_TOO_LARGE (more
 * than most_steps; the error text has their number) | the result of progress | TT_ARG the algorithm
 * does not apply | TT_SYSTEM | TT_INTERNAL. */
int tt_sim_open(const struct tt_sim_world *world, const struct tt_algorithm *algorithm,
		const char *name, int root, const struct tt_sim_watch *watch,
		struct tt_sim **ret_sim);
void tt_sim_close(struct tt_sim *sim);

/* Simulate one call. bytes: as in tt_plan_bind; most_tiles: tiles to simulate, 0 all, the rest is
 * extrapolated. 0 | TT_SYSTEM | TT_INTERNAL (the plan deadlocks). */
int tt_sim_run(struct tt_sim *sim, size_t bytes, uint32_t most_tiles,
	       struct tt_sim_result *ret_result);

/* Tiles of a lane in flight in such a call. */
uint32_t tt_sim_width(struct tt_sim *sim, size_t bytes);

/* Bytes that `rank` sent to its i-th peer in the last run; false: i is past the last peer. */
bool tt_sim_sent(const struct tt_sim *sim, int rank, uint32_t i, int *ret_peer,
		 enum tt_link_class *ret_class, uint64_t *ret_bytes);

#endif

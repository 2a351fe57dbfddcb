/*
 * strategy.h - how ranks train together
 *
 * A strategy is one file strategy_NAME.c with a struct train_strategy_ops at its
 * end, and one row of the table in strategy.c. It says what one step is, in
 * terms of train_gradient, train_descend, gradient_sum.h, shards.h and the calls of tutti.h;
 * it names no device, transport or socket. Called by train.c and trainer.c.
 */
#ifndef TRAIN_STRATEGY_H
#define TRAIN_STRATEGY_H

#include "trainer/trainer.h"

enum train_optimizer {
	TRAIN_OPTIMIZER_RANKS,    /* every worker descends, and has a velocity on its device */
	TRAIN_OPTIMIZER_ELSEWHERE /* a store has it (ps_store.h) */
};

struct train_strategy_ops {
	const char *name, *help;
	enum train_optimizer optimizer;
	/* a worker's parameters are its own until settle; its tail is of its rows */
	bool own_pace;
	bool leaves;     /* can add up over leaves (--canonical) */
	/* wire is touched by the library's calls and by wire_on's operations only, so any memory
	 * that they take will do */
	bool by_calls;
	bool survives;   /* deaths of workers do not end it */
	const char *no_shrink; /* why --on-failure shrink is not for it; NULL: it goes on */

	/* Hands rank 0's parameters out, sets t->strategy_state. Also called on servers. Returns 0
	 * | TRAIN_USAGE (not with so many ranks, ...) | TRAIN_FAILED; on failure close is
	 * called if strategy_state is set. */
	int (*open)(struct train_rank *t);
	void (*close)(struct train_rank *t);

	/* One step: afterwards t->parameters are the new ones, and the tail of wire's first node
	 * holds the sums over all workers (own_pace: over its rows). Returns 0 |
	 * TRAIN_FAILED. */
	int (*step)(struct train_rank *t, const struct train_batch *batch);

	/* Before an evaluation, a checkpoint and the end, if not NULL: every worker calls it, and
	 * afterwards all have the same parameters. last: nothing comes after. */
	int (*settle)(struct train_rank *t, bool last);

	/* What a server does instead of steps, until the workers have settled for the last time.
	 * NULL:
	 * there are no servers. */
	int (*serve)(struct train_rank *t);

	/* --on-failure shrink, after a death: regroups (survive.h), and
	 * agrees with the others on the state to go on from. done, ret_done
	 * as of train_survive. NULL: train_rank's state is all there is. */
	int (*rejoin)(struct train_rank *t, uint64_t done, uint64_t *ret_done);

	/* For a checkpoint, on rank 0 after settle: host[parameters] = the optimizer's state. NULL:
	 * it is the velocity of the ranks. */
	int (*state)(struct train_rank *t, float *host);

	/* Adds members of the result's JSON, each behind a comma; may be NULL. Rank 0. */
	void (*tell)(const struct train_rank *t);
};

extern const struct train_strategy_ops train_strategy_one, train_strategy_mirrored,
	train_strategy_reduce_to_one, train_strategy_hierarchical_copy, train_strategy_average,
	train_strategy_central, train_strategy_ps_sync, train_strategy_ps_async, train_strategy_ps_strategy,
	train_strategy_downpour, train_strategy_spare;
extern const struct train_strategy_ops *const train_strategies[]; /* ends with NULL */

/* Sets t->strategy to what --strategy names.
 * Returns 0 | TRAIN_USAGE: none, or one that cannot do what other options ask for. */
int train_strategy_find(struct train_rank *t);

#endif

/*
 * strategy.h - parallel training strategies
 *
 * A strategy is one file strategy_NAME.c with a struct train_strategy_ops at its end, and one
 * row of the table in strategy.c. It defines one step in terms of train_gradient, train_descend,
 * gradient_sum.h, shards.h and the calls of tutti.h; it names no device, transport or socket.
 * Called by train.c and trainer.c.
 */
#ifndef TRAIN_STRATEGY_H
#define TRAIN_STRATEGY_H

#include "trainer/rank/rank.h"

enum train_optimizer {
	TRAIN_OPTIMIZER_RANKS, /* every worker descends, with the state on its device */
	TRAIN_OPTIMIZER_STORE  /* a store has the optimizer (ps_store.h) */
};

/* The reason to settle. */
enum train_settle { TRAIN_SETTLE_EVALUATE, TRAIN_SETTLE_SAVE, TRAIN_SETTLE_END };

/* The answer to a worker that asks for work, where servers hand it out. */
enum train_handout_kind {
	TRAIN_HANDOUT_SHARE, /* a share of a step's batch */
	TRAIN_HANDOUT_PAUSE, /* all workers settle, then ask again */
	TRAIN_HANDOUT_END    /* all workers settle and end */
};
struct train_handout {
	uint64_t kind;          /* enum train_handout_kind */
	uint64_t step;          /* of the share; PAUSE, END: the last step */
	uint64_t share, shares; /* the number of this share, and of all shares of a batch */
	uint64_t handed;        /* shares that all workers have got, in this run */
};

struct train_strategy_ops {
	const char *name, *help;
	enum train_optimizer optimizer;
	/* workers have different parameters until settle; the tail is the sum over the worker's
	 * rows */
	bool local_replicas;
	bool plays;  /* learns from an environment (rank/rollout.h), not from data */
	bool leaves; /* supports sums over leaves (--canonical) */
	/* reads of a sparse table's gradient only the rows that it has (struct train_model's touched) */
	bool touched_rows;
	/* comm_buffer is used by library calls and comm_device's operations only, so it may be
	 * device memory */
	bool collectives_only;
	bool fault_tolerant;   /* continues after deaths of workers */
	const char *no_shrink; /* reason why --on-failure shrink is refused; NULL: supported */

	/* Distributes rank 0's parameters, sets t->strategy_state. Called on workers and
	 * servers. Returns 0 | TRAIN_USAGE (unsuitable number of ranks, ...) | TRAIN_FAILED;
	 * after a failure close is called if strategy_state is set. */
	int (*open)(struct train_rank *t);
	void (*close)(struct train_rank *t);

	/* One step: updates t->parameters; afterwards the tail of comm_buffer's first node holds
	 * the sums over all workers (local_replicas: over its rows). Returns 0 | TRAIN_FAILED. */
	int (*step)(struct train_rank *t, const struct train_batch *batch);

	/* Asks for work: fast workers get more of it than slow ones. stop: a signal asked to end
	 * the training. Returns 0 | TRAIN_FAILED. NULL: every worker computes its share of every
	 * step. */
	int (*ask)(struct train_rank *t, bool stop, struct train_handout *ret_handout);

	/* Makes the parameters of all workers equal, before an evaluation, a check, a
	 * checkpoint and the end: t->parameters are those of a training that ends here. Called by every worker. NULL:
	 * they always are equal. */
	int (*settle)(struct train_rank *t, enum train_settle why);

	/* Undoes settle, unless at the end: an evaluation does not change the training. Called
	 * after a failure of settle, too. NULL: settle changes nothing. */
	void (*unsettle)(struct train_rank *t, enum train_settle why);

	/* The loop of a server, until the workers have settled for the last time. NULL: no
	 * servers. */
	int (*serve)(struct train_rank *t);

	/* --on-failure shrink, after a death: shrinks the communicator (survive.h) and agrees
	 * with the others on the state to continue from. done, ret_done as in train_recover.
	 * NULL: the strategy has no state beyond struct train_rank. */
	int (*rejoin)(struct train_rank *t, uint64_t done, uint64_t *ret_done);

	/* For a checkpoint, on rank 0 after settle: host[arrays][parameters] = optimizer state. NULL:
	 * the state is that of the ranks. */
	int (*state)(struct train_rank *t, float *host);

	/* For a checkpoint of a strategy whose ranks have state of their own, after settle:
	 * own_arrays is the number of arrays of the size of the parameters, the velocity first;
	 * own_state fills host with this rank's, own_restore sets them after open, in a resumed
	 * training of as many ranks. NULL: no such state. */
	size_t (*own_arrays)(const struct train_rank *t);
	void (*own_state)(struct train_rank *t, float *host);
	void (*own_restore)(struct train_rank *t, const float *host);

	/* The floats of parameters, gradients and optimizer that this rank keeps in a step. NULL:
	 * all of the model's. */
	size_t (*kept)(const struct train_rank *t);

	/* Prints members of the result's JSON, each with a comma behind it; may be NULL. Rank 0. */
	void (*report)(const struct train_rank *t);
};

extern const struct train_strategy_ops train_strategy_one, train_strategy_mirrored,
	train_strategy_reduce_to_one, train_strategy_hierarchical_copy, train_strategy_average,
	train_strategy_central, train_strategy_ps_sync, train_strategy_ps_async,
	train_strategy_ps_strategy, train_strategy_downpour, train_strategy_spare,
	train_strategy_a2c, train_strategy_a3c;
extern const struct train_strategy_ops train_strategy_zero;        /* mirrored with --zero 1 */
extern const struct train_strategy_ops train_strategy_zero_layers; /* with --zero 2 or 3 */
extern const struct train_strategy_ops train_strategy_compressed;  /* with --compress */
extern const struct train_strategy_ops *const train_strategies[];  /* ends with NULL */

/* Sets t->strategy by --strategy. Returns 0 | TRAIN_USAGE: unknown, or incompatible with other
 * options. */
int train_strategy_find(struct train_rank *t);

#endif

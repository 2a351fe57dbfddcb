/*
 * strategy.h - how ranks train together
 *
 * A strategy is one file strategy_NAME.c with a struct tt_strategy_ops at its end, and one row of
 * the table in strategy.c. It says what one step is, in terms of tt_gradient, tt_descend and the
 * collectives of tutti.h; it names no device, transport or socket. Called by train.c and trainer.c.
 */
#ifndef TT_TRAINER_STRATEGY_H
#define TT_TRAINER_STRATEGY_H

#include "trainer.h"

struct tt_strategy_ops {
	const char *name, *help;

	/* Hands rank 0's parameters out, sets t->strategy_state. Returns 0 | TT_TRAIN_USAGE (not
	 * with so many ranks, ...) | TT_TRAIN_FAILED; on failure close is called. */
	int (*open)(struct tt_trainer *t);
	void (*close)(struct tt_trainer *t);

	/* One step: afterwards t->parameters are the new ones, and the tail of t->gradients holds
	 * the sums over all ranks. Returns 0 | TT_TRAIN_FAILED. */
	int (*step)(struct tt_trainer *t, const struct tt_batch *batch);
};

extern const struct tt_strategy_ops tt_strategy_one, tt_strategy_mirrored;
extern const struct tt_strategy_ops *const tt_strategies[]; /* ends with NULL */

/* Returns 0 | TT_TRAIN_USAGE | TT_TRAIN_FAILED. */
int tt_strategy_open(struct tt_trainer *t, const char *name);
void tt_strategy_close(struct tt_trainer *t);

#endif

/* strategy.c - the table of strategies (strategy.h) */
#include "trainer/strategy/strategy.h"

#include <string.h>

const struct tt_strategy_ops *const tt_strategies[] = {
	&tt_strategy_one,
	&tt_strategy_mirrored,
	&tt_strategy_reduce_to_one,
	&tt_strategy_hierarchical_copy,
	&tt_strategy_average,
	&tt_strategy_central,
	&tt_strategy_ps_sync,
	&tt_strategy_ps_async,
	&tt_strategy_ps_strategy,
	&tt_strategy_downpour,
	&tt_strategy_spare,
	NULL,
};

int tt_strategy_find(struct tt_trainer *t)
{
	const struct tt_config *c = t->config;
	const struct tt_strategy_ops *const *at = tt_strategies;

	while (*at && strcmp((*at)->name, c->strategy))
		at++;
	if (!*at)
		return tt_train_fail(TT_TRAIN_USAGE,
				     "--strategy %s: there is no such strategy; --help lists them",
				     c->strategy);
	if (c->canonical != TT_CANONICAL_OFF && !(*at)->leaves)
		return tt_train_fail(TT_TRAIN_USAGE,
			"--canonical: %s does not add up gradients over all ranks; use "
			"--canonical off, or another --strategy", c->strategy);
	if (c->on_failure == TT_FAILURE_SHRINK && (*at)->no_shrink)
		return tt_train_fail(TT_TRAIN_USAGE, "--on-failure shrink: %s", (*at)->no_shrink);
	t->strategy = *at;
	return TT_TRAIN_OK;
}

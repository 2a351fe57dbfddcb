/* strategy.c - the table of strategies (strategy.h) */
#include "strategy.h"

#include <string.h>

const struct tt_strategy_ops *const tt_strategies[] = { &tt_strategy_one, &tt_strategy_mirrored,
							NULL };

int tt_strategy_open(struct tt_trainer *t, const char *name)
{
	for (const struct tt_strategy_ops *const *at = tt_strategies; *at; at++) {
		if (strcmp((*at)->name, name))
			continue;
		t->strategy = *at;
		return t->strategy->open(t);
	}
	return tt_train_fail(TT_TRAIN_USAGE,
			     "--strategy %s: there is no such strategy; --help lists them", name);
}

void tt_strategy_close(struct tt_trainer *t)
{
	if (t->strategy)
		t->strategy->close(t);
	t->strategy = NULL;
}

/* strategy.c - the table of strategies (strategy.h) */
#include "trainer/strategy/strategy.h"

#include "trainer/strategy/compress.h"

#include <string.h>

const struct train_strategy_ops *const train_strategies[] = {
	&train_strategy_one,           &train_strategy_mirrored,
	&train_strategy_reduce_to_one, &train_strategy_hierarchical_copy,
	&train_strategy_average,       &train_strategy_central,
	&train_strategy_ps_sync,       &train_strategy_ps_async,
	&train_strategy_ps_strategy,   &train_strategy_downpour,
	&train_strategy_spare,         &train_strategy_a2c,
	&train_strategy_a3c,           NULL,
};

int train_strategy_find(struct train_rank *t)
{
	const struct train_config *c = t->config;
	const struct train_strategy_ops *const *at = train_strategies;
	const struct train_strategy_ops *found;

	while (*at && strcmp((*at)->name, c->strategy))
		at++;
	if (!*at)
		return train_fail(TRAIN_USAGE,
				  "--strategy %s: there is no such strategy; --help lists them",
				  c->strategy);
	if (c->canonical != TRAIN_CANONICAL_OFF && !(*at)->leaves)
		return train_fail(TRAIN_USAGE,
				  "--canonical: %s does not sum gradients over all ranks; use "
				  "--canonical off, or another --strategy",
				  c->strategy);
	if (c->mesh && ((*at)->serve || (*at)->local_replicas || (*at)->fault_tolerant))
		return train_fail(TRAIN_USAGE,
				  "--mesh %s: %s does not sum the gradients of every step over all "
				  "replicas; use mirrored, reduce-to-one or hierarchical-copy",
				  c->mesh, c->strategy);
	if (c->compress && train_compress_check(c))
		return TRAIN_USAGE;
	found = c->compress   ? &train_strategy_compressed
		: c->zero > 1 ? &train_strategy_zero_layers
		: c->zero     ? &train_strategy_zero
			      : *at;
	if (c->on_failure == TRAIN_FAILURE_SHRINK && found->no_shrink)
		return train_fail(TRAIN_USAGE, "--on-failure shrink: %s", found->no_shrink);
	t->strategy = found;
	t->collectives_only = found->collectives_only;
	return TRAIN_OK;
}

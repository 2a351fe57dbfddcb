/* due_steps.c - the steps of evaluations and checkpoints (due_steps.h) */
#include "trainer/rank/due_steps.h"

uint64_t train_steps(const struct train_rank *t)
{
	const struct train_config *c = t->config;

	return c->steps ? (uint64_t)c->steps
			: (uint64_t)c->epochs * train_sampler_steps(&t->sampler);
}

/* Steps between evaluations */
static uint64_t eval_every(const struct train_rank *t)
{
	return t->config->eval_every ? (uint64_t)t->config->eval_every
				     : train_sampler_steps(&t->sampler);
}

/* Steps between checkpoints; 0: none before the end */
static uint64_t save_every(const struct train_rank *t)
{
	return t->config->save ? (uint64_t)t->config->save_every : 0;
}

bool train_evaluation_due(const struct train_rank *t, uint64_t step)
{
	return step % eval_every(t) == 0;
}

bool train_checkpoint_due(const struct train_rank *t, uint64_t step)
{
	return save_every(t) && step % save_every(t) == 0;
}

uint64_t train_next_due(const struct train_rank *t, uint64_t step)
{
	uint64_t at = train_steps(t), every[] = { eval_every(t), save_every(t) };

	for (int i = 0; i < 2; i++) {
		uint64_t next = every[i] ? (step / every[i] + 1) * every[i] : at;

		at = next < at ? next : at;
	}
	return at;
}

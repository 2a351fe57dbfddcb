/* schedule.c - the learning rate of each step, evaluations and checkpoints (schedule.h) */
#include "trainer/rank/schedule.h"

/* cos(pi x) for 0..1, by its series, for the same bits with every C library */
static double cos_pi(double x)
{
	double y = 3.141592653589793 * (x - 0.5), term = y, sum = y; /* cos(pi x) = -sin(y) */

	for (int i = 1; i < 12; i++) {
		term *= -y * y / (2.0 * i * (2.0 * i + 1.0));
		sum += term;
	}
	return -sum;
}

double train_schedule(const struct train_config *c, uint64_t step, uint64_t steps)
{
	double progress = (double)(step - 1) / (double)steps, warm = 1.0;

	if ((int64_t)step <= c->warmup)
		warm = (double)step / (double)(c->warmup + 1);
	switch (c->schedule) {
	case TRAIN_SCHEDULE_STEP:
		return c->lr * warm * (progress < 0.5 ? 1.0 : progress < 0.75 ? 0.1 : 0.01);
	case TRAIN_SCHEDULE_LINEAR:
		return c->lr * warm * (1.0 - progress);
	case TRAIN_SCHEDULE_COSINE:
		return c->lr * warm * 0.5 * (1.0 + cos_pi(progress));
	default:
		return c->lr * warm;
	}
}

uint64_t train_schedule_steps(const struct train_rank *t)
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

bool train_schedule_evaluates(const struct train_rank *t, uint64_t step)
{
	return step % eval_every(t) == 0;
}

bool train_schedule_saves(const struct train_rank *t, uint64_t step)
{
	return save_every(t) && step % save_every(t) == 0;
}

uint64_t train_schedule_pause(const struct train_rank *t, uint64_t step)
{
	uint64_t at = train_schedule_steps(t), every[] = { eval_every(t), save_every(t) };

	for (int i = 0; i < 2; i++) {
		uint64_t next = every[i] ? (step / every[i] + 1) * every[i] : at;

		at = next < at ? next : at;
	}
	return at;
}

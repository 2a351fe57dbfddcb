/* learning_rate.c - the learning rate of each step (learning_rate.h) */
#include "trainer/rank/learning_rate.h"

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

double train_learning_rate(const struct train_config *c, uint64_t step, uint64_t steps)
{
	double progress = (double)(step - 1) / (double)steps, warm = 1.0;

	if ((int64_t)step <= c->warmup)
		warm = (double)step / (double)(c->warmup + 1);
	switch (c->lr_schedule) {
	case TRAIN_LR_STEP:
		return c->lr * warm * (progress < 0.5 ? 1.0 : progress < 0.75 ? 0.1 : 0.01);
	case TRAIN_LR_LINEAR:
		return c->lr * warm * (1.0 - progress);
	case TRAIN_LR_COSINE:
		return c->lr * warm * 0.5 * (1.0 + cos_pi(progress));
	default:
		return c->lr * warm;
	}
}

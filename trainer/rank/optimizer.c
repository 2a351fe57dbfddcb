/* optimizer.c - the update of parameters by their gradients (optimizer.h) */
#include "trainer/rank/optimizer.h"

size_t train_optimizer_arrays(const struct train_config *c)
{
	return c->optimizer == TRAIN_ADAMW ? 2 : 1;
}

/* By squaring, for the same bits with every C library. */
static double power(double base, uint64_t exponent)
{
	double result = 1.0;

	for (; exponent; exponent >>= 1, base *= base)
		if (exponent & 1)
			result *= base;
	return result;
}

static struct train_adam adam_of(const struct train_rank *t, float scale)
{
	const struct train_config *c = t->config;

	return (struct train_adam){
		.scale = scale,
		.beta1 = (float)c->beta1,
		.beta2 = (float)c->beta2,
		.rate = (float)((double)t->rate / (1.0 - power(c->beta1, t->step))),
		.correct2 = (float)(1.0 / (1.0 - power(c->beta2, t->step))),
		.epsilon = 1e-8f,
		.keep = (float)(1.0 - (double)t->rate * c->weight_decay),
	};
}

void train_optimizer_update(const struct train_rank *t, const struct train_update *u)
{
	const struct train_device_ops *d = u->on->ops;
	struct train_adam adam;

	if (t->config->optimizer == TRAIN_RMSPROP) {
		d->rmsprop(u->on, u->count, u->scale, t->rate, u->gradient, u->state, u->weight);
		return;
	}
	if (t->config->optimizer != TRAIN_ADAMW) {
		d->descend(u->on, u->count, u->scale, t->rate, t->momentum, u->gradient, u->state,
			   u->weight);
		return;
	}
	adam = adam_of(t, u->scale);
	d->adam(u->on, u->count, &adam, u->gradient, u->state, u->state + u->stride, u->weight);
}

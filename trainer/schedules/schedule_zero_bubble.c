/*
 * schedule_zero_bubble.c - 1f1b whose gradients of weights wait: the next stage needs only the
 * gradient of the input, and gradients of weights fill the time in which a stage would be idle
 *
 *	warm_up = stages - 1 - stage
 *	for m = 0 .. warm_up-1: forward(m)
 *	for m = 0 .. micro-1:
 *		forward(warm_up + m), while there are any
 *		backward_input(m)
 *		backward_weights(m - stage), from m = stage on
 *	the other backward_weights
 *
 *	stage 0 | F0 F1 .  I0 W0 F2 I1 W1 I2 W2
 *	stage 1 | .  F0 I0 F1 I1 W0 F2 I2 W1 W2
 *
 * Time, where the three computations take the same: 3 micro + stages - 1 of them, for at least
 * `stages` micro-batches. A stage keeps the activations of at most `stages` micro-batches, as stage
 * 0 of 1f1b does. Row of the table in schedule.c.
 *
 * Source: Qi et al. 2024, Zero bubble pipeline parallelism (its ZB-H1).
 */
#include "trainer/schedules/schedule.h"

static void zero_build(struct train_schedule *s, int stage)
{
	int warm_up = train_schedule_smaller(s->stages - 1 - stage, s->micro), weights = 0;

	for (int m = 0; m < warm_up; m++)
		train_schedule_forward(s, stage, m);
	for (int m = 0; m < s->micro; m++) {
		if (warm_up + m < s->micro)
			train_schedule_forward(s, stage, warm_up + m);
		train_schedule_backward_input(s, stage, m);
		if (m >= stage)
			train_schedule_backward_weights(s, stage, weights++);
	}
	while (weights < s->micro)
		train_schedule_backward_weights(s, stage, weights++);
}

static double zero_span(const struct train_schedule *s, const struct train_costs *costs)
{
	if (s->micro < s->stages || costs->backward_input != costs->forward ||
	    costs->backward_weights != costs->forward)
		return -1;
	return (3 * s->micro + s->stages - 1) * costs->forward;
}

static int zero_activations(const struct train_schedule *s, int stage)
{
	(void)stage;
	return train_schedule_smaller(s->stages, s->micro);
}

const struct train_schedule_ops train_schedule_zero_bubble = {
	.name = "zero-bubble",
	.help = "1f1b with gradients of weights apart, which fill the bubble",
	.build = zero_build,
	.span = zero_span,
	.activations = zero_activations,
};

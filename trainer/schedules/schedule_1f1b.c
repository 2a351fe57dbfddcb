/*
 * schedule_1f1b.c - one forward, one backward: a stage begins the backward pass of a micro-batch as
 * soon as it can, so that it keeps few activations
 *
 *	warm_up = stages - 1 - stage
 *	for m = 0 .. warm_up-1: forward(m)
 *	for m = 0 .. micro-1:
 *		forward(warm_up + m), while there are any
 *		backward(m)
 *
 *	stage 0 | F0 F1 .  .  B0 B0 F2 B1 B1 .  B2 B2
 *	stage 1 | .  F0 B0 B0 F1 B1 B1 F2 B2 B2 .  .
 *
 * Time: (micro + stages - 1)(forward + backward), as gpipe. A stage keeps the activations of at
 * most stages - stage micro-batches, whatever their number. Row of the table in schedule.c.
 *
 * Source: Narayanan et al. 2019, PipeDream; with one update at the end: Fan et al. 2021, DAPPLE.
 */
#include "trainer/schedules/schedule.h"

static void one_build(struct train_schedule *s, int stage)
{
	int warm_up = train_schedule_smaller(s->stages - 1 - stage, s->micro);

	for (int m = 0; m < warm_up; m++)
		train_schedule_forward(s, stage, m);
	for (int m = 0; m < s->micro; m++) {
		if (warm_up + m < s->micro)
			train_schedule_forward(s, stage, warm_up + m);
		train_schedule_backward(s, stage, m);
	}
}

static double one_span(const struct train_schedule *s, const struct train_costs *costs)
{
	double both = costs->forward + costs->backward_input + costs->backward_weights;

	return (s->micro + s->stages - 1) * both;
}

static int one_activations(const struct train_schedule *s, int stage)
{
	return train_schedule_smaller(s->stages - stage, s->micro);
}

const struct train_schedule_ops train_schedule_1f1b = {
	.name = "1f1b",
	.help = "forward and backward take turns; few activations",
	.build = one_build,
	.span = one_span,
	.activations = one_activations,
};

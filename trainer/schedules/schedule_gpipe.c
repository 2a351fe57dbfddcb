/*
 * schedule_gpipe.c - all micro-batches forward, then all backward
 *
 *	for m = 0 .. micro-1: forward(m)
 *	for m = 0 .. micro-1: backward(m)
 *
 *	stage 0 | F0 F1 F2 .  .  .  B0 B0 B1 B1 B2 B2
 *	stage 1 | .  F0 F1 F2 B0 B0 B1 B1 B2 B2 .  .
 *
 * Time: (micro + stages - 1)(forward + backward). Each stage keeps the activations of all
 * micro-batches. Row of the table in schedule.c.
 *
 * Source: Huang et al. 2019, GPipe.
 */
#include "trainer/schedules/schedule.h"

static void gpipe_build(struct train_schedule *s, int stage)
{
	for (int m = 0; m < s->micro; m++)
		train_schedule_forward(s, stage, m);
	for (int m = 0; m < s->micro; m++)
		train_schedule_backward(s, stage, m);
}

static double gpipe_span(const struct train_schedule *s, const struct train_costs *costs)
{
	double both = costs->forward + costs->backward_input + costs->backward_weights;

	return (s->micro + s->stages - 1) * both;
}

static int gpipe_activations(const struct train_schedule *s, int stage)
{
	(void)stage;
	return s->micro;
}

const struct train_schedule_ops train_schedule_gpipe = {
	.name = "gpipe",
	.help = "all micro-batches forward, then all backward",
	.build = gpipe_build,
	.span = gpipe_span,
	.activations = gpipe_activations,
};

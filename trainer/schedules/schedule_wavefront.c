/*
 * schedule_wavefront.c - a recurrent network split by layers: layer l computes part t of the
 * sequence while layer l + 1 computes part t - 1
 *
 *	for t = 0 .. parts-1: forward(t), from the layer below and this layer's part t - 1
 *	for t = parts-1 .. 0: backward(t), from the layer above and this layer's part t + 1
 *
 *	layer 0 | F0 F1 F2 .  .  .  B2 B2 B1 B1 B0 B0
 *	layer 1 | .  F0 F1 F2 B2 B2 B1 B1 B0 B0 .  .
 *
 * Time: (parts + layers - 1)(forward + backward). Each layer keeps the activations of all parts:
 * the backward pass begins with the last. Row of the table in schedule.c.
 *
 * Source: Sutskever, Vinyals, Le 2014, Sequence to sequence learning with neural networks, 3.5.
 */
#include "trainer/schedules/schedule.h"

static void wavefront_build(struct train_schedule *s, int stage)
{
	for (int t = 0; t < s->micro; t++)
		train_schedule_forward(s, stage, t);
	for (int t = s->micro - 1; t >= 0; t--)
		train_schedule_backward(s, stage, t);
}

static double wavefront_span(const struct train_schedule *s, const struct train_costs *costs)
{
	double both = costs->forward + costs->backward_input + costs->backward_weights;

	return (s->micro + s->stages - 1) * both;
}

static int wavefront_activations(const struct train_schedule *s, int stage)
{
	(void)stage;
	return s->micro;
}

const struct train_schedule_ops train_schedule_wavefront = {
	.name = "wavefront",
	.help = "a recurrent network: a stage is a layer, a micro-batch a part of time",
	.recurrent = true,
	.build = wavefront_build,
	.span = wavefront_span,
	.activations = wavefront_activations,
};

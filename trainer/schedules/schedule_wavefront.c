/*
 * schedule_wavefront.c - a recurrent network split by layers: layer l computes part t of the
 * sequence while layer l + 1 computes part t - 1
 *
 *	for t = 0 .. parts-1: forward(t), from the layer below and this layer's part t - 1
 *	for t = parts-1 .. 0: backward_input(t), from the layer above and this layer's part t + 1
 *	for m = 0 .. parts-1: backward_weights(m), of some samples and the whole sequence
 *
 *	layer 0 | F0 F1 F2 .  .  I2 I1 I0 W0 W1 W2
 *	layer 1 | .  F0 F1 F2 I2 I1 I0 W0 W1 W2 .
 *
 * Gradients of weights are not sums over parts of time, so that their bits do not depend on the
 * parts. Time: (parts + layers - 1)(forward + backward_input) + parts backward_weights, which is
 * less than with both backward passes in one step, where a stage is idle for (layers - 1) / (parts
 * + layers - 1) of the time. Each layer keeps the activations of all parts. Row of the table in
 * schedule.c.
 *
 * Source: Sutskever, Vinyals, Le 2014, Sequence to sequence learning with neural networks, 3.5.
 */
#include "trainer/schedules/schedule.h"

static void wavefront_build(struct train_schedule *s, int stage)
{
	for (int t = 0; t < s->micro; t++)
		train_schedule_forward(s, stage, t);
	for (int t = s->micro - 1; t >= 0; t--)
		train_schedule_backward_input(s, stage, t);
	for (int m = 0; m < s->micro; m++)
		train_schedule_backward_weights(s, stage, m);
}

static double wavefront_span(const struct train_schedule *s, const struct train_costs *costs)
{
	double wave = costs->forward + costs->backward_input;

	return (s->micro + s->stages - 1) * wave + s->micro * costs->backward_weights;
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

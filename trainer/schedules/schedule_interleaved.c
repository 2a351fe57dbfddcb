/*
 * schedule_interleaved.c - 1f1b with several chunks a stage: chunk c is on stage c % stages, so a
 * micro-batch passes every stage several times, and the pipeline fills in less time
 *
 *	turn k of forward: groups of `stages` micro-batches; each group takes all chunks of the
 *		stage from the first to the last, before the next group begins; the last group
 *		leaves out micro-batches that do not exist
 *	turn k of backward: the same from the last chunk to the first
 *	warm_up = 2 (stages - 1 - stage) + (chunks of a stage - 1) stages
 *	for k = 0 .. warm_up-1: forward(k)
 *	for k = 0 .. turns-1:
 *		forward(warm_up + k), while there are any
 *		backward(k)
 *
 * Time: (V micro + stages - 1)(forward + backward) of a chunk, for V chunks a stage, where stages
 * divides micro. Row of the table in schedule.c.
 *
 * Source: Narayanan et al. 2021, Efficient large-scale language model training on GPU clusters.
 */
#include "trainer/schedules/schedule.h"

static int chunks_of_stage(const struct train_schedule *s)
{
	return s->chunks / s->stages;
}

/* Turns of whole groups; the last group may lack micro-batches. */
static int turns_of(const struct train_schedule *s)
{
	return (s->micro + s->stages - 1) / s->stages * s->stages * chunks_of_stage(s);
}

static int warm_up_of(const struct train_schedule *s, int stage)
{
	int warm_up = 2 * (s->stages - 1 - stage) + (chunks_of_stage(s) - 1) * s->stages;

	return train_schedule_smaller(warm_up, turns_of(s));
}

static void take_turn(struct train_schedule *s, int stage, int k, bool backward)
{
	int per_stage = chunks_of_stage(s), of_group = s->stages * per_stage;
	int v = k % of_group / s->stages, micro = k / of_group * s->stages + k % s->stages;

	if (micro >= s->micro)
		return;
	if (backward)
		train_schedule_backward(s, stage + (per_stage - 1 - v) * s->stages, micro);
	else
		train_schedule_forward(s, stage + v * s->stages, micro);
}

static void interleaved_build(struct train_schedule *s, int stage)
{
	int turns = turns_of(s), warm_up = warm_up_of(s, stage);

	for (int k = 0; k < warm_up; k++)
		take_turn(s, stage, k, false);
	for (int k = 0; k < turns; k++) {
		if (warm_up + k < turns)
			take_turn(s, stage, warm_up + k, false);
		take_turn(s, stage, k, true);
	}
}

static double interleaved_span(const struct train_schedule *s, const struct train_costs *costs)
{
	double both = costs->forward + costs->backward_input + costs->backward_weights;

	if (s->micro % s->stages)
		return -1;
	return (chunks_of_stage(s) * s->micro + s->stages - 1) * both;
}

static int interleaved_activations(const struct train_schedule *s, int stage)
{
	return train_schedule_smaller(warm_up_of(s, stage) + 1, s->micro * chunks_of_stage(s));
}

const struct train_schedule_ops train_schedule_interleaved = {
	.name = "interleaved",
	.help = "1f1b with V chunks a stage (interleaved:V): a shorter bubble",
	.chunked = true,
	.build = interleaved_build,
	.span = interleaved_span,
	.activations = interleaved_activations,
};

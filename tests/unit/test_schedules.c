/*
 * test_schedules.c - training schedules: proved for every number of stages and micro-batches, as
 * good as their formulas; faulty lists are refuted
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/base/fail.h"
#include "trainer/schedules/schedule.h"

TestSuite(schedules, .timeout = 120);

enum { STAGES = 16, MICRO = 64 };

static const char *const names[] = { "gpipe",         "1f1b",          "zero-bubble",  "wavefront",
				     "interleaved:1", "interleaved:2", "interleaved:3" };
enum { NAMES = sizeof(names) / sizeof(names[0]) };

static struct train_schedule open_schedule(const char *name, int stages, int micro)
{
	struct train_schedule s;

	cr_assert_eq(train_schedule_open(&s, name, stages, micro), 0, "%s", train_error());
	return s;
}

static struct train_schedule_proof prove(const struct train_schedule *s)
{
	struct train_schedule_proof proof;

	cr_assert_eq(train_schedule_check(s, &proof), 0, "%s", train_error());
	return proof;
}

static struct train_schedule_times simulate(const struct train_schedule *s,
					    struct train_costs costs)
{
	struct train_schedule_times times;

	cr_assert_eq(train_schedule_simulate(s, &costs, &times), 0, "%s", train_error());
	return times;
}

static double span_of(const char *name, int stages, int micro, struct train_costs costs)
{
	struct train_schedule s = open_schedule(name, stages, micro);
	struct train_schedule_times times = simulate(&s, costs);
	double span = times.span;

	train_schedule_times_free(&times);
	train_schedule_close(&s);
	return span;
}

/* Calls fn for every schedule, number of stages and of micro-batches. */
static void for_all(void (*fn)(const struct train_schedule *s))
{
	for (int name = 0; name < NAMES; name++)
		for (int stages = 1; stages <= STAGES; stages++)
			for (int micro = 1; micro <= MICRO; micro++) {
				struct train_schedule s = open_schedule(names[name], stages, micro);

				fn(&s);
				train_schedule_close(&s);
			}
}

/* ---- what is proved --------------------------------------------------------------------------- */

static void activations_are_as_the_formula(const struct train_schedule *s)
{
	struct train_schedule_proof proof = prove(s);

	cr_assert_eq(proof.sends, s->stages > 1 ? 2 * (s->chunks - 1) * s->micro : 0);
	for (int stage = 0; stage < s->stages; stage++) {
		int most = s->ops->activations(s, stage);

		/* an input that waits for its turn counts too */
		cr_assert(proof.activations[stage] <= most + s->ops->chunked &&
				  (s->ops->chunked || proof.activations[stage] == most),
			  "%s, %d stages, %d micro-batches: stage %d keeps %d, not %d",
			  s->ops->name, s->stages, s->micro, stage, proof.activations[stage], most);
	}
}

Test(schedules, every_schedule_is_proved_and_keeps_as_many_activations_as_its_formula_says)
{
	for_all(activations_are_as_the_formula);
}

static void time_is_as_the_formula(const struct train_schedule *s)
{
	static const struct train_costs costs[] = { { 1, 1, 1, 0 }, { 2, 3, 1, 0 } };

	for (int i = 0; i < 2; i++) {
		struct train_schedule_times times = simulate(s, costs[i]);
		double formula = s->ops->span(s, &costs[i]);
		double work = (costs[i].forward + costs[i].backward_input +
			       costs[i].backward_weights) *
			      s->micro * s->chunks;

		cr_assert(formula < 0 || times.span == formula,
			  "%s, %d stages, %d micro-batches: %g, by the formula %g", s->ops->name,
			  s->stages, s->micro, times.span, formula);
		cr_assert_float_eq(times.bubble, 1 - work / (times.span * s->stages), 1e-9);
		train_schedule_times_free(&times);
	}
}

Test(schedules, the_time_of_every_schedule_equals_its_formula)
{
	for_all(time_is_as_the_formula);
}

Test(schedules, every_schedule_has_a_formula_for_its_time)
{
	const struct train_costs costs = { 1, 1, 1, 0 };

	for (int name = 0; name < NAMES; name++) {
		struct train_schedule s = open_schedule(names[name], 4, 16);

		cr_assert(s.ops->span(&s, &costs) > 0, "%s", names[name]);
		train_schedule_close(&s);
	}
}

Test(schedules, the_activations_of_1f1b_do_not_depend_on_the_number_of_micro_batches)
{
	struct train_schedule few = open_schedule("1f1b", 8, 8),
			      many = open_schedule("1f1b", 8, 512);
	struct train_schedule_proof p = prove(&few), q = prove(&many);

	cr_assert_arr_eq(p.activations, q.activations, sizeof(p.activations));
	cr_assert_eq(p.activations[0], 8);
	train_schedule_close(&few);
	train_schedule_close(&many);
}

Test(schedules, zero_bubble_and_interleaved_idle_less_than_1f1b)
{
	const struct train_costs whole = { 2, 2, 2, 0 }, half = { 1, 1, 1, 0 };
	double one = span_of("1f1b", 8, 32, whole);

	cr_assert_lt(span_of("zero-bubble", 8, 32, whole), one);
	cr_assert_lt(span_of("interleaved:2", 8, 32, half), one);
}

Test(schedules, messages_take_their_time)
{
	/* the first micro-batch passes three messages down and three up */
	cr_assert_eq(span_of("gpipe", 4, 1, (struct train_costs){ 1, 1, 1, 5 }), 4 * 3 + 6 * 5);
}

Test(schedules, wrong_names_and_numbers_are_refused_in_words)
{
	static const struct {
		const char *name;
		int stages, micro;
		const char *text;
	} wrong[] = { { "1b1f", 4, 8, "there is no such schedule" },
		      { "gpipe:2", 4, 8, "takes no number" },
		      { "interleaved:0", 4, 8, "from 1 to 26" },
		      { "interleaved:2x", 4, 8, "from 1 to 26" },
		      { "1f1b", 0, 8, "1 to 64 stages" },
		      { "1f1b", 4, 4096, "1 to 1024 micro-batches" } };

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct train_schedule s;

		cr_assert_eq(train_schedule_open(&s, wrong[i].name, wrong[i].stages,
						 wrong[i].micro),
			     TRAIN_USAGE);
		cr_assert(strstr(train_error(), wrong[i].text), "%s", train_error());
		train_schedule_close(&s);
	}
}

/* ---- planted faults ---------------------------------------------------------------------------- */

/* Index of the stage's step of that kind and micro-batch. */
static int find(const struct train_schedule *s, int stage, enum train_step_kind kind, int micro)
{
	for (int i = 0; i < s->list[stage].n; i++)
		if (s->list[stage].step[i].kind == kind && s->list[stage].step[i].micro == micro)
			return i;
	cr_assert_fail("stage %d has no %s of micro-batch %d", stage, train_step_name(kind), micro);
	return -1;
}

static void drop(struct train_schedule *s, int stage, int i)
{
	struct train_step_list *list = &s->list[stage];

	memmove(&list->step[i], &list->step[i + 1],
		(size_t)(list->n - i - 1) * sizeof(*list->step));
	list->n--;
}

/* Moves step i in front of step `to`. */
static void move(struct train_schedule *s, int stage, int i, int to)
{
	struct train_step_list *list = &s->list[stage];
	struct train_schedule_step step = list->step[i];

	drop(s, stage, i);
	to -= to > i;
	memmove(&list->step[to + 1], &list->step[to], (size_t)(list->n - to) * sizeof(*list->step));
	list->step[to] = step;
	list->n++;
}

static void repeat(struct train_schedule *s, int stage, int i)
{
	struct train_schedule_step step = s->list[stage].step[i];

	train_step_append(s, stage, step.kind, step.chunk, step.micro);
	move(s, stage, s->list[stage].n - 1, i);
}

enum { DROP, REPEAT, MOVE, RENUMBER, REPLACE };

/* One change of the list of stage 1 (or another) of four, for eight micro-batches. */
struct fault {
	const char *schedule;
	int change, stage;
	enum train_step_kind kind;
	int micro;
	enum train_step_kind to_kind; /* MOVE: in front of this step; REPLACE */
	int to_micro;                 /* MOVE; RENUMBER: the new chunk */
	const char *text;             /* part of the refutation */
};

#define F TRAIN_STEP_FORWARD
#define B TRAIN_STEP_BACKWARD
#define I TRAIN_STEP_BACKWARD_INPUT
#define W TRAIN_STEP_BACKWARD_WEIGHTS
#define END TRAIN_STEP_FREE
#define SEND_Y TRAIN_STEP_SEND_OUTPUT
#define GET_X TRAIN_STEP_RECEIVE_INPUT
#define SEND_DX TRAIN_STEP_SEND_GRADIENT
#define GET_DY TRAIN_STEP_RECEIVE_GRADIENT
#define SUM TRAIN_STEP_REDUCE
#define UPDATE TRAIN_STEP_UPDATE

static const struct fault faults[] = {
	{ "1f1b", DROP, 1, F, 3, 0, 0, "not computed" },
	{ "1f1b", DROP, 1, B, 3, 0, 0, "still needs the activations" },
	{ "gpipe", DROP, 0, SEND_Y, 3, 0, 0, "expects receive-input of chunk 1, micro-batch 3" },
	{ "1f1b", DROP, 3, SEND_DX, 7, 0, 0, "deadlock" },
	{ "1f1b", DROP, 1, GET_X, 7, 0, 0, "its input is not here" },
	{ "1f1b", DROP, 1, GET_DY, 7, 0, 0, "the gradient of its output is not here" },
	{ "1f1b", DROP, 1, END, 3, 0, 0, "never end" },
	{ "1f1b", DROP, 1, SUM, 0, 0, 0, "not reduced" },
	{ "1f1b", DROP, 2, UPDATE, 0, 0, 0, "is not updated" },
	{ "1f1b", REPEAT, 1, F, 2, 0, 0, "second forward" },
	{ "1f1b", REPEAT, 1, B, 2, 0, 0, "second gradient" },
	{ "1f1b", REPEAT, 1, END, 2, 0, 0, "ended before" },
	{ "1f1b", REPEAT, 1, SUM, 0, 0, 0, "reduced before" },
	{ "1f1b", REPEAT, 1, UPDATE, 0, 0, 0, "changed before" },
	{ "1f1b", MOVE, 1, SEND_Y, 0, F, 0, "not computed" },
	{ "1f1b", MOVE, 1, SEND_DX, 0, B, 0, "not computed" },
	{ "1f1b", MOVE, 1, END, 2, B, 2, "still needs the activations" },
	{ "1f1b", MOVE, 1, SUM, 0, B, 7, "7 micro-batches of 8" },
	{ "1f1b", MOVE, 1, UPDATE, 0, SUM, 0, "not reduced" },
	{ "1f1b", MOVE, 3, B, 1, B, 0, "the gradient of its output is not here" },
	{ "gpipe", MOVE, 3, B, 5, B, 4, "one device would add micro-batch 4" },
	{ "gpipe", MOVE, 0, SEND_Y, 1, SEND_Y, 0, "expects receive-input of chunk 1" },
	{ "gpipe", MOVE, 1, GET_X, 1, GET_X, 0, "expects receive-input of chunk 1, micro-batch 1" },
	{ "1f1b", MOVE, 0, GET_DY, 0, SEND_Y, 0, "deadlock" },
	{ "zero-bubble", MOVE, 2, W, 4, I, 4, "gradient of its input is not computed" },
	{ "zero-bubble", MOVE, 3, W, 1, W, 0, "one device would add micro-batch 0" },
	{ "zero-bubble", REPEAT, 2, W, 4, 0, 0, "counts twice" },
	{ "zero-bubble", DROP, 3, I, 5, 0, 0, "not computed" },
	{ "wavefront", MOVE, 0, F, 3, F, 2, "no hidden state" },
	{ "wavefront", MOVE, 3, I, 2, I, 3, "the micro-batch behind it has no gradient yet" },
	{ "wavefront", MOVE, 2, W, 1, I, 0, "a part of the sequence has no gradient yet" },
	{ "wavefront", MOVE, 2, END, 0, W, 7, "still needs the activations" },
	{ "wavefront", MOVE, 2, W, 1, W, 0, "one device would add micro-batch 0" },
	{ "1f1b", REPLACE, 1, F, 3, B, 0, "" },
	{ "1f1b", REPLACE, 3, B, 7, I, 0, "still needs the activations" },
	{ "1f1b", REPLACE, 3, SEND_DX, 0, SEND_Y, 0, "no stage at the other end" },
	{ "1f1b", RENUMBER, 1, F, 3, 0, 2, "the chunk is on stage 2" },
	{ "1f1b", RENUMBER, 1, F, 3, 0, 4, "no such chunk" },
};

static void plant(struct train_schedule *s, const struct fault *f)
{
	int i = find(s, f->stage, f->kind, f->micro);

	switch (f->change) {
	case DROP:
		drop(s, f->stage, i);
		break;
	case REPEAT:
		repeat(s, f->stage, i);
		break;
	case MOVE:
		move(s, f->stage, i, find(s, f->stage, f->to_kind, f->to_micro));
		break;
	case RENUMBER:
		s->list[f->stage].step[i].chunk = f->to_micro;
		break;
	default:
		s->list[f->stage].step[i].kind = f->to_kind;
		break;
	}
}

Test(schedules, every_planted_fault_is_refuted_in_words)
{
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		struct train_schedule s = open_schedule(faults[i].schedule, 4, 8);
		struct train_schedule_proof proof;

		plant(&s, &faults[i]);
		cr_expect_eq(train_schedule_check(&s, &proof), TRAIN_FAILED, "fault %zu is proved",
			     i);
		cr_expect(strstr(train_error(), faults[i].text), "fault %zu, without \"%s\": %s", i,
			  faults[i].text, train_error());
		train_schedule_close(&s);
	}
}

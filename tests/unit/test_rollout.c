/* test_rollout.c - CartPole against its equations, and an actor-critic's loss against its definition */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/random_floats.h"
#include "trainer/rank/rank.h"

TestSuite(rollout, .timeout = 60);

Test(rollout, a_push_moves_cart_and_pole_by_the_equations_of_1983)
{
	struct train_cartpole c = { 0.3, -0.4, 0.1, 0.7, 3 };
	double sum = (-10.0 + 0.05 * 0.49 * sin(0.1)) / 1.1;
	double turn = (9.8 * sin(0.1) - cos(0.1) * sum) /
		      (0.5 * (4.0 / 3.0 - 0.1 * cos(0.1) * cos(0.1) / 1.1));

	train_cartpole_push(&c, 0);
	cr_expect_float_eq(c.x, 0.3 - 0.02 * 0.4, 1e-15);
	cr_expect_float_eq(c.speed, -0.4 + 0.02 * (sum - 0.05 * turn * cos(0.1) / 1.1), 1e-13);
	cr_expect_float_eq(c.angle, 0.1 + 0.02 * 0.7, 1e-15);
	cr_expect_float_eq(c.spin, 0.7 + 0.02 * turn, 1e-13);
	cr_expect_eq(c.frames, 4);
}

Test(rollout, an_episode_ends_where_the_pole_or_the_cart_leaves_its_bounds_or_after_500_frames)
{
	struct train_cartpole good = { 2.39, 9, -0.2094, 9, 499 }, far = { .x = -2.41 },
			      steep = { .angle = 0.2095 };

	cr_expect(!train_cartpole_ended(&good));
	cr_expect(train_cartpole_failed(&far) && train_cartpole_ended(&far));
	cr_expect(train_cartpole_failed(&steep) && train_cartpole_ended(&steep));
	good.frames = 500;
	cr_expect(train_cartpole_ended(&good) && !train_cartpole_failed(&good));
}

enum { ROWS = 60 };

static const struct train_config config = { .seed = 5, .global_batch = ROWS };
static const struct train_data data = {
	.plays = true, .pixels = 4, .positions = 1, .classes = 3, .test.samples = 1
};

/* A worker that can play. */
static void open_worker(struct train_rank *t)
{
	struct train_model_size size = {
		.inputs = 4, .classes = 3, .max_rows = ROWS, .leaf = ROWS
	};

	*t = (struct train_rank){ .config = &config, .data = &data };
	cr_assert(!train_device_open(&t->device, "cpu", false));
	cr_assert(!train_model_open(&t->model, "mlp:8", &t->device, &size));
	t->parameters = random_floats(t->model.parameters, 7);
	t->x = calloc(ROWS * 4, sizeof(float));
	t->labels = calloc(ROWS, 1);
	cr_assert(!train_rollout_open(t));
}

static void close_worker(struct train_rank *t)
{
	train_rollout_close(t);
	free(t->labels);
	free(t->x);
	free(t->parameters);
	train_model_close(&t->model);
	train_device_close(&t->device);
}

/* The state behind frame `row`, which begins at the row's state, as the agent sees it. */
static void push_from(const float *state, unsigned action, float ret_state[4])
{
	struct train_cartpole c = { state[0] * 2.4, state[1] * 2.0, state[2] * 0.20943951023931953,
				    state[3] * 2.0, 0 };

	train_cartpole_push(&c, action);
	train_cartpole_observe(&c, ret_state);
}

static bool is_near(const float *a, const float *b)
{
	return fabsf(a[0] - b[0]) + fabsf(a[1] - b[1]) + fabsf(a[2] - b[2]) + fabsf(a[3] - b[3]) <
	       1e-5f;
}

Test(rollout, returns_are_discounted_sums_of_rewards_that_end_with_an_episode)
{
	struct train_rank t;
	float after[4], *returns;
	int failures = 0, goes_on = 0;

	open_worker(&t);
	train_rollout_play(&t, ROWS);
	returns = t.rollout->returns;
	for (size_t row = 0; row + 1 < ROWS; row++) {
		push_from(t.x + row * 4, t.labels[row], after);
		if (is_near(after, t.x + (row + 1) * 4)) {
			goes_on++;
			cr_expect_float_eq(returns[row], 0.02f + 0.98f * returns[row + 1], 1e-6);
		} else {
			failures++;
			cr_expect_float_eq(returns[row], 0.02f, 1e-6);
		}
	}
	cr_expect_gt(failures, 0);
	cr_expect_gt(goes_on, failures);
	push_from(t.x + (ROWS - 1) * 4, t.labels[ROWS - 1], after);
	cr_expect_float_eq(returns[ROWS - 1],
			   0.02f + 0.98f * train_model_forward(&t.model, t.parameters, after, 1)[2],
			   1e-5);
	close_worker(&t);
}

Test(rollout, the_next_rollout_continues_the_episode)
{
	struct train_rank t, other;
	float *whole;

	open_worker(&t);
	open_worker(&other);
	train_rollout_play(&t, ROWS);
	whole = malloc(ROWS * 4 * sizeof(float));
	memcpy(whole, t.x, ROWS * 4 * sizeof(float));
	train_rollout_play(&other, 7);
	cr_expect_arr_eq(other.x, whole, 7 * 4 * sizeof(float));
	train_rollout_play(&other, ROWS - 7);
	cr_expect_arr_eq(other.x, whole + 7 * 4, (ROWS - 7) * 4 * sizeof(float));
	free(whole);
	close_worker(&t);
	close_worker(&other);
}

/* The loss in double; advantage: that of the policy's term, a constant. */
static double loss_of(const double *o, unsigned action, double advantage, double target)
{
	double all = exp(o[0]) + exp(o[1]);

	return -advantage * (o[action] - log(all)) + 0.5 * (target - o[2]) * (target - o[2]);
}

Test(rollout, the_gradient_of_the_loss_is_that_of_its_definition)
{
	struct train_rank t;
	float outputs[3] = { 0.3f, -0.5f, 0.25f }, loss;

	open_worker(&t);
	t.labels[4] = 1;
	t.rollout->returns[4] = 0.75f;
	train_rollout_loss(&t, 4, 1, outputs, &loss);
	for (int i = 0; i < 3; i++) {
		double o[3] = { 0.3, -0.5, 0.25 }, more, less;

		cr_expect_float_eq(loss, loss_of(o, 1, 0.5, 0.75), 1e-6);
		o[i] += 1e-6;
		more = loss_of(o, 1, 0.5, 0.75);
		o[i] -= 2e-6;
		less = loss_of(o, 1, 0.5, 0.75);
		cr_expect_float_eq(outputs[i], (more - less) / 2e-6, 1e-5, "output %d", i);
	}
	close_worker(&t);
}

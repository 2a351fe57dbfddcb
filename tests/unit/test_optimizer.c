/* test_optimizer.c - AdamW and RMSProp against their formulas in double; AdamW in parts, and by every instruction set */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "tests/support/random_floats.h"
#include "trainer/device/host_loops.h"
#include "trainer/rank/optimizer.h"

TestSuite(optimizer, .timeout = 60);

enum { N = 70, STEPS = 5 };

static const struct train_config config = {
	.optimizer = TRAIN_ADAMW, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.2
};

/* Takes STEPS steps on elements first..last-1. */
static void descend(size_t first, size_t last, const float *gradients, float *state, float *weight)
{
	struct train_device cpu = { .ops = &train_device_cpu };
	struct train_rank t = { .config = &config };

	for (t.step = 1; t.step <= STEPS; t.step++) {
		t.rate = 0.01f * (float)t.step;
		train_optimizer_update(&t, &(struct train_update){
						   .on = &cpu,
						   .count = last - first,
						   .scale = 0.5f,
						   .gradient = gradients + t.step * N + first,
						   .state = state + first,
						   .stride = N,
						   .weight = weight + first,
					   });
	}
}

Test(optimizer, adamw_follows_its_formulas)
{
	float *gradients = random_floats((STEPS + 1) * N, 3), *weight = random_floats(N, 4);
	float state[2 * N] = { 0 };
	double m[N] = { 0 }, v[N] = { 0 }, w[N];

	for (size_t i = 0; i < N; i++)
		w[i] = weight[i];
	descend(0, N, gradients, state, weight);
	for (int step = 1; step <= STEPS; step++)
		for (size_t i = 0; i < N; i++) {
			double g = 0.5 * gradients[(size_t)step * N + i], rate = 0.01 * step;

			m[i] = 0.8 * m[i] + 0.2 * g;
			v[i] = 0.95 * v[i] + 0.05 * g * g;
			w[i] -= rate * 0.2 * w[i];
			w[i] -= rate * (m[i] / (1 - pow(0.8, step))) /
				(sqrt(v[i] / (1 - pow(0.95, step))) + 1e-8);
		}
	for (size_t i = 0; i < N; i++)
		cr_expect_float_eq(weight[i], w[i], 2e-6, "%zu: %g, not %g", i, (double)weight[i],
				   w[i]);
	free(gradients);
	free(weight);
}

Test(optimizer, rmsprop_follows_its_formulas)
{
	struct train_device cpu = { .ops = &train_device_cpu };
	static const struct train_config rmsprop = { .optimizer = TRAIN_RMSPROP };
	struct train_rank t = { .config = &rmsprop, .rate = 0.01f };
	float *gradients = random_floats(STEPS * N, 3), *weight = random_floats(N, 4),
	      square[N] = { 0 };
	double v[N] = { 0 }, w[N];

	for (size_t i = 0; i < N; i++)
		w[i] = weight[i];
	for (size_t step = 0; step < STEPS; step++) {
		train_optimizer_update(&t, &(struct train_update){
						   .on = &cpu,
						   .count = N,
						   .scale = 0.5f,
						   .gradient = gradients + step * N,
						   .state = square,
						   .weight = weight,
					   });
		for (size_t i = 0; i < N; i++) {
			double g = 0.5 * gradients[step * N + i];

			v[i] = 0.99 * v[i] + 0.01 * g * g;
			w[i] -= 0.01 * g / sqrt(v[i] + 1e-5);
		}
	}
	for (size_t i = 0; i < N; i++)
		cr_expect_float_eq(weight[i], w[i], 2e-6, "%zu: %g, not %g", i, (double)weight[i],
				   w[i]);
	free(gradients);
	free(weight);
}

Test(optimizer, parts_have_the_bits_of_the_whole)
{
	float *gradients = random_floats((STEPS + 1) * N, 3);
	float *whole = random_floats(N, 4), *parts = random_floats(N, 4);
	float state[2 * N] = { 0 }, state_of_parts[2 * N] = { 0 };

	descend(0, N, gradients, state, whole);
	descend(0, 13, gradients, state_of_parts, parts);
	descend(13, N, gradients, state_of_parts, parts);
	cr_expect_arr_eq(whole, parts, N * sizeof(float));
	cr_expect_arr_eq(state, state_of_parts, sizeof(state));
	free(gradients);
	free(whole);
	free(parts);
}

Test(optimizer, every_instruction_set_has_the_same_bits)
{
	static const char *const isa[] = { "avx512", "avx2", "scalar" };
	struct train_adam adam = { 0.5f, 0.9f, 0.99f, 0.01f, 7.0f, 1e-8f, 0.999f };
	float *gradients = random_floats(N, 5), *first = NULL;

	for (size_t i = 0; i < 3; i++) {
		const struct train_host_loops *l = train_host_loops_of(isa[i]);
		float *out = random_floats(3 * N, 6);

		for (size_t k = 0; k < N; k++)
			out[N + k] = fabsf(out[N + k]);
		if (l)
			l->adam(N, &adam, gradients, out + 2 * N, out + N, out);
		if (l && first)
			cr_expect_arr_eq(first, out, 3 * N * sizeof(float), "%s", isa[i]);
		if (l && !first)
			first = out;
		else
			free(out);
	}
	free(first);
	free(gradients);
}

/* train_sine.c - tutti-train's strategies for a model of your own: a network of 16 neurons learns the sine
 *
 *	cc train_sine.c -o train $(pkg-config --cflags --libs tutti-train) -lm
 *	./train --np 4 --strategy ps-async --steps 2000
 */
#include <math.h>
#include <stdio.h>
#include <tutti_train.h>

enum { NEURONS = 16, SAMPLES = 2048, TESTS = 512 };

/* Parameters: weights and biases of the neurons, then of their sum. */
static const tuttiTrainTensor_t tensors[] = {
	{ "in", 1, NEURONS },
	{ "shift", 1, NEURONS },
	{ "out", NEURONS, 1 },
	{ "offset", 1, 1 },
};

static void init(void *arg, uint64_t seed, float *parameters)
{
	(void)arg;
	for (int i = 0; i < NEURONS; i++) {
		parameters[i] = 1.0f + (float)((seed + (uint64_t)i) % 3);
		parameters[NEURONS + i] = 0.5f * (float)(i - NEURONS / 2);
	}
}

static float input(uint32_t sample)
{
	return 6.2831853f * (float)(sample * 2654435761u >> 8) / 16777216.0f - 3.1415927f;
}

/* Squared error of y = offset + sum of out * tanh(in * x + shift), and its gradient. */
static double loss(void *arg, const float *p, const uint32_t *samples, size_t count, float *g)
{
	const float *in = p, *shift = p + NEURONS, *out = p + 2 * NEURONS;
	double sum = 0;

	(void)arg;
	for (size_t s = 0; s < count; s++) {
		float x = input(samples[s]), y = p[3 * NEURONS], h[NEURONS], d;

		for (int i = 0; i < NEURONS; i++)
			y += out[i] * (h[i] = tanhf(in[i] * x + shift[i]));
		d = y - sinf(x);
		sum += (double)d * (double)d;
		for (int i = 0; i < NEURONS && g; i++) {
			float slope = 2 * d * out[i] * (1 - h[i] * h[i]);

			g[i] += slope * x;
			g[NEURONS + i] += slope;
			g[2 * NEURONS + i] += 2 * d * h[i];
		}
		if (g)
			g[3 * NEURONS] += 2 * d;
	}
	return sum;
}

static void trained(void *arg, const float *parameters)
{
	(void)arg;
	printf("the first neuron has weight %.3f\n", (double)parameters[0]);
}

int main(int argc, char **argv)
{
	tuttiTrainModel_t model = { sizeof(model), "sine", tensors, 4,    SAMPLES, TESTS,
				    NULL,          init,   loss,    NULL, trained };

	return tuttiTrain(argc, argv, &model);
}

/* ps_store.c - parameters and their optimizer in host memory (ps_store.h) */
#include "trainer/strategy/ps_store.h"

#include "trainer/base/fail.h"
#include "trainer/device/device_host.h"

#include <math.h>
#include <stdlib.h>

#define ADAGRAD_START 1e-6f /* avoids division by 0 for elements without history */

int train_ps_store_open(struct train_ps_store *s, size_t count, float momentum, bool adagrad)
{
	*s = (struct train_ps_store){ .count = count, .momentum = momentum, .adagrad = adagrad };
	s->parameters = calloc(count ? count : 1, sizeof(float));
	s->state = calloc(count ? count : 1, sizeof(float));
	if (s->parameters && s->state)
		return TRAIN_OK;
	train_ps_store_close(s);
	return train_fail(TRAIN_FAILED, "no memory to store %zu parameters", count);
}

void train_ps_store_close(struct train_ps_store *s)
{
	free(s->parameters);
	free(s->state);
	*s = (struct train_ps_store){ 0 };
}

void train_ps_store_descend(struct train_ps_store *s, size_t at, size_t count,
			    const float *gradient, float scale, float rate)
{
	float *state = s->state + at, *parameters = s->parameters + at;

	if (!s->adagrad) {
		train_host_descend(NULL, count, scale, rate, s->momentum, gradient, state,
				   parameters);
		return;
	}
	for (size_t i = 0; i < count; i++) {
		float g = scale * gradient[i];

		state[i] += g * g;
		parameters[i] -= rate * g / sqrtf(state[i] + ADAGRAD_START);
	}
}

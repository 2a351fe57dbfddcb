/* rollout.c - actor-critic on an environment (rollout.h) */
#include "trainer/rank/rollout.h"

#include "trainer/base/rng.h"
#include "trainer/device/exact.h"
#include "trainer/rank/rank.h"

#include <stdlib.h>
#include <string.h>

enum { ACTIONS = TRAIN_CARTPOLE_ACTIONS, INPUTS = TRAIN_CARTPOLE_INPUTS, VALUE = ACTIONS };

static const float discount = 0.98f;

/* ---- the agent ------------------------------------------------------------------------------- */

static const float *outputs_of(struct train_rank *t, const float *state)
{
	return train_model_forward(&t->model, t->parameters, state, 1);
}

static float value_of(struct train_rank *t, const struct train_cartpole *pole)
{
	float state[INPUTS];

	train_cartpole_observe(pole, state);
	return outputs_of(t, state)[VALUE];
}

/* Draws an action from the policy. */
static uint8_t choose(const float *outputs, uint32_t random)
{
	float policy[ACTIONS];
	double below = 0.0;
	uint8_t action = 0;

	memcpy(policy, outputs, sizeof(policy));
	train_softmax(policy, ACTIONS);
	while (action < ACTIONS - 1 &&
	       (double)random * 0x1p-32 >= (below += (double)policy[action]))
		action++;
	return action;
}

/* ---- a rollout ------------------------------------------------------------------------------- */

static void begin_episode(struct train_rank *t)
{
	uint32_t random[4];

	train_rng((uint64_t)t->config->seed, TRAIN_RNG_EPISODE, (uint32_t)t->world_rank,
		  t->rollout->frames, random);
	train_cartpole_begin(&t->rollout->pole, random);
}

/* The returns of consecutive frames of an episode; `value` follows the last one. */
static void add_up(float *returns, size_t frames, float value)
{
	for (size_t i = frames; i-- > 0; value = returns[i])
		returns[i] = (1.0f - discount) + discount * value;
}

void train_rollout_play(struct train_rank *t, size_t rows)
{
	struct train_rollout *r = t->rollout;
	size_t first = 0;

	if (!r->frames) {
		r->frames = t->first_step * (uint64_t)t->config->global_batch;
		begin_episode(t);
	}
	for (size_t row = 0; row < rows; row++) {
		float *state = t->x + row * INPUTS;
		uint32_t random[4];

		train_rng((uint64_t)t->config->seed, TRAIN_RNG_ACTION, (uint32_t)t->world_rank,
			  r->frames++, random);
		train_cartpole_observe(&r->pole, state);
		t->labels[row] = choose(outputs_of(t, state), random[0]);
		train_cartpole_push(&r->pole, t->labels[row]);
		if (!train_cartpole_ended(&r->pole) && row + 1 < rows)
			continue;
		/* an episode of greatest length is cut off, not failed */
		add_up(r->returns + first, row + 1 - first,
		       train_cartpole_failed(&r->pole) ? 0.0f : value_of(t, &r->pole));
		first = row + 1;
		if (train_cartpole_ended(&r->pole))
			begin_episode(t);
	}
}

void train_rollout_loss(struct train_rank *t, size_t first, size_t rows, float *outputs,
			float *loss)
{
	double total = 0.0;

	for (size_t row = first; row < first + rows; row++, outputs += ACTIONS + 1) {
		float advantage = t->rollout->returns[row] - outputs[VALUE];

		total += (double)advantage *
			 (train_cross_entropy(outputs, ACTIONS, t->labels[row]) +
			  0.5 * (double)advantage);
		train_softmax(outputs, ACTIONS);
		outputs[t->labels[row]] -= 1.0f;
		for (int i = 0; i < ACTIONS; i++)
			outputs[i] *= advantage;
		outputs[VALUE] = -advantage;
	}
	*loss = (float)total;
}

/* ---- the test -------------------------------------------------------------------------------- */

/* Returns the frames of an episode, which depends on its number and the parameters. */
static unsigned play_episode(struct train_rank *t, uint32_t number)
{
	struct train_cartpole pole;
	float state[INPUTS];
	uint32_t random[4];

	train_rng((uint64_t)t->config->seed, TRAIN_RNG_TEST, number, 0, random);
	train_cartpole_begin(&pole, random);
	while (!train_cartpole_ended(&pole)) {
		train_rng((uint64_t)t->config->seed, TRAIN_RNG_TEST, number, 1 + pole.frames,
			  random);
		train_cartpole_observe(&pole, state);
		train_cartpole_push(&pole, choose(outputs_of(t, state), random[0]));
	}
	return pole.frames;
}

int train_rollout_test(struct train_rank *t, double *ret_share)
{
	struct train_share share = train_share_of(t->data->test.samples, t->rank, t->nranks);
	double frames = 0.0;
	int rc;

	for (size_t i = 0; i < share.count; i++)
		frames += play_episode(t, (uint32_t)(share.first + i));
	rc = train_check(tuttiAllReduce(&frames, &frames, 1, tuttiFloat64, tuttiSum, t->comm, NULL),
			 t->comm);
	*ret_share = frames / (double)(t->data->test.samples * TRAIN_CARTPOLE_FRAMES);
	return rc;
}

/* ---- open and close -------------------------------------------------------------------------- */

int train_rollout_open(struct train_rank *t)
{
	struct train_rollout *r = calloc(1, sizeof(*r));

	t->rollout = r;
	if (t->device.ops->separate_memory)
		return train_fail(TRAIN_USAGE,
				  "--data %s: --device %s cannot play; use --device cpu",
				  t->data->name, t->config->device);
	if (r)
		r->returns = malloc(t->model.max_rows * sizeof(*r->returns));
	if (!r || !r->returns)
		return train_fail(TRAIN_FAILED, "no memory for a rollout of %zu frames",
				  t->model.max_rows);
	return TRAIN_OK;
}

void train_rollout_close(struct train_rank *t)
{
	if (t->rollout)
		free(t->rollout->returns);
	free(t->rollout);
}

/*
 * data_cartpole.c - an environment in place of data: each worker plays CartPole (cartpole.h)
 *
 * A sample is a frame, an epoch 60,000 of them, and a test 100 episodes. Row of the table in data.c.
 */
#include "trainer/data/cartpole.h"
#include "trainer/data/data.h"

enum { FRAMES = 60000, EPISODES = 100 };

static int load(const char *path, const struct train_data_options *options, struct train_data *data)
{
	(void)path;
	(void)options;
	data->plays = true;
	data->pixels = TRAIN_CARTPOLE_INPUTS;
	data->classes = TRAIN_CARTPOLE_ACTIONS + 1;
	data->train.samples = FRAMES;
	data->test.samples = EPISODES;
	return 0;
}

const struct train_data_source train_data_cartpole = {
	.name = "cartpole",
	.help = "an environment: a pole on a cart, for a2c and a3c",
	.load = load,
};

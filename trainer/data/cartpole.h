/*
 * cartpole.h - a pole on a cart that is pushed to the left or to the right, so that the pole stays up
 *
 * Barto, Sutton and Anderson 1983, Neuronlike adaptive elements that can solve difficult learning
 * control problems: the problem's masses, length, force and time step, without friction. An episode
 * ends when the pole leans by more than 12 degrees, when the cart is 2.4 m away, or after 500 frames.
 * The bits depend on the operands alone. Called by rollout.c.
 */
#ifndef TRAIN_CARTPOLE_H
#define TRAIN_CARTPOLE_H

#include <stdbool.h>
#include <stdint.h>

enum { TRAIN_CARTPOLE_INPUTS = 4, TRAIN_CARTPOLE_ACTIONS = 2, TRAIN_CARTPOLE_FRAMES = 500 };

struct train_cartpole {
	double x, speed;    /* of the cart, in m and m/s */
	double angle, spin; /* of the pole, in rad and rad/s; 0: upright */
	unsigned frames;    /* of this episode */
};

/* Begins an episode, near the upright rest. */
void train_cartpole_begin(struct train_cartpole *c, const uint32_t random[4]);

/* What an agent sees: the state, in multiples of its bounds. */
void train_cartpole_observe(const struct train_cartpole *c, float ret_x[TRAIN_CARTPOLE_INPUTS]);

/* The next frame, 20 ms later. action: 0 pushes to the left, 1 to the right. */
void train_cartpole_push(struct train_cartpole *c, unsigned action);

/* The pole fell, or the cart is too far away. */
bool train_cartpole_failed(const struct train_cartpole *c);

static inline bool train_cartpole_ended(const struct train_cartpole *c)
{
	return c->frames == TRAIN_CARTPOLE_FRAMES || train_cartpole_failed(c);
}

#endif

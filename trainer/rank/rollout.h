/*
 * rollout.h - a worker that learns from an environment: the frames of a step, and their loss
 *
 * The model's outputs are a preference for each action, whose softmax is the policy, and the value of
 * the state, an estimate of the return that follows (actor-critic). For each frame of a rollout
 *
 *	return = reward + discount * return of the next frame	(behind the last one: its value)
 *	advantage = return - value
 *	loss = -advantage ln policy(action) + advantage^2 / 2	(advantage: a constant in the first term)
 *
 * A reward is 1 - discount for each frame, so that no return is above 1. Called by gradient.c and
 * trainer.c; calls cartpole.c and the model. Source: Mnih et al. 2016, Asynchronous methods for deep
 * reinforcement learning, without the entropy term, which CartPole does not need.
 */
#ifndef TRAIN_RANK_ROLLOUT_H
#define TRAIN_RANK_ROLLOUT_H

#include "trainer/data/cartpole.h"

#include <stddef.h>
#include <stdint.h>

struct train_rank;

struct train_rollout {
	struct train_cartpole pole; /* the next rollout continues the episode */
	uint64_t frames;            /* of all rollouts, the index of their random numbers */
	float *returns;             /* [rows] of the last rollout */
};

/* Sets t->rollout. Returns 0 | TRAIN_USAGE (a device with memory of its own) | TRAIN_FAILED. */
int train_rollout_open(struct train_rank *t);
void train_rollout_close(struct train_rank *t);

/* Plays the next frames: t->x = their states, t->labels = the actions. */
void train_rollout_play(struct train_rank *t, size_t rows);

/* *loss = the sum over these frames of the rollout; outputs[rows][] are replaced by their gradient of
 * that sum. */
void train_rollout_loss(struct train_rank *t, size_t first, size_t rows, float *outputs,
			float *loss);

/* The mean return of the test's episodes, as a share of the greatest return. Call by all workers, with equal parameters; each
 * plays its share. Returns 0 | TRAIN_FAILED. */
int train_rollout_test(struct train_rank *t, double *ret_share);

/* In frames. */
static inline double train_rollout_return(double share)
{
	return share * TRAIN_CARTPOLE_FRAMES;
}

#endif

/*
 * strategy_a2c.c - advantage actor-critic: the synchronous twin of a3c
 *
 *	parameters = broadcast(rank 0's parameters)
 *	each step:
 *		play my share of the batch's frames				(rollout.h)
 *		gradients = allreduce(gradient(parameters, frames))
 *		parameters = RMSProp(parameters, gradients / all frames)
 *
 * Row of the table in strategy.c. Source: Mnih et al. 2016, Asynchronous methods for deep reinforcement
 * learning; its workers wait for each other here.
 */
#include "trainer/strategy/strategy.h"

static int a2c_step(struct train_rank *t, const struct train_batch *batch)
{
	int rc = train_gradient(t, batch, NULL);
	uint64_t wait_begin = train_time_ns();

	if (!rc)
		rc = train_check(tuttiAllReduce(t->comm_buffer, t->comm_buffer, t->floats,
						tuttiFloat32, tuttiSum, t->comm, NULL),
				 t->comm);
	train_add_exposed(t, wait_begin);
	if (!rc)
		train_descend(t, t->leaves.batch);
	return rc;
}

const struct train_strategy_ops train_strategy_a2c = {
	.name = "a2c",
	.help = "workers play, and allreduce their gradients in every step",
	.plays = true,
	.open = train_parameters_bcast,
	.step = a2c_step,
};

/*
 * strategy_compressed.c - mirrored with --compress: gradients are summed in fewer bytes
 *
 *	parameters = broadcast(rank 0's parameters)
 *	each step:
 *		gradients = gradient(parameters, my share of the batch)
 *		gradients = sum of all ranks' compressed gradients, with error feedback	(compress.h)
 *		parameters = descend(parameters, gradients / global batch)
 *
 * The tail is summed as it is. A training that is resumed begins with an error, and velocities of
 * compressors, of 0. Chosen by strategy.c.
 */
#include "trainer/strategy/compress.h"
#include "trainer/strategy/strategy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int compressed_open(struct train_rank *t)
{
	struct train_compressor *c = calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return train_fail(TRAIN_FAILED, "no memory for a strategy");
	t->strategy_state = c;
	rc = train_compressor_open(c, t);
	if (c->velocity)
		t->momentum = 0.0f;
	return rc ? rc : train_parameters_bcast(t);
}

static void compressed_close(struct train_rank *t)
{
	train_compressor_close(t->strategy_state);
	free(t->strategy_state);
}

static int compressed_step(struct train_rank *t, const struct train_batch *batch)
{
	float *tail = t->comm_buffer + t->tail_at;
	int rc = train_gradient(t, batch, NULL);
	uint64_t wait_begin = train_time_ns();

	if (!rc)
		rc = train_compressor_sum(t->strategy_state, t->comm_buffer);
	if (!rc)
		rc = train_check(tuttiAllReduce(tail, tail, TRAIN_TAIL, tuttiFloat32, tuttiSum,
						t->comm, NULL),
				 t->comm);
	train_add_exposed(t, wait_begin);
	if (!rc)
		train_descend(t, t->leaves.batch);
	return rc;
}

static void compressed_report(const struct train_rank *t)
{
	const struct train_compressor *c = t->strategy_state;

	printf("\"compress\":\"%s\",\"message_bytes\":%" PRIu64 ",", t->config->compress,
	       c->message_bytes);
}

const struct train_strategy_ops train_strategy_compressed = {
	.name = "mirrored",
	.help = "mirrored with --compress",
	.no_shrink = "with --compress the messages of a step are made for all ranks; use "
		     "--save-every, or omit --compress",
	.open = compressed_open,
	.close = compressed_close,
	.step = compressed_step,
	.report = compressed_report,
};

/*
 * comm_stream.c - a stream for communication overlap: library calls during the backward pass
 * (rank.h)
 *
 * Called by strategies where comm_buffer is device memory: the device provides the stream and
 * orders it with its computation.
 */
#include "trainer/rank/rank.h"

int train_comm_stream_open(struct train_rank *t)
{
	t->comm_stream = t->device.ops->comm_stream(&t->device);
	return TRAIN_OK;
}

void train_comm_stream_after_compute(struct train_rank *t)
{
	t->device.ops->comm_stream_after_compute(&t->device);
}

int train_comm_stream_wait(struct train_rank *t)
{
	tuttiResult_t state = tuttiSuccess, result;
	int rc = t->device.ops->comm_stream_sync(&t->device);

	result = tuttiCommGetAsyncError(t->comm, &state);
	return rc ? rc : train_check(result ? result : state, t->comm);
}

void train_comm_stream_close(struct train_rank *t)
{
	t->comm_stream = NULL;
}

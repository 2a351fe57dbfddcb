/*
 * comm_stream.c - a stream for communication overlap: library calls during the backward pass
 * (rank.h)
 *
 * Called by strategies. If comm_buffer is device memory, the device provides the stream and
 * orders it with its computation; otherwise the stream is a host stream of the library.
 */
#include "trainer/rank/rank.h"

int train_comm_stream_open(struct train_rank *t)
{
	if (!train_comm_on_device(t))
		return train_check(tuttiStreamCreate(&t->comm_stream), NULL);
	t->comm_stream = t->device.ops->comm_stream(&t->device);
	return TRAIN_OK;
}

void train_comm_stream_after_compute(struct train_rank *t)
{
	if (train_comm_on_device(t))
		t->device.ops->comm_stream_after_compute(&t->device);
}

int train_comm_stream_wait(struct train_rank *t)
{
	tuttiResult_t state = tuttiSuccess, result;
	int rc;

	if (!train_comm_on_device(t))
		return train_check(tuttiStreamSynchronize(t->comm_stream), t->comm);
	rc = t->device.ops->comm_stream_sync(&t->device);
	result = tuttiCommGetAsyncError(t->comm, &state);
	return rc ? rc : train_check(result ? result : state, t->comm);
}

void train_comm_stream_close(struct train_rank *t)
{
	if (t->comm_stream && !train_comm_on_device(t))
		tuttiStreamDestroy(t->comm_stream);
	t->comm_stream = NULL;
}

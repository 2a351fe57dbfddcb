/*
 * overlap.c - the library's calls on wire beside the backward pass (trainer.h)
 *
 * Called by strategies. Where wire is memory of a device, the device has a stream for them and puts
 * them in order with what it computes; else it is a stream of the library's.
 */
#include "trainer/trainer.h"

int train_overlap_open(struct train_rank *t)
{
	if (!train_wire_apart(t))
		return train_library(tuttiStreamCreate(&t->beside), NULL);
	t->beside = t->device.ops->beside(&t->device);
	return TRAIN_OK;
}

void train_overlap_lead(struct train_rank *t)
{
	if (train_wire_apart(t))
		t->device.ops->lead(&t->device);
}

int train_overlap_wait(struct train_rank *t)
{
	tuttiResult_t state = tuttiSuccess, result;
	int rc;

	if (!train_wire_apart(t))
		return train_library(tuttiStreamSynchronize(t->beside), t->comm);
	rc = t->device.ops->join(&t->device);
	result = tuttiCommGetAsyncError(t->comm, &state);
	return rc ? rc : train_library(result ? result : state, t->comm);
}

void train_overlap_close(struct train_rank *t)
{
	if (t->beside && !train_wire_apart(t))
		tuttiStreamDestroy(t->beside);
	t->beside = NULL;
}

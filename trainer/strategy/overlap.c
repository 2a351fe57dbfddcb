/*
 * overlap.c - the library's calls on wire beside the backward pass (trainer.h)
 *
 * Called by strategies. Where wire is memory of a device, the device has a stream for them and puts
 * them in order with what it computes; else it is a stream of the library's.
 */
#include "trainer/trainer.h"

int tt_beside_open(struct tt_trainer *t)
{
	if (!tt_wire_apart(t))
		return tt_library(tuttiStreamCreate(&t->beside), NULL);
	t->beside = t->device.ops->beside(&t->device);
	return TT_TRAIN_OK;
}

void tt_beside_lead(struct tt_trainer *t)
{
	if (tt_wire_apart(t))
		t->device.ops->lead(&t->device);
}

int tt_beside_wait(struct tt_trainer *t)
{
	tuttiResult_t state = tuttiSuccess, result;
	int rc;

	if (!tt_wire_apart(t))
		return tt_library(tuttiStreamSynchronize(t->beside), t->comm);
	rc = t->device.ops->join(&t->device);
	result = tuttiCommGetAsyncError(t->comm, &state);
	return rc ? rc : tt_library(result ? result : state, t->comm);
}

void tt_beside_close(struct tt_trainer *t)
{
	if (t->beside && !tt_wire_apart(t))
		tuttiStreamDestroy(t->beside);
	t->beside = NULL;
}

/*
 * tensor_sum.c - sums over the ranks of a tensor group (tensor_sum.h)
 *
 *	part r of each rank's data goes to rank r			(alltoall)
 *	rank r adds the parts as a perfect binary tree: ((p0+p1)+(p2+p3))+...
 *	every rank gets the sums of all parts				(allgather)
 *
 * A rank sends 2 (T-1)/T of its data, as a ring does.
 */
#include "trainer/rank/tensor_sum.h"

#include <string.h>

/* Memory for the parts of all ranks, sent and received. */
static int reserve(struct train_rank *t, size_t floats)
{
	if (floats <= t->mesh.parts_floats)
		return TRAIN_OK;
	train_tensor_sum_close(t);
	if (tuttiMemAlloc((void **)&t->mesh.parts, 2 * floats * sizeof(float)) != tuttiSuccess)
		return train_fail(TRAIN_FAILED, "no memory to sum %zu floats", floats);
	t->mesh.parts_floats = floats;
	return TRAIN_OK;
}

void train_tensor_sum_close(struct train_rank *t)
{
	tuttiMemFree(t->mesh.parts);
	t->mesh.parts = NULL;
	t->mesh.parts_floats = 0;
}

int train_tensor_sum(void *arg, float *data, size_t count)
{
	struct train_rank *t = arg;
	struct train_device *d = &t->device;
	size_t ranks = (size_t)t->mesh.tensor, part = (count + ranks - 1) / ranks;
	tuttiComm_t comm = t->mesh.tensor_comm;
	float *sent, *got;
	int rc = reserve(t, part * ranks);

	if (rc)
		return rc;
	sent = t->mesh.parts;
	got = sent + part * ranks;
	memcpy(sent, data, count * sizeof(*data));
	memset(sent + count, 0, (part * ranks - count) * sizeof(*data));
	rc = train_check(tuttiAlltoAll(sent, got, part, tuttiFloat32, comm, NULL), comm);
	for (size_t apart = 1; apart < ranks && !rc; apart *= 2)
		for (size_t r = 0; r < ranks; r += 2 * apart)
			d->ops->add(d, part, got + (r + apart) * part, got + r * part);
	if (!rc)
		rc = train_check(tuttiAllGather(got, sent, part, tuttiFloat32, comm, NULL), comm);
	if (!rc)
		memcpy(data, sent, count * sizeof(*data));
	return rc;
}

int train_tensor_agree(struct train_rank *t, bool *stop)
{
	int32_t any = *stop;
	int rc = TRAIN_OK;

	if (t->mesh.tensor > 1)
		rc = train_check(tuttiAllReduce(&any, &any, 1, tuttiInt32, tuttiMax,
						t->mesh.tensor_comm, NULL),
				 t->mesh.tensor_comm);
	*stop = any != 0;
	return rc;
}

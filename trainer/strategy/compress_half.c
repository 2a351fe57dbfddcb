/*
 * compress_half.c - --compress fp16 and bf16: gradients of 16 bits, summed by an allreduce of this type
 *
 * The error is that of a rank's own rounding; sums are rounded once more. A gradient above the range
 * of a sum of fp16 is sent as the greatest one. Rows of the table in compress.c.
 */
#include "trainer/strategy/compress.h"

#include "mem/reduce.h"

#include <stdlib.h>

/* c->state is the message, [parameters]. */
static int half_open(struct train_compressor *c)
{
	size_t n = c->t->model.parameters;

	c->message_bytes = n * sizeof(uint16_t);
	if (tuttiMemAlloc(&c->state, c->message_bytes) != tuttiSuccess)
		return train_fail(TRAIN_FAILED, "no memory for %zu gradients", n);
	return TRAIN_OK;
}

static void half_close(struct train_compressor *c)
{
	tuttiMemFree(c->state);
}

/* most: greatest magnitude of a message's number */
static int half_sum(struct train_compressor *c, float *v, tuttiDataType_t type, float most)
{
	size_t n = c->t->model.parameters;
	tuttiComm_t comm = c->t->comm;
	int rc;

	for (size_t i = 0; i < n; i++) {
		float sent = v[i] > most ? most : v[i] < -most ? -most : v[i];

		tt_element_set(c->state, i, type, (double)sent);
		c->error[i] = v[i] - (float)tt_element_get(c->state, i, type);
	}
	rc = train_check(tuttiAllReduce(c->state, c->state, n, type, tuttiSum, comm, NULL), comm);
	for (size_t i = 0; i < n && !rc; i++)
		v[i] = (float)tt_element_get(c->state, i, type);
	return rc;
}

static int fp16_sum(struct train_compressor *c, float *v)
{
	return half_sum(c, v, tuttiFloat16, 65504.0f / (float)c->t->nranks);
}

static int bf16_sum(struct train_compressor *c, float *v)
{
	return half_sum(c, v, tuttiBfloat16, 0x1.fep127f / (float)c->t->nranks);
}

const struct train_compressor_ops train_compress_fp16 = {
	.name = "fp16",
	.syntax = "fp16",
	.help = "16-bit floats, half of the bytes",
	.open = half_open,
	.close = half_close,
	.sum = fp16_sum,
};

const struct train_compressor_ops train_compress_bf16 = {
	.name = "bf16",
	.syntax = "bf16",
	.help = "the same with the range of float and 8 bits of precision",
	.open = half_open,
	.close = half_close,
	.sum = bf16_sum,
};

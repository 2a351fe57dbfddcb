/*
 * compress_int8.c - --compress int8: each gradient as a number from -127 to 127, times a scale for
 * each block of 256
 *
 *	scale = the greatest magnitude of the block / 127
 *	message = scales, round(v / scale)		to all ranks, by an allgather
 *
 * Row of the table in compress.c. Source: Dettmers 2016, 8-bit approximations for parallelism in deep
 * learning.
 */
#include "trainer/strategy/compress.h"

#include <math.h>
#include <stdlib.h>

enum { BLOCK = 256 };

struct int8_state {
	size_t blocks, bytes; /* of a message: scales, then numbers */
	char *messages;       /* [ranks][bytes] */
};

static void int8_close(struct train_compressor *c)
{
	struct int8_state *s = c->state;

	if (s)
		tuttiMemFree(s->messages);
	free(s);
}

static int int8_open(struct train_compressor *c)
{
	size_t n = c->t->model.parameters, ranks = (size_t)c->t->nranks;
	struct int8_state *s = calloc(1, sizeof(*s));

	c->state = s;
	if (s) {
		s->blocks = (n + BLOCK - 1) / BLOCK;
		s->bytes = s->blocks * (sizeof(float) + BLOCK);
		c->message_bytes = s->bytes;
	}
	if (!s || tuttiMemAlloc((void **)&s->messages, ranks * s->bytes) != tuttiSuccess)
		return train_fail(TRAIN_FAILED, "no memory for %zu gradients of %zu ranks", n,
				  ranks);
	return TRAIN_OK;
}

/* message = v[n], n at most BLOCK; error = the rest. */
static void compress_block(const float *v, size_t n, float *scale, int8_t *number, float *error)
{
	float most = 0.0f;

	for (size_t i = 0; i < n; i++)
		most = fabsf(v[i]) > most ? fabsf(v[i]) : most;
	*scale = most / 127.0f;
	for (size_t i = 0; i < n; i++) {
		float at = *scale > 0.0f ? v[i] / *scale : 0.0f;

		number[i] = (int8_t)(at + (at < 0.0f ? -0.5f : 0.5f));
		error[i] = v[i] - *scale * (float)number[i];
	}
}

static size_t size_of_block(const struct train_compressor *c, size_t block)
{
	size_t left = c->t->model.parameters - block * BLOCK;

	return left < BLOCK ? left : BLOCK;
}

static int int8_sum(struct train_compressor *c, float *v)
{
	struct int8_state *s = c->state;
	char *own = s->messages + (size_t)c->t->rank * s->bytes;
	tuttiComm_t comm = c->t->comm;
	int rc;

	for (size_t b = 0; b < s->blocks; b++)
		compress_block(v + b * BLOCK, size_of_block(c, b), (float *)own + b,
			       (int8_t *)own + s->blocks * sizeof(float) + b * BLOCK,
			       c->error + b * BLOCK);
	rc = train_check(tuttiAllGather(own, s->messages, s->bytes, tuttiUint8, comm, NULL), comm);
	for (int r = 0; r < c->t->nranks && !rc; r++) {
		const char *message = s->messages + (size_t)r * s->bytes;
		const float *scale = (const float *)message;
		const int8_t *number = (const int8_t *)(scale + s->blocks);

		for (size_t i = 0; i < c->t->model.parameters; i++)
			v[i] = (r ? v[i] : 0.0f) + scale[i / BLOCK] * (float)number[i];
	}
	return rc;
}

const struct train_compressor_ops train_compress_int8 = {
	.name = "int8",
	.syntax = "int8",
	.help = "8-bit integers and a scale for each 256, by an allgather",
	.open = int8_open,
	.close = int8_close,
	.sum = int8_sum,
};

/*
 * compress_topk.c - --compress topk:R: of all gradients the share R that is greatest in magnitude
 *
 *	message = (index, value) of k = R n gradients	to all ranks, by an allgather
 *
 * The others accumulate in the error until they are sent. Where magnitudes are equal, the lower index
 * is sent. Row of the table in compress.c. Sources: Aji and Heafield 2017, Sparse communication for
 * distributed gradient descent; Lin et al. 2018, Deep gradient compression.
 */
#include "trainer/strategy/compress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct topk_entry {
	uint32_t index;
	float value;
};

struct topk_state {
	size_t k;
	float *magnitude;            /* [parameters] */
	struct topk_entry *messages; /* [ranks][k] */
};

static void topk_close(struct train_compressor *c)
{
	struct topk_state *s = c->state;

	if (s) {
		tuttiMemFree(s->messages);
		free(s->magnitude);
	}
	free(s);
}

static int topk_open(struct train_compressor *c)
{
	size_t n = c->t->model.parameters, ranks = (size_t)c->t->nranks;
	struct topk_state *s = calloc(1, sizeof(*s));

	c->state = s;
	if (s) {
		s->k = (size_t)ceil(c->number * (double)n);
		s->magnitude = malloc(n * sizeof(*s->magnitude));
		c->message_bytes = s->k * sizeof(*s->messages);
	}
	if (!s || !s->magnitude ||
	    tuttiMemAlloc((void **)&s->messages, ranks * c->message_bytes) != tuttiSuccess)
		return train_fail(TRAIN_FAILED, "no memory for %zu gradients of %zu ranks", n,
				  ranks);
	return TRAIN_OK;
}

/* The k-th greatest of a[n], whose order changes (Hoare 1961, Find). */
static float kth_greatest(float *a, size_t n, size_t k)
{
	size_t low = 0, high = n - 1, at = k - 1;

	while (low < high) {
		float middle = a[low + (high - low) / 2];
		size_t i = low, j = high;

		while (i <= j) {
			while (a[i] > middle)
				i++;
			while (a[j] < middle)
				j--;
			if (i <= j) {
				float other = a[i];

				a[i++] = a[j];
				a[j] = other;
				if (j == 0)
					break;
				j--;
			}
		}
		if (at <= j)
			high = j;
		else if (at >= i)
			low = i;
		else
			break;
	}
	return a[at];
}

/* The k greatest of v, which the error no longer has. */
static void select_greatest(struct train_compressor *c, const float *v, struct topk_entry *own)
{
	const struct topk_state *s = c->state;
	size_t n = c->t->model.parameters, above = 0, sent = 0;
	float least;

	for (size_t i = 0; i < n; i++) /* a NaN is sent, and ends the training */
		s->magnitude[i] = v[i] == v[i] ? fabsf(v[i]) : INFINITY;
	least = kth_greatest(s->magnitude, n, s->k);
	for (size_t i = 0; i < n; i++)
		above += !(fabsf(v[i]) <= least);
	for (size_t i = 0; i < n; i++) {
		bool greater = !(fabsf(v[i]) <= least), equal = fabsf(v[i]) == least;

		c->error[i] = v[i];
		if (!greater && !(equal && above < s->k))
			continue;
		above += equal;
		own[sent++] = (struct topk_entry){ (uint32_t)i, v[i] };
		c->error[i] = 0.0f;
	}
}

static int topk_sum(struct train_compressor *c, float *v)
{
	struct topk_state *s = c->state;
	struct topk_entry *own = s->messages + (size_t)c->t->rank * s->k;
	size_t all = s->k * (size_t)c->t->nranks;
	tuttiComm_t comm = c->t->comm;
	int rc;

	select_greatest(c, v, own);
	rc = train_check(tuttiAllGather(own, s->messages, s->k * sizeof(*own), tuttiUint8, comm,
					NULL),
			 comm);
	if (rc)
		return rc;
	memset(v, 0, c->t->model.parameters * sizeof(*v));
	for (size_t i = 0; i < all; i++)
		v[s->messages[i].index] += s->messages[i].value;
	return TRAIN_OK;
}

const struct train_compressor_ops train_compress_topk = {
	.name = "topk",
	.syntax = "topk:R",
	.help = "the share R of the gradients that is greatest, by an allgather",
	.least = 1e-6,
	.most = 1,
	.fallback = 0.01,
	.open = topk_open,
	.close = topk_close,
	.sum = topk_sum,
};

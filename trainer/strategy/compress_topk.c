/*
 * compress_topk.c - --compress topk:R: of all gradients the share R that is greatest in magnitude
 *
 *	velocity = momentum velocity + gradients
 *	v = error + velocity
 *	message = (index, value) of the k = R n greatest of v	to all ranks, by an allgather
 *	where sent: error = velocity = 0; elsewhere: error = v
 *	parameters -= rate (sum of messages)
 *
 * The momentum accumulates before the selection: a gradient that waits for many steps would be without
 * the momentum of these steps (momentum correction); the velocity of what is sent does not push on in
 * the old direction (momentum factor masking). In the first --warmup steps more is sent: a quarter, a
 * sixteenth, 1/64 and 1/256 in a quarter of them each, where that is more than R. Where magnitudes are equal, the lower
 * index is sent. Row of the table in compress.c. Sources: Aji and Heafield 2017, Sparse communication for
 * distributed gradient descent; Lin et al. 2018, Deep gradient compression.
 */
#include "trainer/strategy/compress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_STAGES = 4 };

struct topk_entry {
	uint32_t index;
	float value;
};

struct topk_state {
	size_t k;                    /* after the warm-up */
	float *magnitude;            /* [parameters] */
	struct topk_entry *messages; /* [ranks][k of the step] */
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
	size_t n = c->t->model.parameters, ranks = (size_t)c->t->nranks, most;
	struct topk_state *s = calloc(1, sizeof(*s));

	c->state = s;
	if (s) {
		s->k = (size_t)ceil(c->number * (double)n);
		s->magnitude = malloc(n * sizeof(*s->magnitude));
		c->message_bytes = s->k * sizeof(*s->messages);
		most = c->t->config->warmup && n / 4 > s->k ? n / 4 : s->k;
	}
	if (!s || !s->magnitude ||
	    tuttiMemAlloc((void **)&s->messages, ranks * most * sizeof(*s->messages)) !=
		    tuttiSuccess)
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

/* Gradients of a message in this step. */
static size_t count_of_step(const struct train_compressor *c)
{
	uint64_t done = c->t->step ? c->t->step - 1 : 0, warmup = (uint64_t)c->t->config->warmup;
	size_t k = ((const struct topk_state *)c->state)->k, more;

	if (done >= warmup)
		return k;
	more = c->t->model.parameters >> 2 * (1 + WARM_STAGES * done / warmup);
	return more > k ? more : k;
}

/* The k greatest of v, which error and velocity no longer have. */
static void select_greatest(struct train_compressor *c, size_t k, const float *v,
			    struct topk_entry *own)
{
	const struct topk_state *s = c->state;
	size_t n = c->t->model.parameters, above = 0, sent = 0;
	float least;

	for (size_t i = 0; i < n; i++) /* a NaN is sent, and ends the training */
		s->magnitude[i] = v[i] == v[i] ? fabsf(v[i]) : INFINITY;
	least = kth_greatest(s->magnitude, n, k);
	for (size_t i = 0; i < n; i++)
		above += !(fabsf(v[i]) <= least);
	for (size_t i = 0; i < n; i++) {
		bool greater = !(fabsf(v[i]) <= least), equal = fabsf(v[i]) == least;

		c->error[i] = v[i];
		if (!greater && !(equal && above < k))
			continue;
		above += equal;
		own[sent++] = (struct topk_entry){ (uint32_t)i, v[i] };
		c->error[i] = 0.0f;
		if (c->velocity)
			c->velocity[i] = 0.0f;
	}
}

static int topk_sum(struct train_compressor *c, float *v)
{
	struct topk_state *s = c->state;
	size_t k = count_of_step(c), all = k * (size_t)c->t->nranks;
	struct topk_entry *own = s->messages + (size_t)c->t->rank * k;
	tuttiComm_t comm = c->t->comm;
	int rc;

	select_greatest(c, k, v, own);
	rc = train_check(tuttiAllGather(own, s->messages, k * sizeof(*own), tuttiUint8, comm, NULL),
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
	.own_momentum = true,
	.open = topk_open,
	.close = topk_close,
	.sum = topk_sum,
};

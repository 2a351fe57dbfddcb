/* fixed64.c - gradients as 64-bit fixed-point integers (fixed64.h) */
#include "trainer/strategy/fixed64.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NOT_FINITE = 1 << 20, ALL_ZERO = -(1 << 20) };

/* The tensor of element `at`; each element of the tail counts as a tensor. *ret_end: the
 * tensor's end. */
static size_t tensor_of(const struct train_rank *t, size_t at, size_t *ret_end)
{
	const struct train_model *m = &t->model;
	size_t i = 0;

	if (at >= m->parameters) {
		*ret_end = at + 1;
		return m->ntensors + at - m->parameters;
	}
	while (at >= m->tensors[i].at + m->tensors[i].count)
		i++;
	*ret_end = m->tensors[i].at + m->tensors[i].count;
	return i;
}

/* The fraction bits that keep the sum of all leaves below 2^62. */
static int fraction_bits(const struct train_rank *t)
{
	int bits = 0;

	while ((size_t)1 << bits < t->leaves.count)
		bits++;
	return 61 - bits;
}

static int exponent_of(const float *at, size_t count)
{
	float most = 0.0f;

	for (size_t i = 0; i < count; i++) {
		float size = fabsf(at[i]);

		if (!(size <= 3.4e38f))
			return NOT_FINITE;
		most = size > most ? size : most;
	}
	return most > 0.0f ? ilogbf(most) + 1 : ALL_ZERO;
}

static int allreduce_exponents(struct train_rank *t)
{
	size_t n = t->model.ntensors + TRAIN_TAIL, end;

	for (size_t i = 0; i < n; i++)
		t->exponent[i] = ALL_ZERO;
	for (size_t at = 0; at < t->floats; at = end) {
		size_t tensor = tensor_of(t, at, &end);

		for (size_t l = 0; l < t->sum.nodes; l++) {
			int e = exponent_of(t->comm_buffer + l * t->sum.stride + at, end - at);

			t->exponent[tensor] = e > t->exponent[tensor] ? e : t->exponent[tensor];
		}
	}
	return train_check(tuttiAllReduce(t->exponent, t->exponent, n, tuttiInt32, tuttiMax,
					  t->comm, NULL),
			   t->comm);
}

static void add_leaf(int64_t *restrict fixed_sum, const float *restrict leaf, size_t count,
		     double scale)
{
	for (size_t i = 0; i < count; i++)
		fixed_sum[i] += (int64_t)((double)leaf[i] * scale);
}

int train_fixed64_make(struct train_rank *t)
{
	size_t end;
	int rc;

	if (!t->fixed_sum) {
		t->exponent = calloc(t->model.ntensors + TRAIN_TAIL, sizeof(*t->exponent));
		if (tuttiMemAlloc((void **)&t->fixed_sum, t->sum.stride * sizeof(*t->fixed_sum)))
			t->fixed_sum = NULL;
	}
	if (!t->fixed_sum || !t->exponent)
		return train_fail(TRAIN_FAILED, "no memory for %zu sums of 64 bits", t->sum.stride);
	rc = allreduce_exponents(t);
	memset(t->fixed_sum, 0, t->sum.stride * sizeof(*t->fixed_sum));
	for (size_t at = 0; at < t->floats && !rc; at = end) {
		int e = t->exponent[tensor_of(t, at, &end)];

		for (size_t l = 0; l < t->sum.nodes && abs(e) < NOT_FINITE; l++)
			add_leaf(t->fixed_sum + at, t->comm_buffer + l * t->sum.stride + at,
				 end - at, ldexp(1.0, fraction_bits(t) - e));
	}
	return rc;
}

void train_fixed64_floats(const struct train_rank *t, const int64_t *sums, size_t from,
			  size_t count)
{
	size_t end;

	for (size_t at = from; at < from + count; at = end) {
		int e = t->exponent[tensor_of(t, at, &end)];
		double scale = e == NOT_FINITE ? NAN : ldexp(1.0, e - fraction_bits(t));

		end = end < from + count ? end : from + count;
		for (size_t i = at; i < end; i++)
			t->comm_buffer[i] = (float)((double)sums[i - from] * scale);
	}
}

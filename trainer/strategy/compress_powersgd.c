/*
 * compress_powersgd.c - --compress powersgd:R: the gradient M of a matrix as a product of rank R
 *
 *	P = M Q			summed over all ranks, then orthonormal columns
 *	Q = M' P		summed over all ranks; where the next step begins
 *	M = P Q'		(': transposed)
 *
 * One iteration of the power method a step, in two allreduces. A tensor for which both factors are not
 * smaller is summed as it is. Factors of all tensors are one array. Row of the table in compress.c.
 *
 * Source: Vogels, Karimireddy and Jaggi 2019, PowerSGD: practical low-rank gradient compression.
 */
#include "trainer/strategy/compress.h"

#include "trainer/base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct powersgd_state {
	size_t rank;
	float *p; /* factors P, and whole tensors */
	float *q; /* factors Q */
	float *product;
	size_t p_floats, q_floats;
};

static bool has_factors(const struct powersgd_state *s, const struct train_tensor *tensor)
{
	return s->rank * (tensor->rows + tensor->columns) < tensor->count;
}

static void count_floats(const struct train_rank *t, struct powersgd_state *s, size_t *ret_most)
{
	*ret_most = 1;
	for (size_t i = 0; i < t->model.ntensors; i++) {
		const struct train_tensor *tensor = &t->model.tensors[i];
		bool factors = has_factors(s, tensor);

		s->p_floats += factors ? s->rank * tensor->rows : tensor->count;
		s->q_floats += factors ? s->rank * tensor->columns : 0;
		if (factors && tensor->count > *ret_most)
			*ret_most = tensor->count;
	}
}

static void powersgd_close(struct train_compressor *c)
{
	struct powersgd_state *s = c->state;

	if (s) {
		tuttiMemFree(s->p);
		tuttiMemFree(s->q);
		free(s->product);
	}
	free(s);
}

static int powersgd_open(struct train_compressor *c)
{
	struct powersgd_state *s = calloc(1, sizeof(*s));
	size_t most;

	c->state = s;
	if (!s)
		return train_fail(TRAIN_FAILED, "no memory for a compressor");
	s->rank = (size_t)c->number;
	count_floats(c->t, s, &most);
	s->product = malloc(most * sizeof(*s->product));
	c->message_bytes = (s->p_floats + s->q_floats) * sizeof(float);
	if (!s->product ||
	    tuttiMemAlloc((void **)&s->p, (s->p_floats + 1) * sizeof(float)) != tuttiSuccess ||
	    tuttiMemAlloc((void **)&s->q, (s->q_floats + 1) * sizeof(float)) != tuttiSuccess)
		return train_fail(TRAIN_FAILED, "no memory for factors of %zu floats",
				  s->p_floats + s->q_floats);
	for (size_t i = 0; i < s->q_floats; i++) {
		uint32_t random[4];

		train_rng((uint64_t)c->t->config->seed, TRAIN_RNG_FACTORS, 0, i, random);
		s->q[i] = train_rng_unit(random[0]);
	}
	return TRAIN_OK;
}

/* Makes the columns of p[rows][n] orthonormal (Gram-Schmidt); a column that depends on those before it
 * becomes 0. */
static void orthonormalize(float *p, size_t rows, size_t n)
{
	for (size_t j = 0; j < n; j++) {
		double before = 0.0, square = 0.0;

		for (size_t i = 0; i < rows; i++)
			before += (double)p[i * n + j] * p[i * n + j];
		for (size_t other = 0; other < j; other++) {
			double along = 0.0;

			for (size_t i = 0; i < rows; i++)
				along += (double)p[i * n + j] * p[i * n + other];
			for (size_t i = 0; i < rows; i++)
				p[i * n + j] -= (float)along * p[i * n + other];
		}
		for (size_t i = 0; i < rows; i++)
			square += (double)p[i * n + j] * p[i * n + j];
		for (size_t i = 0; i < rows; i++)
			p[i * n + j] = square > 1e-12 * before
					       ? (float)(p[i * n + j] / sqrt(square))
					       : 0.0f;
	}
}

static struct train_matrix matrix(const float *at, size_t stride, bool transposed)
{
	return (struct train_matrix){ at, stride, transposed };
}

/* What to do with a tensor's gradients m, its factors, or its place p among the whole ones (q NULL). */
typedef void tensor_fn(struct train_compressor *c, const struct train_tensor *tensor, float *m,
		       float *p, float *q);

static void each_tensor(struct train_compressor *c, float *v, tensor_fn *fn)
{
	const struct powersgd_state *s = c->state;
	float *p = s->p, *q = s->q;

	for (size_t i = 0; i < c->t->model.ntensors; i++) {
		const struct train_tensor *tensor = &c->t->model.tensors[i];
		bool factors = has_factors(s, tensor);

		fn(c, tensor, v + tensor->at, p, factors ? q : NULL);
		p += factors ? s->rank * tensor->rows : tensor->count;
		q += factors ? s->rank * tensor->columns : 0;
	}
}

static void first_factor(struct train_compressor *c, const struct train_tensor *l, float *m,
			 float *p, float *q)
{
	size_t rank = ((struct powersgd_state *)c->state)->rank;
	struct train_device *d = c->t->comm_device;

	memset(c->error + l->at, 0, l->count * sizeof(float));
	if (q)
		d->ops->gemm(d, l->rows, rank, l->columns, matrix(m, l->columns, false),
			     matrix(q, rank, false), p, rank);
	else
		memcpy(p, m, l->count * sizeof(float));
}

/* Also the error, m - p q'. */
static void second_factor(struct train_compressor *c, const struct train_tensor *l, float *m,
			  float *p, float *q)
{
	const struct powersgd_state *s = c->state;
	struct train_device *d = c->t->comm_device;

	if (!q)
		return;
	orthonormalize(p, l->rows, s->rank);
	d->ops->gemm(d, l->columns, s->rank, l->rows, matrix(m, l->columns, true),
		     matrix(p, s->rank, false), q, s->rank);
	d->ops->gemm(d, l->rows, l->columns, s->rank, matrix(p, s->rank, false),
		     matrix(q, s->rank, true), s->product, l->columns);
	for (size_t i = 0; i < l->count; i++)
		c->error[l->at + i] = m[i] - s->product[i];
}

static void product(struct train_compressor *c, const struct train_tensor *l, float *m, float *p,
		    float *q)
{
	size_t rank = ((struct powersgd_state *)c->state)->rank;
	struct train_device *d = c->t->comm_device;

	if (q)
		d->ops->gemm(d, l->rows, l->columns, rank, matrix(p, rank, false),
			     matrix(q, rank, true), m, l->columns);
	else
		memcpy(m, p, l->count * sizeof(float));
}

static int sum(const struct train_compressor *c, float *factors, size_t floats)
{
	tuttiComm_t comm = c->t->comm;

	return train_check(tuttiAllReduce(factors, factors, floats, tuttiFloat32, tuttiSum, comm,
					  NULL),
			   comm);
}

static int powersgd_sum(struct train_compressor *c, float *v)
{
	struct powersgd_state *s = c->state;
	int rc;

	each_tensor(c, v, first_factor);
	rc = sum(c, s->p, s->p_floats);
	if (rc)
		return rc;
	each_tensor(c, v, second_factor);
	rc = sum(c, s->q, s->q_floats);
	if (rc)
		return rc;
	each_tensor(c, v, product);
	return TRAIN_OK;
}

const struct train_compressor_ops train_compress_powersgd = {
	.name = "powersgd",
	.syntax = "powersgd:R",
	.help = "matrices as products of rank R, by two allreduces",
	.least = 1,
	.most = 1024,
	.fallback = 4,
	.whole = true,
	.open = powersgd_open,
	.close = powersgd_close,
	.sum = powersgd_sum,
};

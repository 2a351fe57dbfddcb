/*
 * host_loops_isa.h - the loops of host_loops.c, included once for each instruction set
 *
 * Parameters: LOOP (name of a function), LOOP_TARGET (its attribute), LANES (floats of a vector),
 * LOOP_ISA (the name of the instruction set). All are undefined at the end. The last elements are
 * computed one by one, by the same expressions.
 */
#define VEC LOOP(vector)
#define INTS LOOP(integers)
#define BYTES LOOP(bytes)

/* not aligned; may alias */
typedef float VEC __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t INTS __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint8_t BYTES __attribute__((vector_size(LANES), aligned(1), may_alias));

#define EACH(i) for (; i + LANES <= n; i += LANES)
#define AT(array, i) (*(VEC *)((array) + (i)))
#define FROM(array, i) (*(const VEC *)((array) + (i)))
/* value where condition > 0, else 0 */
#define WHERE_POSITIVE(condition, value) ((VEC)(((condition) > 0.0f) & (INTS)(value)))

LOOP_TARGET static void LOOP(gather)(size_t n, const uint8_t *image, float mean, float *x)
{
	size_t i = 0;

	EACH(i)
	AT(x, i) = __builtin_convertvector(*(const BYTES *)(image + i), VEC) * (1.0f / 255.0f) -
		   mean;
	for (; i < n; i++)
		x[i] = (float)image[i] * (1.0f / 255.0f) - mean;
}

LOOP_TARGET static void LOOP(bias)(size_t n, const float *bias, bool relu, float *y)
{
	size_t i = 0;

	EACH(i)
	{
		VEC sum = FROM(y, i) + FROM(bias, i);

		AT(y, i) = relu ? WHERE_POSITIVE(sum, sum) : sum;
	}
	for (; i < n; i++) {
		float sum = y[i] + bias[i];

		y[i] = !relu || sum > 0.0f ? sum : 0.0f;
	}
}

LOOP_TARGET static void LOOP(add)(size_t n, const float *from, float *to)
{
	size_t i = 0;

	EACH(i)
	AT(to, i) += FROM(from, i);
	for (; i < n; i++)
		to[i] += from[i];
}

LOOP_TARGET static void LOOP(blend)(size_t n, float keep, float take, const float *from, float *to)
{
	size_t i = 0;

	if (from)
		EACH(i)
	AT(to, i) = keep * FROM(to, i) + take * FROM(from, i);
	for (; i < n; i++)
		to[i] = from ? keep * to[i] + take * from[i] : keep * to[i];
}

LOOP_TARGET static void LOOP(relu_back)(size_t n, const float *y, float *dy)
{
	size_t i = 0;

	EACH(i)
	AT(dy, i) = WHERE_POSITIVE(FROM(y, i), FROM(dy, i));
	for (; i < n; i++)
		dy[i] = y[i] > 0.0f ? dy[i] : 0.0f;
}

LOOP_TARGET static void LOOP(descend)(size_t n, float scale, float rate, float momentum,
				      const float *gradient, float *velocity, float *weight)
{
	size_t i = 0;

	EACH(i)
	{
		VEC moved = momentum * FROM(velocity, i) + scale * FROM(gradient, i);

		AT(velocity, i) = moved;
		AT(weight, i) -= rate * moved;
	}
	for (; i < n; i++) {
		velocity[i] = momentum * velocity[i] + scale * gradient[i];
		weight[i] -= rate * velocity[i];
	}
}

/* Division and square root are exact to the last bit in every instruction set, so the compiler may
 * take vectors or not. */
LOOP_TARGET static void LOOP(rmsprop)(size_t n, float scale, float rate,
				      const float *restrict gradient, float *restrict square,
				      float *restrict weight)
{
	for (size_t i = 0; i < n; i++) {
		float g = scale * gradient[i];

		square[i] = train_rmsprop_square(square[i], g);
		weight[i] -= train_rmsprop_change(square[i], g, rate);
	}
}

LOOP_TARGET static void LOOP(adam)(size_t n, const struct train_adam *a,
				   const float *restrict gradient, float *restrict mean,
				   float *restrict square, float *restrict weight)
{
	for (size_t i = 0; i < n; i++) {
		float g = a->scale * gradient[i];
		float m = a->beta1 * mean[i] + (1.0f - a->beta1) * g;
		float v = a->beta2 * square[i] + (1.0f - a->beta2) * g * g;

		mean[i] = m;
		square[i] = v;
		weight[i] = a->keep * weight[i] -
			    a->rate * m / (__builtin_sqrtf(a->correct2 * v) + a->epsilon);
	}
}

static const struct train_host_loops LOOP(loops) = {
	.isa = LOOP_ISA,
	.gather = LOOP(gather),
	.bias = LOOP(bias),
	.add = LOOP(add),
	.blend = LOOP(blend),
	.relu_back = LOOP(relu_back),
	.descend = LOOP(descend),
	.rmsprop = LOOP(rmsprop),
	.adam = LOOP(adam),
};

#undef VEC
#undef INTS
#undef BYTES
#undef EACH
#undef AT
#undef FROM
#undef WHERE_POSITIVE
#undef LOOP
#undef LOOP_TARGET
#undef LOOP_ISA
#undef LANES

/*
 * values.c - inputs with an exactly known result, and their check (values.h)
 *
 * Called by bench_rank.c and tests/unit/test_tools.c. A hash h of the element selects a, b and the
 * special rank; r is the rank, n the number of ranks. All values are whole numbers (floats: times a
 * power of two, which does not change rounding):
 *   sum        a + r * b                 if all partial sums are exact: |sum| <= type's limit
 *              1, larger at one rank     if only 2 n fits the limit (fp8; bfloat16, many ranks)
 *              1 at some ranks, else 0   if 2 n exceeds the limit
 *   avg        as the second and third form; in the second, the sum is a multiple of n, so that
 *              floats need no rounding
 *   prod       integers: an odd constant per rank, times h at one rank; floats: -1, h at one rank
 *   max, min   h at one rank, any smaller (larger) value at the others
 *   band, bor  each bit depends on exactly one rank
 *   bxor       a ^ (c[r] & b) with random c whose xor is all ones
 */
#include "perf/bench/values.h"

#include <string.h>

#include "mem/reduce.h"

struct value_recipe {
	tuttiDataType_t type;
	int op, n;
	bool integer, with_sign;
	uint64_t seed;
	uint64_t limit;     /* whole numbers up to limit, and their partial sums, are exact */
	uint64_t weights;   /* sum of the ranks' scalars; n except for mulsum */
	uint64_t slope;     /* sum of rank * scalar */
	uint64_t product;   /* product of the ranks' odd constants (integer prod) */
	uint64_t last_bits; /* constant of the last rank (bxor); the xor of all ranks is ~0 */
};

/* Hash values of one element. */
struct value_element {
	uint64_t h1, h2;
	int special; /* rank whose value differs from the others */
	int64_t sign;
	int shift;
};

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

const char *bench_values_op_name(int op)
{
	return op == BENCH_NO_OP    ? "none"
	       : op == BENCH_MULSUM ? "mulsum"
				    : tt_op_name((tuttiRedOp_t)op);
}

bool bench_values_defined(int op, tuttiDataType_t type)
{
	return tt_type_is_integer(type) || (op != tuttiBand && op != tuttiBor && op != tuttiBxor);
}

int bench_values_scalar(int rank)
{
	return 1 + rank % 2;
}

/* ---- the recipe of one (type, op, n) --------------------------------------------------------- */

/* Largest n for which the type represents all whole numbers up to n: 2 to the width of the mantissa;
 * for integers the maximum. */
static uint64_t exact_limit(tuttiDataType_t type)
{
	static const uint64_t limits[tuttiNumTypes] = {
		[tuttiInt8] = INT8_MAX,      [tuttiUint8] = UINT8_MAX,
		[tuttiInt32] = INT32_MAX,    [tuttiUint32] = UINT32_MAX,
		[tuttiInt64] = INT64_MAX,    [tuttiUint64] = UINT64_MAX,
		[tuttiFloat16] = 1u << 11,   [tuttiFloat32] = 1u << 24,
		[tuttiFloat64] = 1ull << 53, [tuttiBfloat16] = 1u << 8,
		[tuttiFloat8e4m3] = 1u << 4, [tuttiFloat8e5m2] = 1u << 3,
	};

	return limits[type];
}

static uint64_t scalar_of(const struct value_recipe *c, int rank)
{
	return c->op == BENCH_MULSUM ? (uint64_t)bench_values_scalar(rank) : 1;
}

static uint64_t odd_constant(const struct value_recipe *c, int rank)
{
	return mix(c->seed ^ mix((uint64_t)rank + 77)) | 1;
}

static uint64_t bits_constant(const struct value_recipe *c, int rank)
{
	return rank == c->n - 1 ? c->last_bits : mix(c->seed ^ mix((uint64_t)rank + 99));
}

static struct value_recipe make_recipe(tuttiDataType_t type, int op, int n, uint64_t seed)
{
	struct value_recipe c = { .type = type,
				  .op = op,
				  .n = n,
				  .product = 1,
				  .limit = exact_limit(type),
				  .integer = tt_type_is_integer(type),
				  .seed = mix(seed ^ mix((uint64_t)op << 8 | (uint64_t)type)) };

	c.with_sign = type != tuttiUint8 && type != tuttiUint32 && type != tuttiUint64;
	for (int r = 0; r < n; r++) {
		c.weights += scalar_of(&c, r);
		c.slope += (uint64_t)r * scalar_of(&c, r);
		c.product *= odd_constant(&c, r);
		if (r < n - 1)
			c.last_bits ^= mix(c.seed ^ mix((uint64_t)r + 99));
	}
	c.last_bits = ~c.last_bits;
	return c;
}

static struct value_element make_element(const struct value_recipe *c, size_t index)
{
	struct value_element e = { .h1 = mix(c->seed ^ mix(index)), .sign = 1 };
	uint64_t h3;

	e.h2 = mix(e.h1);
	h3 = mix(e.h2);
	e.special = (int)(h3 % (uint64_t)c->n);
	if (c->with_sign && h3 >> 63)
		e.sign = -1;
	if (!c->integer)
		e.shift = (int)(h3 >> 60 & 3);
	return e;
}

/* ---- sums ------------------------------------------------------------------------------------ */

enum form { LINEAR, ONES, SOME };

static enum form form_of(const struct value_recipe *c)
{
	bool wraps = c->integer && c->op != tuttiAvg;

	if (c->op != tuttiAvg && (wraps || c->weights + c->slope <= c->limit))
		return LINEAR;
	return 2 * c->weights <= c->limit ? ONES : SOME;
}

/* LINEAR: rank r contributes a + r * b, with a, b >= 1. Integer sums may wrap; b is odd then, so
 * that all r * b differ. */
static void linear_of(const struct value_recipe *c, const struct value_element *e, uint64_t *ret_a,
		      uint64_t *ret_b)
{
	uint64_t b_max;

	if (c->integer) {
		*ret_a = e->h1;
		*ret_b = e->h2 | 1;
		return;
	}
	b_max = c->slope ? (c->limit - c->weights) / (2 * c->slope) : 0;
	*ret_b = c->slope ? 1 + e->h2 % (b_max ? b_max : 1) : 0;
	*ret_a = 1 + e->h1 % ((c->limit - *ret_b * c->slope) / c->weights);
}

/* ONES: value of the special rank; for a float average, the sum becomes a multiple of n. */
static uint64_t special_one(const struct value_recipe *c, const struct value_element *e)
{
	uint64_t n = (uint64_t)c->n;

	if (c->op == tuttiAvg && !c->integer)
		return n * (1 + e->h1 % (c->limit / n)) - (n - 1);
	return 1 + e->h1 % ((c->limit - c->weights) / scalar_of(c, e->special) + 1);
}

/* SOME: value of each contributing rank. Integers use SOME only for averages, and contribute 2, so
 * that the inputs differ from the average 1. */
static uint64_t piece(const struct value_recipe *c)
{
	return c->integer ? 2 : 1;
}

/* SOME: number of contributing ranks, from the special rank on. */
static int some_ranks(const struct value_recipe *c, const struct value_element *e)
{
	uint64_t most = c->limit / (c->op == BENCH_MULSUM ? 2 : piece(c)), fewest = 1,
		 n = (uint64_t)c->n;

	if (most > n)
		most = n;
	if (c->integer && most > (n + 1) / 2)
		fewest = (n + 1) / 2; /* the average is 1, not 0 */
	return (int)(fewest + e->h1 % (most - fewest + 1));
}

static uint64_t sum_input(const struct value_recipe *c, const struct value_element *e, int rank)
{
	uint64_t a, b;

	switch (form_of(c)) {
	case LINEAR:
		linear_of(c, e, &a, &b);
		return a + (uint64_t)rank * b;
	case ONES:
		return rank == e->special ? special_one(c, e) : 1;
	case SOME:
		break;
	}
	return (rank - e->special + c->n) % c->n < some_ranks(c, e) ? piece(c) : 0;
}

static uint64_t sum_result(const struct value_recipe *c, const struct value_element *e)
{
	uint64_t a, b, sum = 0;

	switch (form_of(c)) {
	case LINEAR:
		linear_of(c, e, &a, &b);
		return a * c->weights + b * c->slope;
	case ONES:
		return c->weights + scalar_of(c, e->special) * (special_one(c, e) - 1);
	case SOME:
		break;
	}
	for (int i = 0; i < some_ranks(c, e); i++)
		sum += piece(c) * scalar_of(c, (e->special + i) % c->n);
	return sum;
}

/* ---- the other operations -------------------------------------------------------------------- */

/* Least value of the type's exact range. */
static uint64_t least(const struct value_recipe *c)
{
	if (!c->with_sign)
		return 0;
	return c->integer ? -c->limit - 1 : -c->limit;
}

/* max, min: value of rank, measured from the least (max) or the largest (min) value of the range;
 * the special rank has the largest distance. */
static uint64_t extreme(const struct value_recipe *c, const struct value_element *e, int rank)
{
	uint64_t span = c->limit - least(c), height = 1 + e->h1 % span;

	if (rank != e->special)
		height = mix(e->h2 ^ (uint64_t)rank) % height;
	return c->op == tuttiMax ? least(c) + height : c->limit - height;
}

static uint64_t product_input(const struct value_recipe *c, const struct value_element *e, int rank)
{
	if (c->integer)
		return odd_constant(c, rank) * (rank == e->special ? e->h1 : 1);
	return rank == e->special ? (uint64_t)e->sign * (1 + e->h1 % c->limit) : (uint64_t)-1;
}

static uint64_t product_result(const struct value_recipe *c, const struct value_element *e)
{
	if (c->integer)
		return c->product * e->h1;
	return (c->n % 2 ? 1 : (uint64_t)-1) * (uint64_t)e->sign * (1 + e->h1 % c->limit);
}

/* Bits that depend on rank: every n-th bit, starting at a bit chosen by the element's hash. */
static uint64_t own_bits(const struct value_recipe *c, const struct value_element *e, int rank)
{
	uint64_t mask = 0;

	for (int bit = (rank - e->special + c->n) % c->n; bit < 64; bit += c->n)
		mask |= 1ull << bit;
	return mask;
}

static uint64_t input_of(const struct value_recipe *c, const struct value_element *e, int rank)
{
	switch (c->op) {
	case tuttiProd:
		return product_input(c, e, rank);
	case tuttiMax:
	case tuttiMin:
		return extreme(c, e, rank);
	case tuttiBand:
		return e->h1 | ~own_bits(c, e, rank);
	case tuttiBor:
		return e->h1 & own_bits(c, e, rank);
	case tuttiBxor:
		return e->h1 ^ (bits_constant(c, rank) & e->h2);
	}
	if (form_of(c) == LINEAR && c->integer)
		return sum_input(c, e, rank);
	return (uint64_t)e->sign * sum_input(c, e, rank) << e->shift;
}

static uint64_t result_of(const struct value_recipe *c, const struct value_element *e)
{
	switch (c->op) {
	case tuttiProd:
		return product_result(c, e);
	case tuttiMax:
	case tuttiMin:
		return extreme(c, e, e->special);
	case tuttiBand:
	case tuttiBor:
		return e->h1;
	case tuttiBxor:
		return (c->n % 2 ? e->h1 : 0) ^ e->h2;
	}
	if (form_of(c) == LINEAR && c->integer)
		return sum_result(c, e);
	return (uint64_t)e->sign * sum_result(c, e) << e->shift;
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* Stores a whole number (signed if the type is signed) in element `index`. */
static void store(const struct value_recipe *c, void *table, size_t index, uint64_t value)
{
	switch (c->type) {
	case tuttiInt8:
	case tuttiUint8:
		((uint8_t *)table)[index] = (uint8_t)value;
		break;
	case tuttiInt32:
	case tuttiUint32:
		((uint32_t *)table)[index] = (uint32_t)value;
		break;
	case tuttiInt64:
	case tuttiUint64:
		((uint64_t *)table)[index] = value;
		break;
	default:
		tt_element_set(table, index, c->type, (double)(int64_t)value);
	}
}

/* Rule of tuttiAvg: integers divide towards zero, floats round once to nearest even. */
static void store_average(const struct value_recipe *c, void *table, size_t index, uint64_t sum)
{
	int64_t whole = (int64_t)sum / c->n;

	if (!c->integer)
		tt_element_set(table, index, c->type, (double)(int64_t)sum / c->n);
	else
		store(c, table, index, c->with_sign ? (uint64_t)whole : sum / (uint64_t)c->n);
}

void bench_values_input(void *table, tuttiDataType_t type, int op, int nranks, int rank,
			uint64_t seed)
{
	struct value_recipe c = make_recipe(type, op, nranks, seed);
	size_t bytes = tt_type_bytes(type);

	for (size_t i = 0; i < BENCH_VALUES; i++) {
		struct value_element e = make_element(&c, i);

		if (op == BENCH_NO_OP)
			memcpy((char *)table + i * bytes, &e.h1, bytes);
		else
			store(&c, table, i, input_of(&c, &e, rank));
	}
}

void bench_values_result(void *table, tuttiDataType_t type, int op, int nranks, uint64_t seed)
{
	struct value_recipe c = make_recipe(type, op, nranks, seed);

	for (size_t i = 0; i < BENCH_VALUES; i++) {
		struct value_element e = make_element(&c, i);

		if (op == tuttiAvg)
			store_average(&c, table, i, result_of(&c, &e));
		else
			store(&c, table, i, result_of(&c, &e));
	}
}

size_t bench_values_phase(uint64_t seed, uint64_t call, uint64_t rank, uint64_t block)
{
	return mix(seed ^ mix(call ^ mix(rank << 32 ^ block))) % BENCH_VALUES;
}

void bench_values_fill(void *buf, const void *table, size_t bytes, size_t count, size_t phase)
{
	char *to = buf;

	while (count) {
		size_t n = BENCH_VALUES - phase < count ? BENCH_VALUES - phase : count;

		memcpy(to, (const char *)table + phase * bytes, n * bytes);
		to += n * bytes;
		count -= n;
		phase = 0;
	}
}

uint64_t bench_values_check(const void *buf, const void *table, size_t bytes, size_t count,
			    size_t phase, size_t *ret_first)
{
	const char *got = buf;
	uint64_t wrong = 0;

	for (size_t done = 0; done < count;) {
		size_t n = BENCH_VALUES - phase < count - done ? BENCH_VALUES - phase
							       : count - done;
		const char *want = (const char *)table + phase * bytes;

		if (memcmp(got, want, n * bytes)) {
			for (size_t i = 0; i < n; i++) {
				if (!memcmp(got + i * bytes, want + i * bytes, bytes))
					continue;
				if (!wrong++)
					*ret_first = done + i;
			}
		}
		got += n * bytes;
		done += n;
		phase = 0;
	}
	return wrong;
}

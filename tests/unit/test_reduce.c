/*
 * test_reduce.c - every kernel of every instruction set against the plain reference, and bit by bit
 * against the kernels of the other sets; non-temporal copies
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#ifdef __x86_64__
#include <xmmintrin.h>
#endif

#include "mem/copy.h"
#include "mem/peer_lines.h"
#include "mem/fpmode.h"
#include "mem/reduce.h"
#include "tests/support/ranks.h"
#include "tests/support/reference.h"

enum { MOST = 300, GUARD = 64, AREA = MOST * 8 + 4 * GUARD };

static const char *const isas[] = { "scalar", "avx2", "avx512" };

/* A destination between guard bytes that must not change. */
struct reduce_area {
	unsigned char bytes[AREA];
	unsigned char *at;
};

static void area_clear(struct reduce_area *a, size_t shift)
{
	memset(a->bytes, 0xa5, AREA);
	a->at = a->bytes + GUARD + shift;
}

static bool area_intact(const struct reduce_area *a, size_t bytes)
{
	for (const unsigned char *p = a->bytes; p < a->bytes + AREA; p++)
		if ((p < a->at || p >= a->at + bytes) && *p != 0xa5)
			return false;
	return true;
}

static size_t first_difference(tuttiDataType_t type, const void *a, const void *b, size_t count)
{
	size_t i = 0;

	while (i < count && ref_same(type, (const char *)a + i * ref_bytes[type],
				     (const char *)b + i * ref_bytes[type]))
		i++;
	return i;
}

/* One call of the selected kernel, with random alignments; both results equal the reference. */
static void check_call(tuttiDataType_t type, tuttiRedOp_t op, int nsrc, size_t count, uint64_t seed)
{
	static unsigned char in[TT_MAX_SOURCES][AREA];
	static struct reduce_area one, two;
	unsigned char wanted[MOST * 8];
	const void *src[TT_MAX_SOURCES];
	size_t bytes = count * ref_bytes[type], bad;

	for (int s = 0; s < nsrc; s++) {
		src[s] = in[s] + random_of(seed, (unsigned)s) % 64;
		ref_fill(type, in[s] + random_of(seed, (unsigned)s) % 64, count,
			 seed * 16 + (unsigned)s);
	}
	for (size_t i = 0; i < count; i++)
		ref_reduce(type, op, wanted, src, nsrc, i);
	area_clear(&one, random_of(seed, 100) % 64);
	area_clear(&two, random_of(seed, 101) % 64);
	tt_reduce_kernel(type, op)(one.at, seed % 2 ? two.at : NULL, src, nsrc, count);
	bad = first_difference(type, wanted, one.at, count);
	cr_assert(bad == count, "%s %s of %d sources, %s: element %zu of %zu", tt_op_name(op),
		  tt_type_name(type), nsrc, tt_reduce_isa(), bad, count);
	cr_assert(area_intact(&one, bytes) && area_intact(&two, seed % 2 ? bytes : 0),
		  "%s %s %s %zu: wrote outside of the destination", tt_op_name(op),
		  tt_type_name(type), tt_reduce_isa(), count);
	if (seed % 2)
		cr_assert(!memcmp(one.at, two.at, bytes), "%s %s: dst2 differs", tt_op_name(op),
			  tt_type_name(type));
}

Test(reduce, every_type_op_and_number_of_sources_equals_the_reference, .timeout = 120)
{
	uint64_t seed = 0;

	for (size_t k = 0; k < 3; k++) {
		if (tt_reduce_isa_set(isas[k]))
			continue;
		for (int type = 0; type < tuttiNumTypes; type++)
			for (int op = 0; op < tuttiNumOps; op++) {
				if (op == tuttiAvg || !ref_defined(type, op))
					continue;
				for (int nsrc = 2; nsrc <= TT_MAX_SOURCES; nsrc++) {
					check_call(type, op, nsrc, random_of(3, seed) % 17, seed);
					seed++;
					check_call(type, op, nsrc, random_of(4, seed) % MOST, seed);
					seed++;
				}
			}
	}
}

Test(reduce, every_small_count_equals_the_reference, .timeout = 120)
{
	for (size_t k = 0; k < 3; k++) {
		if (tt_reduce_isa_set(isas[k]))
			continue;
		for (int type = 0; type < tuttiNumTypes; type++)
			for (size_t count = 0; count <= 140; count++) {
				check_call(type, tuttiSum, 2, count, count);
				check_call(type, tuttiMax, 3, count, count + 1);
			}
	}
}

Test(reduce, all_instruction_sets_give_the_same_bits, .timeout = 120)
{
	enum { COUNT = 20000 };
	unsigned char *in[TT_MAX_SOURCES], *out[2];
	const void *src[TT_MAX_SOURCES];

	for (int s = 0; s < TT_MAX_SOURCES; s++)
		src[s] = in[s] = malloc(COUNT * 8);
	out[0] = malloc(COUNT * 8);
	out[1] = malloc(COUNT * 8);
	for (int type = 0; type < tuttiNumTypes; type++)
		for (int op = 0; op < tuttiNumOps; op++) {
			int nsrc = 2 + (type + op) % 7;

			if (!tt_reduce_kernel(type, op))
				continue;
			for (int s = 0; s < nsrc; s++)
				ref_fill(type, in[s], COUNT, (uint64_t)(type * 100 + op * 10 + s));
			tt_reduce_isa_set("scalar");
			tt_reduce_kernel(type, op)(out[0], NULL, src, nsrc, COUNT);
			for (size_t k = 1; k < 3; k++) {
				if (tt_reduce_isa_set(isas[k]))
					continue;
				tt_reduce_kernel(type, op)(out[1], NULL, src, nsrc, COUNT);
				cr_assert(!memcmp(out[0], out[1], COUNT * ref_bytes[type]),
					  "%s %s of %d: %s", tt_op_name(op), tt_type_name(type),
					  nsrc, isas[k]);
			}
		}
	for (int s = 0; s < TT_MAX_SOURCES; s++)
		free(in[s]);
	free(out[0]);
	free(out[1]);
}

Test(reduce, both_destinations_may_be_sources, .timeout = 60)
{
	enum { COUNT = 131 };
	unsigned char in[4][COUNT * 8], wanted[COUNT * 8];
	const void *src[4] = { in[0], in[1], in[2], in[3] };

	for (size_t k = 0; k < 3; k++) {
		if (tt_reduce_isa_set(isas[k]))
			continue;
		for (int type = 0; type < tuttiNumTypes; type++)
			for (int round = 0; round < 16; round++) {
				int nsrc = round % 2 ? 2 : 4;

				for (int s = 0; s < 4; s++)
					ref_fill(type, in[s], COUNT, (uint64_t)(round * 10 + s));
				for (size_t i = 0; i < COUNT; i++)
					ref_reduce(type, tuttiSum, wanted, src, nsrc, i);
				tt_reduce_kernel(type, tuttiSum)(in[round / 4], in[round % 4], src,
								 nsrc, COUNT);
				cr_assert(first_difference(type, wanted, in[round / 4], COUNT) ==
					  COUNT);
				cr_assert(!memcmp(in[round / 4], in[round % 4],
						  COUNT * ref_bytes[type]));
			}
	}
}

/* ---- small floats, each code ----------------------------------------------------------------- */

static const tuttiDataType_t small[] = { tuttiFloat16, tuttiBfloat16, tuttiFloat8e4m3,
					 tuttiFloat8e5m2 };

Test(reduce, a_product_with_one_preserves_every_small_float, .timeout = 60)
{
	static unsigned char in[65536 * 2], one[65536 * 2], out[65536 * 2];
	const void *src[2] = { in, one };

	for (size_t t = 0; t < 4; t++) {
		size_t codes = ref_bytes[small[t]] == 1 ? 256 : 65536;

		for (size_t i = 0; i < codes; i++) {
			memcpy(in + i * ref_bytes[small[t]], &(uint16_t){ (uint16_t)i },
			       ref_bytes[small[t]]);
			ref_set(small[t], one + i * ref_bytes[small[t]], 1);
		}
		for (size_t k = 0; k < 3; k++) {
			if (tt_reduce_isa_set(isas[k]))
				continue;
			tt_reduce_kernel(small[t], tuttiProd)(out, NULL, src, 2, codes);
			cr_assert(first_difference(small[t], in, out, codes) == codes, "%s %s",
				  isas[k], tt_type_name(small[t]));
		}
	}
}

Test(reduce, every_pair_of_fp8_equals_the_reference, .timeout = 120)
{
	static unsigned char a[65536], b[65536], out[65536], wanted[65536];
	const void *src[2] = { a, b };

	for (size_t i = 0; i < 65536; i++) {
		a[i] = (unsigned char)i;
		b[i] = (unsigned char)(i >> 8);
	}
	for (size_t t = 2; t < 4; t++)
		for (int op = tuttiSum; op <= tuttiMin; op++) {
			for (size_t i = 0; i < 65536; i++)
				ref_reduce(small[t], op, wanted, src, 2, i);
			for (size_t k = 0; k < 3; k++) {
				if (tt_reduce_isa_set(isas[k]))
					continue;
				tt_reduce_kernel(small[t], op)(out, NULL, src, 2, 65536);
				cr_assert(first_difference(small[t], wanted, out, 65536) == 65536,
					  "%s %s %s", isas[k], tt_type_name(small[t]),
					  tt_op_name(op));
			}
		}
}

/* Every float16 or bfloat16, times factors with all kinds of remainders to be rounded. */
Test(reduce, products_of_16_bit_floats_equal_the_reference, .timeout = 120)
{
	static const double factors[] = { 1 / 3.0, 0x1p-10, 0x1.8p-14, 0x1.008p0, 7.03125,
					  60000,   3e38,    -0.0,      0x1p-126 };
	static uint16_t in[65536], factor[65536], out[65536], wanted[65536];
	const void *src[2] = { in, factor };

	for (size_t t = 0; t < 2; t++)
		for (size_t f = 0; f < sizeof(factors) / sizeof(factors[0]); f++) {
			for (size_t i = 0; i < 65536; i++) {
				in[i] = (uint16_t)i;
				ref_set(small[t], &factor[i], factors[f]);
				ref_reduce(small[t], tuttiProd, wanted, src, 2, i);
			}
			for (size_t k = 0; k < 3; k++) {
				if (tt_reduce_isa_set(isas[k]))
					continue;
				tt_reduce_kernel(small[t], tuttiProd)(out, NULL, src, 2, 65536);
				cr_assert(first_difference(small[t], wanted, out, 65536) == 65536,
					  "%s %s times %g", isas[k], tt_type_name(small[t]),
					  factors[f]);
			}
		}
}

/* ---- documented rules ------------------------------------------------------------------------ */

Test(reduce, min_and_max_order_zeros_and_propagate_nan_from_any_operand, .timeout = 20)
{
	for (size_t k = 0; k < 3; k++) {
		if (tt_reduce_isa_set(isas[k]))
			continue;
		for (int swap = 0; swap < 2; swap++) {
			float a[3] = { -0.0f, NAN, 1 }, b[3] = { 0.0f, 1, NAN }, out[3];
			const void *src[2] = { swap ? b : a, swap ? a : b };

			tt_reduce_kernel(tuttiFloat32, tuttiMin)(out, NULL, src, 2, 3);
			cr_assert(out[0] == 0 && signbit(out[0]) && isnan(out[1]) && isnan(out[2]));
			tt_reduce_kernel(tuttiFloat32, tuttiMax)(out, NULL, src, 2, 3);
			cr_assert(out[0] == 0 && !signbit(out[0]) && isnan(out[1]) &&
				  isnan(out[2]));
		}
	}
}

/* With one NaN per type, the result does not depend on the compiler's choice of operand. */
Test(reduce, a_nan_result_is_the_canonical_nan_of_its_type, .timeout = 20)
{
	static const uint64_t canonical_nan[tuttiNumTypes] = {
		[tuttiFloat16] = 0x7e00,     [tuttiBfloat16] = 0x7fc0,
		[tuttiFloat32] = 0x7fc00000, [tuttiFloat64] = 0x7ff8000000000000,
		[tuttiFloat8e4m3] = 0x7f,    [tuttiFloat8e5m2] = 0x7f,
	};
	static const uint64_t other_nan[tuttiNumTypes] = {
		[tuttiFloat16] = 0xfe11,     [tuttiBfloat16] = 0xff81,
		[tuttiFloat32] = 0xffc12345, [tuttiFloat64] = 0xfff0000000000001,
		[tuttiFloat8e4m3] = 0xff,    [tuttiFloat8e5m2] = 0xfd,
	};
	uint64_t in, number = 0, out;
	const void *src[3] = { &number, &in, &number };

	for (size_t k = 0; k < 3; k++) {
		if (tt_reduce_isa_set(isas[k]))
			continue;
		for (int type = tuttiFloat16; type < tuttiNumTypes; type++)
			for (int op = tuttiSum; op <= tuttiMin; op++)
				for (int first = 0; first < 2; first++) {
					in = other_nan[type];
					out = 0;
					tt_reduce_kernel(type, op)(&out, NULL, src + first, 2, 1);
					cr_assert_eq(out, canonical_nan[type], "%s %s %s", isas[k],
						     tt_type_name(type), tt_op_name(op));
				}
	}
}

Test(reduce, sums_of_16_bit_floats_are_rounded_once_for_all_sources, .timeout = 20)
{
	/* In bfloat16 1 + 2^-8 is 1, and 1 + 2^-8 + 2^-8 is 1 only if rounded after each
	 * addition. */
	uint16_t in[3], out;
	const void *src[3] = { &in[0], &in[1], &in[2] };

	ref_set(tuttiBfloat16, &in[0], 1);
	ref_set(tuttiBfloat16, &in[1], 0x1p-8);
	ref_set(tuttiBfloat16, &in[2], 0x1p-8);
	tt_reduce_kernel(tuttiBfloat16, tuttiSum)(&out, NULL, src, 2, 1);
	cr_assert_eq(out, in[0]);
	tt_reduce_kernel(tuttiBfloat16, tuttiSum)(&out, NULL, src, 3, 1);
	cr_assert_eq(out, in[0] + 1);
}

Test(reduce, undefined_pairs_of_type_and_op_have_no_kernel_and_avg_has_the_kernel_of_sum,
     .timeout = 20)
{
	for (int type = 0; type < tuttiNumTypes; type++) {
		for (int op = 0; op < tuttiNumOps; op++)
			cr_assert_eq(!!tt_reduce_kernel(type, op), ref_defined(type, op));
		cr_assert_eq(tt_reduce_kernel(type, tuttiAvg), tt_reduce_kernel(type, tuttiSum));
	}
	cr_assert_null(tt_reduce_kernel(tuttiNumTypes, tuttiSum));
	cr_assert_null(tt_reduce_kernel(tuttiInt8, tuttiNumOps));
	cr_assert_null(tt_reduce_kernel((tuttiDataType_t)-1, tuttiSum));
}

Test(reduce, an_instruction_set_is_accepted_or_refused_with_an_error_text, .timeout = 20)
{
	cr_assert_eq(tt_reduce_isa_set("scalar"), 0);
	cr_assert_str_eq(tt_reduce_isa(), "scalar");
	cr_assert_eq(tt_reduce_isa_set("mmx"), TT_ARG);
	cr_assert(strstr(tt_error_text(), "'mmx'"));
	cr_assert_str_eq(tt_reduce_isa(), "scalar",
			 "a refused name must not change the instruction set");
	cr_assert_eq(tt_reduce_isa_set("auto"), 0);
	cr_assert_eq(tt_reduce_isa_set(""), 0);
}

#ifdef __x86_64__
Test(reduce, the_callers_rounding_and_flush_to_zero_do_not_affect_the_kernels, .timeout = 20)
{
	float a[2] = { 1, 0x1p-130f }, b[2] = { 0x1p-24f, 0x1p-131f }, out[2];
	const void *src[2] = { a, b };
	/* FTZ, DAZ, rounding up, invalid exceptions unmasked */
	unsigned before = _mm_getcsr(), unusual = 0x8040 | 0x4000 | 0x1f00;
	struct tt_fpmode mode;

	_mm_setcsr(unusual);
	mode = tt_fpmode_enter();
	tt_reduce_kernel(tuttiFloat32, tuttiSum)(out, NULL, src, 2, 2);
	tt_fpmode_leave(mode);
	cr_expect_eq(_mm_getcsr(), unusual);
	_mm_setcsr(before);
	cr_assert_eq(out[0], 1);
	cr_assert_eq(out[1], 0x1.8p-130f);
}
#endif

/* ---- scale, divide, one element -------------------------------------------------------------- */

Test(reduce, floats_are_scaled_and_divided_with_one_rounding, .timeout = 60)
{
	enum { COUNT = 1003 };
	unsigned char in[COUNT * 8], out[COUNT * 8], scalar[8], wanted[8];

	for (size_t k = 0; k < 3; k++) {
		if (tt_reduce_isa_set(isas[k]))
			continue;
		for (int type = tuttiFloat16; type < tuttiNumTypes; type++) {
			ref_fill(type, in, COUNT, 5);
			ref_set(type, scalar, 0.3);
			tt_scale(out, in, scalar, COUNT, type);
			for (size_t i = 0; i < COUNT; i++) {
				volatile double d = ref_get(type, in + i * ref_bytes[type]) *
						    ref_get(type, scalar);
				/* exact in double for every type but double */
				volatile float f = (float)d;

				ref_set(type, wanted, type == tuttiFloat64 ? d : f);
				cr_assert(ref_same(type, wanted, out + i * ref_bytes[type]),
					  "%s scaled, %s: %zu", tt_type_name(type), isas[k], i);
			}
			tt_divide(in, in, 7, COUNT, type);
			ref_fill(type, out, COUNT, 5);
			for (size_t i = 0; i < COUNT; i++) {
				volatile double d = ref_get(type, out + i * ref_bytes[type]) / 7;
				volatile float f = (float)ref_get(type, out + i * ref_bytes[type]) /
						   7;

				ref_set(type, wanted, type == tuttiFloat64 ? d : f);
				cr_assert(ref_same(type, wanted, in + i * ref_bytes[type]),
					  "%s divided, %s: %zu", tt_type_name(type), isas[k], i);
			}
		}
	}
}

Test(reduce, integers_divide_towards_zero_and_products_wrap, .timeout = 20)
{
	int8_t bytes[3] = { -7, 127, -128 }, byte = 3;
	uint64_t big[1] = { UINT64_MAX }, two = 2;
	int64_t least[1] = { INT64_MIN };
	int32_t words[2] = { -9, INT32_MAX };

	tt_divide(bytes, bytes, 2, 3, tuttiInt8);
	cr_assert(bytes[0] == -3 && bytes[1] == 63 && bytes[2] == -64);
	tt_scale(bytes, bytes, &byte, 3, tuttiInt8);
	cr_assert(bytes[0] == -9 && bytes[1] == (int8_t)189 && bytes[2] == (int8_t)-192);
	tt_divide(bytes, bytes, 300, 3, tuttiInt8);
	cr_assert(!bytes[0] && !bytes[1] && !bytes[2]);
	tt_divide(words, words, 4000000000u, 2, tuttiInt32);
	cr_assert(!words[0] && !words[1]);
	tt_scale(big, big, &two, 1, tuttiUint64);
	cr_assert_eq(big[0], UINT64_MAX - 1);
	tt_divide(least, least, 3, 1, tuttiInt64);
	cr_assert_eq(least[0], INT64_MIN / 3);
}

Test(reduce, an_element_survives_conversion_to_double_and_back, .timeout = 60)
{
	for (size_t t = 0; t < 4; t++)
		for (unsigned code = 0; code < (ref_bytes[small[t]] == 1 ? 256u : 65536u); code++) {
			uint16_t in = (uint16_t)code, out = 0;

			tt_element_set(&out, 0, small[t], tt_element_get(&in, 0, small[t]));
			cr_assert(ref_same(small[t], &in, &out), "%s %x", tt_type_name(small[t]),
				  code);
			cr_assert(ref_get(small[t], &in) == tt_element_get(&in, 0, small[t]) ||
				  isnan(tt_element_get(&in, 0, small[t])));
		}
}

Test(reduce, an_element_is_set_to_the_nearest_value, .timeout = 60)
{
	for (int type = tuttiFloat16; type < tuttiNumTypes; type++)
		for (unsigned i = 0; i < 200000; i++) {
			int exponent = (int)(random_of(7, i) % 320) - 170;
			double value = ldexp((double)(int64_t)random_of(8, i), exponent - 63);
			unsigned char got[8], wanted[8];

			if (i % 2) /* often half way between two small floats */
				value = ldexp((double)(random_of(9, i) % 4096), exponent);
			tt_element_set(got, 0, type, value);
			ref_set(type, wanted, value);
			cr_assert(!memcmp(got, wanted, ref_bytes[type]), "%s %a",
				  tt_type_name(type), value);
		}
}

Test(reduce, integers_are_set_to_the_nearest_value_of_their_type, .timeout = 20)
{
	int8_t small_int;
	uint8_t small_unsigned;
	int64_t big;

	tt_element_set(&small_int, 0, tuttiInt8, -300);
	cr_assert_eq(small_int, -128);
	tt_element_set(&small_int, 0, tuttiInt8, 2.5);
	cr_assert_eq(small_int, 2);
	tt_element_set(&small_unsigned, 0, tuttiUint8, -1);
	cr_assert_eq(small_unsigned, 0);
	tt_element_set(&big, 0, tuttiInt64, 1e300);
	cr_assert_eq(big, INT64_MAX);
	tt_element_set(&big, 0, tuttiInt64, -123456789012345);
	cr_assert_eq(tt_element_get(&big, 0, tuttiInt64), -123456789012345.0);
}

Test(copy, a_copy_by_vectors_is_right_at_any_alignment, .timeout = 20)
{
	static unsigned char to[3 * TT_COPY_LEAST], from[3 * TT_COPY_LEAST];

	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = (unsigned char)random_of(8, i);
	for (size_t i = 0; i < sizeof(isas) / sizeof(isas[0]); i++) {
		if (tt_reduce_isa_set(isas[i]))
			continue;
		for (size_t shift = 0; shift < 70; shift += 3)
			for (size_t start = 0; start < 70; start += 13)
				for (size_t more = 0; more < 600; more += more < 70 ? 1 : 53) {
					size_t bytes = TT_COPY_LEAST + more;

					memset(to, 0, sizeof(to));
					tt_copy_vectors(to + 1 + shift, from + start, bytes);
					cr_assert(!memcmp(to + 1 + shift, from + start, bytes) &&
							  !to[shift] && !to[1 + shift + bytes],
						  "%s: %zu bytes from +%zu to +%zu", isas[i], bytes,
						  start, shift);
				}
	}
	tt_reduce_isa_set("auto");
}

static void copy_and_own(void *dst, const void *src, size_t bytes)
{
	tt_copy_and_own(dst, (void *)(uintptr_t)src, bytes);
}

/* The source is read, and lines of it may be stored as they are. Groups of 16 and 8 pages, and lengths around them */
Test(copy, a_copy_between_cores_is_right_and_changes_no_source, .timeout = 60)
{
	enum { HALF = 8 * 4096, GROUP = 2 * HALF, ALL = 2 * GROUP + 4000, COPIES = 7 };
	static unsigned char to[ALL + 2], from[ALL + 64], before[sizeof(from)];
	static const size_t lengths[] = { 0, 337, 4097, HALF, HALF + 1, GROUP, 3 * HALF, ALL };
	void (*const copies[])(void *, const void *,
			       size_t) = { tt_copy_from_peer, tt_copy_from_giver, tt_copy_and_keep,
					   tt_copy_ahead,     tt_copy_to_peer,    tt_copy_to_taker,
					   copy_and_own };

	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = before[i] = (unsigned char)random_of(9, i);
	for (size_t i = 0; i < 3 * 2 * COPIES * sizeof(lengths) / sizeof(lengths[0]); i++) {
		size_t bytes = lengths[i / (3 * 2 * COPIES)], copy = i / 6 % COPIES;

		if (tt_reduce_isa_set(isas[i % 3]))
			continue;
		tt_readers_own = i / 3 % 2;
		for (size_t start = 0; start < 64; start += 21) {
			memset(to, 0, sizeof(to));
			copies[copy](to + 1, from + start, bytes);
			cr_assert(!memcmp(to + 1, before + start, bytes) && !to[0] &&
					  !to[1 + bytes] && !memcmp(from, before, sizeof(from)),
				  "copy %zu: %zu bytes from +%zu", copy, bytes, start);
		}
	}
}

static tt_reduce_fn *counted_kernel;
static size_t kernel_calls;

static void counted(void *dst, void *dst2, const void *const *src, int nsrc, size_t count)
{
	kernel_calls++;
	counted_kernel(dst, dst2, src, nsrc, count);
}

/* The bits of one call of the kernel: into one output or two, in place of the first source, or of both. Groups of 16
 * pages of two sources in parts of 1 KiB, unless readers own lines */
Test(reduce, a_sum_between_cores_has_the_bits_of_the_kernel, .timeout = 60)
{
	enum { GROUP = 16 * 4096, MOST_BYTES = 2 * GROUP + 4000, CASES = 2 * 3 * 4 };
	static unsigned char in[3][MOST_BYTES + 8], wanted[MOST_BYTES], got[2][MOST_BYTES + 8];
	static const size_t lengths[] = { 8, 4096, GROUP - 8, GROUP, GROUP + 8, MOST_BYTES };
	static const tuttiDataType_t types[] = { tuttiInt8, tuttiFloat16, tuttiFloat32,
						 tuttiInt64 };

	for (size_t i = 0; i < sizeof(in); i++)
		in[i / sizeof(in[0])][i % sizeof(in[0])] = (unsigned char)random_of(10, i);
	for (unsigned i = 0; i < CASES * sizeof(lengths) / sizeof(lengths[0]); i++) {
		tuttiDataType_t type = types[i / 6 % 4];
		size_t bytes = lengths[i / CASES], width = ref_bytes[type], groups;
		bool two = i / 2 % 3 == 1; /* outputs */
		int nsrc = i / 2 % 3 == 2 ? 3 : 2;
		const void *src[] = { got[0], two ? got[1] : in[1] + width, in[2] };

		tt_readers_own = i % 2;
		groups = tt_readers_own || nsrc > 2 ? 0 : bytes / GROUP;
		counted_kernel = tt_reduce_kernel(type, tuttiSum);
		memset(got, 0, sizeof(got));
		memcpy(got[0], in[0], bytes);
		memcpy(got[1], in[1], two ? bytes : 0);
		counted_kernel(wanted, NULL, src, nsrc, bytes / width);
		kernel_calls = 0;
		tt_reduce_from_peer(counted, got[0], two ? got[1] : NULL, src, nsrc, bytes, width);
		cr_assert(!memcmp(got[0], wanted, bytes) && !got[0][bytes] &&
				  !memcmp(got[1], wanted, two ? bytes : 0) &&
				  !got[1][two ? bytes : 0],
			  "case %u: %zu bytes", i, bytes);
		cr_assert_eq(kernel_calls, 64 * groups + (groups * GROUP < bytes),
			     "case %u: %zu bytes", i, bytes);
	}
}

Test(copy, a_nontemporal_copy_is_right_at_any_alignment, .timeout = 20)
{
	static struct reduce_area to;
	static unsigned char from[AREA];

	for (size_t i = 0; i < AREA; i++)
		from[i] = (unsigned char)random_of(7, i);
	for (size_t shift = 0; shift < 64; shift += 5)
		for (size_t start = 0; start < 64; start += 9)
			for (size_t bytes = 0; bytes < 600; bytes += bytes < 140 ? 1 : 53) {
				area_clear(&to, shift);
				tt_copy_nontemporal(to.at, from + start, bytes);
				cr_assert(!memcmp(to.at, from + start, bytes) &&
						  area_intact(&to, bytes),
					  "%zu bytes from +%zu to +%zu", bytes, start, shift);
			}
}

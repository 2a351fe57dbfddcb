/*
 * test_result_check.c - result checks of the tools: inputs with a known result, and the check of
 * every collective
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mem/reduce.h"
#include "perf/bench/bench.h"
#include "perf/bench/values.h"
#include "tests/support/reference.h"

TestSuite(result_check, .timeout = 60);

/* ---- values: reduced in any order, the inputs give the table of the result ------------------- */

enum { ELEMENTS = 1021 }; /* of the table; the other elements are made alike */

static double real_combine(double a, double b, int op)
{
	switch (op) {
	case tuttiProd:
		return a * b;
	case tuttiMax:
		return fmax(a, b);
	case tuttiMin:
		return fmin(a, b);
	default:
		return a + b;
	}
}

/* acc[i] = acc[i] op (in[i] * scalar), rounded to the type as a step of an algorithm would */
static void combine(void *acc, const void *in, tuttiDataType_t type, int op, int rank)
{
	int scalar = op == BENCH_MULSUM ? bench_values_scalar(rank) : 1;
	size_t bytes = tt_type_bytes(type);

	for (size_t i = 0; i < ELEMENTS; i++) {
		char *a = (char *)acc + i * bytes;
		const char *b = (const char *)in + i * bytes;

		if (tt_type_is_integer(type)) {
			uint64_t v = ref_combine(type, op, ref_integer(type, a),
						 ref_integer(type, b) * (uint64_t)scalar);

			memcpy(a, &v, bytes);
		} else {
			tt_element_set(a, 0, type,
				       real_combine(tt_element_get(a, 0, type),
						    tt_element_get(b, 0, type) * scalar, op));
		}
	}
}

static void average(void *acc, tuttiDataType_t type, int n)
{
	size_t bytes = tt_type_bytes(type);

	for (size_t i = 0; i < ELEMENTS; i++) {
		char *a = (char *)acc + i * bytes;
		uint64_t v;

		if (!tt_type_is_integer(type)) {
			tt_element_set(a, 0, type, tt_element_get(a, 0, type) / n);
			continue;
		}
		v = ref_integer(type, a);
		v = ref_is_signed(type) ? (uint64_t)((int64_t)v / n) : v / (uint64_t)n;
		memcpy(a, &v, bytes);
	}
}

struct tables {
	char *input[65], *acc, *want;
};

static struct tables make_tables(tuttiDataType_t type, int op, int n)
{
	size_t bytes = BENCH_VALUES * tt_type_bytes(type);
	struct tables t = { .acc = malloc(bytes), .want = malloc(bytes) };

	for (int r = 0; r < n; r++) {
		t.input[r] = malloc(bytes);
		bench_values_input(t.input[r], type, op, n, r, 5);
	}
	bench_values_result(t.want, type, op, n, 5);
	return t;
}

static void free_tables(struct tables *t, int n)
{
	for (int r = 0; r < n; r++)
		free(t->input[r]);
	free(t->acc);
	free(t->want);
}

/* Reduce the inputs of ranks first..first+n-1 (mod n) in this order, without rank `skip`; with
 * twice >= 0 rank `twice` takes its place. */
static void reduce_all(struct tables *t, tuttiDataType_t type, int op, int n, int first, int skip,
		       int twice)
{
	size_t bytes = ELEMENTS * tt_type_bytes(type);
	bool begun = false;

	for (int i = 0; i < n; i++) {
		int r = (first + i) % n;

		if (r == skip && twice < 0)
			continue;
		if (r == skip)
			r = twice;
		if (begun) {
			combine(t->acc, t->input[r], type, op, r);
			continue;
		}
		begun = true;
		memset(t->acc, 0, bytes);
		if (op == BENCH_MULSUM)
			combine(t->acc, t->input[r], type, op, r);
		else
			memcpy(t->acc, t->input[r], bytes);
	}
	if (op == tuttiAvg)
		average(t->acc, type, n);
}

/* The longer tiers take all numbers of ranks. */
static const int counts[] = { 1, 2, 3, 5, 8, 13, 64, 4, 7, 16, 24, 33 };

static size_t tested_counts(void)
{
	const char *tier = getenv("TT_TIER");

	return tier && !strcmp(tier, "default") ? 7 : sizeof(counts) / sizeof(counts[0]);
}

/* Share of elements in which the reduced table differs from the result. */
static double share_wrong(const struct tables *t, tuttiDataType_t type)
{
	size_t first;

	return (double)bench_values_check(t->acc, t->want, tt_type_bytes(type), ELEMENTS, 0,
					  &first) /
	       ELEMENTS;
}

static void check_orders(struct tables *t, tuttiDataType_t type, int op, int n)
{
	for (int first = 0; first < n; first += n / 3 + 1) {
		reduce_all(t, type, op, n, first, -1, -1);
		cr_assert_eq(share_wrong(t, type), 0, "%s %s n %d from rank %d", tt_type_name(type),
			     bench_values_op_name(op), n, first);
	}
}

/* Max and min show a missing rank only where that rank has the extreme; sums of many ranks in fp8
 * only where the input of that rank is not 0. */
static void check_missing(struct tables *t, tuttiDataType_t type, int op, int n)
{
	for (int skip = 0; skip < n; skip += n / 3 + 1) {
		reduce_all(t, type, op, n, (skip + 1) % n, skip, -1);
		cr_assert_gt(share_wrong(t, type), 0.4 / n, "%s %s n %d without rank %d",
			     tt_type_name(type), bench_values_op_name(op), n, skip);
	}
	reduce_all(t, type, op, n, 0, 1, 0);
	cr_assert_gt(share_wrong(t, type), 0, "%s %s n %d with rank 0 for rank 1",
		     tt_type_name(type), bench_values_op_name(op), n);
	memcpy(t->acc, t->input[n / 2], ELEMENTS * tt_type_bytes(type));
	cr_assert_gt(share_wrong(t, type), 0.3, "%s %s n %d just the input", tt_type_name(type),
		     bench_values_op_name(op), n);
}

static void check_displaced(struct tables *t, tuttiDataType_t type, int op, int n)
{
	size_t bytes = tt_type_bytes(type), first;

	memset(t->acc, 0, ELEMENTS * bytes);
	cr_assert_gt(share_wrong(t, type), 0.4, "%s %s n %d zeros", tt_type_name(type),
		     bench_values_op_name(op), n);
	for (size_t shift = 1; shift <= 4096; shift *= 4)
		cr_assert_gt(bench_values_check(t->want, t->want, bytes, BENCH_VALUES, shift,
						&first),
			     BENCH_VALUES / 4, "%s %s n %d shifted by %zu", tt_type_name(type),
			     bench_values_op_name(op), n, shift);
}

static void check_type(tuttiDataType_t type)
{
	for (int op = 0; op <= BENCH_MULSUM; op++) {
		for (size_t k = 0; bench_values_defined(op, type) && k < tested_counts(); k++) {
			struct tables t = make_tables(type, op, counts[k]);

			check_orders(&t, type, op, counts[k]);
			if (counts[k] > 1)
				check_missing(&t, type, op, counts[k]);
			check_displaced(&t, type, op, counts[k]);
			free_tables(&t, counts[k]);
		}
	}
}

#define VALUES(type)                                                                    \
	Test(result_check,                                                              \
	     values_of_##type##_reduce_in_any_order_to_a_result_that_shows_every_error) \
	{                                                                               \
		check_type(tutti##type);                                                \
	}
VALUES(Int8)
VALUES(Uint8)
VALUES(Int32)
VALUES(Uint32)
VALUES(Int64)
VALUES(Uint64)
VALUES(Float16)
VALUES(Float32)
VALUES(Float64)
VALUES(Bfloat16)
VALUES(Float8e4m3)
VALUES(Float8e5m2)

Test(result_check, a_filled_buffer_is_right_and_each_changed_element_is_counted)
{
	enum { COUNT = 3 * BENCH_VALUES + 17 };
	float *table = malloc(BENCH_VALUES * sizeof(float)), *buf = malloc(COUNT * sizeof(float));
	size_t first = 0;

	bench_values_input(table, tuttiFloat32, tuttiSum, 4, 1, 9);
	for (size_t phase = 0; phase < BENCH_VALUES; phase += 4001) {
		bench_values_fill(buf, table, sizeof(float), COUNT, phase);
		cr_assert_eq(bench_values_check(buf, table, sizeof(float), COUNT, phase, &first),
			     0);
		for (size_t i = 0; i < COUNT; i += 1000)
			cr_assert_eq(buf[i], table[(i + phase) % BENCH_VALUES]);
		buf[20000] = -buf[20000];
		buf[COUNT - 1] = -buf[COUNT - 1];
		cr_assert_eq(bench_values_check(buf, table, sizeof(float), COUNT, phase, &first),
			     2);
		cr_assert_eq(first, 20000);
	}
	free(table);
	free(buf);
}

/* ---- the check accepts every collective done by hand, and finds every error ------------------ */

enum { RANKS = 4, COUNT = 50, ROOT = 2 };

struct check_fixture {
	struct bench_options options;
	struct bench_cell cell;
	struct bench_rank ranks[RANKS];
	int32_t *send[RANKS], *recv[RANKS];
};

static void fixture_make(struct check_fixture *h, const struct bench_collective *bench,
			 bool in_place)
{
	static tuttiComm_t no_comms[1];
	size_t whole = COUNT * sizeof(int32_t) * RANKS;

	*h = (struct check_fixture){
		.options = { .max_bytes = whole, .check = 1, .seed = 3, .null_stream = 1 }
	};
	h->cell = (struct bench_cell){ .bench = bench,
				       .count = COUNT,
				       .esize = sizeof(int32_t),
				       .type = tuttiInt32,
				       .op = bench->combines ? tuttiSum : BENCH_NO_OP,
				       .root = ROOT,
				       .in_place = in_place };
	h->cell.send_bytes = bench->send_all ? whole : whole / RANKS;
	h->cell.recv_bytes = bench->recv_all ? whole : whole / RANKS;
	bench_cell_slots(&h->cell, &h->options);
	for (int r = 0; r < RANKS; r++) {
		h->ranks[r] = (struct bench_rank){
			.rank = r, .nranks = RANKS, .comms = no_comms, .complaints = 99
		};
		cr_assert_eq(bench_rank_make(&h->ranks[r], &h->options, bench, 0), 0);
		bench_values_input(h->ranks[r].input, tuttiInt32, h->cell.op, RANKS, r, 3);
		if (bench->combines)
			bench_values_result(h->ranks[r].result, tuttiInt32, h->cell.op, RANKS, 3);
		bench_rank_fill(&h->ranks[r], &h->options, &h->cell, 0, 17, true);
		struct bench_call call = bench_rank_call(&h->ranks[r], &h->options, &h->cell, 0);
		h->send[r] = (int32_t *)(uintptr_t)call.send;
		h->recv[r] = call.recv;
	}
}

static void fixture_free(struct check_fixture *h)
{
	for (int r = 0; r < RANKS; r++)
		bench_rank_free(&h->ranks[r], 0);
}

static uint64_t fixture_wrong(struct check_fixture *h)
{
	uint64_t wrong = 0;

	for (int r = 0; r < RANKS; r++) {
		uint64_t of_rank;

		cr_assert_eq(bench_rank_check(&h->ranks[r], &h->options, &h->cell, 0, 17, true,
					      &of_rank),
			     0);
		wrong += of_rank;
	}
	return wrong;
}

/* The whole result of rank r, by the definition of the collective in tutti.h. */
static void fixture_rank(const struct check_fixture *h, int32_t *const *in, int r)
{
	size_t part = COUNT * sizeof(int32_t);

	for (int i = 0; i < COUNT; i++) {
		int at = h->cell.bench->collective == TT_REDUCE_SCATTER ? r * COUNT + i : i;

		if (h->cell.bench->combines)
			h->recv[r][i] = (int32_t)((uint32_t)in[0][at] + (uint32_t)in[1][at] +
						  (uint32_t)in[2][at] + (uint32_t)in[3][at]);
	}
	for (int p = 0; p < RANKS; p++) {
		switch (h->cell.bench->collective) {
		case TT_BROADCAST:
			memcpy(h->recv[r], in[ROOT], part);
			break;
		case TT_ALLGATHER:
		case TT_GATHER:
			memcpy(h->recv[r] + p * COUNT, in[p], part);
			break;
		case TT_ALLTOALL:
			memcpy(h->recv[r] + p * COUNT, in[p] + r * COUNT, part);
			break;
		case TT_SCATTER:
			memcpy(h->recv[r], in[ROOT] + r * COUNT, part);
			break;
		case TT_SENDRECV:
			memcpy(h->recv[r], in[(r + RANKS - 1) % RANKS], part);
			break;
		default:
			break;
		}
	}
}

/* The collective on all ranks, on copies of the inputs, so that in place works as well. */
static void fixture_call(struct check_fixture *h)
{
	int32_t *in[RANKS];
	bool to_root = h->cell.bench->to_root;

	for (int r = 0; r < RANKS; r++) {
		in[r] = malloc(h->cell.send_bytes);
		memcpy(in[r], h->send[r], h->cell.send_bytes);
	}
	for (int r = 0; r < RANKS; r++)
		if (!to_root || r == ROOT)
			fixture_rank(h, in, r);
	for (int r = 0; r < RANKS; r++)
		free(in[r]);
}

static void check_collective(const struct bench_collective *bench, bool in_place)
{
	const char *name = tt_collective_name(bench->collective);
	struct check_fixture h;

	fixture_make(&h, bench, in_place);
	cr_assert_gt(fixture_wrong(&h), 0, "%s without a call", name);
	fixture_call(&h);
	cr_assert_eq(fixture_wrong(&h), 0, "%s in_place %d", name, in_place);
	h.recv[ROOT][COUNT - 1] ^= 1;
	cr_assert_eq(fixture_wrong(&h), 1, "%s, one bit", name);
	h.recv[ROOT][COUNT - 1] ^= 1;
	if (bench->recv_all) { /* two parts are swapped */
		int32_t keep[COUNT];

		memcpy(keep, h.recv[ROOT], sizeof(keep));
		memcpy(h.recv[ROOT], h.recv[ROOT] + COUNT, sizeof(keep));
		memcpy(h.recv[ROOT] + COUNT, keep, sizeof(keep));
		cr_assert_gt(fixture_wrong(&h), COUNT, "%s, swapped parts", name);
	} else if (!in_place) { /* guard bytes around the result, and the input */
		h.recv[ROOT][COUNT] ^= 1;
		h.recv[ROOT][-1] ^= 1;
		h.send[ROOT][0] ^= 1;
		cr_assert_eq(fixture_wrong(&h), 3, "%s, guards and input", name);
	}
	fixture_free(&h);
}

Test(result_check, the_check_accepts_every_collective_done_by_hand_and_finds_errors)
{
	for (int i = 0; i < TT_COLLECTIVES; i++) {
		check_collective(&bench_collectives[i], false);
		if (bench_collectives[i].in_place)
			check_collective(&bench_collectives[i], true);
	}
}

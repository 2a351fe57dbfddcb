/*
 * test_slot_stores.c - the stores of large posts to slots: what the trials decide
 *
 * The times of the calls are the test's.
 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "local/slots.h"

#define BYTES (64u << 10)

/* Calls of a rank that take cost[0] with ordinary stores, cost[1] with non-temporal ones, and longer
 * if a peer comes late: all but every third one. Returns the calls with non-temporal stores. */
static int call(tuttiComm_t c, int calls, const uint64_t cost[2])
{
	struct tt_slot_stores *s = &c->calls.slot_stores[1];
	int n = 0;

	for (int i = 0; i < calls; i++) {
		bool nontemporal = tt_slot_stores_next(c, BYTES);

		n += nontemporal;
		if (s->began_ns)
			s->took_ns = cost[nontemporal] + (i % 3 ? 1000000 * (uint64_t)(i % 7) : 0);
	}
	return n;
}

static const uint64_t two_cores[2] = { 33500, 7700 }, one_core[2] = { 9000, 12000 },
		      alike[2] = { 9500, 9000 };

Test(slot_stores, of_the_faster_kind_follow_the_first_trials)
{
	tuttiComm_t c = calloc(1, sizeof(*c));

	call(c, 10, two_cores);
	cr_expect_eq(call(c, 64, two_cores), 64);
	cr_expect_geq(call(c, 20000, two_cores), 19800, "trials are at most 1 %% of the calls");
	free(c);
}

Test(slot_stores, change_when_the_ranks_move)
{
	tuttiComm_t c = calloc(1, sizeof(*c));

	call(c, 20000, two_cores);
	call(c, 4200, one_core);
	cr_expect_leq(call(c, 1000, one_core), 100);
	call(c, 4200, two_cores);
	cr_expect_geq(call(c, 1000, two_cores), 900);
	free(c);
}

Test(slot_stores, stay_as_they_are_when_both_take_as_long)
{
	tuttiComm_t c = calloc(1, sizeof(*c));

	cr_expect_leq(call(c, 20000, alike), 200);
	free(c);
}

Test(slot_stores, of_calls_that_are_never_done_are_ordinary)
{
	tuttiComm_t c = calloc(1, sizeof(*c));
	int n = 0;

	for (int i = 0; i < 1000; i++)
		n += tt_slot_stores_next(c, BYTES);
	cr_expect_leq(n, 50);
	free(c);
}

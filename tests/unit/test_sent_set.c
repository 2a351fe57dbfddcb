/*
 * test_sent_set.c - a set of ranks is the same in a message and in memory, whatever its size and its groups
 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "control/frame.h"
#include "control/sent_set.h"

#define PATTERNS 7

/* Is a rank of n in the set? Groups of 512 ranks are all, none or some of their ranks in turn. */
static bool is_member(int pattern, int rank, int n)
{
	const bool is[PATTERNS] = { true,
				    false,
				    rank % 3 == 0,
				    rank == n - 1,
				    rank / 512 % 2 == 0,
				    rank / 512 % 3 == 1 || rank % 512 == 511,
				    rank % 512 == 0 };

	return is[pattern];
}

static struct tt_counted_bits make_set(int pattern, int n)
{
	struct tt_counted_bits set;

	cr_assert(tt_counted_bits_make(&set, n));
	for (int r = 0; r < n; r++)
		if (is_member(pattern, r, n))
			tt_counted_bits_add(&set, r);
	tt_counted_bits_count(&set);
	return set;
}

static void check(int pattern, int n)
{
	struct tt_counted_bits set = make_set(pattern, n), same;
	struct tt_writer w = { 0 };
	struct tt_reader r;
	struct tt_sent_set sent;

	tt_put_set(&w, &set);
	cr_assert(!w.failed && w.have <= TT_SENT_SET_MOST(n));
	r = (struct tt_reader){ .at = w.data, .left = w.have };
	sent = tt_get_set(&r, n);
	cr_assert(tt_get_end(&r), "pattern %d of %d ranks", pattern, n);
	cr_assert(tt_sent_set_read(&sent, &same));
	for (int rank = 0, next = 0; rank < n; rank++) {
		bool is = is_member(pattern, rank, n);

		cr_assert_eq(tt_sent_set_has(&sent, rank), is, "pattern %d: rank %d of %d", pattern,
			     rank, n);
		cr_assert_eq(tt_counted_bits_has(&same, rank), is, "pattern %d: rank %d of %d",
			     pattern, rank, n);
		for (next = next > rank ? next : rank; next < n && !is_member(pattern, next, n);)
			next++;
		cr_assert_eq(tt_sent_set_next(&sent, rank), next, "pattern %d: behind %d of %d",
			     pattern, rank, n);
	}
	tt_counted_bits_free(&set);
	tt_counted_bits_free(&same);
	free(w.data);
}

Test(sent_set, has_the_same_ranks_as_in_memory, .timeout = 60)
{
	static const int sizes[] = { 1, 7, 8, 9, 64, 511, 512, 513, 1024, 1025, 2100 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (int pattern = 0; pattern < PATTERNS; pattern++)
			check(pattern, sizes[i]);
}

Test(sent_set, the_empty_one_has_no_rank)
{
	struct tt_writer w = { 0 };
	struct tt_reader r;
	struct tt_sent_set sent;

	tt_put_no_set(&w, 1300);
	r = (struct tt_reader){ .at = w.data, .left = w.have };
	sent = tt_get_set(&r, 1300);
	cr_assert(tt_get_end(&r));
	cr_expect_eq(tt_sent_set_next(&sent, 0), 1300);
	free(w.data);
}

Test(sent_set, bits_of_ranks_that_do_not_exist_are_malformed)
{
	const uint8_t data[] = { 2 /* some */, 0xff, 0x04 };
	struct tt_reader r = { .at = data, .left = sizeof(data) };

	tt_get_set(&r, 10);
	cr_expect(!tt_get_end(&r), "rank 10 of 10");
	r = (struct tt_reader){ .at = data, .left = 2 };
	tt_get_set(&r, 10);
	cr_expect(!tt_get_end(&r), "a byte is missing");
}

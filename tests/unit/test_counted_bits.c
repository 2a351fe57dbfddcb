/*
 * test_counted_bits.c - bits with counts, sets of ranks in messages, and maps of members, against plain arrays
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "control/control.h"
#include "control/frame.h"
#include "control/sent_set.h"

#define MOST 2100
#define MANY 100000

static const int sizes[] = { 1, 63, 64, 65, 511, 512, 513, 1024, 1025, MOST };

/* Patterns of groups that are clear, full and mixed, in turn */
static bool is_set(int pattern, int i)
{
	switch (pattern) {
	case 0:
		return false;
	case 1:
		return true;
	case 2:
		return i != 700;
	case 3:
		return i / 512 % 2;
	case 4:
		return i / 100 % 3 == 1;
	default:
		return i * 7919 % 11 < 4;
	}
}
#define PATTERNS 6

static struct tt_counted_bits make(int pattern, int n)
{
	struct tt_counted_bits b;

	cr_assert(tt_counted_bits_make(&b, n));
	for (int i = 0; i < n; i++)
		if (is_set(pattern, i))
			tt_counted_bits_add(&b, i);
	tt_counted_bits_count(&b);
	return b;
}

static void check(const struct tt_counted_bits *b, int pattern, int n)
{
	int count = 0, next[2] = { n, n };

	for (int i = 0; i < n; i++) {
		bool set = is_set(pattern, i);

		cr_assert_eq(tt_counted_bits_has(b, i), set, "pattern %d, %d of %d", pattern, i, n);
		cr_assert_eq(tt_counted_bits_before(b, i), count);
		if (set)
			cr_assert_eq(tt_counted_bits_find(b, count), i);
		count += set;
	}
	cr_assert_eq(tt_counted_bits_before(b, n), count);
	for (int i = n - 1; i >= 0; i--) {
		next[is_set(pattern, i)] = i;
		cr_assert_eq(tt_counted_bits_next(b, i, true), next[1], "from %d of %d", i, n);
		cr_assert_eq(tt_counted_bits_next(b, i, false), next[0], "from %d of %d", i, n);
	}
}

Test(counted_bits, are_counted_and_found, .timeout = 20)
{
	for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++)
		for (int p = 0; p < PATTERNS; p++) {
			struct tt_counted_bits b = make(p, sizes[k]), same;

			check(&b, p, sizes[k]);
			cr_assert(tt_counted_bits_duplicate(&same, &b));
			tt_counted_bits_free(&b);
			check(&same, p, sizes[k]);
			tt_counted_bits_free(&same);
		}
}

Test(counted_bits, ranges_are_copied_to_any_place, .timeout = 20)
{
	for (int p = 0; p < PATTERNS; p++)
		for (int first = 0; first < MOST; first += 37)
			for (int to = 0; to < 130; to += 43) {
				int n = first % 700 < MOST - first ? first % 700 : MOST - first;
				struct tt_counted_bits from = make(p, MOST), b;

				cr_assert(tt_counted_bits_make(&b, MOST));
				tt_counted_bits_add_range(&b, to, &from, first, first + n);
				tt_counted_bits_fill(&b, to + n, 70);
				tt_counted_bits_count(&b);
				for (int i = 0; i < MOST; i++)
					cr_assert_eq(tt_counted_bits_has(&b, i),
						     i >= to && i < to + n + 70 &&
							     (i >= to + n ||
							      is_set(p, first + i - to)),
						     "pattern %d, %d from %d on to %d: %d", p, n,
						     first, to, i);
				tt_counted_bits_free(&from);
				tt_counted_bits_free(&b);
			}
}

Test(counted_bits, other_bits_have_another_mark, .timeout = 20)
{
	uint64_t marks[PATTERNS];

	for (int p = 0; p < PATTERNS; p++) {
		struct tt_counted_bits b = make(p, MOST);

		marks[p] = tt_counted_bits_mark(&b);
		for (int q = 0; q < p; q++)
			cr_expect_neq(marks[p], marks[q], "patterns %d and %d", p, q);
		tt_counted_bits_free(&b);
	}
}

/* Of a job of 100,000 ranks, a shrink keeps all but one. */
Test(counted_bits, groups_of_equal_bits_take_no_words, .timeout = 20)
{
	struct tt_counted_bits b;
	struct tt_rank_map m, child;
	struct tt_writer w = { 0 };

	cr_assert(tt_counted_bits_make(&b, MANY));
	tt_counted_bits_fill(&b, 0, 70001);
	tt_counted_bits_fill(&b, 70002, MANY - 70002);
	tt_counted_bits_count(&b);
	tt_put_set(&w, &b);
	cr_expect_leq(w.have, MANY / 512 + 1 + 64, "%zu bytes in a message", w.have);
	tt_rank_map_take(&m, &b);
	cr_expect_lt(tt_rank_map_memory(&m), 1800, "%zu bytes", tt_rank_map_memory(&m));
	cr_assert(tt_rank_map_compose(&child, &m, NULL, MANY));
	cr_expect_eq(tt_rank_map_rank(&child, 70001), -1);
	cr_expect_eq(tt_rank_map_peer(&child, 70001), 70002);
	cr_expect_lt(tt_rank_map_memory(&child), 1800, "%zu bytes", tt_rank_map_memory(&child));
	tt_rank_map_free(&child);
	tt_rank_map_free(&m);
	free(w.data);
}

/* ---- sets in messages ------------------------------------------------------------------------ */

Test(counted_bits, sets_are_read_as_they_were_sent, .timeout = 20)
{
	for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++)
		for (int p = 0; p < PATTERNS; p++) {
			int n = sizes[k], next = n;
			struct tt_counted_bits b = make(p, n), back;
			struct tt_writer w = { 0 };
			struct tt_reader r;
			struct tt_sent_set s;

			tt_put_set(&w, &b);
			cr_assert(!w.failed && w.have <= TT_SENT_SET_MOST(n));
			r = (struct tt_reader){ .at = w.data, .left = w.have };
			s = tt_get_set(&r, n);
			cr_assert(tt_get_end(&r));
			cr_assert(tt_sent_set_read(&s, &back));
			check(&back, p, n);
			for (int i = n - 1; i >= 0; i--) {
				next = is_set(p, i) ? i : next;
				cr_assert_eq(tt_sent_set_has(&s, i), is_set(p, i));
				cr_assert_eq(tt_sent_set_next(&s, i), next, "from %d of %d", i, n);
			}
			tt_counted_bits_free(&b);
			tt_counted_bits_free(&back);
			free(w.data);
		}
}

/* A set of `size` ranks from `have` bytes */
static bool is_read(const uint8_t *bytes, size_t have, int size)
{
	struct tt_reader r = { .at = bytes, .left = have };

	tt_get_set(&r, size);
	return tt_get_end(&r);
}

Test(counted_bits, malformed_sets_are_refused, .timeout = 20)
{
	uint8_t bytes[66] = { 2 };

	bytes[1 + 99 / 8] = 1 << 99 % 8;
	cr_expect(is_read(bytes, 14, 100));
	cr_expect_not(is_read(bytes, 14, 99), "rank 99 of 99");
	cr_expect_not(is_read(bytes, 13, 100), "too short");
	cr_expect_not(is_read(bytes, 15, 100), "too long");
	cr_expect_not(is_read(bytes, 65, 600), "a group less");
	cr_expect(is_read(bytes, 65, 511), "rank 99 of 511");
	cr_expect(is_read(bytes, 66, 600), "and an empty group");
	bytes[64] = 0x80;
	cr_expect_not(is_read(bytes, 65, 511), "rank 511 of 511");
	bytes[64] = 0;
	bytes[0] = 3;
	cr_expect_not(is_read(bytes, 14, 100));
	bytes[0] = 1;
	cr_expect(is_read(bytes, 1, 100));
}

/* ---- maps ------------------------------------------------------------------------------------ */

/* The members of a communicator of every second, third ... peer, of which a child has some, in order or not */
Test(counted_bits, maps_of_a_child_lead_through_those_of_its_parent, .timeout = 20)
{
	int outer_peer[MOST], member[MOST];

	for (int orders = 0; orders < 4; orders++)
		for (int each = 1; each < 8; each += 3) {
			struct tt_rank_map outer, members, child;
			int n = 0, nmembers = 0;

			for (int p = 0; p < MOST; p += each)
				outer_peer[n++] = orders & 1 ? MOST - 1 - p : p;
			for (int r = 1; r < n; r += 2)
				member[nmembers++] = orders & 2 ? n - 1 - r : r;
			cr_assert(tt_rank_map_make(&outer, outer_peer, n, MOST));
			cr_assert(tt_rank_map_make(&members, member, nmembers, n));
			cr_assert(tt_rank_map_compose(&child, &members, &outer, MOST));
			for (int r = 0; r < nmembers; r++) {
				cr_assert_eq(tt_rank_map_peer(&child, r), outer_peer[member[r]]);
				cr_assert_eq(tt_rank_map_rank(&child, outer_peer[member[r]]), r);
			}
			cr_expect_eq(child.n, nmembers);
			tt_rank_map_free(&outer);
			tt_rank_map_free(&members);
			tt_rank_map_free(&child);
		}
}

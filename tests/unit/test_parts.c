/*
 * test_parts.c - an exchange brings each rank's part to all, whatever parts differ, among up to thousands of ranks
 *
 * One control is each rank in turn, and gets the messages of its children. The ranks below one are a tree of their
 * own, whose result is the message that this rank sends to its parent.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "control/control_internal.h"

#define MOST 4105

enum { FIRST, NONE, SECOND, COLUMNS };
static const size_t bytes[COLUMNS] = { 4, 0, 9 };

/* The part of a rank of n in each column */
static void fill_part(int pattern, int rank, int n, uint8_t part[COLUMNS][9])
{
	const uint32_t value[] = { 0,
				   (uint32_t)rank,
				   (uint32_t)rank / 8,
				   (uint32_t)rank / 2048,
				   (uint32_t)rank / 2056,
				   rank == 0,
				   rank == n - 1,
				   rank >= n - 9,
				   (uint32_t)rank * 2654435761u >> 16 & 1 };

	memset(part, 0, COLUMNS * sizeof(part[0]));
	memcpy(part[FIRST], &value[pattern], 4);
	memcpy(part[SECOND] + 5, &value[pattern], 4);
}
#define PATTERNS 9

struct below_message {
	uint8_t *data;
	size_t bytes;
	int nranks; /* whose parts it has */
};

/* The exchange of the ranks from `top` on downwards in a tree of n: its parts, which equal `mine` at first */
static int exchange(struct tt_control *ctl, struct below_message child[TT_FANOUT],
		    uint8_t part[COLUMNS][9], struct tt_parts columns[COLUMNS])
{
	ctl->nranks = 1;
	for (int i = 0; i < TT_FANOUT; i++)
		ctl->nranks += child[i].nranks;
	for (int i = 0; i < COLUMNS; i++)
		columns[i] = (struct tt_parts){ .mine = part[i], .bytes = bytes[i] };
	ctl->gather.number = 0;
	for (int i = 0; i < TT_FANOUT; i++)
		if (child[i].data)
			cr_assert(tt_gather_up(ctl, i + 1, child[i].data, child[i].bytes));
	return tt_control_allgather_columns(ctl, columns, COLUMNS, tt_deadline_ns(0));
}

static struct below_message exchange_below(struct tt_control *ctl, int pattern, int top, int n)
{
	struct below_message child[TT_FANOUT] = { 0 }, m;
	struct tt_parts columns[COLUMNS];
	uint8_t part[COLUMNS][9];

	for (int i = 0; i < TT_FANOUT && top * TT_FANOUT + 1 + i < n; i++)
		child[i] = exchange_below(ctl, pattern, top * TT_FANOUT + 1 + i, n);
	fill_part(pattern, top, n, part);
	cr_assert_eq(exchange(ctl, child, part, columns), 0, "pattern %d, rank %d of %d: %s",
		     pattern, top, n, tt_error_text());
	for (int i = 0; i < TT_FANOUT; i++)
		free(child[i].data);
	for (int r = 0; r < n && top == 0; r++) {
		uint8_t got[9];

		fill_part(pattern, r, n, part);
		for (int i = 0; i < COLUMNS; i += SECOND) {
			tt_part_get(&columns[i], r, got);
			cr_assert(!memcmp(got, part[i], bytes[i]), "pattern %d, rank %d of %d",
				  pattern, r, n);
		}
	}
	m = (struct below_message){ columns[SECOND].message, ctl->gather.message_bytes,
				    ctl->nranks };
	columns[SECOND].message = NULL;
	for (int i = 0; i < COLUMNS; i++)
		tt_parts_free(&columns[i]);
	return m;
}

static struct tt_control *make(void)
{
	struct tt_control_endpoint *ep;
	struct tt_control *ctl;

	cr_assert_eq(tt_endpoint_make(0, MOST, &ep), 0);
	cr_assert_eq(tt_control_make(ep, 0, MOST, &ctl), 0);
	ctl->join.has_table = ctl->join.complete = true;
	return ctl;
}

Test(parts, each_rank_is_seen_with_its_own, .timeout = 120)
{
	static const int sizes[] = { 1,   2,   8,    9,    10,   64,   73,   74,   511,
				     512, 513, 2047, 2048, 2049, 2055, 2057, 4096, MOST };
	struct tt_control *ctl = make();

	for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++)
		for (int p = 0; p < PATTERNS; p++) {
			struct below_message m = exchange_below(ctl, p, 0, sizes[k]);

			cr_assert_eq(m.nranks, sizes[k]);
			free(m.data);
		}
	ctl->nranks = MOST;
	tt_control_free(ctl);
}

/* A byte and a part, then two bytes for each 256 groups that have begun, in each of two columns */
Test(parts, that_are_equal_take_two_bytes_for_2048_ranks, .timeout = 60)
{
	static const int sizes[] = { 1, 8, 9, 2056, 2057, MOST };
	struct tt_control *ctl = make();

	for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
		struct below_message m = exchange_below(ctl, 0, 0, sizes[k]);
		size_t further = ((size_t)sizes[k] + 7) / 8 - 1, runs = (further + 255) / 256;

		cr_expect_eq(m.bytes, 12 + 1 + 4 + 1 + 9 + 2 * 2 * runs, "%zu bytes of %d ranks",
			     m.bytes, sizes[k]);
		free(m.data);
	}
	ctl->nranks = MOST;
	tt_control_free(ctl);
}

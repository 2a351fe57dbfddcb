/*
 * test_rank_map.c - ranks and peers of maps of all sizes, in order and out of it; lists of ranks as text
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "control/control.h"
#include "control/rank_map.h"

#define PEERS 2500

static void check(const int *peer_of, int n, int npeers)
{
	struct tt_rank_map m;
	int members = 0;

	cr_assert(tt_rank_map_make(&m, peer_of, n, npeers));
	for (int r = 0; r < n; r++) {
		cr_assert_eq(tt_rank_map_peer(&m, r), peer_of[r], "rank %d of %d", r, n);
		cr_assert_eq(tt_rank_map_rank(&m, peer_of[r]), r, "rank %d of %d", r, n);
	}
	for (int p = 0; p < npeers; p++)
		members += tt_rank_map_rank(&m, p) >= 0;
	cr_assert_eq(members, n);
	tt_rank_map_free(&m);
}

/* Of every `each` peers from `first` on, one */
static int choose(int *peer_of, int npeers, int first, int each)
{
	int n = 0;

	for (int p = first; p < npeers; p += each)
		peer_of[n++] = p;
	return n;
}

Test(rank_map, leads_from_ranks_to_peers_and_back, .timeout = 10)
{
	static const int npeers[] = { 1, 63, 64, 65, 511, 512, 513, PEERS };
	static const int eaches[] = { 1, 2, 7, 600 };
	int peer_of[PEERS];

	for (size_t i = 0; i < sizeof(npeers) / sizeof(npeers[0]); i++)
		for (size_t k = 0; k < sizeof(eaches) / sizeof(eaches[0]); k++)
			for (int first = 0; first < npeers[i]; first = first * 3 + 1) {
				int n = choose(peer_of, npeers[i], first, eaches[k]), swapped;

				check(peer_of, n, npeers[i]);
				swapped = peer_of[0];
				peer_of[0] = peer_of[n - 1];
				peer_of[n - 1] = swapped;
				check(peer_of, n, npeers[i]);
			}
}

Test(rank_map, in_order_is_bits, .timeout = 10)
{
	int peer_of[PEERS], n = choose(peer_of, PEERS, 1, 1);
	struct tt_rank_map m;

	cr_assert(tt_rank_map_make(&m, peer_of, n, PEERS));
	cr_expect_lt(tt_rank_map_memory(&m), PEERS / 4);
	tt_rank_map_free(&m);
}

static bool is_marked(const void *ctx, int rank)
{
	return ((const char *)ctx)[rank] == 'x';
}

static bool is_even(const void *ctx, int rank)
{
	(void)ctx;
	return rank % 2 == 0;
}

Test(rank_map, lists_of_ranks_are_ranges_and_counts)
{
	char text[160];

	cr_expect_eq(tt_rank_list(10, is_marked, "..x.......", text, sizeof(text)), 1);
	cr_expect_str_eq(text, "rank 2");
	cr_expect_eq(tt_rank_list(10, is_marked, "xx.x.xxxxx", text, sizeof(text)), 8);
	cr_expect_str_eq(text, "ranks 0, 1, 3, 5 to 9");
	cr_expect_eq(tt_rank_list(300, is_even, NULL, text, sizeof(text)), 150);
	cr_expect(strlen(text) < 140 && strstr(text, "ranks 0, 2, 4, ") && strstr(text, " more"),
		  "%s", text);
}

/*
 * test_many_ranks.c - walks over the sets and maps of many ranks read no more than they need
 *
 * What a walk must not read lies in pages that cannot be read.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "control/control_internal.h"

#define RANKS 100000
#define PEERS 700000 /* counts of more than a page */

/* A copy of bytes, zeros without from, of which only the first page can be read */
static void *first_page(const void *from, size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *to = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	cr_assert(to != MAP_FAILED && bytes > page);
	if (from)
		memcpy(to, from, bytes);
	cr_assert_eq(mprotect(to + page, bytes - page, PROT_NONE), 0);
	return to;
}

/* ---- departures ------------------------------------------------------------------------------ */

Test(many_ranks, the_next_rank_that_is_gone_is_found_near, .timeout = 20)
{
	static struct tt_control ctl = { .nranks = RANKS };
	struct tt_departures *d = &ctl.departed;
	uint8_t *set[2] = { first_page(NULL, TT_SET_BYTES(RANKS)), tt_set_make(RANKS) };

	memset(set[1], 0xff, TT_SET_BYTES(RANKS));
	for (int i = 0; i < 2; i++) {
		d->left = set[i];
		d->dead = set[!i];
		for (int r = 0; r < 8 * sysconf(_SC_PAGESIZE); r++)
			cr_assert_eq(tt_flood_next_gone(&ctl, r), r);
	}
	munmap(set[0], TT_SET_BYTES(RANKS));
	free(set[1]);
}

static int gone_from(const struct tt_control *ctl, int rank)
{
	while (rank < ctl->nranks && !tt_set_has(ctl->departed.left, rank) &&
	       !tt_set_has(ctl->departed.dead, rank))
		rank++;
	return rank;
}

/* The ranks from 1 on are gone, but `alive`: each has left, is dead or has ended its connection, or two of these. */
static void depart(struct tt_control *ctl, int alive)
{
	struct tt_departures *d = &ctl->departed;
	uint8_t *set[3] = { d->left, d->dead, d->over };

	for (int i = 0; i < 3; i++)
		memset(set[i], 0, TT_SET_BYTES(ctl->nranks));
	for (int r = 1; r < ctl->nranks; r++)
		for (int i = 0; i < 1 + r % 2 && r != alive; i++)
			tt_set_add(set[(r + i) % 3], r);
}

/* Rank 0 and another one are parted if they are no neighbors, and rank 0 alone is not. */
Test(many_ranks, ranks_that_are_gone_are_counted, .timeout = 20)
{
	static const int sizes[] = { 3, 63, 64, 65, 127, 128, 130 };

	for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
		static struct tt_control ctl;
		struct tt_departures *d = &ctl.departed;
		int n = ctl.nranks = sizes[k];
		bool partitioned[130];

		d->left = tt_set_make(n);
		d->dead = tt_set_make(n);
		d->over = tt_set_make(n);
		for (int r = 1; r < n; r++) {
			depart(&ctl, r);
			cr_assert_eq(tt_control_find_partitioned(&ctl, partitioned),
				     n > 3 && !tt_control_is_neighbor(&ctl, r), "rank %d of %d", r,
				     n);
			cr_assert_eq(tt_flood_next_gone(&ctl, r), gone_from(&ctl, r));
		}
		depart(&ctl, -1);
		cr_assert_not(tt_control_find_partitioned(&ctl, partitioned), "%d ranks", n);
		free(d->left);
		free(d->dead);
		free(d->over);
	}
}

/* ---- hosts ----------------------------------------------------------------------------------- */

/* Of peers on two hosts every second one up to 200,000 is a member. Whether a host begins between two members is a
 * matter of the peers between them. */
Test(many_ranks, hosts_of_members_are_found_near, .timeout = 20)
{
	static struct tt_control_endpoint ep = { .npeers = PEERS };
	static struct tt_control ctl = { .ep = &ep, .nranks = RANKS };
	struct tt_counted_bits *firsts = &ep.peers.directory.firsts, in, all;
	size_t bytes = (PEERS / TT_BITS_GROUP + 2) * sizeof(*firsts->group);
	struct tt_rank_map map;

	cr_assert(tt_counted_bits_make(&in, PEERS) && tt_counted_bits_make(&all, PEERS));
	for (int r = 0; r < RANKS; r++)
		tt_counted_bits_add(&in, 2 * r);
	tt_counted_bits_count(&in);
	tt_rank_map_take(&map, &in);
	tt_counted_bits_add(&all, 0);
	tt_counted_bits_add(&all, 2 * 70000 - 1);
	tt_counted_bits_count(&all);
	*firsts = all;
	firsts->group = first_page(all.group, bytes);
	ctl.map = &map;
	cr_assert(tt_control_number_hosts(&ctl));
	cr_expect_eq(ctl.nhosts, 2);
	cr_expect_eq(tt_control_host(&ctl, 69999), 0);
	cr_expect_eq(tt_control_host(&ctl, 70000), 1);
	munmap(firsts->group, bytes);
	tt_counted_bits_free(&ctl.own_firsts);
	tt_counted_bits_free(&all);
	tt_rank_map_free(&map);
}

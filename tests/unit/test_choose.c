/*
 * test_choose.c - the choice of an algorithm: the same on all ranks, by predictions that are near the full
 * simulation
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "algorithms/algorithms.h"
#include "model/choose.h"
#include "tests/support/clusters.h"

TestSuite(choose, .timeout = 120);

/* Each rank chooses with its own shape. The choice depends only on agreed facts, so all ranks
 * choose the same algorithm. */
Test(choose, all_ranks_choose_the_same_algorithm)
{
	uint64_t state = 7;

	for (int k = 0; k < 60; k++) {
		int n = 1 + (int)(((state = state * 6364136223846793005u + 1442695040888963407u) >>
				   33) %
				  20);
		int nhosts = 1 + (int)((state >> 20) % (uint64_t)(n < 4 ? n : 4));
		size_t bytes = (size_t)1 << (state >> 40) % 27;
		struct cluster c = cluster_of(n, nhosts, state >> 60 & 1, &tt_cost_builtin);
		struct tt_call_facts facts = { .bytes = bytes,
					       .over_tcp = state >> 60 & 1,
					       .cores = 1 + (int)((state >> 50) % 8) };
		char first[64] = "", name[64];

		c.topology.host_of = c.host_of;
		for (int r = 0; r < n; r += n / 2 + 1) {
			struct tt_shape shape = { .collective = (enum tt_collective)(k %
										     TT_SENDRECV),
						  .nranks = n,
						  .rank = r,
						  .topology = &c.topology };
			const struct tt_algorithm *a;

			cr_assert_eq(tt_plan_choose("auto", &shape, &facts, &a, name), TT_OK, "%s",
				     tt_error_text());
			if (!*first)
				strcpy(first, name);
			cr_expect_str_eq(name, first);
		}
	}
}

/* The NIC class chosen for a call of n ranks, one per host; 0: tcp. The first and the last rank
 * choose, alike. */
static int nic_for(int n, size_t bytes, const struct tt_cost *cost, enum tt_link_class nic)
{
	struct cluster c = cluster_of(n, n, false, cost);
	struct tt_call_facts facts = { .bytes = bytes, .nic_class = (uint8_t)nic, .cost = cost };
	struct tt_candidate list[TT_MOST_CANDIDATES];
	int best, count, by[2];

	c.topology.host_of = c.host_of;
	for (int r = 0; r < 2; r++) {
		struct tt_shape shape = { .collective = TT_ALLREDUCE,
					  .nranks = n,
					  .rank = r * (n - 1),
					  .topology = &c.topology };

		count = tt_plan_candidates(&shape, &facts, list, &best);
		cr_assert(count > 0 && list[best].applies, "%s", tt_error_text());
		by[r] = list[best].nic_class;
		cr_expect_eq(tt_plan_nic(&shape, &facts, list[best].algorithm, list[best].name),
			     by[r]);
	}
	cr_expect_eq(by[0], by[1]);
	return by[0];
}

Test(choose, between_hosts_the_faster_of_tcp_and_verbs_is_chosen)
{
	struct tt_cost small = tt_cost_builtin;
	int before = TT_LINK_SOFT;

	for (int n = 2; n <= 24; n += n < 4 ? 1 : 10)
		for (size_t bytes = 1; bytes <= 64 << 20; bytes *= 64) {
			cr_expect_eq(nic_for(n, bytes, &tt_cost_builtin, TT_NO_NIC), 0);
			cr_expect_eq(nic_for(n, bytes, &tt_cost_builtin, TT_LINK_VERBS),
				     TT_LINK_VERBS, "%d ranks, %zu bytes", n, bytes);
			cr_expect_eq(nic_for(n, bytes, &tt_cost_builtin, TT_LINK_SOFT), 0);
		}
	small.link[TT_LINK_SOFT].latency_ps = small.link[TT_LINK_HOSTS].latency_ps / 4;
	for (size_t bytes = 1; bytes <= 64 << 20; bytes *= 4) {
		int now = nic_for(2, bytes, &small, TT_LINK_SOFT);

		cr_expect(now == before || now == 0, "%zu bytes use the NIC again", bytes);
		before = now;
	}
	cr_expect_eq(nic_for(2, 8, &small, TT_LINK_SOFT), TT_LINK_SOFT);
	cr_expect_eq(before, 0);
}

/* Every link costs a handshake or memory, so the first call would take seconds. */
Test(choose, a_small_call_of_many_ranks_needs_few_links)
{
	for (int n = 32; n <= 1024; n *= 2)
		for (int over_tcp = 0; over_tcp < 2; over_tcp++) {
			struct tt_shape shape = { .collective = TT_ALLREDUCE, .nranks = n };
			struct tt_call_facts facts = { .over_tcp = over_tcp, .cores = 2 };
			struct tt_candidate list[TT_MOST_CANDIDATES];
			int best;

			for (facts.bytes = 4; facts.bytes <= 16384; facts.bytes *= 16) {
				cr_assert_gt(tt_plan_candidates(&shape, &facts, list, &best), 0);
				cr_expect_leq(list[best].links, 4u * (unsigned)n,
					      "%s: %d ranks, %zu bytes, tcp %d", list[best].name, n,
					      facts.bytes, over_tcp);
			}
		}
}

/* The choice for a call by tcp on one host */
static struct tt_candidate chosen(enum tt_collective collective, int n, size_t bytes, int cores)
{
	struct tt_shape shape = { .collective = collective, .nranks = n };
	struct tt_call_facts facts = { .bytes = bytes, .over_tcp = true, .cores = cores };
	struct tt_candidate list[TT_MOST_CANDIDATES];
	int best;

	cr_assert_gt(tt_plan_candidates(&shape, &facts, list, &best), 0);
	return list[best];
}

/* The root of a tree sends log2 n messages, not n - 1, so the next call can begin earlier. */
Test(choose, short_calls_of_a_sending_root_go_by_a_tree_where_ranks_share_cores)
{
	static const enum tt_collective of[] = { TT_BROADCAST, TT_SCATTER };

	for (int i = 0; i < 2; i++) {
		for (int n = 4; n <= 16; n *= 2)
			for (size_t bytes = 4; bytes <= 4096; bytes *= 4) {
				struct tt_candidate best = chosen(of[i], n, bytes, 2);

				cr_expect_str_eq(best.name, "tree", "%s of %zu, n = %d",
						 tt_collective_name(of[i]), bytes, n);
				cr_expect(best.overlaps);
			}
		cr_expect_not(chosen(of[i], 4, 1 << 20, 2).overlaps);
		cr_expect_not(chosen(of[i], 4, 64, 4).overlaps);
	}
	cr_expect_not(chosen(TT_GATHER, 4, 64, 2).overlaps);
}

static void compare_predictions(int ngroups)
{
	static const char *const names[] = {
		"ring",     "tree",     "recursive-doubling",        "halving-doubling",
		"two-shot", "one-shot", "hierarchical:two-shot/ring"
	};
	static const size_t sizes[] = { 64, 65536, 4 << 20 };

	for (size_t s = 0; s < 3; s++) {
		struct cluster c = cluster_of_groups(48, ngroups, &tt_cost_builtin);
		struct tt_shape shape = { .collective = TT_ALLREDUCE,
					  .nranks = 48,
					  .topology = &c.topology };
		struct tt_call_facts facts = { .bytes = sizes[s] };
		struct tt_candidate list[TT_MOST_CANDIDATES];
		int best, count;

		tt_sim_close(
			cluster_open_sim(&c, TT_ALLREDUCE, "ring")); /* completes the topology */
		count = tt_plan_candidates(&shape, &facts, list, &best);
		cr_assert_gt(count, 0);
		for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
			uint64_t whole =
				cluster_simulate(&c, TT_ALLREDUCE, names[i], sizes[s]).time_ps;

			for (int k = 0; k < count; k++)
				if (!strcmp(list[k].name, names[i]))
					cr_expect(list[k].predicted_ps > whole / 2 &&
							  list[k].predicted_ps < 2 * whole,
						  "%s of %zu in %d groups: %llu, whole %llu",
						  names[i], sizes[s], ngroups,
						  (unsigned long long)list[k].predicted_ps,
						  (unsigned long long)whole);
		}
	}
}

Test(choose, predictions_extrapolated_to_many_ranks_are_near_the_full_simulation)
{
	compare_predictions(1);
	compare_predictions(4);
}

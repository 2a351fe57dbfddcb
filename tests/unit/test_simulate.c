/*
 * test_simulate.c - the simulator: times computed by hand, lower bounds, messages and bytes equal
 * to those of the plans
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "algorithms/algorithms.h"
#include "model/choose.h"
#include "plan/plan.h"
#include "tests/support/clusters.h"

TestSuite(simulate, .timeout = 120);

/* Costs in round numbers, so that times can be added up by hand. */
static struct tt_cost plain = {
	.core = { .call_ps = 1000,
		  .step_ps = 10000,
		  .switch_ps = 500000,
		  .copy_fs = 1000000,
		  .reduce_fs = 2000000,
		  .far_copy_fs = 1000000,
		  .far_reduce_fs = 2000000,
		  .cache_bytes = 1 << 20 },
	.link = { [TT_LINK_SHM] = { .latency_ps = 100000,
				    .send_ps = 3000,
				    .recv_ps = 5000,
				    .window = 8,
				    .large_bytes = 1 << 30 },
		  [TT_LINK_TCP] = { .latency_ps = 100000,
				    .send_ps = 3000,
				    .recv_ps = 5000,
				    .send_fs = 500000,
				    .recv_fs = 250000,
				    .window = 8,
				    .large_bytes = 1 << 30 },
		  [TT_LINK_HOSTS] = { .latency_ps = 100000,
				      .send_ps = 3000,
				      .recv_ps = 5000,
				      .link_fs = 1000000,
				      .host_fs = 1000000,
				      .window = 8,
				      .large_bytes = 1 << 30 },
		  [TT_LINK_SLOTS] = { .latency_ps = 60000,
				      .send_ps = 2000,
				      .recv_ps = 4000,
				      .large_bytes = 1 << 30 },
		  [TT_LINK_GROUPS] = { .latency_ps = 170000,
				       .send_ps = 3000,
				       .recv_ps = 6000,
				       .recv_fs = 400000,
				       .host_fs = 1000000,
				       .window = 8,
				       .large_bytes = 1 << 30 } },
};

/* ---- times computed by hand ------------------------------------------------------------------ */

/* Both ranks send 100 bytes, in ns: call 1, step 10, send 3, copy 100; latency 100; step 10,
 * receive 5, reduce 200. */
Test(simulate, an_exchange_of_two_ranks_costs_the_sum_of_its_parts)
{
	struct cluster c = cluster_of(2, 1, false, &plain);
	struct tt_sim_result r = cluster_simulate(&c, TT_ALLREDUCE, "recursive-doubling", 100);

	cr_expect_eq(r.time_ps, (1 + 10 + 3 + 100 + 100 + 10 + 5 + 200) * 1000ull, "%llu",
		     (unsigned long long)r.time_ps);
	cr_expect_eq(r.part_ps[TT_PART_LATENCY], 100000);
	cr_expect_eq(r.part_ps[TT_PART_BYTES], 100000);
	cr_expect_eq(r.part_ps[TT_PART_REDUCE], 200000);
	cr_expect_eq(r.part_ps[TT_PART_MESSAGES], 29000);
	cr_expect_eq(r.part_ps[TT_PART_WAIT], 0);
	cr_expect_eq(r.messages[TT_LINK_SHM], 2);
}

/* Each of three ranks posts 100 bytes to its shared-memory slot once for all readers, and reduces
 * two operands. */
Test(simulate, a_post_to_shared_slots_is_paid_once_for_all_readers)
{
	struct cluster c = cluster_of(3, 1, false, &plain);
	struct tt_sim_result r = cluster_simulate(&c, TT_ALLREDUCE, "one-shot", 100);

	cr_expect_eq(r.time_ps, (1 + 10 + 2 + 100 + 60 + 10 + 2 * 4 + 2 * 200) * 1000ull, "%llu",
		     (unsigned long long)r.time_ps);
}

/* The same over sockets: sender (50) and receiver (25) pay for the kernel's copies. A block that is
 * sent and then reduced into is copied to scratch first (100), since the kernel may read it
 * later. */
Test(simulate, sockets_pay_for_the_kernels_copies)
{
	struct cluster c = cluster_of(2, 1, true, &plain);
	struct tt_sim_result r = cluster_simulate(&c, TT_ALLREDUCE, "one-shot", 100);

	cr_expect_eq(r.time_ps, (1 + 10 + 3 + 100 + 50 + 100 + 10 + 5 + 25 + 200) * 1000ull, "%llu",
		     (unsigned long long)r.time_ps);
}

/* Rank 0 sends 100 bytes to each of two ranks of the other host: the network of the host carries
 * one message after the other. */
Test(simulate, links_of_a_host_share_its_network)
{
	struct cluster c = cluster_of(4, 2, false, &plain);
	struct tt_sim *sim = cluster_open_sim(&c, TT_BROADCAST, "direct");
	struct tt_sim_result r;

	/* the sends of rank 0 cost its core 114 to rank 1, 13 each to ranks 2 and 3; the
	 * messages to 2 and 3 take 100 each on the link, one after the other */
	cr_assert_eq(tt_sim_run(sim, 100, 0, &r), TT_OK);
	cr_expect_eq(r.bytes[TT_LINK_HOSTS], 200);
	cr_expect_geq(r.time_ps, (1 + 113 + 13 + 200 + 100 + 15) * 1000ull, "%llu",
		      (unsigned long long)r.time_ps);
	tt_sim_close(sim);
}

/* As the exchange above, between groups: latency 170, and 100 bytes on the network of a group 100, within the
 * latency's beginning; receive 6, and 40 for the bytes of another group. */
Test(simulate, an_exchange_of_two_groups_costs_their_link)
{
	struct cluster c = cluster_of_groups(2, 2, &plain);
	struct tt_sim_result r = cluster_simulate(&c, TT_ALLREDUCE, "recursive-doubling", 100);

	cr_expect_eq(r.time_ps, (1 + 10 + 3 + 100 + 100 + 170 + 10 + 6 + 40 + 200) * 1000ull,
		     "%llu", (unsigned long long)r.time_ps);
	cr_expect_eq(r.messages[TT_LINK_GROUPS], 2);
	cr_expect_eq(r.messages[TT_LINK_SHM], 0);
}

/* A post is read by rank 1 of the same group after 60 ns, by ranks 2 and 3 of another one after 60 and the
 * difference of groups to shm, 70; their reads share the network of the group: 100 each. */
Test(simulate, posts_to_slots_cost_more_in_another_group)
{
	struct cluster near = cluster_of_groups(4, 1, &plain),
		       far = cluster_of_groups(4, 2, &plain);
	struct tt_sim_result a = cluster_simulate(&near, TT_BROADCAST, "direct", 100),
			     b = cluster_simulate(&far, TT_BROADCAST, "direct", 100);

	cr_expect_eq(b.time_ps - a.time_ps, (2 * 100 + 70 + 1 + 40) * 1000ull, "%llu, %llu",
		     (unsigned long long)a.time_ps, (unsigned long long)b.time_ps);
}

/* One core for two ranks: each rank waits for the core and pays for context switches. */
Test(simulate, more_ranks_than_cores_share_the_cores)
{
	struct cluster c = cluster_of(2, 1, false, &plain);
	struct tt_sim_result alone = cluster_simulate(&c, TT_ALLREDUCE, "recursive-doubling", 100),
			     crowded;

	c.world.cores = 1;
	crowded = cluster_simulate(&c, TT_ALLREDUCE, "recursive-doubling", 100);
	/* both send (113 each) and reduce (215 each), with at least two context switches */
	cr_expect_geq(crowded.time_ps, (1 + 2 * 113 + 2 * 215 + 2 * 500) * 1000ull, "%llu",
		      (unsigned long long)crowded.time_ps);
	cr_expect_gt(crowded.time_ps, alone.time_ps);
}

/* ---- against the plans ----------------------------------------------------------------------- */

static size_t length_of(const struct tt_plan *p, const struct tt_binding *b,
			const struct tt_step *s)
{
	tt_ref local = s->dst != TT_REF_NONE ? s->dst : s->src[0];
	uint32_t block = tt_ref_index(local) % p->nblocks;
	size_t sum = 0;

	for (uint32_t k = 0; k < s->nblocks; k++)
		for (uint32_t t = 0; t < b->ntiles; t++)
			sum += tt_binding_length(b, p->rule, p->nblocks, block + k, 1, t);
	return sum;
}

/* Bytes that the plan of rank sends to each peer: the sum over its steps. */
static void add_up(const struct cluster *c, const struct tt_algorithm *a, int rank, size_t bytes,
		   uint64_t *sent)
{
	struct tt_shape shape = { .collective = a->collective,
				  .nranks = c->world.nranks,
				  .rank = rank,
				  .topology = &c->topology };
	struct tt_plan *p;
	struct tt_binding b;

	cr_assert_eq(tt_plan_build(a, a->name, &shape, &p), TT_OK);
	tt_plan_bind(p, &c->world.paths, c->world.message_bytes, bytes, &b);
	memset(sent, 0, CLUSTER_RANKS * sizeof(*sent));
	for (const struct tt_step *s = p->steps; s < p->steps + p->nsteps; s += tt_step_records(s))
		if (tt_ref_is_wire(s->to))
			sent[tt_ref_index(s->to)] += length_of(p, &b, s);
	tt_plan_free(p);
}

static void bytes_are_the_plans(const struct tt_algorithm *a, int n, int nhosts, size_t bytes)
{
	struct cluster c = cluster_of(n, nhosts, false, &tt_cost_builtin);
	struct tt_sim *sim = cluster_open_sim(&c, a->collective, a->name);
	struct tt_sim_result r;
	uint64_t want[CLUSTER_RANKS], got;

	cr_assert_eq(tt_sim_run(sim, bytes, 0, &r), TT_OK, "%s of %zu bytes, %d ranks: %s", a->name,
		     bytes, n, tt_error_text());
	for (int rank = 0; rank < n; rank++) {
		enum tt_link_class class;
		int peer;

		add_up(&c, a, rank, bytes, want);
		for (uint32_t i = 0; tt_sim_sent(sim, rank, i, &peer, &class, &got); i++) {
			cr_expect_eq(got, want[peer],
				     "%s %s n %d, %zu bytes: %d -> %d %llu, want %llu",
				     tt_collective_name(a->collective), a->name, n, bytes, rank,
				     peer, (unsigned long long)got, (unsigned long long)want[peer]);
			want[peer] = 0;
		}
		for (int p = 0; p < n; p++)
			cr_expect_eq(want[p], 0);
	}
	tt_sim_close(sim);
}

Test(simulate, bytes_of_every_link_are_those_of_the_plans)
{
	static const size_t sizes[] = { 0, 1, 777, 4096, 300000, 3000000 };

	for (int i = 0; tt_algorithms[i]; i++)
		for (int n = 1; n <= 13; n += n < 6 ? 1 : 3)
			for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++)
				bytes_are_the_plans(tt_algorithms[i], n, n > 3 && s % 2 ? 2 : 1,
						    sizes[s]);
}

/* The smallest window that a cost table may have */
Test(simulate, every_algorithm_ends_with_a_window_of_two_messages)
{
	struct tt_cost narrow = tt_cost_builtin;
	struct tt_sim_result r;

	for (int class = 0; class < TT_LINK_CLASSES; class ++)
		narrow.link[class].window = 2;
	for (int i = 0; tt_algorithms[i]; i++)
		for (int n = 2; n <= 9; n++) {
			struct cluster c = cluster_of(n, n > 3 && n % 2 ? 2 : 1, n % 3 == 0,
						      &narrow);

			r = cluster_simulate(&c, tt_algorithms[i]->collective,
					     tt_algorithms[i]->name, 3000000);
			cr_expect_gt(r.time_ps, 0);
		}
}

/* ---- bounds ---------------------------------------------------------------------------------- */

Test(simulate, the_parts_sum_up_to_the_time)
{
	for (int i = 0; tt_algorithms[i]; i++)
		for (int n = 2; n <= 8; n += 3)
			for (int cores = 0; cores <= 2; cores += 2) {
				struct cluster c = cluster_of(n, 1, false, &tt_cost_builtin);
				struct tt_sim_result r;
				uint64_t sum = 0;

				c.world.cores = cores;
				r = cluster_simulate(&c, tt_algorithms[i]->collective,
						     tt_algorithms[i]->name, 200000);
				for (int k = 0; k < TT_PARTS; k++)
					sum += r.part_ps[k];
				cr_expect_eq(sum, r.time_ps, "%s n %d", tt_algorithms[i]->name, n);
				cr_expect(r.idle_min >= 0 && r.idle_max <= 1);
			}
}

Test(simulate, more_bytes_never_take_less_time)
{
	for (int i = 0; tt_algorithms[i]; i++)
		for (int n = 2; n <= 8; n *= 2) {
			struct cluster c = cluster_of(n, 1, false, &tt_cost_builtin);
			struct tt_sim *sim = cluster_open_sim(&c, tt_algorithms[i]->collective,
							      tt_algorithms[i]->name);
			uint64_t before = 0;

			/* in large strides: a few more bytes may be cut into better tiles */
			for (size_t bytes = 1; bytes <= 16 << 20; bytes *= 4) {
				struct tt_sim_result r;

				cr_assert_eq(tt_sim_run(sim, bytes, 16, &r), TT_OK);
				cr_expect_geq(r.time_ps, before, "%s n %d, %zu bytes",
					      tt_algorithms[i]->name, n, bytes);
				before = r.time_ps;
			}
			tt_sim_close(sim);
		}
}

/* Lower bound of an allreduce of S bytes, one rank per host, links of 1 byte/ns: each host sends at
 * least 2(n-1)/n S. */
Test(simulate, no_allreduce_is_faster_than_its_links)
{
	for (int i = 0; tt_algorithms[i]; i++)
		for (int n = 2; n <= 16; n += 2) {
			const struct tt_algorithm *a = tt_algorithms[i];
			struct cluster c = cluster_of(n, n, false, &plain);
			size_t bytes = 1 << 20;
			uint64_t least = 2 * (uint64_t)(n - 1) * bytes / (uint64_t)n * 1000;

			if (a->collective == TT_ALLREDUCE)
				cr_expect_geq(
					cluster_simulate(&c, TT_ALLREDUCE, a->name, bytes).time_ps,
					least, "%s n %d", a->name, n);
		}
}

Test(simulate, a_few_tiles_predict_all_of_them)
{
	static const char *const names[] = { "ring", "tree", "two-shot", "recursive-doubling" };

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		struct cluster c = cluster_of(4, 1, false, &tt_cost_builtin);
		struct tt_sim *sim = cluster_open_sim(&c, TT_ALLREDUCE, names[i]);
		struct tt_sim_result all, few;
		size_t bytes = 64 << 20;

		cr_assert_eq(tt_sim_run(sim, bytes, 0, &all), TT_OK);
		cr_assert_eq(tt_sim_run(sim, bytes, 4 * tt_sim_width(sim, bytes), &few), TT_OK);
		cr_expect_lt(few.tiles_walked, all.tiles_walked);
		cr_expect(few.time_ps > all.time_ps / 100 * 95 &&
				  few.time_ps < all.time_ps / 100 * 105,
			  "%s: %llu of %llu", names[i], (unsigned long long)few.time_ps,
			  (unsigned long long)all.time_ps);
		cr_expect_eq(few.messages[0], all.messages[0]);
		tt_sim_close(sim);
	}
}

Test(simulate, is_deterministic)
{
	struct cluster c = cluster_of(7, 2, false, &tt_cost_builtin);
	struct tt_sim *sim = cluster_open_sim(&c, TT_ALLREDUCE, "hierarchical");
	struct tt_sim_result first, again;

	c.world.cores = 2;
	cr_assert_eq(tt_sim_run(sim, 1 << 20, 0, &first), TT_OK);
	cr_assert_eq(tt_sim_run(sim, 100, 0, &again), TT_OK);
	cr_assert_eq(tt_sim_run(sim, 1 << 20, 0, &again), TT_OK);
	cr_expect_eq(memcmp(&first, &again, sizeof(first)), 0);
	tt_sim_close(sim);
}

/* ---- folding --------------------------------------------------------------------------------- */

/* The same call, with all ranks and with the ranks that stand for them. */
struct fold_pair {
	struct tt_sim *sim[2];
	struct tt_sim_result result[2];
};

static bool open_pair(struct cluster *c, const struct tt_algorithm *a, size_t bytes,
		      struct fold_pair *ret_pair)
{
	if (!a->symmetry)
		return false;
	for (int k = 0; k < 2; k++) {
		c->world.fold = k == 1;
		ret_pair->sim[k] = cluster_open_sim(c, a->collective, a->name);
		cr_assert_eq(tt_sim_run(ret_pair->sim[k], bytes, 0, &ret_pair->result[k]), TT_OK,
			     "%s n %d: %s", a->name, c->world.nranks, tt_error_text());
	}
	return true;
}

static void close_pair(struct fold_pair *pair)
{
	for (int k = 0; k < 2; k++)
		tt_sim_close(pair->sim[k]);
}

static size_t bytes_of_call(const struct tt_algorithm *a, int n, size_t block)
{
	bool even = a->collective == TT_ALLREDUCE || a->collective == TT_BROADCAST ||
		    a->collective == TT_REDUCE;

	return even ? block * (size_t)n : block;
}

/* Returns the number of ranks that the folded simulation walked. */
static uint32_t folded_as_unfolded(const struct tt_algorithm *a, int n, int nhosts, size_t block)
{
	struct cluster c = cluster_of(n, nhosts, false, &tt_cost_builtin);
	struct fold_pair pair;
	const struct tt_sim_result *all = &pair.result[0], *some = &pair.result[1];
	uint32_t ranks;

	if (!open_pair(&c, a, bytes_of_call(a, n, block), &pair))
		return (uint32_t)n;
	cr_expect_eq(all->ranks, (uint32_t)n);
	cr_expect_not(some->equal_blocks);
	if (some->folded == TT_SIM_NEARLY) {
		cr_expect(some->time_ps > all->time_ps / 5 * 4 &&
				  some->time_ps < all->time_ps / 5 * 6,
			  "%s n %d on %d hosts: %llu, unfolded %llu", a->name, n, nhosts,
			  (unsigned long long)some->time_ps, (unsigned long long)all->time_ps);
	} else {
		cr_expect_eq(some->time_ps, all->time_ps,
			     "%s n %d on %d hosts: %llu, unfolded %llu", a->name, n, nhosts,
			     (unsigned long long)some->time_ps, (unsigned long long)all->time_ps);
		cr_expect_arr_eq(some->part_ps, all->part_ps, sizeof(all->part_ps));
		cr_expect_arr_eq(some->messages, all->messages, sizeof(all->messages));
		cr_expect_eq(some->links, all->links);
		cr_expect_eq(some->most_links, all->most_links);
	}
	cr_expect_arr_eq(some->bytes, all->bytes, sizeof(all->bytes));
	ranks = some->ranks;
	close_pair(&pair);
	return ranks;
}

Test(simulate, folded_ranks_take_the_same_times)
{
	for (int i = 0; tt_algorithms[i]; i++)
		for (int n = 2; n <= 32; n += n < 9 ? 1 : 7)
			for (int nhosts = 1; nhosts <= n; nhosts++)
				if (n % nhosts == 0)
					folded_as_unfolded(tt_algorithms[i], n, nhosts, 8192);
}

/* 1024 ranks, or 128 where a sanitizer makes them slow */
Test(simulate, many_folded_ranks_take_the_same_times, .timeout = 600)
{
	const char *fewer = getenv("TUTTI_TEST_FEWER");
	int n = fewer && atoi(fewer) > 4 ? 128 : 1024;
	static const char *const names[] = { "ring", "recursive-doubling", "halving-doubling",
					     "halving", "hierarchical" };

	for (size_t k = 0; k < sizeof(names) / sizeof(*names); k++)
		for (int i = 0; tt_algorithms[i]; i++) {
			const struct tt_algorithm *a = tt_algorithms[i];

			if (strcmp(a->name, names[k]) || !a->symmetry)
				continue;
			cr_expect_eq(folded_as_unfolded(a, n, n / 8, 1024), 8, "%s", a->name);
			if (strcmp(a->name, "hierarchical"))
				cr_expect_eq(folded_as_unfolded(a, n, 1, 1024), 1, "%s", a->name);
		}
}

static uint64_t sent_to(const struct tt_sim *sim, int rank, int peer)
{
	enum tt_link_class class;
	uint64_t bytes, sum = 0;
	int to;

	for (uint32_t i = 0; tt_sim_sent(sim, rank, i, &to, &class, &bytes); i++)
		sum += to == peer ? bytes : 0;
	return sum;
}

Test(simulate, folded_links_are_those_of_all_ranks)
{
	enum { N = 16 };

	for (int i = 0; tt_algorithms[i]; i++)
		for (int nhosts = 1; nhosts <= N; nhosts *= 4) {
			struct cluster c = cluster_of(N, nhosts, false, &tt_cost_builtin);
			const struct tt_algorithm *a = tt_algorithms[i];
			struct fold_pair pair;

			if (!open_pair(&c, a, bytes_of_call(a, N, 640), &pair))
				continue;
			for (int from = 0; from < N; from++)
				for (int to = 0; to < N; to++)
					cr_expect_eq(sent_to(pair.sim[0], from, to),
						     sent_to(pair.sim[1], from, to),
						     "%s on %d hosts: %d to %d", a->name, nhosts,
						     from, to);
			close_pair(&pair);
		}
}

Test(simulate, ranks_that_are_not_alike_are_not_folded)
{
	struct cluster c = cluster_of(12, 1, false, &tt_cost_builtin);
	struct fold_pair pair;

	/* ranks share cores; hosts differ; ranks beyond a power of two */
	c.world.cores = 4;
	cr_assert(open_pair(&c, tt_algorithm_find(TT_ALLREDUCE, "ring"), 3072, &pair));
	cr_expect_eq(pair.result[1].ranks, 12);
	close_pair(&pair);
	c = cluster_of(12, 5, false, &tt_cost_builtin);
	cr_assert(open_pair(&c, tt_algorithm_find(TT_ALLREDUCE, "ring"), 3072, &pair));
	cr_expect_eq(pair.result[1].ranks, 12);
	close_pair(&pair);
	c = cluster_of(12, 1, false, &tt_cost_builtin);
	cr_assert(open_pair(&c, tt_algorithm_find(TT_ALLREDUCE, "halving-doubling"), 3072, &pair));
	cr_expect_eq(pair.result[1].ranks, 12);
	close_pair(&pair);
}

Test(simulate, short_blocks_of_folded_ranks_are_averaged_and_reported)
{
	struct cluster c = cluster_of(8, 1, false, &tt_cost_builtin);
	struct fold_pair pair;

	cr_assert(open_pair(&c, tt_algorithm_find(TT_ALLREDUCE, "ring"), 8000, &pair));
	cr_expect(pair.result[1].equal_blocks);
	cr_expect_eq(pair.result[1].bytes[TT_LINK_SHM], pair.result[0].bytes[TT_LINK_SHM]);
	close_pair(&pair);
}

Test(simulate, plans_above_the_limit_are_refused)
{
	struct cluster c = cluster_of(300, 1, false, &tt_cost_builtin);
	struct tt_sim *sim;

	c.topology.host_of = c.host_of;
	c.world.topology = &c.topology;
	c.world.most_steps = 10000;
	cr_expect_eq(tt_sim_open(&c.world, tt_algorithm_find(TT_ALLREDUCE, "hierarchical-copy"),
				 "hierarchical-copy", 0, NULL, &sim),
		     TT_SIM_TOO_LARGE);
	cr_expect(strstr(tt_error_text(), "300 ranks"), "%s", tt_error_text());
	c.world.most_steps = 100000;
	cr_assert_eq(tt_sim_open(&c.world, tt_algorithm_find(TT_ALLREDUCE, "ring"), "ring", 0, NULL,
				 &sim),
		     TT_SIM_TOO_LARGE);
	c.world.fold = true;
	cr_assert_eq(tt_sim_open(&c.world, tt_algorithm_find(TT_ALLREDUCE, "ring"), "ring", 0, NULL,
				 &sim),
		     TT_OK);
	tt_sim_close(sim);
}

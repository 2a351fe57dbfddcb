/*
 * test_plan_bytes.c - bytes that each algorithm of the table sends and holds, and the order of its
 * sums
 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "model/cost.h"
#include "plan/bind.h"
#include "tests/support/plan_all.h"

TestSuite(plan_bytes, .timeout = 120);

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Blocks that this rank sends: to all ranks (others is NULL), or to ranks of other hosts. */
static uint32_t sent_blocks(const struct tt_plan *p, const struct tt_topology *others)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < p->nsteps; i++) {
		const struct tt_step *s = &p->steps[i];

		if (s->op != TT_MORE && tt_ref_buf(s->to) == TT_WIRE &&
		    (!others || others->host_of[p->rank] != others->host_of[tt_ref_index(s->to)]))
			sum += s->nblocks;
	}
	return sum;
}

static void sends(enum tt_collective c, const char *name, int n, int rank, double buffers)
{
	const struct tt_algorithm *a = tt_algorithm_find(c, name);

	build_all(a, name, n, 0, NULL);
	double unit = plans[rank]->rule == TT_EVEN ? plans[rank]->nblocks : 1;

	cr_expect_float_eq(sent_blocks(plans[rank], NULL) / unit, buffers, 1e-9,
			   "%s %s n = %d: rank %d sends %g, not %g", tt_collective_name(c), name, n,
			   rank, sent_blocks(plans[rank], NULL) / unit, buffers);
	free_all(n);
}

/* Ranks in the binomial tree below rank r, itself included */
static int subtree(int r, int n)
{
	int most = r ? r & -r : n;

	return most < n - r ? most : n - r;
}

static int log2_of(int n)
{
	return n < 2 ? 0 : 1 + log2_of(n / 2);
}

Test(plan_bytes, algorithms_send_the_bytes_that_their_file_heads_state)
{
	for (int n = 2; n <= 17; n++) {
		double share = 2.0 * (n - 1) / n, p2 = 1 << log2_of(n),
		       members = 2.0 * (p2 - 1) / p2;

		for (int r = 0; r < n; r++) {
			bool folded = r < 2 * (n - p2) && r % 2 == 0,
			     paired = r < 2 * (n - p2) && r % 2;

			sends(TT_ALLREDUCE, "ring", n, r, share);
			sends(TT_ALLREDUCE, "two-shot", n, r, share);
			sends(TT_ALLREDUCE, "reduce-to-one:rotate", n, r, share);
			if (n % 2 == 0)
				sends(TT_ALLREDUCE, "hierarchical-copy", n, r, share);
			sends(TT_ALLREDUCE, "one-shot", n, r, n - 1);
			sends(TT_ALLREDUCE, "reduce-to-one", n, r, r ? 1 : n - 1);
			sends(TT_ALLREDUCE, "recursive-doubling", n, r,
			      folded ? 1 : log2_of(n) + paired);
			sends(TT_ALLREDUCE, "halving-doubling", n, r,
			      folded ? 1 : members + paired);
			sends(TT_REDUCE, "tree", n, r, r ? 1 : 0);
			sends(TT_REDUCE, "ring", n, r, r ? 1 : 0);
			sends(TT_REDUCE, "reduce-to-one", n, r, r ? 1 : 0);
			sends(TT_BROADCAST, "ring", n, r, r == n - 1 ? 0 : 1);
			sends(TT_BROADCAST, "direct", n, r, r ? 0 : n - 1);
			sends(TT_ALLGATHER, "ring", n, r, n - 1);
			sends(TT_ALLGATHER, "bruck", n, r, n - 1);
			sends(TT_ALLGATHER, "direct", n, r, n - 1);
			sends(TT_REDUCE_SCATTER, "ring", n, r, n - 1);
			sends(TT_REDUCE_SCATTER, "direct", n, r, n - 1);
			if (n == p2) {
				sends(TT_REDUCE_SCATTER, "halving", n, r, n - 1);
				sends(TT_ALLGATHER, "recursive-doubling", n, r, n - 1);
			}
			sends(TT_ALLTOALL, "direct", n, r, n - 1);
			sends(TT_GATHER, "direct", n, r, r ? 1 : 0);
			sends(TT_SCATTER, "direct", n, r, r ? 0 : n - 1);
			sends(TT_SCATTER, "tree", n, r, subtree(r, n) - 1);
		}
	}
}

Test(plan_bytes, tree_sends_each_buffer_once_up_and_once_down_and_no_rank_more_than_two_buffers)
{
	for (int n = 2; n <= 17; n++) {
		uint32_t sum = 0;

		build_all(tt_algorithm_find(TT_ALLREDUCE, "tree"), "tree", n, 0, NULL);
		for (int r = 0; r < n; r++) {
			cr_expect_leq(sent_blocks(plans[r], NULL), 4,
				      "n = %d: rank %d sends %u halves", n, r,
				      sent_blocks(plans[r], NULL));
			sum += sent_blocks(plans[r], NULL);
		}
		cr_expect_eq(sum, 4u * (uint32_t)(n - 1));
		free_all(n);
	}
}

/* Traffic between all hosts, in units of the buffer. */
static double between_hosts(const char *name, int hosts, int ranks_each)
{
	int host_of[MOST], n = hosts * ranks_each;
	uint32_t sum = 0;

	for (int r = 0; r < n; r++)
		host_of[r] = r / ranks_each;
	struct tt_topology t = topology_of(n, host_of);

	build_all(tt_algorithm_find(TT_ALLREDUCE, name), name, n, 0, &t);
	for (int r = 0; r < n; r++)
		sum += sent_blocks(plans[r], &t);
	double buffers = (double)sum / plans[0]->nblocks;

	free_all(n);
	return buffers;
}

Test(plan_bytes,
     hierarchical_moves_2m_minus_2_buffers_between_m_hosts_where_the_flat_ring_moves_more)
{
	static const char *const with_ring[] = { "hierarchical", "hierarchical:ring/ring",
						 "hierarchical:tree/ring",
						 "hierarchical:halving-doubling/ring",
						 "hierarchical:one-shot/ring" };

	cr_expect_float_eq(between_hosts("hierarchical", 2, 2), 2, 1e-9);
	cr_expect_float_eq(between_hosts("ring", 2, 2), 3, 1e-9);
	for (int m = 2; m <= 5; m++)
		for (int g = 2; g <= 6; g++) {
			for (size_t i = 0; i < sizeof(with_ring) / sizeof(*with_ring); i++)
				cr_expect_float_eq(between_hosts(with_ring[i], m, g), 2 * (m - 1),
						   1e-9);
			cr_expect_float_eq(between_hosts("ring", m, g),
					   2.0 * m * (m * g - 1) / (m * g), 1e-9);
		}
}

/* ---- order of sums --------------------------------------------------------------------------- */

/* The sources of the steps that compute out[block], with chained steps joined, are the ranks in
 * order. */
static void sums_in_rank_order(const struct tt_plan *p, uint32_t block)
{
	int next = 0;

	for (uint32_t i = 0; i < p->nsteps; i++) {
		const struct tt_step *s = &p->steps[i];

		if (s->op != TT_COMBINE || tt_ref_index(s->dst) % p->nblocks != block)
			continue;
		for (int k = 0; k < s->nsrc; k++) {
			tt_ref r = tt_step_source(s, k);
			bool carried = k == 0 && next > 0; /* the partial sum */

			if (!carried)
				cr_expect_eq(tt_ref_buf(r) == TT_WIRE ? (int)tt_ref_index(r)
								      : p->rank,
					     next++, "%s: rank %d of %d combines out of order",
					     p->algorithm, p->rank, p->nranks);
		}
	}
	cr_expect_eq(next, p->nranks, "%s: rank %d combines %d of %d", p->algorithm, p->rank, next,
		     p->nranks);
}

Test(plan_bytes, linear_algorithms_sum_in_rank_order_on_every_rank)
{
	for (int n = 2; n <= 24; n++) {
		for (int root = 0; root < n; root++) {
			build_all(tt_algorithm_find(TT_REDUCE, "reduce-to-one"), "reduce-to-one", n,
				  root, NULL);
			sums_in_rank_order(plans[root], 0);
			free_all(n);
		}
		build_all(tt_algorithm_find(TT_ALLREDUCE, "two-shot"), "two-shot", n, 0, NULL);
		for (int r = 0; r < n; r++)
			sums_in_rank_order(plans[r], (uint32_t)r);
		free_all(n);
		build_all(tt_algorithm_find(TT_ALLREDUCE, "one-shot"), "one-shot", n, 0, NULL);
		for (int r = 0; r < n; r++)
			sums_in_rank_order(plans[r], 0);
		free_all(n);
	}
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Algorithms that hold intermediate results of the whole buffer. */
static bool holds_all(const struct tt_algorithm *a)
{
	static const char *const names[] = { "allreduce recursive-doubling",
					     "allreduce one-shot",
					     "reduce tree",
					     "reduce ring",
					     "reduce_scatter ring",
					     "reduce_scatter halving",
					     "scatter tree" };
	char name[80];
	bool found = false;

	snprintf(name, sizeof(name), "%s %s", tt_collective_name(a->collective), a->name);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		found |= !strcmp(name, names[i]);
	return found;
}

static size_t scratch_of(const struct tt_algorithm *a, int n, int rank, const struct tt_topology *t,
			 size_t bytes)
{
	struct tt_connectivity facts = { .nranks = n, .over_tcp = true };
	struct tt_shape shape = { a->collective, n, rank, 0, t };
	struct tt_binding b;
	struct tt_plan *p;
	size_t scratch;

	cr_assert_eq(tt_plan_build(a, a->name, &shape, &p), TT_OK, "%s", tt_error_text());
	tt_plan_bind(p, &facts, tt_connectivity_message_bytes(&facts),
		     p->rule == TT_EVEN ? bytes : bytes / (size_t)n, &b);
	scratch = tt_binding_scratch(&b, p);
	tt_plan_free(p);
	return scratch;
}

/* tutti_comm(3), tuttiMemScratch */
Test(plan_bytes, a_call_needs_scratch_of_at_most_a_ninth_of_its_buffer, .timeout = 300)
{
	static const int sizes[] = {
		2, 3, 8, 9, 10, 16, 17, 18, 19, 40, 64, 65, 100, 128, 255, 256
	};
	const size_t bytes = 64 << 20, most = bytes / 9 + 65536; /* 7.1 MiB, and whole tiles */
	int host_of[256];

	for (size_t i = 0; i < 2 * sizeof(sizes) / sizeof(sizes[0]); i++) {
		int n = sizes[i / 2], hosts = i % 2 && n >= 4 ? 2 : 1;
		struct tt_topology t = { .nranks = n, .nhosts = hosts, .host_of = host_of };

		for (int r = 0; r < n; r++)
			host_of[r] = r * hosts / n;
		for (int k = 0; tt_algorithms[k]; k++)
			for (int r = 0; r<n; r += n> 65 && r + 8 < n ? 7 : 1) {
				size_t held = scratch_of(tt_algorithms[k], n, r, &t, bytes);
				bool all = holds_all(tt_algorithms[k]);

				cr_expect(held <= (all ? 2 * bytes : most),
					  "rank %d of %d on %d hosts, %s: %zu bytes", r, n, hosts,
					  tt_algorithms[k]->name, held);
			}
	}
}

/* Two ranks gain from large messages over sockets; a link has a buffer of one, and an HCA registers three. */
Test(plan_bytes, only_two_ranks_over_tcp_have_messages_of_1_MiB)
{
	struct tt_connectivity two = { .nranks = 2, .one_host = true, .over_tcp = true },
			       many = two, nic = two;

	many.nranks = 3;
	nic.nic_class = TT_LINK_VERBS;
	cr_expect_eq(tt_connectivity_message_bytes(&two), 1 << 20);
	cr_expect_eq(tt_connectivity_message_bytes(&many), 256 << 10);
	cr_expect_eq(tt_connectivity_message_bytes(&nic), 256 << 10);
}

/* The most bytes of a buffer (of a block, where all have one length) that go to slots: found by halving */
static size_t most_on_slots(const char *algorithm, enum tt_collective collective,
			    const struct tt_connectivity *facts)
{
	const struct tt_topology t = { .nranks = facts->nranks, .nhosts = 1 };
	const struct tt_algorithm *a = tt_algorithm_find(collective, algorithm);
	struct tt_shape shape = { collective, facts->nranks, 0, 0, &t };
	size_t fits = 0, above = 2 << 20;
	struct tt_plan *p;

	cr_assert(a && tt_plan_build(a, algorithm, &shape, &p) == TT_OK, "%s", algorithm);
	while (above - fits > 1) {
		size_t bytes = (fits + above) / 2;

		if (tt_plan_on_slots(p, facts, bytes))
			fits = bytes;
		else
			above = bytes;
	}
	tt_plan_free(p);
	return fits;
}

/* Two ranks with a core each, without and with owners of lines; three; two that share a core; two over tcp */
Test(plan_bytes, the_posts_of_two_ranks_are_longer_where_lines_stay_shared)
{
	static const struct tt_connectivity of[] = {
		{ .nranks = 2, .one_host = true, .cores = 2 },
		{ .nranks = 2, .one_host = true, .cores = 2, .readers_own = true },
		{ .nranks = 3, .one_host = true, .cores = 4 },
		{ .nranks = 2, .one_host = true, .cores = 1 },
		{ .nranks = 2, .one_host = true, .cores = 2, .over_tcp = true },
	};
	static const struct {
		const char *algorithm;
		enum tt_collective collective;
		size_t most_kib[5];
	} calls[] = {
		{ "one-shot", TT_ALLREDUCE, { 64, 64, 64, 64, 0 } },
		{ "direct", TT_BROADCAST, { 64, 16, 16, 256, 0 } },
		{ "direct", TT_GATHER, { 64, 16, 16, 256, 0 } },
		{ "direct", TT_SCATTER, { 64, 8, 5, 32, 0 } },
		{ "direct", TT_ALLTOALL, { 64, 8, 5, 128, 0 } },
	};

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		for (size_t k = 0; k < sizeof(of) / sizeof(of[0]); k++)
			cr_expect_eq(most_on_slots(calls[i].algorithm, calls[i].collective,
						   &of[k]) >>
					     10,
				     calls[i].most_kib[k], "%s of case %zu",
				     tt_collective_name(calls[i].collective), k);
}

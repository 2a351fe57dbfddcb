/*
 * test_algorithms.c - every algorithm of the table gives the right results
 *
 * The executor (plan_exec.h) runs plans on integers and floats in memory, independent of builder,
 * compiler and checker.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verify/check.h"
#include "tests/support/plan_all.h"
#include "tests/support/plan_exec.h"

TestSuite(algorithms, .timeout = 120);

/* Seeds 0..3 select four kinds of transport (posts, one slot, two slots, many slots) with different
 * counts of elements. */
static void execute(const char *name, int n, int root, int seeds, const char *how)
{
	for (int seed = 0; seed < 2 * seeds; seed++) {
		bool in_place = seed % 2 && plans[0]->collective != TT_ALLTOALL;
		const char *wrong = plan_execute(plans, n, (uint64_t)seed / 2, in_place);

		cr_expect_null(wrong, "%s %s%s n = %d root %d seed %d%s: %s",
			       tt_collective_name(plans[0]->collective), name, how, n, root,
			       seed / 2, in_place ? " in place" : "", wrong);
	}
}

/* Expand the plans to one message per block. Returns whether any plan changes. */
static bool expand_all(int n)
{
	bool differs = false;

	for (int r = 0; r < n; r++) {
		struct tt_plan *whole = plans[r];

		cr_assert_eq(tt_plan_expand(whole, &plans[r]), TT_OK);
		differs |= plans[r]->nsteps != whole->nsteps;
		tt_plan_free(whole);
	}
	return differs;
}

static void runs_right(const struct tt_algorithm *a, const char *name, int n, int root,
		       const struct tt_topology *t, int seeds)
{
	build_all(a, name, n, root, t);
	execute(name, n, root, seeds, "");
	if (expand_all(n))
		execute(name, n, root, seeds, " (block by block)");
	free_all(n);
}

static void rows_run_right(int from, int to, int seeds)
{
	for (int i = 0; tt_algorithms[i]; i++)
		for (int n = from; n <= to; n++)
			for (int root = 0; root < n; root += n <= 5 ? 1 : n / 2)
				runs_right(tt_algorithms[i], tt_algorithms[i]->name, n, root, NULL,
					   seeds);
}

Test(algorithms, give_right_results_for_one_to_five_ranks_and_any_root)
{
	rows_run_right(1, 5, 24);
}

Test(algorithms, give_right_results_for_six_to_seventeen_ranks)
{
	rows_run_right(6, 17, 4);
}

Test(algorithms, are_one_copy_for_one_rank)
{
	for (int i = 0; tt_algorithms[i]; i++) {
		build_all(tt_algorithms[i], tt_algorithms[i]->name, 1, 0, NULL);
		cr_expect_eq(plans[0]->nsteps, 1);
		cr_expect_eq(plans[0]->steps[0].op, TT_COPY);
		cr_expect_eq(plans[0]->npeers, 0);
		free_all(1);
	}
}

/* Two ranks that both send more messages than the link can hold before they receive wait for each
 * other. */
Test(algorithms, long_exchanges_deadlock_unless_their_steps_are_interleaved)
{
	static const struct { enum tt_collective c; const char *name; int n; } row[] = {
		{ TT_ALLREDUCE, "halving-doubling", 8 }, { TT_ALLREDUCE, "halving-doubling", 13 },
		{ TT_REDUCE_SCATTER, "halving", 11 }, { TT_ALLGATHER, "recursive-doubling", 8 },
	};

	for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
		build_all(tt_algorithm_find(row[i].c, row[i].name), row[i].name, row[i].n, 0, NULL);
		for (int r = 0; r < row[i].n; r++)
			for (uint32_t k = 0; k < plans[r]->nsteps; k++)
				if (plans[r]->steps[k].op != TT_MORE)
					plans[r]->steps[k].flags &= (uint8_t)~TT_STEP_INTERLEAVED;
		cr_expect_null(plan_execute(plans, row[i].n, 1, false));
		expand_all(row[i].n);
		const char *wrong = plan_execute(plans, row[i].n, 1, false);

		cr_expect(wrong && !strcmp(wrong, "stuck"), "%s did not deadlock", row[i].name);
		free_all(row[i].n);
	}
}

/* ---- hierarchical ---------------------------------------------------------------------------- */

/* Step to the next placement of n ranks on hosts: each rank is on a host of a lower rank or on the
 * next new host. Returns false after the last placement. */
static bool next_placement(int n, int *host_of)
{
	for (int r = n - 1; r > 0; r--) {
		int highest = 0;

		for (int k = 0; k < r; k++)
			highest = host_of[k] > highest ? host_of[k] : highest;
		if (host_of[r] > highest)
			continue;
		host_of[r]++;
		memset(host_of + r + 1, 0, (size_t)(n - r - 1) * sizeof(*host_of));
		return true;
	}
	return false;
}

static const char *const halves[] = { "ring",
				      "tree",
				      "recursive-doubling",
				      "halving-doubling",
				      "reduce-to-one",
				      "reduce-to-one:rotate",
				      "hierarchical-copy",
				      "one-shot",
				      "two-shot" };
enum { HALVES = sizeof(halves) / sizeof(*halves) };

static const char *pair(int inner, int outer, char name[64])
{
	snprintf(name, 64, "hierarchical:%s/%s", halves[inner], halves[outer]);
	return name;
}

Test(algorithms, hierarchical_is_right_for_every_pair_and_every_placement_of_up_to_five_ranks)
{
	const struct tt_algorithm *a = tt_algorithm_find(TT_ALLREDUCE, "hierarchical");
	char name[64];

	for (int n = 1; n <= 5; n++) {
		int host_of[MOST] = { 0 };

		do {
			struct tt_topology t = topology_of(n, host_of);

			for (int i = 0; i < HALVES * HALVES; i++)
				runs_right(a, pair(i / HALVES, i % HALVES, name), n, 0, &t, 4);
		} while (next_placement(n, host_of));
	}
}

Test(algorithms, hierarchical_is_right_for_scattered_and_uneven_hosts_of_many_ranks)
{
	const struct tt_algorithm *a = tt_algorithm_find(TT_ALLREDUCE, "hierarchical");
	char name[64];

	srand(1);
	for (int round = 0; round < 240; round++) {
		int host_of[MOST], n = 6 + rand() % 20, hosts = 1 + rand() % n;

		for (int r = 0; r < n; r++)
			host_of[r] = rand() % hosts;
		struct tt_topology t = topology_of(n, host_of);

		runs_right(a, pair(round % HALVES, round / HALVES % HALVES, name), n, 0, &t, 2);
	}
}

static const char *plan_text(const struct tt_plan *p, char text[4096])
{
	size_t used = 0;

	for (uint32_t i = 0; i < p->nsteps && used < 4000; i++)
		for (int k = 0; k < 32 && used < 4000; k++)
			used += (size_t)snprintf(text + used, 4096 - used, "%02x",
						 ((const uint8_t *)&p->steps[i])[k]);
	return text;
}

static void expect_equal_plans(const char *name, const char *other, int n,
			       const struct tt_topology *t)
{
	const struct tt_algorithm *a = tt_algorithm_find(TT_ALLREDUCE, name),
				  *b = tt_algorithm_find(TT_ALLREDUCE, other);
	char text[4096], other_text[4096];

	for (int r = 0; r < n; r++) {
		struct tt_shape shape = {
			.collective = TT_ALLREDUCE, .nranks = n, .rank = r, .topology = t
		};
		struct tt_plan *p, *q;

		cr_assert(!tt_plan_build(a, name, &shape, &p) &&
				  !tt_plan_build(b, other, &shape, &q),
			  "%s", tt_error_text());
		cr_expect_eq(p->nblocks, q->nblocks);
		cr_expect_str_eq(plan_text(p, text), plan_text(q, other_text), "%s is not %s", name,
				 other);
		tt_plan_free(p);
		tt_plan_free(q);
	}
}

Test(algorithms, hierarchical_is_the_inner_on_one_host_and_the_outer_with_one_rank_per_host)
{
	int together[6] = { 0 }, apart[6] = { 0, 1, 2, 3, 4, 5 };
	struct tt_topology one = topology_of(6, together), many = topology_of(6, apart);
	char name[64];

	for (int i = 0; i < HALVES; i++) {
		expect_equal_plans(pair(i, (i + 1) % HALVES, name), halves[i], 6, &one);
		expect_equal_plans(pair((i + 1) % HALVES, i, name), halves[i], 6, &many);
	}
}

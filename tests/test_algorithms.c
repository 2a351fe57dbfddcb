/*
 * test_algorithms.c - every row of the table: right results,
 * the bytes its head promises, names and choice
 *
 * Plans are run on integers and floats in memory (plan_exec.h), which knows nothing of builder,
 * compiler or checker.
 */
#include <criterion/criterion.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "algorithms/algorithm.h"
#include "plan/choose.h"
#include "plan_exec.h"

TestSuite(algorithms, .timeout = 120);

enum { MOST = 40 };

static struct tt_plan *plans[MOST];

static void build_all(const struct tt_algorithm *a, const char *name, int n, int root,
		      const struct tt_topology *t)
{
	for (int r = 0; r < n; r++) {
		struct tt_shape shape = { .collective = a->collective, .nranks = n, .rank = r,
					  .root = root, .topology = t };

		cr_assert_eq(tt_plan_build(a, name, &shape, &plans[r]), TT_OK, "%s n = %d: %s",
			     name, n, tt_error_text());
	}
}

static void free_all(int n)
{
	for (int r = 0; r < n; r++)
		tt_plan_free(plans[r]);
}

/* Seeds 0..3 are four kinds of transport: posting, one slot, two slots, many; with different counts
 * of elements. */
static void execute(const char *name, int n, int root, int seeds, const char *how)
{
	for (int seed = 0; seed < 2 * seeds; seed++) {
		bool in_place = seed % 2 && plans[0]->collective != TT_ALLTOALL;
		const char *trouble = plan_execute(plans, n, (uint64_t)seed / 2, in_place);

		cr_expect_null(trouble, "%s %s%s n = %d root %d seed %d%s: %s",
			       tt_collective_name(plans[0]->collective), name, how, n, root,
			       seed / 2, in_place ? " in place" : "", trouble);
	}
}

/* The plan with a message for each block instead. Returns whether that is another plan. */
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

Test(algorithms, are_right_for_one_to_five_ranks_and_any_root)
{
	rows_run_right(1, 5, 24);
}

Test(algorithms, are_right_for_six_to_seventeen_ranks)
{
	rows_run_right(6, 17, 4);
}

Test(algorithms, one_rank_is_one_copy)
{
	for (int i = 0; tt_algorithms[i]; i++) {
		build_all(tt_algorithms[i], tt_algorithms[i]->name, 1, 0, NULL);
		cr_expect_eq(plans[0]->nsteps, 1);
		cr_expect_eq(plans[0]->steps[0].op, TT_COPY);
		cr_expect_eq(plans[0]->npeers, 0);
		free_all(1);
	}
}

/* Two ranks that both first send more messages than there is room for wait for each other. */
Test(algorithms, long_exchanges_hang_unless_their_messages_take_turns)
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
					plans[r]->steps[k].flags &= (uint8_t)~TT_STEP_TURNS;
		cr_expect_null(plan_execute(plans, row[i].n, 1, false));
		expand_all(row[i].n);
		const char *trouble = plan_execute(plans, row[i].n, 1, false);

		cr_expect(trouble && !strcmp(trouble, "stuck"), "%s got through", row[i].name);
		free_all(row[i].n);
	}
}

/* ---- hierarchical ---------------------------------------------------------------------------- */

/* Numbers the hosts in order of their lowest rank. */
static struct tt_topology topology_of(int n, int *host_of)
{
	struct tt_topology t = { .nranks = n, .host_of = host_of };
	int number[MOST];

	memset(number, -1, sizeof(number));
	for (int r = 0; r < n; r++) {
		if (number[host_of[r]] < 0)
			number[host_of[r]] = t.nhosts++;
		host_of[r] = number[host_of[r]];
	}
	return t;
}

/* Every way to place n ranks on hosts, as the hosts of the ranks in turn: each an old host or the
 * next new one. */
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

Test(algorithms, hierarchical_is_the_inner_on_one_host_and_the_outer_with_one_rank_a_host)
{
	int together[6] = { 0 }, apart[6] = { 0, 1, 2, 3, 4, 5 };
	struct tt_topology one = topology_of(6, together), many = topology_of(6, apart);
	char name[64];

	for (int i = 0; i < HALVES; i++) {
		expect_equal_plans(pair(i, (i + 1) % HALVES, name), halves[i], 6, &one);
		expect_equal_plans(pair((i + 1) % HALVES, i, name), halves[i], 6, &many);
	}
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Blocks this rank sends in all, or to ranks of other hosts. */
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

static int log2_of(int n)
{
	return n < 2 ? 0 : 1 + log2_of(n / 2);
}

Test(algorithms, send_the_bytes_their_heads_promise)
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
		}
	}
}

Test(algorithms, tree_sends_everything_once_up_and_once_down_and_no_rank_more_than_twice)
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

/* In buffers, between all hosts. */
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

Test(algorithms,
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

/* The sources of the steps that make out[block] here,
 * chained from the last one back, are the ranks in order. */
static void sums_in_rank_order(const struct tt_plan *p, uint32_t block)
{
	int next = 0;

	for (uint32_t i = 0; i < p->nsteps; i++) {
		const struct tt_step *s = &p->steps[i];

		if (s->op != TT_COMBINE || tt_ref_index(s->dst) % p->nblocks != block)
			continue;
		for (int k = 0; k < s->nsrc; k++) {
			tt_ref r = tt_step_source(s, k);
			bool carried = k == 0 && next > 0;           /* the sum so far */

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

Test(algorithms, direct_sums_are_in_rank_order_wherever_they_are_made)
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

/* ---- the manual ------------------------------------------------------------------------------ */

/* The page with its line breaks as spaces. */
static char *manual(void)
{
	const char *top = getenv("top_srcdir");
	char path[4096], *text = calloc(1, 1 << 16);

	snprintf(path, sizeof(path), "%s/man/tutti_algorithms.7", top ? top : ".");
	FILE *f = fopen(path, "r");

	cr_assert(f && text, "%s", path);
	cr_assert_gt(fread(text, 1, (1 << 16) - 1, f), 0);
	fclose(f);
	for (char *p = text; *p; p++)
		*p = *p == '\n' ? ' ' : *p;
	return text;
}

/* Where the section of a collective begins; the next section ends it. */
static const char *section(const char *text, enum tt_collective c)
{
	char head[40];
	int used = snprintf(head, sizeof(head), ".Sh %s ", tt_collective_name(c));

	for (int i = 4; i < used; i++)
		head[i] = (char)toupper(head[i]);
	return strstr(text, head);
}

Test(algorithms, and_their_sources_stand_in_the_manual)
{
	char *text = manual(), item[80], source[80];

	for (int i = 0; tt_algorithms[i]; i++) {
		const struct tt_algorithm *a = tt_algorithms[i];
		const char *from = section(text, a->collective),
			   *to = from ? strstr(from + 4, ".Sh ") : NULL, *found;

		cr_assert(from && to, "no section for %s", tt_collective_name(a->collective));
		snprintf(item, sizeof(item), ".It Cm %s ", a->name);
		found = strstr(from, item);
		cr_expect(found && found < to, "%s %s is not there",
			  tt_collective_name(a->collective), a->name);
		snprintf(source, sizeof(source), "%.*s", (int)strcspn(a->source, "0123456789") + 4,
			 a->source);
		found = found ? strstr(found, source) : NULL;
		cr_expect(found && found < to, "%s %s: \"%s\" is not there",
			  tt_collective_name(a->collective), a->name, source);
	}
	free(text);
}

/* ---- names and choice ------------------------------------------------------------------------ */

Test(algorithms, are_found_by_name_and_argument)
{
	char name[64], names[512];

	for (int i = 0; tt_algorithms[i]; i++) {
		const struct tt_algorithm *a = tt_algorithms[i];

		cr_expect_eq(tt_algorithm_find(a->collective, a->name), a);
		snprintf(name, sizeof(name), ", %s", a->name);
		cr_expect(strstr(tt_algorithm_names(a->collective, names), name),
			  "%s is not among%s", a->name, names);
		cr_expect(a->help && *a->help && a->source && *a->source,
			  "%s has no help or source", a->name);
	}
	for (int i = 0; i < HALVES * HALVES; i++)
		cr_expect_not_null(tt_algorithm_find(TT_ALLREDUCE,
						     pair(i / HALVES, i % HALVES, name)),
				   "%s", name);
}

/* text, with the names of the table in place of @ */
static const char *with_names(const char *text)
{
	static char whole[1024];
	char names[512];
	int before = (int)strcspn(text, "@");

	if (!text[before])
		return text;
	tt_algorithm_names(TT_ALLREDUCE, names);
	snprintf(whole, sizeof(whole), "%.*s%s%s", before, text, names + strlen(", "),
		 text + before + 1);
	return whole;
}

Test(algorithms, an_unknown_name_is_refused_with_the_part_that_is_wrong_and_what_there_is)
{
	static const struct { const char *name, *why;
	} wrong[] = {
		{ "", "\"\"; use auto, @" },
		{ "rings", "\"rings\"; use auto, @" },
		{ "rin", "\"rin\"; use auto, @" },
		{ "direct", "\"direct\"; use auto, @" },
		{ "ring:", "\"ring:\": ring has no variants" },
		{ "ring:x", "\"ring:x\": ring has no variants" },
		{ "reduce-to-one:twice",
		  "no \"twice\" of reduce-to-one; use reduce-to-one or reduce-to-one:rotate" },
		{ "hierarchical:",
		  "want hierarchical:INNER/OUTER, as in hierarchical:two-shot/ring, of @" },
		{ "hierarchical:ring",
		  "want hierarchical:INNER/OUTER, as in hierarchical:two-shot/ring, of @" },
		{ "hierarchical:ring/foo", "\"foo\" cannot be its outer algorithm; use any of @" },
		{ "hierarchical:foo/ring", "\"foo\" cannot be its inner algorithm; use any of @" },
		{ "hierarchical:ring/", "\"\" cannot be its outer algorithm" },
		{ "hierarchical:/ring", "\"\" cannot be its inner algorithm" },
		{ "hierarchical:ring/hierarchical",
		  "\"hierarchical\" cannot be its outer algorithm; use any of @"
		  " but hierarchical" },
		{ "hierarchical:ring/tree/ring", "\"tree/ring\" cannot be its outer" },
		{ "hierarchical:hierarchical:ring/tree/ring",
		  "\"hierarchical:ring\" cannot be its inner" },
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		cr_expect_null(tt_algorithm_find(TT_ALLREDUCE, wrong[i].name), "\"%s\" was found",
			       wrong[i].name);
		cr_expect(strstr(tt_error_text(), with_names(wrong[i].why)), "%s", tt_error_text());
	}
}

static const char *chosen(const char *name, enum tt_collective c, int n, size_t bytes,
			  const struct tt_topology *t, bool tcp)
{
	static char text[64];
	const struct tt_shape shape = { .collective = c, .nranks = n, .topology = t };
	const struct tt_call_facts size = { .bytes = bytes, .over_tcp = tcp };
	const struct tt_algorithm *a = NULL;

	strcpy(text, "refused");
	if (!tt_plan_choose(name, &shape, &size, &a, text))
		cr_expect_eq(tt_algorithm_find(c, text), a);
	return text;
}

Test(algorithms, a_choice_has_one_name_which_the_plan_bears)
{
	static const char *const names[] = { "auto",
					     "ring",
					     "hierarchical",
					     "reduce-to-one",
					     "reduce-to-one:rotate",
					     "hierarchical:tree/one-shot" };
	int host_of[6] = { 0, 0, 0, 1, 1, 1 };
	struct tt_topology t = topology_of(6, host_of);

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		const char *name = chosen(names[i], TT_ALLREDUCE, 6, 1 << 20, &t, true);

		build_all(tt_algorithm_find(TT_ALLREDUCE, name), name, 6, 0, &t);
		cr_expect_str_eq(plans[0]->algorithm, name);
		free_all(6);
	}
	cr_expect_str_eq(chosen("hierarchical", TT_ALLREDUCE, 6, 1, &t, true),
			 "hierarchical:two-shot/ring");
}

Test(algorithms, a_name_of_another_collective_leaves_the_choice_free_but_an_unknown_one_is_refused)
{
	cr_expect_str_eq(chosen("ring", TT_ALLTOALL, 4, 1, NULL, false), "direct");
	cr_expect_str_eq(chosen("hierarchical:tree/ring", TT_GATHER, 4, 1, NULL, false), "direct");
	cr_expect_str_eq(chosen("reduce-to-one:rotate", TT_REDUCE, 4, 1 << 30, NULL, false),
			 chosen("auto", TT_REDUCE, 4, 1 << 30, NULL, false));
	cr_expect_str_eq(chosen("direct", TT_ALLREDUCE, 4, 1, NULL, false), "refused");
	cr_expect_str_eq(chosen("nonsense", TT_ALLTOALL, 4, 1, NULL, false), "refused");
	cr_expect(strstr(tt_error_text(), "nonsense") && strstr(tt_error_text(), "use auto, ring"),
		  "%s", tt_error_text());
	cr_expect_str_eq(chosen("ring", TT_SENDRECV, 4, 1, NULL, false), "refused");
}

/* Whatever the shape, something is chosen; and several hosts
 * are served by hierarchical when it is large. */
Test(algorithms, there_is_a_choice_for_every_call)
{
	int host_of[MOST];

	for (int c = 0; c < TT_SENDRECV; c++)
		for (int n = 1; n <= MOST; n += n < 9 ? 1 : n / 4)
			for (int hosts = 1; hosts <= n; hosts += n - 1 ? n - 1 : 1)
				for (size_t bytes = 0; bytes < (size_t)1 << 40;
				     bytes = 5 * bytes + 1) {
					for (int r = 0; r < n; r++)
						host_of[r] = r % hosts;
					struct tt_topology t = topology_of(n, host_of);

					cr_expect_str_neq(chosen("auto", (enum tt_collective)c, n,
								 bytes, &t, hosts > 1),
							  "refused");
				}
	for (int r = 0; r < 8; r++)
		host_of[r] = r / 4;
	struct tt_topology two = topology_of(8, host_of);

	cr_expect(!strncmp(chosen("auto", TT_ALLREDUCE, 8, 64 << 20, &two, true),
			   "hierarchical:", 13));
}

/*
 * plan_prove.c - proves one algorithm for one number of ranks (plan_verify.h)
 *
 * Called by plan_verify.c. Proves every root (above 8 ranks: roots 0, 1 and the last), and, if the
 * plan depends on the placement of ranks, many placements (placements.h). Each proof covers three
 * forms of the plans: as the algorithm emits them, compiled as executed, and expanded (one message
 * per block). tt_plan_check_forms also compares the forms with each other.
 */
#include "perf/commands/plan_verify.h"

#include <string.h>

#include "algorithms/algorithms.h"
#include "tools/plural.h"
#include "verify/check.h"

enum { SHOWN = 3 }; /* failures printed per algorithm */

/* ---- one proof ------------------------------------------------------------------------------- */

typedef int build_fn(const struct tt_algorithm *, const char *, const struct tt_shape *,
		     struct tt_plan **);

static void free_plans(struct tt_plan **plans, int n)
{
	for (int r = 0; r < n; r++) {
		tt_plan_free(plans[r]);
		plans[r] = NULL;
	}
}

/* Builds the plans of all ranks. Returns 0 | TT_ARG: the algorithm refuses | < 0. On failure, no
 * plan remains allocated. */
static int build(const struct tool_verdict *v, build_fn *fn, const struct tt_topology *topology,
		 int root, struct tt_plan **ret_plans)
{
	for (int r = 0; r < topology->nranks; r++) {
		struct tt_shape shape = { .collective = v->algorithm->collective,
					  .nranks = topology->nranks,
					  .rank = r,
					  .root = root,
					  .topology = topology };
		int rc = fn(v->algorithm, v->name, &shape, &ret_plans[r]);

		if (rc)
			free_plans(ret_plans, r);
		if (r && rc == TT_ARG)
			return tt_fail(TT_USAGE, "rank %d refuses a call that rank 0 accepts: %s",
				       r, tt_error_text());
		if (rc)
			return rc;
	}
	return TT_OK;
}

/* Expands the plans: every block becomes a message of its own. */
static int expand(struct tt_plan *const *plans, int n, struct tt_plan **ret_plans)
{
	for (int r = 0; r < n; r++) {
		int rc = tt_plan_expand(plans[r], &ret_plans[r]);

		if (rc) {
			free_plans(ret_plans, r);
			return rc;
		}
	}
	return TT_OK;
}

static bool has_long_steps(struct tt_plan *const *plans, int n)
{
	for (int r = 0; r < n; r++)
		for (uint32_t lane = 0; lane < plans[r]->nlanes; lane++)
			for (uint32_t i = 0; i < plans[r]->lanes[lane].nsteps;) {
				const struct tt_step *s = tt_lane_step(plans[r], lane, i);

				if (s->nblocks > 1)
					return true;
				i += tt_step_records(s);
			}
	return false;
}

static void complain(const struct tool_verdict *v, const struct tool_placement *p, int root,
		     const char *form)
{
	char placement[100];

	fprintf(v->out, "%s %s, %d rank%s, root %d, %s, %s: %s\n",
		tt_collective_name(v->algorithm->collective), v->name, p->topology.nranks,
		tool_s(p->topology.nranks), root,
		tool_placement_text(p, placement, sizeof(placement)), form, tt_error_text());
}

static void prove(struct tool_verdict *v, const struct tool_placement *p, int root)
{
	static const char *const form_name[] = { "as written", "compiled", "expanded" };
	struct tt_plan *plans[3][TOOL_MAX_PLACED] = { { NULL } };
	struct tt_plan *const *const forms[] = { plans[0], plans[1], plans[2] };
	int n = p->topology.nranks, nforms = 2, form = 0;
	int rc = build(v, tt_plan_build_plain, &p->topology, root, plans[0]);

	if (rc == TT_ARG) {
		if (!v->refused++)
			snprintf(v->why, sizeof(v->why), "%s", tt_error_text());
		return;
	}
	if (!rc)
		rc = build(v, tt_plan_build, &p->topology, root, plans[1]);
	if (!rc && has_long_steps(plans[1], n)) {
		rc = expand(plans[1], n, plans[2]);
		nforms = 3;
	}
	if (!rc)
		rc = tt_plan_check_forms(forms, nforms, n, &form);
	if (rc && v->failed++ < SHOWN)
		complain(v, p, root, form_name[form]);
	v->passed += !rc;
	for (int i = 0; i < 3; i++)
		free_plans(plans[i], n);
}

/* ---- placements and roots for one number of ranks -------------------------------------------- */

static bool same_plan(const struct tt_plan *a, const struct tt_plan *b)
{
	return a->nsteps == b->nsteps && a->nlanes == b->nlanes && a->nblocks == b->nblocks &&
	       !memcmp(a->lanes, b->lanes, a->nlanes * sizeof(*a->lanes)) &&
	       !memcmp(a->steps, b->steps, a->nsteps * sizeof(*a->steps));
}

/* Returns whether the plan depends on the placement: compares one host with two hosts of half the
 * ranks each, and with two hosts round robin. */
static bool depends_on_hosts(const struct tool_verdict *v, int n)
{
	struct tt_plan *flat[TOOL_MAX_PLACED] = { NULL }, *split[TOOL_MAX_PLACED] = { NULL };
	int halves[2] = { n - n / 2, n / 2 };
	bool differs = n < 4; /* few placements: prove all */

	for (int round_robin = 0; round_robin < 2 && !differs; round_robin++) {
		struct tool_placement one, two;

		tool_placement_round_robin(n, 1, &one);
		if (round_robin)
			tool_placement_round_robin(n, 2, &two);
		else
			tool_placement_consecutive(halves, 2, &two);
		int first = build(v, tt_plan_build_plain, &one.topology, 0, flat);
		int second = build(v, tt_plan_build_plain, &two.topology, 0, split);

		differs = first != second;
		for (int r = 0; r < n && !first && !second; r++)
			differs |= !same_plan(flat[r], split[r]);
		free_plans(flat, n);
		free_plans(split, n);
	}
	return differs;
}

void tool_prove_ranks(struct tool_verdict *v, int n, enum tool_thoroughness how)
{
	bool hosts = depends_on_hosts(v, n),
	     rooted = tt_collective_rooted(v->algorithm->collective);
	struct tool_placement p;

	for (uint32_t k = 0; (k == 0 || hosts) && tool_placement_number(n, how, k, &p); k++) {
		prove(v, &p, 0);
		for (int root = 1; root < (rooted ? n : 1); root++)
			if (n <= 8 || root == 1 || root == n - 1)
				prove(v, &p, root);
	}
}

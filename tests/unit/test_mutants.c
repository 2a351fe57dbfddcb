/*
 * test_mutants.c - mutation test of the plan checker: correct plans are mutated at random, and the
 * checker must refuse every harmful mutant
 *
 * The executor (plan_exec.c) decides whether a mutant is harmful: it runs the mutant on real
 * numbers, in several orders, with little buffering, in place and not. The checker must refuse
 * every mutant with an error there (wrong sums, different bits, a deadlock, left-over messages).
 * The original plans must pass both.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "algorithms/algorithms.h"
#include "verify/check.h"
#include "tests/support/plan_exec.h"
#include "tests/support/plan_hand.h"

TestSuite(mutants, .timeout = 120);

enum { MUTANTS = 120,                    /* per plan and number of ranks */
       FEW_RUNS = 6, MANY_RUNS = 32 };   /* per mutant that the checker refused, accepted */

enum mutation_kind { DROP, SWAP, PEER, BLOCK, REORDER, DUPLICATE, WAIT, PASSING, LENGTH, KINDS };
static const char *const kind_name[KINDS] = {
	"drop", "swap", "peer", "block", "reorder", "duplicate", "wait", "passing", "length"
};

struct mutant_tally { int made[KINDS], harmful[KINDS], caught[KINDS]; };

static uint64_t state = 1;

static uint32_t chance(uint32_t n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 32) % n;
}

/* A copy with room for two more records at the end of steps[] and for every peer. */
static struct tt_plan *copy_of(const struct tt_plan *p)
{
	struct tt_plan *c = malloc(sizeof(*c));

	*c = *p;
	c->steps = calloc(p->nsteps + 2, sizeof(*c->steps));
	memcpy(c->steps, p->steps, p->nsteps * sizeof(*c->steps));
	c->peers = calloc((size_t)p->nranks, sizeof(*c->peers));
	return c;
}

/* ---- mutations: each changes one step, or returns false where impossible --------------------- */

static bool drop(struct tt_step *s)
{
	if (s->nsrc > 2)
		s[1] = (struct tt_step){
			.op = TT_NOP, .wait_lane = TT_NO_LANE, .dst = none, .to = none
		};
	*s = (struct tt_step){ .op = TT_NOP, .wait_lane = s->wait_lane, .wait_step = s->wait_step,
			       .dst = none, .to = none };
	return true;
}

static bool swap(const struct tt_lane *l, struct tt_step *s, uint32_t index)
{
	struct tt_step first = *s;

	if (index + 1 >= l->nsteps || s->nsrc > 2 || s[1].nsrc > 2)
		return false;
	*s = s[1];
	s[1] = first;
	return true;
}

/* A reference of a step by number: dst, to, then the sources. */
static tt_ref *ref_of(struct tt_step *s, int i)
{
	if (i < 2)
		return i ? &s->to : &s->dst;
	return i < 4 ? &s->src[i - 2] : &((struct tt_more *)(s + 1))->src[i - 4];
}

static bool redirect_peer(const struct tt_plan *p, struct tt_step *s)
{
	tt_ref *ref = ref_of(s, (int)chance(2 + s->nsrc));
	uint32_t peer = chance((uint32_t)p->nranks);

	if (tt_ref_buf(*ref) != TT_WIRE || peer == tt_ref_index(*ref) || (int)peer == p->rank)
		return false;
	*ref = wire((int)peer);
	return true;
}

static bool redirect_block(const struct tt_plan *p, struct tt_step *s)
{
	int which = (int)chance(2 + s->nsrc);
	tt_ref *ref = ref_of(s, which), old = *ref;
	enum tt_buf buf = which ? (enum tt_buf)chance(3) : chance(2) ? TT_OUT : TT_SCRATCH;
	uint32_t room = tt_plan_blocks(p, buf);

	if (tt_ref_buf(old) > TT_SCRATCH || room < s->nblocks)
		return false;
	*ref = tt_ref_make(buf, chance(room - s->nblocks + 1));
	return *ref != old;
}

static bool reorder(struct tt_step *s)
{
	if (s->nsrc < 2)
		return false;
	tt_ref *a = ref_of(s, 2 + (int)chance(s->nsrc)), *b = ref_of(s, 2 + (int)chance(s->nsrc)),
	       old = *a;

	*a = *b;
	*b = old;
	return *a != *b;
}

/* Insert a copy after a step; later waits keep their targets. */
static bool duplicate(struct tt_plan *p, uint32_t lane, uint32_t index)
{
	uint32_t at = p->lanes[lane].first + index, records = p->steps[at].nsrc > 2 ? 2 : 1;

	memmove(&p->steps[at + records], &p->steps[at], (p->nsteps - at) * sizeof(*p->steps));
	p->nsteps += records;
	p->lanes[lane].nsteps += records;
	for (uint32_t l = 0; l < p->nlanes; l++)
		if (p->lanes[l].first > at)
			p->lanes[l].first += records;
	for (uint32_t i = 0; i < p->nsteps; i++)
		if (p->steps[i].op != TT_MORE && p->steps[i].wait_lane == lane &&
		    p->steps[i].wait_step > index)
			p->steps[i].wait_step += records;
	return true;
}

static bool unwait(struct tt_step *s)
{
	if (s->wait_lane == TT_NO_LANE)
		return false;
	s->wait_lane = TT_NO_LANE;
	s->wait_step = 0;
	return true;
}

static bool lengthen(struct tt_step *s)
{
	s->nblocks += chance(2) && s->nblocks > 1 ? -1u : 1;
	return true;
}

static bool mutate(struct tt_plan *p, enum mutation_kind kind)
{
	uint32_t lane = chance(p->nlanes), index;
	struct tt_lane *l = &p->lanes[lane];

	if (!l->nsteps)
		return false;
	index = chance(l->nsteps);
	struct tt_step *s = &p->steps[l->first + index];

	if (s->op == TT_MORE || (s->op == TT_NOP && kind != WAIT))
		return false;
	switch (kind) {
	case DROP: return drop(s);
	case SWAP: return swap(l, s, index);
	case PEER: return redirect_peer(p, s);
	case BLOCK: return redirect_block(p, s);
	case REORDER: return reorder(s);
	case DUPLICATE: return duplicate(p, lane, index);
	case WAIT: return unwait(s);
	case PASSING: s->flags ^= TT_STEP_PASSING; return true;
	default: return lengthen(s);
	}
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* The first error that the executor finds in `runs` runs, or NULL. */
static const char *harm(struct tt_plan *const *plans, int n, int runs)
{
	for (int i = 0; i < runs; i++) {
		const char *wrong = plan_execute(plans, n, (uint64_t)i / 2,
						 i % 2 && plans[0]->collective != TT_ALLTOALL);

		if (wrong)
			return wrong;
	}
	return NULL;
}

static void check_mutant(struct tt_plan **plans, int n, enum mutation_kind kind, struct mutant_tally *t)
{
	int rc = tt_plan_check(plans, n);
	const char *wrong;

	cr_assert(rc == TT_OK || rc == TT_USAGE);
	wrong = harm(plans, n, rc ? FEW_RUNS : MANY_RUNS);
	t->made[kind]++;
	t->harmful[kind] += wrong != NULL;
	t->caught[kind] += wrong && rc;
	cr_expect(!wrong || rc,
		  "%s %s of %d ranks, root %d, mutated by %s: %s, but the checker found no error",
		  plans[0]->algorithm, tt_collective_name(plans[0]->collective), n, plans[0]->root,
		  kind_name[kind], wrong);
}

/* Check the plans of one call as they are, and `mutants` mutants of the plans. */
static void check_mutants(struct tt_plan **plans, int n, int mutants, struct mutant_tally *t)
{
	const char *wrong = harm(plans, n, MANY_RUNS);

	cr_expect(!wrong, "%s %s of %d ranks, root %d: %s", plans[0]->algorithm,
		  tt_collective_name(plans[0]->collective), n, plans[0]->root, wrong);
	cr_expect_eq(tt_plan_check(plans, n), TT_OK, "%s of %d ranks: %s", plans[0]->algorithm, n,
		     tt_error_text());
	for (int made = 0; made < mutants; made++) {
		enum mutation_kind kind = (enum mutation_kind)chance(KINDS);

		for (int tries = 0; tries < 20; tries++) {
			uint32_t r = chance((uint32_t)n);
			struct tt_plan *whole = plans[r], *p = copy_of(whole);
			bool mutated = mutate(p, kind);

			if (mutated) {
				hand_finish(p);
				plans[r] = p;
				check_mutant(plans, n, kind, t);
				plans[r] = whole;
			}
			hand_free(&p, 1);
			if (mutated)
				break;
		}
	}
}

static int report(const struct mutant_tally *t)
{
	int made = 0, harmful = 0, caught = 0;

	for (int k = 0; k < KINDS; k++) {
		printf("# %-9s %6d mutants, %6d harmful, %6d caught\n", kind_name[k], t->made[k],
		       t->harmful[k], t->caught[k]);
		made += t->made[k];
		harmful += t->harmful[k];
		caught += t->caught[k];
	}
	printf("# all       %6d mutants, %6d harmful, %6d caught\n", made, harmful, caught);
	fflush(stdout);
	cr_expect_eq(harmful, caught);
	return harmful;
}

Test(mutants, harmful_mutants_of_hand_written_plans_are_refused)
{
	struct tt_plan *plans[9];
	struct mutant_tally t = { 0 };

	for (int n = 2; n <= 9; n++) {
		hand_ring(plans, n);
		check_mutants(plans, n, 5 * MUTANTS, &t);
		hand_free(plans, n);
	}
	for (int n = 2; n <= 5; n++) {
		hand_star(plans, n);
		check_mutants(plans, n, 2 * MUTANTS, &t);
		hand_free(plans, n);
		hand_star_lanes(plans, n);
		check_mutants(plans, n, 2 * MUTANTS, &t);
		hand_free(plans, n);
	}
	hand_exchange(plans);
	check_mutants(plans, 2, 2 * MUTANTS, &t);
	hand_free(plans, 2);
	cr_expect_gt(report(&t), 3000);
}

/* ---- the algorithms of the table ------------------------------------------------------------- */

static bool build(const struct tt_algorithm *a, const struct tt_topology *topology, int root,
		  bool compiled, struct tt_plan **ret_plans)
{
	for (int r = 0; r < topology->nranks; r++) {
		struct tt_shape shape = { .collective = a->collective, .nranks = topology->nranks,
					  .rank = r, .root = root, .topology = topology };
		int rc = (compiled ? tt_plan_build : tt_plan_build_plain)(a, a->name, &shape,
									  &ret_plans[r]);

		if (!rc)
			continue;
		cr_expect(rc == TT_ARG && r == 0, "%s", tt_error_text());
		return false;
	}
	return true;
}

/* Every algorithm, with a topology of several hosts whose ranks are not contiguous. */
Test(mutants, harmful_mutants_of_the_algorithms_are_refused)
{
	static const int hosts[9] = { 0, 0, 0, 1, 0, 1, 2, 1, 0 };
	struct mutant_tally t = { 0 };
	int calls = 0;

	for (int i = 0; tt_algorithms[i]; i++) {
		for (int n = 2; n <= 9; n++) {
			const struct tt_topology topology = { .nranks = n, .host_of = hosts,
							      .nhosts = 1 + (n > 3) + (n > 6) };
			struct tt_plan *plans[9];

			if (!build(tt_algorithms[i], &topology, (n - 1) / 2, (n + i) % 2, plans))
				continue;
			check_mutants(plans, n, MUTANTS, &t);
			for (int r = 0; r < n; r++)
				tt_plan_free(plans[r]);
			calls++;
		}
	}
	cr_expect_gt(calls, 100);
	cr_expect_gt(report(&t), calls * MUTANTS / 3);
}

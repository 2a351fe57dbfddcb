/*
 * plan.c - building a plan: the algorithm appends steps to a builder, then the compiler fuses them
 *
 * Called by run (plan_cache.c), the simulator, `tutti plan` and the tests; calls the builder, the
 * algorithm and compile.c.
 */
#include <stdlib.h>
#include <string.h>

#include "plan/algorithm.h"

void tt_plan_free(struct tt_plan *plan)
{
	if (!plan)
		return;
	free(plan->peers);
	free(plan->steps);
	free(plan);
}

static int check_shape(const struct tt_algorithm *a, const struct tt_shape *s)
{
	const char *why;

	if (s->nranks < 1 || s->rank < 0 || s->rank >= s->nranks || s->root < 0 ||
	    s->root >= s->nranks)
		return tt_fail(TT_ARG, "rank %d of %d with root %d is out of range; no plan",
			       s->rank, s->nranks, s->root);
	if (a->collective != s->collective)
		return tt_fail(TT_ARG, "algorithm %s is for %s, not for %s", a->name,
			       tt_collective_name(a->collective),
			       tt_collective_name(s->collective));
	why = a->refuses ? a->refuses(s) : NULL;
	return why ? tt_fail(TT_ARG, "%s: %s", a->name, why) : TT_OK;
}

static void copy_facts(struct tt_plan *p, const struct tt_algorithm *a, const char *argument)
{
	tt_algorithm_full_name(a, argument, p->algorithm);
	p->slots = a->slots;
}

int tt_plan_build_plain(const struct tt_algorithm *algorithm, const char *name,
			const struct tt_shape *shape, struct tt_plan **ret_plan)
{
	const char *argument;
	struct tt_builder b;
	struct tt_cut cut = { 1, 1 };
	int rc = check_shape(algorithm, shape);

	if (rc || (rc = tt_algorithm_argument(algorithm, name, &argument)))
		return rc;
	if (algorithm->cut)
		cut = algorithm->cut(shape, argument);
	rc = tt_builder_open(&b, shape, cut);
	if (rc)
		return rc;
	algorithm->build(&b, argument);
	rc = tt_builder_close(&b, ret_plan);
	if (!rc)
		copy_facts(*ret_plan, algorithm, argument);
	return rc;
}

int tt_plan_build(const struct tt_algorithm *algorithm, const char *name,
		  const struct tt_shape *shape, struct tt_plan **ret_plan)
{
	struct tt_plan *plan;
	int rc = tt_plan_build_plain(algorithm, name, shape, &plan);

	if (rc)
		return rc;
	rc = tt_plan_compile(plan);
	if (rc)
		tt_plan_free(plan);
	else
		*ret_plan = plan;
	return rc;
}

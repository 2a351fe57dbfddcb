/*
 * choose_name.c - choice by name: "auto", decided by choose.c, or the name of an algorithm
 *
 * Called by run (plan_cache.c), tuttiCommDescribe and the tools (choose.h).
 */
#include <string.h>

#include "algorithms/algorithms.h"
#include "model/choose.h"

static bool known_elsewhere(const char *name)
{
	bool known = false;

	for (int c = 0; c < TT_COLLECTIVES && !known; c++)
		known = tt_algorithm_look((enum tt_collective)c, name) != NULL;
	return known;
}

/* A name that only other collectives have means auto for this one. For allreduce such a name is an
 * error. */
int tt_plan_is_auto(const char *name, enum tt_collective c)
{
	if (!strcmp(name, "auto"))
		return 1;
	if (tt_algorithm_look(c, name))
		return 0;
	if (c != TT_ALLREDUCE && known_elsewhere(name))
		return 1;
	tt_algorithm_find(TT_ALLREDUCE, name); /* sets the error text */
	return TT_ARG;
}

static int choose_auto(const struct tt_shape *shape, const struct tt_call_facts *call,
		       const struct tt_algorithm **ret_algorithm, char ret_name[64])
{
	struct tt_candidate list[TT_MOST_CANDIDATES];
	int best, rc = tt_plan_candidates(shape, call, list, &best);

	if (rc < 0)
		return rc;
	*ret_algorithm = list[best].algorithm;
	memcpy(ret_name, list[best].name, sizeof(list[best].name));
	return TT_OK;
}

int tt_plan_choose(const char *name, const struct tt_shape *shape, const struct tt_call_facts *call,
		   const struct tt_algorithm **ret_algorithm, char ret_name[64])
{
	const struct tt_algorithm *a;
	const char *argument;
	int rc;

	if ((unsigned)shape->collective >= TT_SENDRECV)
		return tt_fail(TT_ARG, "%s has no algorithms",
			       tt_collective_name(shape->collective));
	rc = tt_plan_is_auto(name, shape->collective);
	if (rc < 0)
		return rc;
	if (rc > 0)
		return choose_auto(shape, call, ret_algorithm, ret_name);
	a = tt_algorithm_look(shape->collective, name);
	rc = tt_algorithm_argument(a, name, &argument);
	if (rc)
		return rc;
	tt_algorithm_full_name(a, argument, ret_name);
	*ret_algorithm = a;
	return TT_OK;
}

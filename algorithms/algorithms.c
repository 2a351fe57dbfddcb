/*
 * algorithms.c - the table of all algorithms, and finding a row by name
 *
 * Adding one: a file with the row at its end, and a line here. Called by plan (build, choose), comm (settings), the tools
 * and the tests.
 */
#include <stdio.h>
#include <string.h>

#include "algorithms/algorithm.h"

/* The first row of a collective is a default that is right for any shape. The index is the number on the wire. */
#define ROWS(X) \
	X(tt_allreduce_ring) \
	X(tt_allreduce_tree) \
	X(tt_allreduce_recursive_doubling) \
	X(tt_allreduce_halving_doubling) \
	X(tt_allreduce_reduce_to_one) \
	X(tt_allreduce_hierarchical) \
	X(tt_allreduce_hierarchical_copy) \
	X(tt_allreduce_one_shot) \
	X(tt_allreduce_two_shot) \
	X(tt_reduce_tree) \
	X(tt_reduce_ring) \
	X(tt_reduce_to_one) \
	X(tt_broadcast_tree) \
	X(tt_broadcast_ring) \
	X(tt_broadcast_direct) \
	X(tt_allgather_ring) \
	X(tt_allgather_recursive_doubling) \
	X(tt_allgather_bruck) \
	X(tt_allgather_direct) \
	X(tt_reduce_scatter_ring) \
	X(tt_reduce_scatter_halving) \
	X(tt_reduce_scatter_direct) \
	X(tt_alltoall_direct) \
	X(tt_gather_direct) \
	X(tt_scatter_direct)

#define DECLARE(row) extern const struct tt_algorithm row;
#define POINT(row) &row,

ROWS(DECLARE)
const struct tt_algorithm *const tt_algorithms[] = { ROWS(POINT) NULL };

static size_t base_length(const char *name)
{
	return strcspn(name, ":");
}

static bool is_named(const struct tt_algorithm *a, const char *name)
{
	return strlen(a->name) == base_length(name) && !strncmp(a->name, name, base_length(name));
}

/* What stands behind "name:", NULL if nothing does. */
static const char *given_argument(const char *name)
{
	return name[base_length(name)] ? name + base_length(name) + 1 : NULL;
}

static bool takes(const struct tt_algorithm *a, const char *argument)
{
	return !argument || (a->argument && (!strcmp(argument, a->argument) || (a->takes && a->takes(argument))));
}

int tt_algorithm_argument(const struct tt_algorithm *a, const char *name, const char **ret_argument)
{
	const char *given = given_argument(name);

	if (!is_named(a, name))
		return tt_fail(TT_ARG, "algorithm \"%s\" is not %s", name, a->name);
	if (!takes(a, given))
		return tt_fail(TT_ARG, "algorithm \"%s\": %s does not take \"%s\"; see tutti_algorithms(7)", name, a->name,
			       given);
	*ret_argument = given ? given : a->argument ? a->argument : "";
	return TT_OK;
}

void tt_algorithm_full_name(const struct tt_algorithm *a, const char *argument, char ret_name[64])
{
	snprintf(ret_name, 64, "%s%s%s", a->name, *argument ? ":" : "", argument);
}

/* "ring, tree, ...": what a collective can be asked for. */
static const char *known_names(enum tt_collective collective, char text[512])
{
	size_t used = 0;

	text[0] = '\0';
	for (int i = 0; tt_algorithms[i]; i++)
		if (tt_algorithms[i]->collective == collective && used < 400)
			used += (size_t)snprintf(text + used, 512 - used, ", %s", tt_algorithms[i]->name);
	return text;
}

const struct tt_algorithm *tt_algorithm_look(enum tt_collective collective, const char *name)
{
	for (int i = 0; tt_algorithms[i]; i++)
		if (tt_algorithms[i]->collective == collective && is_named(tt_algorithms[i], name) &&
		    takes(tt_algorithms[i], given_argument(name)))
			return tt_algorithms[i];
	return NULL;
}

const struct tt_algorithm *tt_algorithm_find(enum tt_collective collective, const char *name)
{
	const struct tt_algorithm *a = tt_algorithm_look(collective, name);
	char known[512];

	if (!a)
		tt_fail(TT_ARG, "%s has no algorithm \"%s\"; use auto%s", tt_collective_name(collective), name,
			known_names(collective, known));
	return a;
}

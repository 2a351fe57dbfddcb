/*
 * algorithms.c - the table of all algorithms, and finding a row by name
 *
 * Adding one: a file with the row at its end, and a line here. Called by plan (build, choose), comm
 * (settings), the tools and the tests.
 */
#include <stdio.h>
#include <string.h>

#include "algorithms/algorithm.h"

/* The first row of a collective is a default that is right for any shape. The index is the number
 * on the wire. */
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
	return !argument || (a->argument &&
			     (!strcmp(argument, a->argument) || (a->takes && a->takes(argument))));
}

/* The row takes no such argument: say which part of it is wrong, or what it takes. */
static int refuse_argument(const struct tt_algorithm *a, const char *name, const char *argument)
{
	if (a->explain)
		a->explain(argument);
	else if (a->form)
		tt_fail(TT_ARG, "algorithm \"%s\": there is no \"%s\" of %s; use %s or %s:%s", name,
			argument, a->name, a->name, a->name, a->form);
	else
		tt_fail(TT_ARG, "algorithm \"%s\": %s has no variants; use %s", name, a->name,
			a->name);
	return TT_ARG;
}

int tt_algorithm_argument(const struct tt_algorithm *a, const char *name, const char **ret_argument)
{
	const char *given = given_argument(name);

	if (!is_named(a, name))
		return tt_fail(TT_ARG, "algorithm \"%s\" is not %s", name, a->name);
	if (!takes(a, given))
		return refuse_argument(a, name, given);
	*ret_argument = given ? given : a->argument ? a->argument : "";
	return TT_OK;
}

void tt_algorithm_full_name(const struct tt_algorithm *a, const char *argument, char ret_name[64])
{
	snprintf(ret_name, 64, "%s%s%s", a->name, *argument ? ":" : "", argument);
}

static bool has_name(int row, enum tt_collective collective, const char *name)
{
	return (collective == TT_COLLECTIVES || tt_algorithms[row]->collective == collective) &&
	       is_named(tt_algorithms[row], name);
}

const char *tt_algorithm_names(enum tt_collective collective, char text[512])
{
	size_t used = 0;

	text[0] = '\0';
	for (int i = 0; tt_algorithms[i]; i++) {
		const char *name = tt_algorithms[i]->name;
		bool new = has_name(i, collective, name);

		for (int e = 0; e < i && new; e++)
			new = !has_name(e, collective, name);
		if (new && used < 400)
			used += (size_t)snprintf(text + used, 512 - used, ", %s", name);
	}
	return text;
}

const struct tt_algorithm *tt_algorithm_look(enum tt_collective collective, const char *name)
{
	for (int i = 0; tt_algorithms[i]; i++)
		if (has_name(i, collective, name) && takes(tt_algorithms[i], given_argument(name)))
			return tt_algorithms[i];
	return NULL;
}

const struct tt_algorithm *tt_algorithm_find(enum tt_collective collective, const char *name)
{
	const struct tt_algorithm *a = tt_algorithm_look(collective, name);
	char known[512];

	for (int i = 0; tt_algorithms[i] && !a; i++)
		if (has_name(i, collective, name)) {
			refuse_argument(tt_algorithms[i], name, given_argument(name));
			return NULL;
		}
	if (!a)
		tt_fail(TT_ARG, "%s has no algorithm \"%s\"; use auto%s",
			tt_collective_name(collective), name,
			tt_algorithm_names(collective, known));
	return a;
}

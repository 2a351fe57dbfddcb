/*
 * algorithms.c - the table of all algorithms, and the search by name
 *
 * A new algorithm: a file with the entry at its end, and a line here. Called by comm (settings),
 * control (texts), model (choice), the tools and the tests.
 */
#include <stdio.h>

#include "algorithms/algorithms.h"

/* The first entry of a collective is a default that is right for any shape. The index is
 * the number of an algorithm in messages between ranks. */
#define ALGORITHMS(X)                      \
	X(tt_allreduce_ring)               \
	X(tt_allreduce_tree)               \
	X(tt_allreduce_recursive_doubling) \
	X(tt_allreduce_halving_doubling)   \
	X(tt_allreduce_reduce_to_one)      \
	X(tt_allreduce_hierarchical)       \
	X(tt_allreduce_hierarchical_copy)  \
	X(tt_allreduce_one_shot)           \
	X(tt_allreduce_two_shot)           \
	X(tt_reduce_tree)                  \
	X(tt_reduce_ring)                  \
	X(tt_reduce_to_one)                \
	X(tt_broadcast_tree)               \
	X(tt_broadcast_ring)               \
	X(tt_broadcast_linear)             \
	X(tt_allgather_ring)               \
	X(tt_allgather_recursive_doubling) \
	X(tt_allgather_bruck)              \
	X(tt_allgather_linear)             \
	X(tt_reduce_scatter_ring)          \
	X(tt_reduce_scatter_halving)       \
	X(tt_reduce_scatter_linear)        \
	X(tt_alltoall_linear)              \
	X(tt_gather_linear)                \
	X(tt_scatter_linear)               \
	X(tt_scatter_tree)

#define DECLARE(entry) extern const struct tt_algorithm entry;
#define POINT(entry) &entry,

ALGORITHMS(DECLARE)
const struct tt_algorithm *const tt_algorithms[] = { ALGORITHMS(POINT) NULL };

uint8_t tt_algorithm_number(const struct tt_algorithm *a)
{
	uint8_t i = 0;

	while (tt_algorithms[i] != a)
		i++;
	return i;
}

static bool has_name(int i, enum tt_collective collective, const char *name)
{
	return (collective == TT_COLLECTIVES || tt_algorithms[i]->collective == collective) &&
	       tt_algorithm_is_named(tt_algorithms[i], name);
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
		if (new &&used < 400)
			used += (size_t)snprintf(text + used, 512 - used, ", %s", name);
	}
	return text;
}

const struct tt_algorithm *tt_algorithm_look(enum tt_collective collective, const char *name)
{
	for (int i = 0; tt_algorithms[i]; i++)
		if (has_name(i, collective, name) && tt_algorithm_accepts(tt_algorithms[i], name))
			return tt_algorithms[i];
	return NULL;
}

const struct tt_algorithm *tt_algorithm_find(enum tt_collective collective, const char *name)
{
	const struct tt_algorithm *a = tt_algorithm_look(collective, name);
	const char *argument;
	char known[512];

	for (int i = 0; tt_algorithms[i] && !a; i++)
		if (has_name(i, collective, name)) {
			/* sets the error text */
			tt_algorithm_argument(tt_algorithms[i], name, &argument);
			return NULL;
		}
	if (!a)
		tt_fail(TT_ARG, "%s has no algorithm \"%s\"; use auto%s",
			tt_collective_name(collective), name,
			tt_algorithm_names(collective, known));
	return a;
}

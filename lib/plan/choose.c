/*
 * choose.c - the one place that decides which algorithm a call uses
 *
 * A table, read from the top: the first row that fits the call is taken. It looks at agreed facts only (the call, n, the
 * topology), so that all ranks come to the same row. Called by run (keep.c), tuttiCommDescribe and the tools.
 */
#include <string.h>

#include "algorithms/algorithm.h"

enum path { ANY, SHM, HOSTS };           /* HOSTS: several, with more than one rank on some of them */

struct row {
	enum tt_collective collective;
	enum path path;
	int max_ranks;                   /* 0: any */
	size_t max_bytes;                /* 0: any */
	const char *name;
};

#define KIB(n) ((size_t)(n) << 10)

static const struct row table[] = {
	{ TT_ALLREDUCE, SHM, 8, 336, "one-shot" },
	{ TT_ALLREDUCE, SHM, 2, KIB(64), "one-shot" },
	{ TT_ALLREDUCE, SHM, 2, 0, "two-shot" },
	{ TT_ALLREDUCE, SHM, 0, KIB(2), "recursive-doubling" },
	{ TT_ALLREDUCE, SHM, 8, 0, "two-shot" },
	{ TT_ALLREDUCE, SHM, 0, KIB(32), "recursive-doubling" },
	{ TT_ALLREDUCE, SHM, 0, KIB(256), "halving-doubling" },
	{ TT_ALLREDUCE, ANY, 2, KIB(16), "one-shot" },
	{ TT_ALLREDUCE, ANY, 2, 0, "two-shot" },
	{ TT_ALLREDUCE, ANY, 0, KIB(16), "recursive-doubling" },
	{ TT_ALLREDUCE, HOSTS, 0, 0, "hierarchical" },
	{ TT_ALLREDUCE, ANY, 0, KIB(512), "halving-doubling" },
	{ TT_ALLREDUCE, ANY, 0, 0, "ring" },

	{ TT_REDUCE, ANY, 4, KIB(32), "reduce-to-one" },
	{ TT_REDUCE, ANY, 0, KIB(64), "tree" },
	{ TT_REDUCE, ANY, 0, 0, "ring" },

	{ TT_BROADCAST, ANY, 3, 0, "direct" },
	{ TT_BROADCAST, ANY, 0, KIB(64), "tree" },
	{ TT_BROADCAST, ANY, 0, 0, "ring" },

	{ TT_ALLGATHER, SHM, 8, 0, "direct" },
	{ TT_ALLGATHER, ANY, 4, KIB(64), "direct" },
	{ TT_ALLGATHER, ANY, 0, KIB(64), "bruck" },
	{ TT_ALLGATHER, ANY, 0, 0, "ring" },

	{ TT_REDUCE_SCATTER, SHM, 8, 0, "direct" },
	{ TT_REDUCE_SCATTER, ANY, 4, KIB(64), "direct" },
	{ TT_REDUCE_SCATTER, ANY, 0, KIB(64), "halving" },
	{ TT_REDUCE_SCATTER, ANY, 0, 0, "ring" },

	{ TT_ALLTOALL, ANY, 0, 0, "direct" },
	{ TT_GATHER, ANY, 0, 0, "direct" },
	{ TT_SCATTER, ANY, 0, 0, "direct" },
};

static bool takes_path(enum path path, const struct tt_shape *shape, const struct tt_call_size *size)
{
	const struct tt_topology *t = shape->topology;

	switch (path) {
	case SHM:
		return size->one_host && !size->tcp;
	case HOSTS:
		return !size->one_host && t && t->nhosts > 1 && t->nhosts < shape->nranks;
	default:
		return true;
	}
}

static const char *automatic(const struct tt_shape *shape, const struct tt_call_size *size)
{
	size_t i = 0;

	while (table[i].collective != shape->collective || !takes_path(table[i].path, shape, size) ||
	       (table[i].max_ranks && shape->nranks > table[i].max_ranks) ||
	       (table[i].max_bytes && size->bytes > table[i].max_bytes))
		i++;
	return table[i].name;
}

static bool known_elsewhere(const char *name)
{
	bool known = false;

	for (int c = 0; c < TT_COLLECTIVES && !known; c++)
		known = tt_algorithm_look((enum tt_collective)c, name) != NULL;
	return known;
}

/* The row that was asked for, or NULL: decide. A name that only other collectives have leaves this one free to choose,
 * but allreduce does what it is told. */
static int asked_for(const char *name, enum tt_collective c, const struct tt_algorithm **ret_algorithm)
{
	*ret_algorithm = strcmp(name, "auto") ? tt_algorithm_look(c, name) : NULL;
	if (*ret_algorithm || !strcmp(name, "auto") || (c != TT_ALLREDUCE && known_elsewhere(name)))
		return TT_OK;
	tt_algorithm_find(TT_ALLREDUCE, name);           /* for its sentence */
	return TT_ARG;
}

int tt_plan_choose(const char *name, const struct tt_shape *shape, const struct tt_call_size *size,
		   const struct tt_algorithm **ret_algorithm, char ret_name[64])
{
	const struct tt_algorithm *a;
	const char *argument;
	int rc;

	if ((unsigned)shape->collective >= TT_SENDRECV)
		return tt_fail(TT_ARG, "%s has no algorithms", tt_collective_name(shape->collective));
	rc = asked_for(name, shape->collective, &a);
	if (rc)
		return rc;
	if (!a) {
		name = automatic(shape, size);
		a = tt_algorithm_look(shape->collective, name);
	}
	rc = tt_algorithm_argument(a, name, &argument);
	if (rc)
		return rc;
	tt_algorithm_full_name(a, argument, ret_name);
	*ret_algorithm = a;
	return TT_OK;
}

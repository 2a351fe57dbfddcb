/*
 * locality_groups.c - compute the groups of ranks of each host (locality.h)
 *
 * Called by comm.c with data that all ranks exchanged, so all ranks compute the same groups; and by
 * `tutti info`.
 */
#include <stdlib.h>

#include "comm/locality.h"

/* ---- hosts ----------------------------------------------------------------------------------- */

int tt_host_ranks_make(const struct tt_topology *t, struct tt_host_ranks *ret_hosts)
{
	int n = t->nranks;
	struct tt_host_ranks h = { .nhosts = t->nhosts,
				   .first = calloc((size_t)t->nhosts + 1, sizeof(*h.first)),
				   .rank = malloc((size_t)n * sizeof(*h.rank)) };

	if (!h.first || !h.rank) {
		tt_host_ranks_free(&h);
		return tt_fail(TT_SYSTEM, "no memory for the hosts of %d ranks", n);
	}
	/* counting sort: first[i] is the number of ranks of host i, then their end, then their start */
	for (int r = 0, host = -1; r < n; r++) {
		host = t->host_of ? t->host_of[r] : host + tt_counted_bits_has(t->host_firsts, r);
		h.first[host]++;
	}
	for (int i = 1; i <= t->nhosts; i++)
		h.first[i] += h.first[i - 1];
	if (!t->host_of) { /* the ranks of each host follow each other */
		for (int i = t->nhosts; i > 0; i--)
			h.first[i] = h.first[i - 1];
		h.first[0] = 0;
	}
	for (int r = n - 1; r >= 0; r--)
		h.rank[t->host_of ? --h.first[t->host_of[r]] : r] = r;
	*ret_hosts = h;
	return 0;
}

void tt_host_ranks_free(struct tt_host_ranks *hosts)
{
	free(hosts->first);
	free(hosts->rank);
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* True if two ranks of a host share an object of this level. */
static bool is_same_domain(const struct tt_locality *a, const struct tt_locality *b, int level)
{
	return level == TT_LEVELS || a->in[level] == b->in[level];
}

/* Finds the outermost level at which ranks differ, unless no two ranks share an object there. */
int tt_groups_level(const struct tt_locality *localities, const int *rank, int n)
{
	for (int level = 0; level < TT_LEVELS; level++) {
		bool divides = false, joins = false;

		for (int i = 0; i < n; i++) {
			const struct tt_locality *one = &localities[rank[i]];

			divides |= !is_same_domain(one, &localities[rank[0]], level);
			for (int k = i + 1; k < n && one->in[level] >= 0 && !joins; k++)
				joins = is_same_domain(one, &localities[rank[k]], level);
		}
		if (divides)
			return joins ? level : TT_LEVELS;
	}
	return TT_LEVELS;
}

/* Sets lowest_of of the ranks of one host to the lowest rank of their group. */
static void divide_host(const struct tt_locality *localities, const int *rank, int n,
			int *lowest_of)
{
	int level = tt_groups_level(localities, rank, n);

	for (int i = 0; i < n; i++) {
		if (lowest_of[rank[i]] >= 0)
			continue;
		for (int k = i; k < n; k++)
			if (is_same_domain(&localities[rank[i]], &localities[rank[k]], level))
				lowest_of[rank[k]] = rank[i];
	}
}

int tt_groups_form(const struct tt_locality *localities, const struct tt_host_ranks *hosts, int n,
		   int *ret_group_of)
{
	int ngroups = 0;

	for (int r = 0; r < n; r++)
		ret_group_of[r] = -1;
	for (int h = 0; h < hosts->nhosts; h++)
		divide_host(localities, hosts->rank + hosts->first[h],
			    hosts->first[h + 1] - hosts->first[h], ret_group_of);
	for (int r = 0; r < n;
	     r++) /* the lowest rank of a group has its number before the others */
		ret_group_of[r] = ret_group_of[r] == r ? ngroups++ : ret_group_of[ret_group_of[r]];
	return ngroups;
}

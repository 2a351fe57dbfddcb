/*
 * locality_groups.c - compute the groups of ranks of each host (locality.h)
 *
 * Called by comm.c with data that all ranks exchanged, so all ranks compute the same groups; and by
 * `tutti info`.
 */
#include "comm/locality.h"

/* True if ranks r and `like` share a host and an object of this level. */
static bool is_same_domain(const struct tt_locality *localities, const int *host_of, int like,
			   int r, int level)
{
	return host_of[r] == host_of[like] &&
	       (level == TT_LEVELS || localities[r].in[level] == localities[like].in[level]);
}

/* Finds the outermost level at which ranks differ, unless no two ranks share an object there. */
int tt_groups_level(const struct tt_locality *localities, const int *host_of, int n, int first)
{
	for (int level = 0; level < TT_LEVELS; level++) {
		bool divides = false, joins = false;

		for (int r = first; r < n; r++) {
			if (host_of[r] != host_of[first])
				continue;
			divides |= localities[r].in[level] != localities[first].in[level];
			for (int q = r + 1; q < n && localities[r].in[level] >= 0 && !joins; q++)
				joins = is_same_domain(localities, host_of, r, q, level);
		}
		if (divides)
			return joins ? level : TT_LEVELS;
	}
	return TT_LEVELS;
}

/* Assigns groups to the ranks of one host. first: its lowest rank */
static void divide_host(const struct tt_locality *localities, const int *host_of, int n, int first,
			int *group_of, int *ngroups)
{
	int level = tt_groups_level(localities, host_of, n, first);

	for (int r = first; r < n; r++) {
		if (host_of[r] != host_of[first] || group_of[r] >= 0)
			continue;
		for (int q = r; q < n; q++)
			if (is_same_domain(localities, host_of, r, q, level))
				group_of[q] = *ngroups;
		(*ngroups)++;
	}
}

/* Renumbers the groups in order of their lowest ranks. */
static void renumber(int n, int *group_of)
{
	int next = 0;

	for (int r = 0; r < n; r++) {
		int old = group_of[r];

		if (old < 0)
			continue;
		for (int q = r; q < n; q++)
			if (group_of[q] == old)
				group_of[q] = -1 - next;
		next++;
	}
	for (int r = 0; r < n; r++)
		group_of[r] = -1 - group_of[r];
}

int tt_groups_form(const struct tt_locality *localities, const int *host_of, int n,
		   int *ret_group_of)
{
	int ngroups = 0;

	for (int r = 0; r < n; r++)
		ret_group_of[r] = -1;
	for (int r = 0; r < n; r++)
		if (ret_group_of[r] < 0)
			divide_host(localities, host_of, n, r, ret_group_of, &ngroups);
	renumber(n, ret_group_of);
	return ngroups;
}

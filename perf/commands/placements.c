/*
 * placements.c - placements of n ranks on hosts (placements.h)
 *
 * Random placements come from a linear congruential generator with a fixed seed, so that every
 * machine proves the same placements.
 */
#include "perf/commands/placements.h"
#include "tools/plural.h"

#include <stdio.h>
#include <string.h>

static void set_topology(struct tool_placement *p, int nranks, int nhosts)
{
	p->topology = (struct tt_topology){ .nranks = nranks,
					    .nhosts = nhosts,
					    .host_of = p->host_of };
}

void tool_placement_consecutive(const int *sizes, int nhosts, struct tool_placement *ret_placement)
{
	int n = 0;

	for (int h = 0; h < nhosts; h++)
		for (int i = 0; i < sizes[h]; i++)
			ret_placement->host_of[n++] = h;
	set_topology(ret_placement, n, nhosts);
}

void tool_placement_round_robin(int nranks, int nhosts, struct tool_placement *ret_placement)
{
	for (int r = 0; r < nranks; r++)
		ret_placement->host_of[r] = r % nhosts;
	set_topology(ret_placement, nranks, nhosts);
}

static uint32_t draw(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33);
}

/* Splits the ranks; cuts[i]: rank i + 1 begins a new host. */
static void cut_at(int nranks, const bool *cuts, struct tool_placement *ret_placement)
{
	int host = 0;

	for (int r = 0; r < nranks; r++)
		ret_placement->host_of[r] = host += r && cuts[r - 1];
	set_topology(ret_placement, nranks, host + 1);
}

/* Random split into consecutive ranks. The number of hosts is drawn first, so that few large hosts
 * are as likely as many small ones. */
static void split_random(int nranks, uint32_t k, struct tool_placement *ret_placement)
{
	uint64_t state = ((uint64_t)nranks << 32) + k;
	bool cuts[TOOL_MAX_PLACED] = { false };
	uint32_t n = (uint32_t)nranks, left;

	draw(&state);
	left = 1 + draw(&state) % (n - 1);
	while (left) {
		uint32_t at = draw(&state) % (n - 1);

		left -= !cuts[at];
		cuts[at] = true;
	}
	cut_at(nranks, cuts, ret_placement);
}

/* Random host for every rank; hosts are numbered by their lowest rank. */
static void scatter_random(int nranks, uint32_t k, struct tool_placement *ret_placement)
{
	uint64_t state = ((uint64_t)nranks << 32) + 1000 + k;
	int number[TOOL_MAX_PLACED], hosts = 2 + (int)(draw(&state) % (uint32_t)nranks) / 2,
				     known = 0;

	memset(number, 0xff, sizeof(number));
	for (int r = 0; r < nranks; r++) {
		int *host = &number[draw(&state) % (uint32_t)hosts];

		if (*host < 0)
			*host = known++;
		ret_placement->host_of[r] = *host;
	}
	set_topology(ret_placement, nranks, known);
}

/* Sets equal split number *k: hosts of equal size, from two hosts up to one rank per host. Returns
 * false, and subtracts the number of equal splits from *k, if *k is larger. */
static bool split_equal(int nranks, uint32_t *k, struct tool_placement *ret_placement)
{
	for (int hosts = 2; hosts <= nranks; hosts++) {
		bool cuts[TOOL_MAX_PLACED] = { false };

		if (nranks % hosts || (*k)--)
			continue;
		for (int r = nranks / hosts; r < nranks; r += nranks / hosts)
			cuts[r - 1] = true;
		cut_at(nranks, cuts, ret_placement);
		return true;
	}
	return false;
}

bool tool_placement_number(int nranks, enum tool_thoroughness how, uint32_t k,
			   struct tool_placement *ret_placement)
{
	bool all = how == TOOL_ALL_PLACEMENTS, every_split = nranks <= (all ? 10 : 6);
	uint32_t splits = every_split ? (1u << (nranks - 1)) - 1 : all ? 200 : 2;
	uint32_t rounds = (nranks > 2) + (all && nranks > 3), scattered = all && nranks > 3 ? 4 : 0;

	if (k == 0) {
		tool_placement_round_robin(nranks, 1, ret_placement);
		return true;
	}
	k--;
	if (split_equal(nranks, &k, ret_placement))
		return true;
	if (k < splits && every_split) {
		bool cuts[TOOL_MAX_PLACED] = { false };

		for (int i = 0; i < nranks - 1; i++)
			cuts[i] = (k + 1) >> i & 1;
		cut_at(nranks, cuts, ret_placement);
	} else if (k < splits) {
		split_random(nranks, k, ret_placement);
	} else if (k - splits < rounds) {
		tool_placement_round_robin(nranks, 2 + (int)(k - splits), ret_placement);
	} else if (k - splits - rounds < scattered) {
		scatter_random(nranks, k, ret_placement);
	} else {
		return false;
	}
	return true;
}

const char *tool_placement_text(const struct tool_placement *p, char *text, size_t bytes)
{
	size_t used = (size_t)snprintf(text, bytes, "%d host%s", p->topology.nhosts,
				       tool_s(p->topology.nhosts));

	for (int r = 0; p->topology.nhosts > 1 && r < p->topology.nranks && used < bytes - 16; r++)
		used += (size_t)snprintf(text + used, bytes - used, "%s%d", r ? " " : ": ",
					 p->host_of[r]);
	if (used >= bytes - 16)
		snprintf(text + used, bytes - used, " ...");
	return text;
}

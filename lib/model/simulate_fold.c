/*
 * simulate_fold.c - ranks that a symmetry of the algorithm and of the hosts maps onto each other
 *
 * If renaming ranks maps all plans, links and hosts onto themselves, renamed ranks do the same at
 * the same times. The simulator then walks the ranks of the first host only, or rank 0 of a single
 * host, and delivers each message to the rank that stands for its receiver:
 *
 *   ring of 6 ranks on hosts (0 1) (2 3) (4 5), folded to ranks 0 and 1:
 *
 *       1 -> 2    is    1 -> 0    and arrives as the message of 5, the other peer of 0
 *
 * A shift by k hosts renames rank u * stride + i to (u + k) * stride + i, or to (u ^ k) * stride + i.
 * Called by simulate.c and simulate_plan.c.
 */
#include "plan/algorithm.h"
#include "model/simulate_internal.h"

/* Ranks of each host, if hosts are alike and have consecutive ranks; else 0. */
static uint32_t ranks_per_host(const struct tt_sim_world *w)
{
	const struct tt_topology *t = w->topology;
	int each;

	if (!t || t->nhosts == 1)
		return t && t->groups ? 0 : 1;
	each = t->nranks / t->nhosts;
	for (int r = 0; r < t->nranks; r++)
		if (tt_topology_host(t, r) != r / each)
			return 0;
	return (uint32_t)each;
}

void tt_sim_fold(struct tt_sim *sim, const struct tt_algorithm *a, const char *name)
{
	const struct tt_sim_world *w = &sim->world;
	struct tt_shape shape = { .collective = a->collective,
				  .nranks = w->nranks,
				  .topology = w->topology };
	bool one_host = !w->topology || w->topology->nhosts == 1;
	uint32_t stride = ranks_per_host(w);
	struct tt_symmetry symmetry;
	const char *argument;

	sim->nsimulated = (uint32_t)w->nranks;
	/* ranks that share cores get them in turn, so they are not alike */
	if (!w->fold || !a->symmetry || !stride || (one_host && w->cores && w->nranks > w->cores) ||
	    tt_algorithm_argument(a, name, &argument))
		return;
	symmetry = a->symmetry(&shape, argument);
	if (symmetry.kind == TT_ASYMMETRIC)
		return;
	sim->folded = symmetry.nearly ? TT_SIM_NEARLY : TT_SIM_FOLDED;
	sim->exchange = symmetry.kind == TT_EXCHANGE;
	sim->nsimulated = stride;
}

uint32_t tt_sim_shifted(const struct tt_sim *sim, uint32_t rank, uint32_t hosts)
{
	uint32_t stride = sim->nsimulated, all = (uint32_t)sim->world.nranks / stride;
	uint32_t host = rank / stride;

	host = sim->exchange ? host ^ hosts : (host + hosts) % all;
	return host * stride + rank % stride;
}

uint32_t tt_sim_sender(const struct tt_sim *sim, uint32_t from, uint32_t to)
{
	uint32_t stride = sim->nsimulated, all = (uint32_t)sim->world.nranks / stride;
	uint32_t host = to / stride;

	return tt_sim_shifted(sim, from, sim->exchange ? host : (all - host) % all);
}

/*
 * clusters.c - hypothetical ranks for tests of the simulator (clusters.h)
 */
#include <criterion/criterion.h>

#include "algorithms/algorithms.h"
#include "tests/support/clusters.h"

struct cluster cluster_of(int n, int nhosts, bool tcp, const struct tt_cost *cost)
{
	struct cluster c = { .topology = { .nranks = n, .nhosts = nhosts } };

	for (int r = 0; r < n; r++)
		c.host_of[r] = r * nhosts / n;
	c.world = (struct tt_sim_world){
		.nranks = n,
		.paths = { .nranks = n, .one_host = nhosts == 1, .over_tcp = tcp },
		.message_bytes = 65536,
		.cost = cost
	};
	return c;
}

struct cluster cluster_of_groups(int n, int ngroups, const struct tt_cost *cost)
{
	struct cluster c = cluster_of(n, 1, false, cost);

	c.groups = (struct tt_topology){ .nranks = n, .nhosts = ngroups };
	for (int r = 0; r < n; r++)
		c.group_of[r] = r * ngroups / n;
	return c;
}

struct tt_sim *cluster_open_sim(struct cluster *c, enum tt_collective collective, const char *name)
{
	struct tt_sim *sim = NULL;

	c->topology.host_of = c->host_of;
	c->groups.host_of = c->group_of;
	c->topology.groups = c->groups.nhosts > 1 ? &c->groups : NULL;
	c->world.topology = &c->topology;
	cr_assert_eq(tt_sim_open(&c->world, tt_algorithm_find(collective, name), name, 0, NULL,
				 &sim),
		     TT_OK, "%s", tt_error_text());
	return sim;
}

struct tt_sim_result cluster_simulate(struct cluster *c, enum tt_collective collective,
				      const char *name, size_t bytes)
{
	struct tt_sim *sim = cluster_open_sim(c, collective, name);
	struct tt_sim_result result;

	cr_assert_eq(tt_sim_run(sim, bytes, 0, &result), TT_OK, "%s", tt_error_text());
	tt_sim_close(sim);
	return result;
}

/*
 * simulate_plan.c - the plans of all ranks in the simulator's compact form
 *
 * Each plan is built and compiled as for a run, then reduced to the fields that have a price.
 * Consecutive equal steps become one record, since a ring of thousands of hosts repeats one step
 * thousands of times. Called by simulate.c.
 */
#include <stdlib.h>
#include <string.h>

#include "plan/algorithm.h"
#include "model/simulate_internal.h"

enum { SAMPLE = 256 }; /* plans before the size of all is estimated */

/* Index of the peer of a wire in a list of peers: the first entry not below its rank. */
static uint32_t peer_index(const int *peer, uint32_t npeers, tt_ref wire)
{
	int rank = (int)tt_ref_index(wire);
	uint32_t low = 0, high = npeers;

	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (peer[middle] < rank)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void describe(const struct tt_plan *p, const struct tt_step *s, uint32_t at,
		     struct tt_sim_steps *d)
{
	tt_ref local = s->dst != TT_REF_NONE ? s->dst : s->src[0];

	*d = (struct tt_sim_steps){ .at = at,
				    .repeat = 1,
				    .nblocks = s->nblocks,
				    .wait_step = s->wait_step,
				    .to = TT_SIM_NONE,
				    .op = s->op,
				    .nsrc = s->nsrc,
				    .flags = s->flags,
				    .wait_lane = s->wait_lane,
				    .records = (uint8_t)tt_step_records(s),
				    .has_dst = s->dst != TT_REF_NONE };
	if (p->rule == TT_EVEN && s->op != TT_NOP)
		d->block = tt_ref_index(local) % p->nblocks;
	if (tt_ref_is_wire(s->to))
		d->to = peer_index(p->peers, p->npeers, s->to);
	for (int i = 0; i < s->nsrc; i++)
		if (tt_ref_is_wire(tt_step_source(s, i)))
			d->wire[d->nwires++] = peer_index(p->peers, p->npeers,
							  tt_step_source(s, i));
}

static bool alike(const struct tt_sim_steps *a, const struct tt_sim_steps *b)
{
	return a->nblocks == b->nblocks && a->to == b->to && a->op == b->op &&
	       a->nwires == b->nwires && a->nsrc == b->nsrc && a->flags == b->flags &&
	       a->records == b->records && a->has_dst == b->has_dst &&
	       !memcmp(a->wire, b->wire, a->nwires * sizeof(a->wire[0]));
}

/* Is `next` one more repetition of `run`? */
static bool continues(struct tt_sim_steps *run, const struct tt_sim_steps *next)
{
	int64_t stride = (int64_t)next->block - run->block;

	if (next->wait_lane != TT_NO_LANE || !alike(run, next))
		return false;
	if (run->repeat == 1)
		run->stride = (int32_t)stride;
	return stride == (int64_t)run->stride * run->repeat;
}

static uint32_t compact_lane(const struct tt_plan *p, uint32_t lane, struct tt_sim_steps *to)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < p->lanes[lane].nsteps;) {
		const struct tt_step *s = tt_lane_step(p, lane, i);

		describe(p, s, i, &to[count]);
		if (count && continues(&to[count - 1], &to[count]))
			to[count - 1].repeat++;
		else
			count++;
		i += tt_step_records(s);
	}
	return count;
}

/* Buffer for the records of one plan, reused for each rank. */
struct step_buffer {
	struct tt_sim_steps *steps;
	uint32_t room;
};

static int store_steps(const struct tt_plan *p, struct step_buffer *buffer, struct tt_sim_rank *r)
{
	uint32_t count = 0;

	if (buffer->room < p->nsteps) {
		free(buffer->steps);
		buffer->room = 2 * p->nsteps;
		buffer->steps = malloc(buffer->room * sizeof(*buffer->steps));
		if (!buffer->steps)
			buffer->room = 0;
	}
	for (uint32_t l = 0; l < p->nlanes && buffer->room; l++) {
		r->first[l] = count;
		count += compact_lane(p, l, buffer->steps + count);
	}
	for (uint32_t l = p->nlanes; l <= TT_MAX_LANES; l++)
		r->first[l] = count;
	r->steps = malloc((count + 1) * sizeof(*r->steps));
	if (!r->steps || (p->nsteps && !buffer->room))
		return tt_fail(TT_SYSTEM, "no memory for the plan of rank %d", p->rank);
	if (count)
		memcpy(r->steps, buffer->steps, count * sizeof(*r->steps));
	return 0;
}

static int store_peers(const struct tt_sim *sim, const struct tt_plan *p, struct tt_sim_rank *r)
{
	const struct tt_topology *t = sim->world.topology;

	const size_t bytes = 2 * sizeof(*r->link_free_ps) + sizeof(*r->peer) + sizeof(*r->mirror) +
			     sizeof(*r->stands) + sizeof(*r->class);

	r->npeers = p->npeers;
	r->link_free_ps = malloc(p->npeers * bytes + 1);
	if (!r->link_free_ps)
		return tt_fail(TT_SYSTEM, "no memory for the links of rank %d", p->rank);
	r->sent_bytes = r->link_free_ps + p->npeers;
	r->peer = (int *)(r->sent_bytes + p->npeers);
	r->mirror = (uint32_t *)(r->peer + p->npeers);
	r->stands = r->mirror + p->npeers;
	r->class = (uint8_t *)(r->stands + p->npeers);
	for (uint32_t i = 0; i < p->npeers; i++) {
		bool apart = t && tt_topology_host(t, p->rank) != tt_topology_host(t, p->peers[i]);

		r->peer[i] = p->peers[i];
		r->stands[i] = (uint32_t)p->peers[i] % sim->nsimulated;
		r->class[i] = (uint8_t)
			tt_cost_class(apart, sim->world.paths.over_tcp,
				      (enum tt_link_class)sim->world.paths.nic_class);
		if (r->class[i] == TT_LINK_SHM && t && t->groups &&
		    tt_topology_host(t->groups, p->rank) !=
			    tt_topology_host(t->groups, p->peers[i]))
			r->class[i] = TT_LINK_GROUPS;
	}
	return 0;
}

static int plan_of(struct tt_sim *sim, const struct tt_algorithm *a, const char *name,
		   const struct tt_shape *shape, struct step_buffer *buffer)
{
	struct tt_plan *plan;
	int rc = tt_plan_build(a, name, shape, &plan);

	if (rc)
		return rc;
	sim->steps += plan->nsteps;
	rc = store_steps(plan, buffer, &sim->rank[shape->rank]);
	if (!rc)
		rc = store_peers(sim, plan, &sim->rank[shape->rank]);
	if (shape->rank == 0)
		sim->frame = *plan;
	tt_plan_free(plan);
	sim->frame.steps = NULL;
	sim->frame.peers = NULL;
	return rc;
}

/* Finds the index of each rank in the lists of its peers, or of the ranks that stand for these. */
static int find_mirrors(struct tt_sim *sim)
{
	for (uint32_t a = 0; a < sim->nsimulated; a++) {
		struct tt_sim_rank *r = &sim->rank[a];

		for (uint32_t i = 0; i < r->npeers; i++) {
			const struct tt_sim_rank *q = &sim->rank[r->stands[i]];
			uint32_t sender = tt_sim_sender(sim, a, (uint32_t)r->peer[i]);

			r->mirror[i] = peer_index(q->peer, q->npeers, tt_ref_make(TT_WIRE, sender));
			if (r->mirror[i] >= q->npeers || q->peer[r->mirror[i]] != (int)sender)
				return tt_fail(
					TT_INTERNAL,
					"%s: rank %u has rank %d as a peer, but not the other way round",
					sim->frame.algorithm, a, r->peer[i]);
		}
	}
	return 0;
}

/* Too many steps for most_steps, if the other plans are like the first `built` ones? */
static int check_size(const struct tt_sim *sim, const char *name, uint32_t built)
{
	uint64_t all = sim->steps / built * sim->nsimulated;

	if (!sim->world.most_steps || all <= sim->world.most_steps)
		return 0;
	tt_fail(TT_ARG, "%s: the plans of %u ranks have about %llu million steps", name,
		sim->nsimulated, (unsigned long long)(all / 1000000));
	return TT_SIM_TOO_LARGE;
}

int tt_sim_plans(struct tt_sim *sim, const struct tt_algorithm *a, const char *name, int root)
{
	int n = (int)sim->nsimulated, rc = 0;
	struct step_buffer buffer = { NULL, 0 };

	for (int r = 0; r < n && !rc; r++) {
		struct tt_shape shape = { .collective = a->collective,
					  .nranks = sim->world.nranks,
					  .rank = r,
					  .root = root,
					  .topology = sim->world.topology };

		rc = plan_of(sim, a, name, &shape, &buffer);
		if (!rc && r == SAMPLE - 1)
			rc = check_size(sim, name, SAMPLE);
		if (!rc && sim->watch.progress && r % 64 == 0)
			rc = sim->watch.progress(sim->watch.ctx, "plans", (uint64_t)r, (uint64_t)n);
	}
	free(buffer.steps);
	return rc ? rc : find_mirrors(sim);
}

void tt_sim_plans_free(struct tt_sim *sim)
{
	for (int i = 0; sim->rank && i < (int)sim->nsimulated; i++) {
		struct tt_sim_rank *r = &sim->rank[i];

		for (uint32_t k = 0; k < r->nqueues; k++)
			free(r->queue[k].message);
		free(r->queue);
		free(r->cursor);
		free(r->steps);
		free(r->link_free_ps);
	}
	free(sim->rank);
}

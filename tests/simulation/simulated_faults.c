/*
 * simulated_faults.c - the faults that the seed draws: victim, kind and time
 */
#include <stdlib.h>

#include "tests/simulation/simulated_job.h"

static void kill_one(void *arg)
{
	sim_kill(arg);
}

/* Called by the simulation at every kill. */
void sim_killed(const struct sim_process *p)
{
	if (!sim->job)
		return;
	sim->job->rank[p->number].harmed = true;
	sim->job->rank[p->number].killed_ns = sim->job->last_kill_ns = sim->now_ns;
	sim->job->last_fault_ns = sim->now_ns;
}

static void stop_one(void *arg)
{
	struct sim_process *p = arg;

	if (!p->stopped)
		sim->job->rank[p->number].stopped_ns = sim->job->last_fault_ns = sim->now_ns;
	p->stopped = !p->ended && !p->dead;
	sim_trace("process %d is stopped", p->number);
}

static void continue_one(void *arg)
{
	struct sim_process *p = arg;

	p->stopped = false;
	sim->job->last_continue_ns = sim->now_ns;
	sim_trace("process %d continues", p->number);
}

void sim_stop(void *arg)
{
	stop_one(arg);
	if (sim_random(2))
		sim_at(sim->now_ns + sim_random_scale(SIM_MS, 60 * SIM_SECOND), continue_one, arg);
}

bool sim_is_cut(int a, int b)
{
	return sim->job->cut.ns && (sim->job->cut.side >> a & 1) != (sim->job->cut.side >> b & 1);
}

bool sim_any_silent(void)
{
	const struct sim_job *job = sim->job;
	bool any = job->cut.ns || job->faults == SIM_CORRUPTION;

	for (int i = 0; i < job->n && !any; i++)
		any = job->rank[i].stopped_ns || job->rank[i].process.dead ||
		      (job->faults == SIM_MEMORY && job->rank[i].harmed);
	return any;
}

static void plan_kills(void)
{
	int victims = 1 + (int)sim_random((uint32_t)sim->job->n - 1);

	while (victims--) {
		struct sim_process *p = &sim->job->rank[sim_random((uint32_t)sim->job->n)].process;

		if (sim_random(4))
			p->kill_at = sim_random_scale(16, 8192);
		else
			sim_at(sim_random_scale(SIM_MS, 400 * SIM_MS), kill_one, p);
	}
}

static void plan_stop(struct sim_rank *w, uint64_t when)
{
	w->harmed = w->delayed = true;
	sim_at(when, stop_one, &w->process);
	if (sim_random(2))
		sim_at(when + sim_random_scale(SIM_MS, 60 * SIM_SECOND), continue_one, &w->process);
}

static void plan_stops(uint64_t from_ns, uint64_t most_ns)
{
	int victims = 1 + (int)sim_random((uint32_t)sim->job->n - 1);

	while (victims--) {
		struct sim_rank *w = &sim->job->rank[sim_random((uint32_t)sim->job->n)];

		plan_stop(w, from_ns + sim_random_scale(SIM_MS, most_ns));
	}
}

/* A rank that may coordinate a shrink is stopped for about as long as others wait for its answer. */
static void plan_pause(struct sim_rank *w)
{
	uint64_t when = sim->now_ns + sim_random_scale(SIM_MS, SIM_TIMEOUT_NS);

	w->harmed = w->delayed = true;
	sim_at(when, stop_one, &w->process);
	sim_at(when + sim_random_scale(SIM_SECOND / 2, 4 * SIM_SECOND), continue_one, &w->process);
}

struct cut {
	unsigned side; /* hosts of one side */
	bool forth, back;
};

static void change_cut(const struct cut *c, bool cut)
{
	for (int a = 0; a < sim->job->n; a++)
		for (int b = 0; b < sim->job->n; b++) {
			bool in_a = c->side >> a & 1, in_b = c->side >> b & 1;

			if (in_a != in_b && (in_a ? c->forth : c->back))
				sim_network_cut(a, b, cut);
		}
}

static void cut_now(void *arg)
{
	sim->job->cut.side = ((const struct cut *)arg)->side;
	sim->job->cut.ns = sim->job->last_fault_ns = sim->now_ns;
	change_cut(arg, true);
}

static void repair(void *arg)
{
	change_cut(arg, false);
}

/* At a time */
static void plan_cut(uint64_t when)
{
	struct cut *c = sim_alloc(sizeof(*c));
	uint32_t way = sim_random(4);

	c->side = 1 + sim_random((1u << sim->job->n) - 2);
	c->forth = way != 0;
	c->back = way != 1;
	for (int i = 0; i < sim->job->n; i++)
		sim->job->rank[i].harmed = true;
	sim_at(when, cut_now, c);
	if (sim_random(2))
		sim_at(when + sim_random_scale(SIM_MS, 60 * SIM_SECOND), repair, c);
}

static void lose_one(void *arg)
{
	int a, b;

	(void)arg;
	if (sim_network_lose(&a, &b))
		sim->job->rank[a].harmed = sim->job->rank[b].harmed = true;
}

/* Half of the ranks come late, and the join of the others fails meanwhile if a fault ends it. */
static void plan_late_ranks(void)
{
	struct sim_job *job = sim->job;
	int victim = 1 + (int)sim_common(0, 0, 8, (uint32_t)job->n - 1);

	for (int i = 1; i < job->n; i++)
		if (i != victim && sim_common(0, i, 9, 2))
			job->rank[i].late_ns = (SIM_MS / 4) << sim_common(0, i, 10, 15);
	if (job->faults != SIM_KILLS && job->faults != SIM_STOPS)
		return;
	job->rank[victim].process.kill_at = 16 + sim_common(0, 0, 11, 256);
	if (job->faults == SIM_STOPS)
		plan_stops(0, 4 * SIM_SECOND);
}

/* What a compromised rank says is not true, but harms no process. */
static void plan_corruption(void)
{
	struct sim_job *job = sim->job;

	job->rank[sim_random((uint32_t)job->n)].process.corrupts = (uint32_t)sim_random_scale(4,
											      512);
	for (int i = 0; i < job->n; i++)
		job->rank[i].harmed = true;
}

/* most: of its requests until one fails */
static void plan_memory(uint64_t most)
{
	struct sim_rank *w = &sim->job->rank[sim_random((uint32_t)sim->job->n)];

	w->harmed = true;
	w->process.fail_at = sim_random_scale(1, most);
	if (sim_random(2)) { /* buffers and queues */
		w->process.fail_at = sim_random_scale(1, 64);
		w->process.fail_from_bytes = sim_random_scale(1024, 65536);
	}
	w->lacks_memory = sim_random(3) == 0;
	if (w->lacks_memory) /* in a later call */
		w->process.fail_at = 0;
}

void sim_plan_faults(void)
{
	if (sim->job->later) {
		sim->job->moment = (enum sim_moment)(SIM_OPERATIONS + sim_random(3));
		sim->job->moment_waits = (int)sim_random((uint32_t)sim->job->n);
		return;
	}
	if (sim_common(0, 0, 7, 8) == 0)
		plan_late_ranks();
	switch (sim->job->faults) {
	case SIM_KILLS:
		sim->job->strikes_split = sim_random(2);
		if (!sim->job->strikes_split || sim_random(2))
			plan_kills();
		sim->job->strikes_shrink = sim_random(2);
		break;
	case SIM_STOPS:
		sim->job->strikes_split = sim_random(2);
		if (!sim->job->strikes_split || sim_random(2))
			plan_stops(0, 200 * SIM_MS);
		sim->job->strikes_shrink = sim_random(2);
		break;
	case SIM_CUTS:
		plan_cut(sim_random_scale(SIM_MS, 200 * SIM_MS));
		break;
	case SIM_LOSSES:
		for (int i = sim_random(3) ? 1 : 3; i; i--)
			sim_at(sim_random_scale(SIM_MS, 400 * SIM_MS), lose_one, NULL);
		break;
	case SIM_CORRUPTION:
		plan_corruption();
		break;
	case SIM_MEMORY:
		plan_memory(2048);
		break;
	default:
		break;
	}
}

/* ---- faults that begin later ------------------------------------------------------------------- */

/* A time soon: most faults that are drawn from the start of a schedule on strike its join. */
static uint64_t soon(void)
{
	return sim->now_ns + sim_random_scale(SIM_MS / 64, 16 * SIM_MS);
}

/* One to all ranks but one are killed, or stopped, each within some hundreds of its next calls. */
static void plan_at_calls(void)
{
	int victims = 1 + (int)sim_random((uint32_t)sim->job->n - 1);

	while (victims--) {
		struct sim_rank *w = &sim->job->rank[sim_random((uint32_t)sim->job->n)];
		uint64_t call = w->process.calls + sim_random_scale(1, 1024);

		if (sim->job->faults == SIM_KILLS) {
			w->process.kill_at = call;
		} else {
			w->process.stop_at = call;
			w->harmed = w->delayed = true;
		}
	}
}

/* A rank begins an operation, a shrink, or its departure: that may be the moment of the faults. */
void sim_reach(enum sim_moment moment)
{
	struct sim_job *job = sim->job;

	if (job->moment != moment || job->moment_waits-- != 0)
		return;
	switch (job->faults) {
	case SIM_KILLS:
	case SIM_STOPS:
		plan_at_calls();
		break;
	case SIM_CUTS:
		plan_cut(soon());
		break;
	case SIM_LOSSES:
		sim_at(soon(), lose_one, NULL);
		break;
	case SIM_MEMORY:
		plan_memory(128);
		break;
	case SIM_CORRUPTION:
		plan_corruption();
		break;
	default:
		break;
	}
}

/* Kills this rank while its call runs. */
static void plan_kill_in_call(uint64_t most_calls)
{
	struct sim_process *p = &sim->job->rank[sim->process->number].process;

	p->kill_at = p->calls + sim_random_scale(4, most_calls);
}

/* The service thread of a rank lacks memory while the rank splits or shrinks, as for a frame of a
 * control that is not made yet. */
static void plan_memory_in_call(void)
{
	struct sim_rank *w = &sim->job->rank[sim->process->number];

	if (!w->lacks_memory || sim_random(2))
		return;
	w->lacks_memory = false;
	w->process.fail_from_bytes = 0;
	w->process.fail_in_threads = true;
	w->process.fail_at = sim_random_scale(1, 32);
	if (sim_random(2)) { /* or one of the first frames of about a size */
		w->process.fail_from_bytes = 32u << sim_random(4);
		w->process.fail_to_bytes = 2 * w->process.fail_from_bytes;
		w->process.fail_at = 1 + sim_random(4);
	}
}

/* Further ranks are killed, or stopped while the first ones shrink. */
void sim_plan_faults_of_shrink(void)
{
	plan_memory_in_call();
	if (!sim->job->strikes_shrink)
		return;
	if (sim->job->faults == SIM_KILLS) {
		if (sim_random(3) == 0)
			plan_kill_in_call(2048);
		return;
	}
	sim->job->strikes_shrink = false;
	if (sim_random(2))
		plan_stops(sim->now_ns, 2 * SIM_TIMEOUT_NS);
	for (int i = (int)sim_random(3); i < sim->job->n && sim_random(2); i++)
		plan_pause(&sim->job->rank[i]);
}

/* One rank is killed or stopped early in a split. */
void sim_plan_faults_of_split(void)
{
	plan_memory_in_call();
	if (!sim->job->strikes_split || sim_random((uint32_t)sim->job->n))
		return;
	sim->job->strikes_split = false;
	if (sim->job->faults == SIM_KILLS)
		plan_kill_in_call(512);
	else
		plan_stop(&sim->job->rank[sim->process->number],
			  sim->now_ns + sim_random_scale(SIM_MS / 128, 4 * SIM_MS));
}

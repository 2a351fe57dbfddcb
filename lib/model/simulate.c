/*
 * simulate.c - event loop of the simulator: clocks, ranks that share cores, results (simulate.h)
 *
 * Ranks advance in the order of their clocks, one message at a time, so cores, links and networks
 * are allocated in the order of time. A rank that cannot advance releases its core. If a host has
 * more ranks than cores, waiting ranks queue for the core, and each pays a context switch. Called
 * by choose.c and the tools.
 */
#include <stdlib.h>
#include <string.h>

#include "model/simulate_heap.h"

const char *const tt_sim_part_name[TT_PARTS] = { "latency", "bytes", "reduce", "messages", "wait" };

/* ---- cores ----------------------------------------------------------------------------------- */

static bool crowded(const struct tt_sim *sim, const struct tt_sim_host *h)
{
	return sim->world.cores && h->nranks > sim->world.cores;
}

/* Resumes the rank at at_ps, after a context switch if another rank ran on the host in between. */
static void start_work(struct tt_sim *sim, uint32_t rank, uint64_t at_ps)
{
	struct tt_sim_rank *r = &sim->rank[rank];
	struct tt_sim_host *h = &sim->host[r->host];

	if (crowded(sim, h) && r->dispatch != h->dispatches) {
		at_ps += sim->world.cost->core.switch_ps;
		r->dispatch = ++h->dispatches;
	}
	r->state = TT_SIM_AT_WORK;
	r->now_ps = at_ps > r->now_ps ? at_ps : r->now_ps;
}

/* Takes a core at at_ps, or queues for one. True: the rank has a core. */
static bool want_core(struct tt_sim *sim, uint32_t rank, uint64_t at_ps)
{
	struct tt_sim_rank *r = &sim->rank[rank];
	struct tt_sim_host *h = &sim->host[r->host];

	if (!crowded(sim, h) || h->cores_free > 0) {
		h->cores_free--;
		start_work(sim, rank, at_ps);
		return true;
	}
	r->state = TT_SIM_QUEUED;
	r->next_ready = -1;
	if (h->first_ready < 0)
		h->first_ready = (int)rank;
	else
		sim->rank[h->last_ready].next_ready = (int)rank;
	h->last_ready = (int)rank;
	return false;
}

static void give_core(struct tt_sim *sim, struct tt_sim_rank *r)
{
	struct tt_sim_host *h = &sim->host[r->host];
	int next = h->first_ready;

	if (next < 0) {
		h->cores_free++;
		return;
	}
	h->first_ready = sim->rank[next].next_ready;
	start_work(sim, (uint32_t)next, r->now_ps);
	tt_sim_push(sim, sim->rank[next].now_ps, (uint32_t)next);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

void tt_sim_notify(struct tt_sim *sim, uint32_t rank, uint32_t cursor, uint64_t at_ps)
{
	struct tt_sim_rank *r = &sim->rank[rank];

	r->cursor[cursor].wait = TT_SIM_RUNS;
	r->cursor[cursor].wake_ps = at_ps;
	if (r->state == TT_SIM_IDLE && at_ps < r->wake_ps) {
		r->wake_ps = at_ps;
		tt_sim_push(sim, at_ps, rank);
	}
}

/* Executes one message of the next cursor that can advance. False: none can; *ret_next_ps: time of
 * the next attempt. */
static bool advance_rank(struct tt_sim *sim, uint32_t rank, uint64_t *ret_next_ps)
{
	struct tt_sim_rank *r = &sim->rank[rank];
	uint64_t next = TT_SIM_NEVER;

	for (uint32_t i = 0; i < sim->ncursors; i++) {
		uint32_t c = (r->next_cursor + i) % sim->ncursors;

		if (r->cursor[c].wake_ps <= r->now_ps && tt_sim_advance(sim, rank, c)) {
			/* as in run: stay with a cursor while it advances */
			r->next_cursor = c;
			return true;
		}
	}
	for (uint32_t i = 0; i < sim->ncursors; i++)
		next = r->cursor[i].wake_ps < next ? r->cursor[i].wake_ps : next;
	*ret_next_ps = next;
	/* a lane woke a cursor that was already tried */
	return next <= r->now_ps;
}

/* Runs the rank until it cannot advance, or another rank has an earlier clock. */
static void work(struct tt_sim *sim, uint32_t rank)
{
	struct tt_sim_rank *r = &sim->rank[rank];
	uint64_t next = 0;

	do {
		if (sim->nheap && sim->heap[0].at_ps < r->now_ps) {
			tt_sim_push(sim, r->now_ps, rank);
			return;
		}
	} while (advance_rank(sim, rank, &next));
	r->state = r->nfinished == sim->ncursors ? TT_SIM_DONE : TT_SIM_IDLE;
	r->wake_ps = next;
	if (r->state == TT_SIM_IDLE && next != TT_SIM_NEVER)
		tt_sim_push(sim, next, rank);
	give_core(sim, r);
}

static int run_events(struct tt_sim *sim)
{
	uint64_t reported = 0;

	while (sim->nheap && !sim->failed) {
		struct tt_sim_event e = tt_sim_pop(sim);
		struct tt_sim_rank *r = &sim->rank[e.rank];
		int rc = 0;

		if ((r->state == TT_SIM_AT_WORK && r->now_ps == e.at_ps) ||
		    (r->state == TT_SIM_IDLE && r->wake_ps == e.at_ps &&
		     want_core(sim, e.rank, e.at_ps)))
			work(sim, e.rank);
		if (sim->watch.progress && sim->events - reported >= 1 << 16) {
			reported = sim->events;
			rc = sim->watch.progress(sim->watch.ctx, "messages", sim->events, 0);
		}
		if (rc)
			return rc;
	}
	if (sim->failed)
		return tt_fail(TT_SYSTEM, "no memory to simulate %d ranks", sim->world.nranks);
	for (uint32_t i = 0; i < sim->nsimulated; i++)
		if (sim->rank[i].nfinished != sim->ncursors)
			return tt_fail(
				TT_INTERNAL,
				"%s: the simulated rank %u never finishes (see tutti plan --verify)",
				sim->frame.algorithm, i);
	return 0;
}

/* ---- a call ---------------------------------------------------------------------------------- */

static int alloc_cursors(struct tt_sim *sim, struct tt_sim_rank *r)
{
	for (uint32_t k = 0; k < r->nqueues; k++)
		free(r->queue[k].message);
	free(r->queue);
	free(r->cursor);
	r->nqueues = r->npeers * sim->ncursors;
	r->queue = calloc(r->nqueues + 1, sizeof(*r->queue));
	r->cursor = calloc(sim->ncursors + 1, sizeof(*r->cursor));
	if (r->queue && r->cursor)
		return 0;
	r->nqueues = 0;
	return tt_fail(TT_SYSTEM, "no memory to simulate %d ranks", sim->world.nranks);
}

static void rewind_rank(struct tt_sim *sim, struct tt_sim_rank *r)
{
	uint64_t call = sim->world.cost->core.call_ps;

	for (uint32_t i = 0; i < sim->ncursors; i++) {
		uint32_t lane = i / sim->binding.width, first = r->first[lane];
		bool empty = first == r->first[lane + 1];

		r->cursor[i] = (struct tt_sim_cursor){ .steps = first,
						       .row_steps = first,
						       .lane = lane,
						       .finished = empty,
						       .tile = i % sim->binding.width,
						       .wake_ps = empty ? TT_SIM_NEVER : 0 };
	}
	r->nfinished = 0;
	for (uint32_t i = 0; i < sim->ncursors; i++)
		r->nfinished += r->cursor[i].finished;
	memset(r->link_free_ps, 0, 2 * r->npeers * sizeof(*r->link_free_ps));
	memset(r->part_ps, 0, sizeof(r->part_ps));
	r->part_ps[TT_PART_MESSAGES] = r->now_ps = r->idle_ps = r->busy_ps = call;
	r->wake_ps = call;
	r->dispatch = 0;
	r->next_cursor = 0;
	r->posted = false;
	r->state = TT_SIM_IDLE;
}

/* Bytes that a core touches: buffers and scratch of the ranks that share the core. */
static uint64_t footprint(const struct tt_sim *sim, const struct tt_sim_host *h)
{
	const struct tt_plan *p = &sim->frame;
	uint64_t blocks = p->rule == TT_EVEN ? 2 * p->nblocks : p->in_blocks + p->out_blocks;
	uint64_t each = 1;

	if (crowded(sim, h))
		each = (uint64_t)((h->nranks + sim->world.cores - 1) / sim->world.cores);
	return (blocks + p->scratch_blocks - p->scratch_first) * sim->binding.unit * each;
}

static void bind_call(struct tt_sim *sim, size_t bytes, struct tt_binding *ret_binding)
{
	const struct tt_sim_world *w = &sim->world;

	sim->equal_blocks = false;
	if (sim->folded)
		tt_plan_bind_evenly(&sim->frame, &w->paths, w->message_bytes, bytes, ret_binding,
				    &sim->equal_blocks);
	else
		tt_plan_bind(&sim->frame, &w->paths, w->message_bytes, bytes, ret_binding);
}

static int begin(struct tt_sim *sim, size_t bytes, uint32_t most_tiles)
{
	const struct tt_sim_world *w = &sim->world;
	uint32_t before_ncursors = sim->ncursors;
	int rc = 0;

	bind_call(sim, bytes, &sim->binding);
	sim->ncursors = sim->frame.nlanes * sim->binding.width;
	sim->parts = sim->frame.rule == TT_EQUAL && sim->frame.in_blocks > 1;
	sim->on_slots = tt_plan_on_slots(&sim->frame, &w->paths, bytes);
	sim->tiles = most_tiles && most_tiles < sim->binding.ntiles ? most_tiles
								    : sim->binding.ntiles;
	for (int h = 0; h < sim->nhosts; h++) {
		struct tt_sim_host *host = &sim->host[h];

		*host = (struct tt_sim_host){ .nranks = host->nranks,
					      .cores_free = w->cores,
					      .first_ready = -1,
					      .dispatches = 1 };
		sim->prices[h] = tt_cost_prices(w->cost, footprint(sim, host), host->nranks,
						w->cores);
	}
	for (int g = 0; g < sim->ngroups; g++)
		sim->group[g] = (struct tt_sim_network){ 0 };
	sim->nheap = sim->events = 0;
	memset(sim->messages, 0, sizeof(sim->messages));
	for (uint32_t r = 0; r < sim->nsimulated && !rc; r++) {
		if (before_ncursors != sim->ncursors)
			rc = alloc_cursors(sim, &sim->rank[r]);
		if (!rc) {
			rewind_rank(sim, &sim->rank[r]);
			tt_sim_push(sim, sim->rank[r].wake_ps, r);
		}
	}
	return rc;
}

static void collect(const struct tt_sim *sim, struct tt_sim_result *result)
{
	uint32_t n = sim->nsimulated, last = 0, alike = (uint32_t)sim->world.nranks / n;
	double total, sum = 0;

	for (uint32_t r = 1; r < n; r++)
		if (sim->rank[r].now_ps > sim->rank[last].now_ps)
			last = r;
	*result = (struct tt_sim_result){ .time_ps = sim->rank[last].now_ps,
					  .events = sim->events,
					  .ranks = n,
					  .folded = sim->folded,
					  .equal_blocks = sim->equal_blocks,
					  .idle_min = 1,
					  .ntiles = sim->binding.ntiles,
					  .tiles_walked = sim->tiles };
	memcpy(result->part_ps, sim->rank[last].part_ps, sizeof(result->part_ps));
	for (int i = 0; i < TT_LINK_CLASSES; i++)
		result->messages[i] = sim->messages[i] * alike;
	total = (double)(result->time_ps ? result->time_ps : 1);
	for (uint32_t r = 0; r < n; r++) {
		const struct tt_sim_rank *rank = &sim->rank[r];
		double idle = 1 - (double)rank->busy_ps / total;

		sum += idle;
		if (rank->busy_ps > result->busiest_ps)
			result->busiest_ps = rank->busy_ps;
		result->idle_min = idle < result->idle_min ? idle : result->idle_min;
		result->idle_max = idle > result->idle_max ? idle : result->idle_max;
		for (uint32_t i = 0; i < rank->npeers; i++)
			result->bytes[rank->class[i]] += rank->sent_bytes[i] * alike;
		if (sim->on_slots)
			continue;
		result->links += (uint64_t)rank->npeers * alike;
		if (rank->npeers > result->most_links)
			result->most_links = rank->npeers;
	}
	result->idle_mean = sum / n;
}

static int run_once(struct tt_sim *sim, size_t bytes, uint32_t most_tiles,
		    struct tt_sim_result *ret_result)
{
	int rc = begin(sim, bytes, most_tiles);

	if (!rc)
		rc = run_events(sim);
	if (!rc)
		collect(sim, ret_result);
	return rc;
}

/* Extrapolates a quantity from `walked` tiles (whole) and half of them (half) to all tiles. */
static uint64_t extend(uint64_t half, uint64_t whole, uint32_t walked, uint32_t all)
{
	uint64_t more = whole > half ? whole - half : 0;

	return whole + (uint64_t)((unsigned __int128)more * (all - walked) / (walked / 2));
}

int tt_sim_run(struct tt_sim *sim, size_t bytes, uint32_t most_tiles,
	       struct tt_sim_result *ret_result)
{
	struct tt_sim_result half, whole;
	uint32_t walked = most_tiles / 2 * 2;
	int rc;

	if (!most_tiles)
		return run_once(sim, bytes, 0, ret_result);
	walked = walked ? walked : 2;
	rc = run_once(sim, bytes, walked, &whole);
	if (rc || whole.ntiles <= walked) {
		if (!rc)
			*ret_result = whole;
		return rc;
	}
	/* the simulated tiles fill the pipeline: each further tile takes as long as the last ones */
	rc = run_once(sim, bytes, walked / 2, &half);
	if (rc)
		return rc;
	*ret_result = whole;
	ret_result->time_ps = extend(half.time_ps, whole.time_ps, walked, whole.ntiles);
	ret_result->busiest_ps = extend(half.busiest_ps, whole.busiest_ps, walked, whole.ntiles);
	for (int i = 0; i < TT_PARTS; i++)
		ret_result->part_ps[i] = extend(half.part_ps[i], whole.part_ps[i], walked,
						whole.ntiles);
	for (int i = 0; i < TT_LINK_CLASSES; i++) {
		ret_result->bytes[i] = extend(half.bytes[i], whole.bytes[i], walked, whole.ntiles);
		ret_result->messages[i] = extend(half.messages[i], whole.messages[i], walked,
						 whole.ntiles);
	}
	return 0;
}

/* ---- open and close -------------------------------------------------------------------------- */

/* A post that is read in another group: slots, with what groups cost above shared memory */
static struct tt_link_cost far_slots(const struct tt_cost *cost)
{
	const struct tt_link_cost *shm = &cost->link[TT_LINK_SHM],
				  *groups = &cost->link[TT_LINK_GROUPS];
	struct tt_link_cost far = cost->link[TT_LINK_SLOTS];

#define ADD(field) far.field += groups->field > shm->field ? groups->field - shm->field : 0
	ADD(latency_ps);
	ADD(recv_ps);
	ADD(recv_fs);
	ADD(large_ps);
#undef ADD
	far.host_fs = groups->host_fs;
	return far;
}

static int open_groups(struct tt_sim *sim)
{
	const struct tt_topology *t = sim->world.topology;

	if (!t || !t->groups)
		return 0;
	sim->far_slots = far_slots(sim->world.cost);
	sim->ngroups = t->groups->nhosts;
	sim->group = calloc((size_t)sim->ngroups, sizeof(*sim->group));
	if (!sim->group)
		return tt_fail(TT_SYSTEM, "no memory to simulate %d ranks", sim->world.nranks);
	for (uint32_t r = 0; r < sim->nsimulated; r++)
		sim->rank[r].group = tt_topology_host(t->groups, r);
	return 0;
}

static int open_hosts(struct tt_sim *sim)
{
	const struct tt_topology *t = sim->world.topology;

	sim->nhosts = t && !sim->folded ? t->nhosts : 1;
	sim->host = calloc((size_t)sim->nhosts, sizeof(*sim->host));
	sim->prices = calloc((size_t)sim->nhosts, sizeof(*sim->prices));
	sim->rank = calloc(sim->nsimulated, sizeof(*sim->rank));
	if (!sim->host || !sim->rank || !sim->prices)
		return tt_fail(TT_SYSTEM, "no memory to simulate %d ranks", sim->world.nranks);
	for (int r = 0; r < sim->world.nranks; r++) {
		int host = t ? tt_topology_host(t, r) : 0;

		if (r < (int)sim->nsimulated)
			sim->rank[r].host = host;
		if (host < sim->nhosts)
			sim->host[host].nranks++;
	}
	return open_groups(sim);
}

int tt_sim_open(const struct tt_sim_world *world, const struct tt_algorithm *a, const char *name,
		int root, const struct tt_sim_watch *watch, struct tt_sim **ret_sim)
{
	struct tt_sim *sim;
	int rc;

	if (world->nranks < 1 || world->nranks > TT_SIM_RANKS)
		return tt_fail(TT_ARG, "%d ranks cannot be simulated; 1 to %d can", world->nranks,
			       TT_SIM_RANKS);
	sim = calloc(1, sizeof(*sim));
	if (!sim)
		return tt_fail(TT_SYSTEM, "no memory to simulate %d ranks", world->nranks);
	sim->world = *world;
	if (watch)
		sim->watch = *watch;
	tt_sim_fold(sim, a, name);
	rc = open_hosts(sim);
	if (!rc)
		rc = tt_sim_plans(sim, a, name, root);
	if (rc)
		tt_sim_close(sim);
	else
		*ret_sim = sim;
	return rc;
}

void tt_sim_close(struct tt_sim *sim)
{
	tt_sim_plans_free(sim);
	free(sim->host);
	free(sim->group);
	free(sim->prices);
	free(sim->heap);
	free(sim);
}

uint32_t tt_sim_width(struct tt_sim *sim, size_t bytes)
{
	struct tt_binding b;

	bind_call(sim, bytes, &b);
	return b.width;
}

bool tt_sim_sent(const struct tt_sim *sim, int rank, uint32_t i, int *ret_peer,
		 enum tt_link_class *ret_class, uint64_t *ret_bytes)
{
	const struct tt_sim_rank *r = &sim->rank[(uint32_t)rank % sim->nsimulated];

	if (i >= r->npeers)
		return false;
	*ret_peer = (int)tt_sim_shifted(sim, (uint32_t)r->peer[i],
					(uint32_t)rank / sim->nsimulated);
	*ret_class = r->class[i];
	*ret_bytes = r->sent_bytes[i];
	return true;
}

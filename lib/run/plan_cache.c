/*
 * plan_cache.c - the plan for a call: chosen once, built once, found again by one hash
 *
 * Called by operation.c, api and lib/gpu. A row is found by hash; a new row takes the algorithm
 * predicted for its size class, and a plan is built when no earlier call has used that algorithm.
 */
#include <stdlib.h>
#include <string.h>

#include "mem/fpmode.h"
#include "run/number.h"
#include "run/run.h"
#include "run/way.h"

static inline struct tt_plan_row *row_of(struct tt_plan_cache *p, struct tt_call_key key)
{
	uint64_t h = key.kind * 0x9e3779b97f4a7c15ull + key.count * 0xc2b2ae3d27d4eb4full;

	return &p->row[h >> 58];
}
_Static_assert(TT_PLAN_ROWS == 64, "row_of keeps six bits of the hash");

static inline bool same_key(struct tt_call_key a, struct tt_call_key b)
{
	return a.kind == b.kind && a.count == b.count;
}

/* ---- plans ----------------------------------------------------------------------------------- */

static int build(tuttiComm_t c, const struct tt_algorithm *a, const char *name,
		 const struct tt_shape *shape, struct tt_cached_plan **ret_plan)
{
	struct tt_cached_plan *p = calloc(1, sizeof(*p));
	int rc;

	if (!p)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for a plan", c->rank);
	rc = tt_plan_build(a, name, shape, &p->plan);
	if (rc) {
		free(p);
		return rc;
	}
	p->algorithm = a;
	p->number = tt_algorithm_number(a);
	p->root = shape->root;
	p->next = c->plans->built;
	c->plans->built = p;
	atomic_fetch_add(&c->memory.allocations, 1);
	*ret_plan = p;
	return 0;
}

/* Predicts the choice for this size class, as in tt_plan_cache: the algorithm and the path between hosts, or only the
 * path if the algorithm is named. 0 | < 0 */
static int predict(tuttiComm_t c, const struct tt_shape *shape, size_t bytes, bool named,
		   const struct tt_candidate *it, uint8_t *ret_chosen)
{
	struct tt_candidate list[TT_MOST_CANDIDATES];
	struct tt_call_facts facts = tt_comm_call_facts(c, bytes);
	int rc, best;

	if (named) {
		rc = tt_plan_nic(shape, &facts, it->algorithm, it->name);
		if (rc < 0)
			return rc;
		*ret_chosen = (uint8_t)(1 + (rc ? TT_CHOSE_NIC : 0));
		return 0;
	}
	rc = tt_plan_candidates(shape, &facts, list, &best);
	if (rc < 0)
		return rc;
	*ret_chosen = (uint8_t)(1 + list[best].number + (list[best].nic_class ? TT_CHOSE_NIC : 0));
	return 0;
}

_Static_assert(TT_SENDRECV *TT_SIZE_CLASSES <= TT_NOTES, "a note for each choice");

/* The choice of another rank of this host, which is this rank's too, since only agreed facts enter. 0: none yet */
static uint8_t note_of(const _Atomic uint8_t *note, enum tt_collective collective)
{
	uint8_t chosen = note ? atomic_load(note) : 0;
	struct tt_candidate it;

	return chosen && tt_candidate_number(collective, (chosen & ~TT_CHOSE_NIC) - 1, &it) ? chosen
											    : 0;
}

/* The fastest candidate for this size class, predicted once by one rank of a host, as a rule: hundreds of
 * simulated plans take a millisecond, and many ranks may share a core. named: the algorithm is given; only
 * the path between hosts is chosen. */
static int choose(tuttiComm_t c, const struct tt_shape *shape, size_t bytes, bool named,
		  struct tt_candidate *it)
{
	int class = tt_size_class(bytes), rc;
	uint8_t *chosen = &c->plans->chosen[shape->collective][class];
	_Atomic uint8_t *note =
		c->paths.notes ? &c->paths.notes[shape->collective * TT_SIZE_CLASSES + class]
			       : NULL;

	if (!*chosen && !(*chosen = note_of(note, shape->collective))) {
		rc = predict(c, shape, bytes, named, it, chosen);
		if (rc)
			return rc;
		if (note)
			atomic_store(note, *chosen);
	}
	if (!named)
		tt_candidate_number(shape->collective, (*chosen & ~TT_CHOSE_NIC) - 1, it);
	it->nic_class = *chosen & TT_CHOSE_NIC;
	return 0;
}

/* The user named an algorithm; with two paths between hosts, the path is still to be chosen. */
static int take_named(tuttiComm_t c, const struct tt_shape *shape, size_t bytes,
		      struct tt_candidate *it)
{
	int rc = tt_plan_choose(c->settings.algo, shape, NULL, &it->algorithm, it->name);

	it->nic_class = 0;
	return rc || c->paths.npaths == 1 ? rc : choose(c, shape, bytes, true, it);
}

static int find_or_build(tuttiComm_t c, const struct tt_request *r, struct tt_plan_row *row)
{
	struct tt_shape shape = { .collective = r->collective,
				  .nranks = c->nranks,
				  .rank = c->rank,
				  .root = r->root < 0 ? 0 : r->root,
				  .topology = &c->hosts.topology };
	size_t bytes = tt_request_bytes(r);
	struct tt_candidate it;
	int rc = tt_plan_is_auto(c->settings.algo, r->collective);

	if (rc > 0)
		rc = choose(c, &shape, bytes, false, &it);
	else if (!rc)
		rc = take_named(c, &shape, bytes, &it);
	if (rc)
		return rc;
	row->path = &c->paths.path[it.nic_class && c->paths.npaths > 1];
	for (struct tt_cached_plan *p = c->plans->built; p; p = p->next)
		if (p->algorithm == it.algorithm && p->root == shape.root &&
		    !strcmp(p->plan->algorithm, it.name)) {
			row->cached = p;
			return 0;
		}
	return build(c, it.algorithm, it.name, &shape, &row->cached);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static int fill(tuttiComm_t c, const struct tt_request *r, struct tt_plan_row *row)
{
	const struct tt_connectivity facts = tt_comm_connectivity(c);
	int rc = find_or_build(c, r, row);

	if (rc)
		return rc;
	row->reduce = tt_reduce_kernel(r->type, r->op);
	row->bytes = r->count * tt_type_bytes(r->type);
	row->call = (struct tt_call){ .collective = (uint8_t)r->collective,
				      .type = (uint8_t)r->type,
				      .op = r->barrier  ? TT_CALL_BARRIER
					    : r->scaled ? tuttiNumOps
							: (uint8_t)r->op,
				      .algorithm = row->cached->number,
				      .root = r->root,
				      .count = r->count };
	row->digest = tt_call_digest(&row->call);
	tt_plan_bind(row->cached->plan, &facts, c->paths.world.message_bytes, row->bytes,
		     &row->binding);
	return 0;
}

static int open_cache(tuttiComm_t c)
{
	struct tt_plan_cache *p = aligned_alloc(TT_LINE, sizeof(*p));
	int rc = 0;

	if (!p)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for a plan cache", c->rank);
	memset(p, 0, sizeof(*p));
	for (int i = 0; tt_ways[i] && !rc; i++)
		rc = tt_ways[i]->open ? tt_ways[i]->open(c) : 0;
	if (rc) { /* tt_run_close closes the ways */
		free(p);
		return rc;
	}
	atomic_fetch_add(&c->memory.allocations, 1);
	c->plans = p;
	return 0;
}

int tt_plan_cache_find(const struct tt_request *r, bool device, struct tt_plan_row **ret_row)
{
	tuttiComm_t c = r->comm;
	struct tt_plan_row *row, made = { .key = tt_request_key(r) };
	int rc = tt_likely(c->plans) ? 0 : open_cache(c);

	if (rc)
		return rc;
	made.key.kind |= device ? TT_KEY_DEVICE : 0;
	*ret_row = row = row_of(c->plans, made.key);
	if (tt_likely(same_key(row->key, made.key)))
		return 0;
	made.prepared = row->prepared;
	rc = fill(c, r, &made);
	if (!rc)
		*row = made;
	return rc;
}

/* ---- calls like one that went before --------------------------------------------------------- */

int tt_run_cached(tuttiComm_t c, struct tt_call_key key, const void *in, void *out)
{
	const struct tt_plan_row *row;
	struct tt_fpmode mode;
	int rc = 1;

	if (tt_unlikely(!tt_comm_begin(c, TT_ONE_CALL)))
		return 1;
	if (!atomic_load_explicit(&c->order.finalized, memory_order_relaxed) &&
	    !tt_control_broken(c->ctl) &&
	    !atomic_load_explicit(&c->order.queued, memory_order_acquire) && tt_likely(c->plans)) {
		row = row_of(c->plans, key);
		if (tt_likely(row->again && same_key(row->key, key))) {
			mode = tt_fpmode_enter();
			rc = row->again(c, row, in, out);
			tt_fpmode_leave(mode);
		}
	}
	return tt_comm_leave(c, TT_ONE_CALL, rc);
}

static bool prepare(struct tt_plan_row *row, const struct tt_request *r)
{
	struct tt_extents extents;
	struct tt_op op;

	if (!tt_request_extents(r, &extents.in, &extents.out))
		return false;
	tt_op_init(&op, r);
	return !tt_op_bind(&op) && op.way->prepare && op.way->prepare(row, &op, &extents);
}

void tt_run_learn(const struct tt_request *r)
{
	struct tt_plan_row *row;

	if (r->collective == TT_SENDRECV || r->scaled || !r->count || r->comm->fault.what ||
	    atomic_load_explicit(&r->comm->order.queued, memory_order_relaxed) ||
	    tt_plan_cache_find(r, false, &row) ||
	    (row->refused && row->refused_in_place == (r->in == r->out)))
		return;
	row->again = NULL;
	row->refused = !prepare(row, r);
	row->refused_in_place = r->in == r->out;
	if (!row->refused)
		row->again = row->way->again[r->collective];
}

/* ---- end ------------------------------------------------------------------------------------- */

void tt_run_close(tuttiComm_t c)
{
	struct tt_cached_plan *next;

	for (int i = 0; tt_ways[i]; i++)
		if (tt_ways[i]->close)
			tt_ways[i]->close(c);
	if (!c->plans)
		return;
	for (struct tt_cached_plan *p = c->plans->built; p; p = next) {
		next = p->next;
		tt_plan_free(p->plan);
		free(p);
	}
	for (int i = 0; i < TT_PLAN_ROWS; i++)
		free(c->plans->row[i].prepared);
	free(c->plans);
	c->plans = NULL;
}

size_t tt_plan_cache_memory(tuttiComm_t c)
{
	size_t bytes = c->plans ? sizeof(*c->plans) : 0;

	for (const struct tt_cached_plan *p = c->plans ? c->plans->built : NULL; p; p = p->next)
		bytes += sizeof(*p) + sizeof(*p->plan) + p->plan->nsteps * sizeof(struct tt_step) +
			 p->plan->npeers * sizeof(*p->plan->peers);
	return bytes;
}

size_t tt_ways_memory(tuttiComm_t c)
{
	size_t bytes = 0;

	for (int i = 0; tt_ways[i]; i++)
		bytes += tt_ways[i]->memory ? tt_ways[i]->memory(c) : 0;
	return bytes;
}

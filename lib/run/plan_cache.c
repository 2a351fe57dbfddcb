/*
 * plan_cache.c - the plan for a call: chosen once, built once, kept
 *
 * Called by prepare. The memo answers repeated calls with two compares; the list of kept plans is
 * searched when a size is new, and a plan is built when the algorithm is.
 */
#include <stdlib.h>
#include <string.h>

#include "run/op.h"

static struct tt_memo *memo_of(tuttiComm_t c, enum tt_collective collective, size_t bytes, int root)
{
	uint64_t h = (bytes * 12 + (uint64_t)collective) * 0x9e3779b97f4a7c15ull +
		     (uint64_t)root * 0xc2b2ae3d27d4eb4full;

	return &c->memo[h >> 58];
}
_Static_assert(TT_MEMOS == 64, "memo_of keeps six bits of the hash");

static uint8_t number_of(const struct tt_algorithm *a)
{
	uint8_t i = 0;

	while (tt_algorithms[i] != a)
		i++;
	return i;
}

static int build(tuttiComm_t c, const struct tt_algorithm *a, const char *name,
		 const struct tt_shape *shape, struct tt_cached_plan **ret_kept)
{
	struct tt_cached_plan *k = calloc(1, sizeof(*k));
	int rc;

	if (!k)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for a plan", c->rank);
	rc = tt_plan_build(a, name, shape, &k->plan);
	if (rc) {
		free(k);
		return rc;
	}
	k->algorithm = a;
	k->number = number_of(a);
	k->root = shape->root;
	k->next = c->kept;
	c->kept = k;
	atomic_fetch_add(&c->allocations, 1);
	*ret_kept = k;
	return 0;
}

/* The quickest for sizes like this one, predicted once: an algorithm, or of the one that was named,
 * the way between hosts. */
static int choose(tuttiComm_t c, const struct tt_shape *shape, size_t bytes, bool named,
		  struct tt_candidate *it)
{
	uint8_t *chosen = &c->chosen[shape->collective][tt_size_class(bytes)];
	struct tt_candidate list[TT_MOST_CANDIDATES];
	struct tt_call_facts facts = { .bytes = bytes, .over_tcp = c->over_tcp, .cores = c->cores,
				       .message_bytes = c->world.message_bytes, .cost = c->cost,
				       .nic_class = c->nic_class, .nic_only = c->npaths == 1 };
	int rc, best;

	if (!*chosen && named) {
		rc = tt_plan_nic(shape, &facts, it->algorithm, it->name);
		if (rc < 0)
			return rc;
		*chosen = (uint8_t)(1 + (rc ? TT_CHOSE_NIC : 0));
	} else if (!*chosen) {
		rc = tt_plan_candidates(shape, &facts, list, &best);
		if (rc < 0)
			return rc;
		*chosen = (uint8_t)(1 + list[best].number + (list[best].nic_class ? TT_CHOSE_NIC : 0));
	}
	if (!named)
		tt_candidate_number(shape->collective, (*chosen & ~TT_CHOSE_NIC) - 1, it);
	it->nic_class = *chosen & TT_CHOSE_NIC;
	return 0;
}

/* An algorithm was named: only where there are two roads something is left to choose. */
static int take_named(tuttiComm_t c, const struct tt_shape *shape, size_t bytes,
		      struct tt_candidate *it)
{
	int rc = tt_plan_choose(c->algo, shape, NULL, &it->algorithm, it->name);

	it->nic_class = 0;
	return rc || c->npaths == 1 ? rc : choose(c, shape, bytes, true, it);
}

static int find_or_build(tuttiComm_t c, enum tt_collective collective, size_t bytes, int root,
			 struct tt_memo *memo)
{
	struct tt_shape shape = { .collective = collective, .nranks = c->nranks, .rank = c->rank,
				  .root = root, .topology = &c->topology };
	struct tt_candidate it;
	int rc = tt_plan_is_auto(c->algo, collective);

	if (rc > 0)
		rc = choose(c, &shape, bytes, false, &it);
	else if (!rc)
		rc = take_named(c, &shape, bytes, &it);
	if (rc)
		return rc;
	memo->road = it.nic_class && c->npaths > 1;
	for (struct tt_cached_plan *k = c->kept; k; k = k->next)
		if (k->algorithm == it.algorithm && k->root == root &&
		    !strcmp(k->plan->algorithm, it.name)) {
			memo->kept = k;
			return 0;
		}
	return build(c, it.algorithm, it.name, &shape, &memo->kept);
}

int tt_plan_cache_find(tuttiComm_t c, enum tt_collective collective, size_t bytes, int root,
		 struct tt_memo **ret_memo)
{
	struct tt_memo *m = memo_of(c, collective, bytes, root), made = {
		.bytes = bytes, .collective = (uint8_t)collective, .root = root
	};
	int rc;

	*ret_memo = m;
	if (tt_likely(m->kept && m->bytes == bytes && m->collective == collective &&
		      m->root == root))
		return 0;
	rc = find_or_build(c, collective, bytes, root, &made);
	if (!rc)
		*m = made;
	return rc;
}

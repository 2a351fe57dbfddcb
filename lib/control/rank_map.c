/*
 * rank_map.c - the peers of the ranks of a split or a shrink, and back
 *
 * Called by control.c and control_split.c, and by shrink.
 */
#include <stdlib.h>

#include "control/rank_map.h"

static bool make_bits(struct tt_rank_map *m, const int *peer_of)
{
	m->in_order = true;
	if (!tt_counted_bits_make(&m->in, m->npeers))
		return false;
	for (int r = 0; r < m->n; r++)
		tt_counted_bits_add(&m->in, peer_of[r]);
	tt_counted_bits_count(&m->in);
	return true;
}

static bool make_arrays(struct tt_rank_map *m, const int *peer_of)
{
	m->peer_of = malloc((size_t)m->n * sizeof(*m->peer_of));
	m->rank_of = malloc((size_t)m->npeers * sizeof(*m->rank_of));
	if (!m->peer_of || !m->rank_of)
		return false;
	for (int p = 0; p < m->npeers; p++)
		m->rank_of[p] = -1;
	for (int r = 0; r < m->n; r++) {
		m->peer_of[r] = peer_of[r];
		m->rank_of[peer_of[r]] = r;
	}
	return true;
}

bool tt_rank_map_make(struct tt_rank_map *m, const int *peer_of, int n, int npeers)
{
	bool increases = true;

	*m = (struct tt_rank_map){ .n = n, .npeers = npeers };
	for (int r = 1; r < n; r++)
		increases &= peer_of[r] > peer_of[r - 1];
	return increases ? make_bits(m, peer_of) : make_arrays(m, peer_of);
}

void tt_rank_map_take(struct tt_rank_map *m, struct tt_counted_bits *in)
{
	*m = (struct tt_rank_map){
		.n = tt_counted_bits_before(in, in->n), .npeers = in->n, .in_order = true, .in = *in
	};
	*in = (struct tt_counted_bits){ 0 };
}

/* Both in order: members follow each other as their peers do, in each run of these. */
static bool compose_bits(struct tt_rank_map *m, const struct tt_counted_bits *members,
			 const struct tt_counted_bits *outer)
{
	if (!tt_counted_bits_make(&m->in, m->npeers))
		return false;
	for (int rank = 0, peer = 0, end;
	     (peer = tt_counted_bits_next(outer, peer, true)) < outer->n;
	     rank += end - peer, peer = end) {
		end = tt_counted_bits_next(outer, peer, false);
		tt_counted_bits_add_range(&m->in, peer, members, rank, rank + end - peer);
	}
	tt_counted_bits_count(&m->in);
	return true;
}

bool tt_rank_map_compose(struct tt_rank_map *m, const struct tt_rank_map *members,
			 const struct tt_rank_map *outer, int npeers)
{
	bool in_order = members->in_order && (outer ? outer->in_order : members->npeers == npeers),
	     made;
	int *peer_of;

	*m = (struct tt_rank_map){ .n = members->n, .npeers = npeers, .in_order = in_order };
	if (in_order)
		return outer ? compose_bits(m, &members->in, &outer->in)
			     : tt_counted_bits_duplicate(&m->in, &members->in);
	peer_of = malloc((size_t)members->n * sizeof(*peer_of));
	for (int r = 0; peer_of && r < members->n; r++) {
		int rank = tt_rank_map_peer(members, r);

		peer_of[r] = outer ? tt_rank_map_peer(outer, rank) : rank;
	}
	made = peer_of && tt_rank_map_make(m, peer_of, members->n, npeers);
	free(peer_of);
	return made;
}

void tt_rank_map_free(struct tt_rank_map *m)
{
	tt_counted_bits_free(&m->in);
	free(m->peer_of);
	free(m->rank_of);
}

int tt_rank_map_rank(const struct tt_rank_map *m, int peer)
{
	if (!m->in_order)
		return m->rank_of[peer];
	return tt_counted_bits_has(&m->in, peer) ? tt_counted_bits_before(&m->in, peer) : -1;
}

int tt_rank_map_peer(const struct tt_rank_map *m, int rank)
{
	return m->in_order ? tt_counted_bits_find(&m->in, rank) : m->peer_of[rank];
}

size_t tt_rank_map_memory(const struct tt_rank_map *m)
{
	if (!m->in_order)
		return ((size_t)m->n + (size_t)m->npeers) * sizeof(int);
	return tt_counted_bits_memory(&m->in);
}

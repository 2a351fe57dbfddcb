/*
 * rank_map.c - the peers of the ranks of a split or a shrink, and back
 *
 * Called by control.c.
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

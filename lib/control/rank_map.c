/*
 * rank_map.c - the peers of the ranks of a split or a shrink, and back
 *
 * Called by control.c. With the bits: count those before a peer, or find the one with a given count before it
 * (rank and select, Jacobson 1989), in words of 64 and groups of eight words.
 */
#include <stdlib.h>

#include "control/rank_map.h"

#define WORD 64
#define WORDS 8 /* of a group */
#define GROUP (WORD * WORDS)

static int ngroups(const struct tt_rank_map *m)
{
	return m->npeers / GROUP + 1;
}

static bool make_bits(struct tt_rank_map *m, const int *peer_of)
{
	int n = 0;

	m->in = calloc((size_t)ngroups(m) * WORDS, sizeof(*m->in));
	m->before = malloc((size_t)ngroups(m) * sizeof(*m->before));
	if (!m->in || !m->before)
		return false;
	for (int r = 0; r < m->n; r++)
		m->in[peer_of[r] / WORD] |= 1ull << peer_of[r] % WORD;
	for (int g = 0; g < ngroups(m); g++) {
		m->before[g] = n;
		for (int i = g * WORDS; i < (g + 1) * WORDS; i++)
			n += __builtin_popcountll(m->in[i]);
	}
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
	free(m->in);
	free(m->before);
	free(m->peer_of);
	free(m->rank_of);
}

int tt_rank_map_rank(const struct tt_rank_map *m, int peer)
{
	int word = peer / WORD, rank;

	if (!m->in)
		return m->rank_of[peer];
	if (!(m->in[word] >> peer % WORD & 1))
		return -1;
	rank = m->before[peer / GROUP];
	for (int i = peer / GROUP * WORDS; i < word; i++)
		rank += __builtin_popcountll(m->in[i]);
	return rank + __builtin_popcountll(m->in[word] & ((1ull << peer % WORD) - 1));
}

int tt_rank_map_peer(const struct tt_rank_map *m, int rank)
{
	int low = 0, high = ngroups(m), word, left;
	uint64_t bits;

	if (!m->in)
		return m->peer_of[rank];
	while (high - low > 1) {
		int middle = (low + high) / 2;

		*(m->before[middle] <= rank ? &low : &high) = middle;
	}
	left = rank - m->before[low];
	for (word = low * WORDS; left >= __builtin_popcountll(m->in[word]); word++)
		left -= __builtin_popcountll(m->in[word]);
	for (bits = m->in[word]; left; left--)
		bits &= bits - 1;
	return word * WORD + __builtin_ctzll(bits);
}

size_t tt_rank_map_memory(const struct tt_rank_map *m)
{
	if (!m->in)
		return ((size_t)m->n + (size_t)m->npeers) * sizeof(int);
	return (size_t)ngroups(m) * (WORDS * sizeof(*m->in) + sizeof(*m->before));
}

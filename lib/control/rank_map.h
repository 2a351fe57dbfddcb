/*
 * rank_map.h - the peers of the ranks of a split or a shrink, and back
 *
 * A shrink keeps the order of the ranks, and most splits do: then the map is counted bits, of which groups of equal
 * ones take no words. The peers are those of an endpoint, or the ranks of the parent.
 */
#ifndef TT_RANK_MAP_H
#define TT_RANK_MAP_H

#include "base/counted_bits.h"

struct tt_rank_map {
	int n, npeers;
	bool in_order; /* peers increase: in has the members */
	struct tt_counted_bits in;
	int *peer_of, *rank_of; /* any other order: [n]; [npeers] -1: no member */
};

/* false: no memory; free it in any case */
bool tt_rank_map_make(struct tt_rank_map *m, const int *peer_of, int n, int npeers);
/* In order: takes counted bits, one for each peer. */
void tt_rank_map_take(struct tt_rank_map *m, struct tt_counted_bits *in);
/* The map of members, which are ranks of a communicator, to the peers of that one. outer: its map; NULL: its rank r is
 * peer r. false: no memory; free it in any case */
bool tt_rank_map_compose(struct tt_rank_map *m, const struct tt_rank_map *members,
			 const struct tt_rank_map *outer, int npeers);
void tt_rank_map_free(struct tt_rank_map *m);
int tt_rank_map_peer(const struct tt_rank_map *m, int rank);
/* -1: no member */
int tt_rank_map_rank(const struct tt_rank_map *m, int peer);
size_t tt_rank_map_memory(const struct tt_rank_map *m);

#endif

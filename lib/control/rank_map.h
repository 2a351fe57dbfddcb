/*
 * rank_map.h - the peers of the ranks of a split or a shrink, and back
 *
 * A shrink keeps the order of the ranks, and most splits do: then the map is a bit for each peer.
 */
#ifndef TT_RANK_MAP_H
#define TT_RANK_MAP_H

#include "base/counted_bits.h"

struct tt_rank_map {
	int n, npeers;
	bool in_order; /* peers increase: a bit for each that is a member */
	struct tt_counted_bits in;
	int *peer_of, *rank_of; /* any other order: [n]; [npeers] -1: no member */
};

/* false: no memory; free it in any case */
bool tt_rank_map_make(struct tt_rank_map *m, const int *peer_of, int n, int npeers);
void tt_rank_map_free(struct tt_rank_map *m);
int tt_rank_map_peer(const struct tt_rank_map *m, int rank);
/* -1: no member */
int tt_rank_map_rank(const struct tt_rank_map *m, int peer);
size_t tt_rank_map_memory(const struct tt_rank_map *m);

#endif

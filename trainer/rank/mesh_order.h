/*
 * mesh_order.h - the ranks of a mesh in an order that puts those that communicate the most next to each other
 *
 * A mesh numbers its ranks tensor group by tensor group, then stage by stage (mesh.h). Launchers may number ranks in
 * turn over hosts. Here they are numbered host by host, and on a host by the first processor that they may use, so that
 * tensor groups and then neighboring stages share a host, and a NUMA node or cache, as far as the hosts' sizes allow.
 * Rank 0 stays rank 0: hosts are in the order of their lowest ranks, and rank 0 is the first on its own.
 * Called by mesh.c and metrics.c.
 */
#ifndef TRAIN_MESH_ORDER_H
#define TRAIN_MESH_ORDER_H

#include "trainer/rank/rank.h"

/* Renumbers the ranks of t->world, which is replaced if the order changes; sets t->rank and t->world_rank. Call by all ranks.
 * Returns 0 | TRAIN_FAILED. */
int train_place_ranks(struct train_rank *t);

#endif

/*
 * cluster.h - ranks that no launcher starts, described by roles (--cluster, --task)
 *
 *	--cluster "worker=10.0.0.1:29500,10.0.0.2;ps=10.0.0.3" --task ps:0
 *
 * as TensorFlow's TF_CONFIG does. Workers are the first ranks, servers the last ones; the first worker's address is where
 * the others join. Called by job.c before ranks join.
 */
#ifndef TRAIN_CLUSTER_H
#define TRAIN_CLUSTER_H

#include "trainer/rank/config.h"

#include <stdbool.h>

/* Sets TUTTI_RANK, TUTTI_NRANKS and TUTTI_ROOT, and config->servers to the number of servers. serves: the strategy has
 * servers. Does nothing without the options. Returns 0 | TRAIN_USAGE. */
int train_cluster_apply(struct train_config *config, bool serves);

#endif

/*
 * mesh.h - the layout of the ranks: data x pipeline (--mesh)
 *
 * Rank r of the world is on stage r % stages of replica r / stages, so that stages that send to
 * each other are neighbors. t->comm contains the ranks of one stage, t->rank is the number of the
 * replica: strategies see the data axis only. mesh.comm contains the stages of one replica.
 * Called by trainer.c, pipeline.c and reports.
 */
#ifndef TRAIN_MESH_H
#define TRAIN_MESH_H

#include "trainer/rank/config.h"
#include "tutti.h"

#include <stdbool.h>

struct train_rank;

struct train_mesh {
	int data, stages; /* replicas, stages of each; 1 stage: no pipeline */
	int stage;        /* of this rank */
	tuttiComm_t comm; /* the stages of this replica; NULL without --mesh */
};

/* Parses --mesh and checks it with the other options. Returns 0 | TRAIN_USAGE. */
int train_mesh_parse(const struct train_config *c, struct train_mesh *ret_mesh);

/* Splits t->world into t->comm and t->mesh.comm. Returns 0 | TRAIN_USAGE (another number of ranks) |
 * TRAIN_FAILED. */
int train_mesh_split(struct train_rank *t);

/* Rank 0 of the first stage, which reports. */
bool train_is_lead(const struct train_rank *t);

/* Arrays of the size of the parameters, in host memory; call on all stages of a replica. gather:
 * whole[whole_parameters] on stage 0 = host_own of all stages. scatter: host_own = the stage's part
 * of stage 0's whole. Return 0 | TRAIN_FAILED. */
int train_mesh_gather(struct train_rank *t, float *host_own, float *whole);
int train_mesh_scatter(struct train_rank *t, float *whole, float *host_own);

#endif

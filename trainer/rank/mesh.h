/*
 * mesh.h - the layout of the ranks: data x pipeline x tensor (--mesh)
 *
 * The ranks of a tensor group, which communicate the most, are neighbors in the world, then the
 * stages of a replica; mesh_order.h numbers the ranks by host: rank r is tensor rank r % tensor of stage r / tensor % stages of replica r /
 * tensor / stages. t->comm contains the ranks with the same parameters, t->rank is the number of the
 * replica: strategies see the data axis only. mesh.comm contains the stages of a replica, of one
 * tensor rank; tensor_comm the tensor group. Called by trainer.c, pipeline.c and reports.
 */
#ifndef TRAIN_MESH_H
#define TRAIN_MESH_H

#include "trainer/rank/config.h"
#include "tutti.h"

#include <stdbool.h>
#include <stddef.h>

struct train_rank;

/* Groups and pairs of a mesh that are within a host. */
struct train_placement {
	int hosts;
	int groups, local_groups; /* tensor groups */
	int pairs, local_pairs;   /* neighboring stages of a replica and tensor rank */
	bool renumbered;          /* the launcher's numbers were others */
};

struct train_mesh {
	struct train_placement placement;
	int data, stages;        /* replicas, stages of each; 1 stage: no pipeline */
	int stage;               /* of this rank */
	int tensor, tensor_rank; /* ranks that divide the products of a stage; this one */
	tuttiComm_t comm;        /* the stages of this replica; NULL without --mesh */
	tuttiComm_t tensor_comm; /* NULL: one tensor rank */
	float *parts;            /* tensor_sum.c: [2][parts_floats] */
	size_t parts_floats;
};

/* Parses --mesh and checks it with the other options. Returns 0 | TRAIN_USAGE. */
int train_mesh_parse(const struct train_config *c, struct train_mesh *ret_mesh);

/* Splits t->world into t->comm and the communicators of t->mesh. Returns 0 | TRAIN_USAGE (another number of ranks) |
 * TRAIN_FAILED. */
int train_mesh_split(struct train_rank *t);

void train_mesh_close(struct train_rank *t);

/* The first rank of the world, which reports. */
bool train_is_lead(const struct train_rank *t);

/* Arrays of the size of the parameters, in host memory; call on all ranks of a replica. gather:
 * whole[whole_parameters] on its first rank = host_own of all ranks. scatter: host_own = the rank's
 * part of the first one's whole. Return 0 | TRAIN_FAILED. */
int train_mesh_gather(struct train_rank *t, float *host_own, float *whole);
int train_mesh_scatter(struct train_rank *t, float *whole, float *host_own);

#endif

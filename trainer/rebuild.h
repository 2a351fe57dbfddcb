/*
 * rebuild.h - a mesh of the ranks that a death leaves (--mesh with --on-failure shrink)
 *
 *	abort the communicators of the mesh, so that no rank waits for another
 *	shrink the world to the survivors
 *	if a replica is whole, and all of its ranks have done the same step:
 *		it writes a checkpoint of that step, else that of --save-every stays
 *	new mesh = as many replicas as the survivors suffice for, else one of fewer stages
 *	resume from the checkpoint; ranks that the mesh does not need leave
 *
 * Called by job.c; calls survive.c, mesh.c and checkpoint.c.
 */
#ifndef TRAIN_REBUILD_H
#define TRAIN_REBUILD_H

#include "trainer/rank/rank.h"

/* train_rebuild - after a failure of train_run
 *
 *   Call       by every rank; t is closed afterwards
 *   config     of t; its mesh and checkpoint become those of the next training
 *   ret_world  the ranks of the new mesh; NULL: this rank leaves
 *   Returns    0 | TRAIN_FAILED: no rank died, or no mesh can be rebuilt */
int train_rebuild(struct train_rank *t, struct train_config *config, tuttiComm_t *ret_world);

#endif

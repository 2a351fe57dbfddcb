/*
 * grow.h - ranks that join a running training at a checkpoint (--grow, --join)
 *
 *	further rank				rank 0 of the training, after a checkpoint
 *	makes and locks DIR/NAME.waits
 *						counts the files that are locked
 *						writes DIR/NAME.joins for each rank that the mesh can use
 *	reads it, removes both files
 *
 * The old ranks, in their order, and then the new ones join a communicator, whose training resumes the
 * checkpoint. A lock ends with its process, so a rank that died does not count. If the communicator
 * cannot be made, the training goes on with the old ranks. Rank 0 holds a lock on DIR/training: further
 * ranks do not wait for one that was killed. The folder belongs to this user, and no other one can write
 * it; links in it are not followed. Called by train.c and job.c.
 */
#ifndef TRAIN_GROW_H
#define TRAIN_GROW_H

#include "trainer/rank/rank.h"

/* A further rank's place. */
struct train_invitation {
	tuttiUniqueId id;
	int32_t rank, ranks; /* ranks 0: the training has ended */
	char mesh[64];       /* --mesh of all ranks; "": none */
};

/* Checks the options. Returns 0 | TRAIN_USAGE. */
int train_grow_check(const struct train_rank *t);

/* Rank 0, before the first step: the lock of the training. Returns 0 | TRAIN_USAGE (not a folder of this user's, or that
 * of another training). */
int train_grow_begin(const struct train_rank *t);

/* After a checkpoint: takes the ranks that wait, and sets t->grown and t->grown_mesh if there are any. Call by all
 * ranks of the world. Returns 0 | TRAIN_FAILED. */
int train_grow(struct train_rank *t);

/* Rank 0, at the end: lets the ranks that still wait end. */
void train_grow_dismiss(const struct train_rank *t);

/* A further rank: waits for its invitation. Returns 0 | TRAIN_USAGE (no such directory) | TRAIN_FAILED (the training has
 * ended, or was killed, or a signal came). */
int train_grow_wait(const char *directory, struct train_invitation *ret_invitation);

/* The communicator of the training; config: of its ranks. Returns 0 | TRAIN_FAILED. */
int train_grow_join(const struct train_config *config, const struct train_invitation *invitation,
		    tuttiComm_t *ret_comm);

#endif

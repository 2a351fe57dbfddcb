/*
 * overlap_leaves.h - sums over leaves that are made behind the backward pass, bucket after bucket
 *
 * A host stream runs calls of the library; sums over leaves are such calls and additions between
 * them, so they have a thread of their own. All ranks cut the array at the same places and the
 * thread goes from its end down, so the calls of all ranks stand in the same order. While a step is
 * under way nobody else uses t->comm. Where wire is a device's memory, all of whose work comes from
 * one thread, wait makes the sums. Called by strategy_mirrored.c; calls gradient_sum.c.
 */
#ifndef TT_TRAINER_BEHIND_H
#define TT_TRAINER_BEHIND_H

#include "trainer/trainer.h"

struct tt_behind;

/* bucket: floats, about. Returns 0 | TT_TRAIN_FAILED. */
int tt_behind_open(struct tt_trainer *t, size_t bucket, struct tt_behind **ret_behind);
void tt_behind_close(struct tt_behind *b);

/* A step begins; t->comm may be another one than in the step before. Returns 0 |
 * TT_TRAIN_FAILED. */
int tt_behind_begin(struct tt_behind *b);

/* As tt_ready.fn: gradients from here on are final in all nodes of wire. */
int tt_behind_tell(void *behind, size_t from);

/* The pass has ended: waits until the first node of wire is the total, which is
 * exposed communication. Returns 0 | TT_TRAIN_FAILED. */
int tt_behind_wait(struct tt_behind *b);

#endif

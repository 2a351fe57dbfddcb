/*
 * overlap_leaves.h - sums over leaves that are made behind the backward pass, bucket after bucket
 *
 * A host stream runs calls of the library; sums over leaves are such calls and additions between
 * them, so they have a thread of their own. All ranks cut the array at the same places and the
 * thread goes from its end down, so the calls of all ranks stand in the same order. While a step is
 * under way nobody else uses t->comm. Where wire is a device's memory, all of whose work comes from
 * one thread, wait makes the sums. Called by strategy_mirrored.c; calls gradient_sum.c.
 */
#ifndef TRAIN_BEHIND_H
#define TRAIN_BEHIND_H

#include "trainer/trainer.h"

struct train_overlap_leaves;

/* bucket: floats, about. Returns 0 | TRAIN_FAILED. */
int train_overlap_leaves_open(struct train_rank *t, size_t bucket, struct train_overlap_leaves **ret_behind);
void train_overlap_leaves_close(struct train_overlap_leaves *b);

/* A step begins; t->comm may be another one than in the step before. Returns 0 |
 * TRAIN_FAILED. */
int train_overlap_leaves_begin(struct train_overlap_leaves *b);

/* As train_ready.fn: gradients from here on are final in all nodes of wire. */
int train_overlap_leaves_notify(void *behind, size_t from);

/* The pass has ended: waits until the first node of wire is the total, which is
 * exposed communication. Returns 0 | TRAIN_FAILED. */
int train_overlap_leaves_wait(struct train_overlap_leaves *b);

#endif

/*
 * bucket_sums.h - sums per gradient bucket, overlapped with the backward pass
 *
 * A thread sums each bucket that is final, by an allreduce or over leaves, and notes the time: a
 * host stream runs calls of the library only, sums over leaves have additions between them, and a
 * stream does not say when its calls ran. All ranks cut the array into the same buckets
 * and the thread processes them from the end of the array down, so the calls of all ranks are in
 * the same order. During a step no other thread uses t->comm. If comm_buffer is device memory,
 * whose operations must come from one thread, train_buckets_wait sums over leaves instead.
 * The rows of a sparse table are the last bucket. Called by strategy_mirrored.c; calls gradient_sum.c and
 * sparse_rows.c.
 */
#ifndef TRAIN_BUCKET_SUMS_H
#define TRAIN_BUCKET_SUMS_H

#include "trainer/rank/rank.h"

struct train_buckets;

/* bucket: approximate size in floats. Returns 0 | TRAIN_FAILED; close after a failure too. */
int train_buckets_open(struct train_rank *t, size_t bucket, struct train_buckets **ret_buckets);
void train_buckets_close(struct train_buckets *b);

/* Begins a step; t->comm may have changed since the last step. Returns 0 | TRAIN_FAILED. */
int train_buckets_begin(struct train_buckets *b);

/* train_ready.fn: the gradients from `from` on are final in all nodes of comm_buffer. */
int train_buckets_ready(void *buckets, size_t from);

/* After the backward pass: waits until the first node of comm_buffer is the sum over all
 * workers, and counts the wait as exposed communication. Returns 0 | TRAIN_FAILED. */
int train_buckets_wait(struct train_buckets *b);

#endif

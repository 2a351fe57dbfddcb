/*
 * tensor_axis.h - products that the ranks of a tensor group divide (struct train_tensor_axis)
 *
 * A dimension is cut into `shards` parts of almost equal size, and each rank has the same number of
 * consecutive ones. Called by layers, cut.c and mesh.c.
 *
 * Source: Shoeybi et al. 2019, Megatron-LM: training multi-billion parameter language models using
 * model parallelism.
 */
#ifndef TRAIN_TENSOR_AXIS_H
#define TRAIN_TENSOR_AXIS_H

#include "trainer/model/model.h"

/* The number of shards of a rank. */
size_t train_shards_each(const struct train_tensor_axis *a);

/* The part of a dimension of `whole` that a rank has. */
struct train_node train_rank_range(const struct train_tensor_axis *a, size_t whole, size_t rank);
/* The size of this rank's part. */
size_t train_shards_of(const struct train_tensor_axis *a, size_t whole);
/* Shard number `shard` of this rank, within its part. */
struct train_node train_shard_range(const struct train_tensor_axis *a, size_t whole, size_t shard);

/* A tensor of all ranks: its columns, its size; the index of element i of this rank. */
size_t train_tensor_whole_columns(const struct train_tensor *t);
size_t train_tensor_whole_count(const struct train_tensor *t);
size_t train_tensor_whole_index(const struct train_tensor *t, const struct train_tensor_axis *a,
				size_t i);

/* Copies a rank's tensors of a stage between an array of its own and one of all ranks. */
void train_tensor_axis_copy(const struct train_model *m, size_t rank, float *own, float *whole,
			    bool to_own);
/* The size of a rank's array. */
size_t train_tensor_axis_parameters(const struct train_model *m, size_t rank);

/* Checks that every rank gets a part of what is cut. Returns 0 | TRAIN_USAGE. */
int train_tensor_axis_check(const struct train_model *m);

/* data = the sum over all ranks; a failure sets m->failed. */
void train_tensor_axis_sum(struct train_model *m, float *data, size_t count);

#endif

/*
 * pipeline.h - one stage of a pipeline: runs its list of a training schedule
 *
 * The steps of schedules/schedule.h become calls: computations of chunks (model.h), and sends and
 * receives between stages, which run beside computations. The gradients of micro-batches are folded
 * in the order of --canonical, so that their sum is the expression of one device. Called by
 * gradient.c and trainer.c.
 */
#ifndef TRAIN_PIPELINE_H
#define TRAIN_PIPELINE_H

#include "trainer/rank/rank.h"
#include "trainer/schedules/schedule.h"

/* Builds and proves --schedule, and makes the memory of its passes. Call when the model and the
 * rank's part of the leaves are known. Returns 0 | TRAIN_USAGE | TRAIN_FAILED. */
int train_pipeline_open(struct train_rank *t);
void train_pipeline_close(struct train_rank *t);

/* Ends the messages between stages, also those under way; the stages keep their parameters. */
void train_pipeline_abort(struct train_rank *t);

/* The chunks of the model for --mesh and --schedule; 0: no pipeline. Returns 0 | TRAIN_USAGE. */
int train_pipeline_chunks(const struct train_rank *t, int *ret_chunks);

/* As train_gradient. */
int train_pipeline_gradient(struct train_rank *t, const struct train_batch *batch,
			    const struct train_ready *ready);

/* Logits of rows of t->x, which the first stage has; NULL on the other stages but the last. At most
 * train_pipeline_rows at once. Returns 0 | TRAIN_FAILED. */
int train_pipeline_forward(struct train_rank *t, size_t rows, float **ret_logits);
size_t train_pipeline_rows(const struct train_rank *t);

/* Prints members of the result's JSON, each with a comma behind it. */
void train_pipeline_report(const struct train_rank *t);

#endif

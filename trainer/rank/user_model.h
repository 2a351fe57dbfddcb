/*
 * user_model.h - a model of a program, by its gradient (tutti_train.h)
 *
 * The trainer sees one layer, whose gradient comes from the program, and samples without pixels. Called by job.c,
 * trainer.c and gradient.c.
 */
#ifndef TRAIN_USER_MODEL_H
#define TRAIN_USER_MODEL_H

#include "trainer/rank/rank.h"

/* Checks the program's model and the options, and sets config->user. Returns 0 | TRAIN_USAGE. */
int train_user_check(struct train_config *config, const struct tuttiTrainModel *user);

/* The numbers of samples. Returns 0. */
int train_user_data(const struct train_config *config, struct train_data *ret_data);

/* Opens t->model for passes of at most max_rows samples. Returns 0 | TRAIN_FAILED. */
int train_user_open(struct train_rank *t, size_t max_rows);
/* As train_model_init. */
void train_user_init(const struct train_rank *t, float *host_parameters);

/* As train_gradient and train_evaluate. */
int train_user_gradient(struct train_rank *t, const struct train_batch *batch,
			const struct train_ready *ready);
int train_user_evaluate(struct train_rank *t, double *ret_accuracy, double *ret_loss);

/* Hands out the trained parameters, if the program has asked for them. */
void train_user_trained(struct train_rank *t);

#endif

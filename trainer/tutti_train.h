/*
 * tutti_train.h - train a model of your own by any strategy of tutti-train: libtutti-train.so
 *
 * A program describes its model by the gradient of a loss over some samples, and passes its command line:
 * the options of tutti-train(1), such as --np 4 --strategy ps-async, choose how it is trained. man
 * tutti_train has the details, examples/train_sine.c an example.
 */
#ifndef TUTTI_TRAIN_H
#define TUTTI_TRAIN_H

#include "tutti.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A tensor of the model's parameters: rows x columns floats, row after row. */
typedef struct tuttiTrainTensor {
	const char *name; /* for --export: without quotes, at most 60 bytes */
	size_t rows, columns;
} tuttiTrainTensor_t;

/* A model and its samples, which the program has and the trainer only numbers: 0..samples-1 are trained,
 * samples..samples+tests-1 measured. parameters and gradients: [floats of all tensors], in host memory.
 * Each rank calls the functions from one thread. */
typedef struct tuttiTrainModel {
	size_t size;      /* sizeof(tuttiTrainModel_t) */
	const char *name; /* for results: without quotes, at most 60 bytes */
	const tuttiTrainTensor_t *tensors;
	size_t ntensors;
	size_t samples;
	size_t tests; /* 0: the trained samples are measured */
	void *arg;    /* of the functions */

	/* Sets the initial parameters, a function of the seed. NULL: uniform in +-sqrt(6 / rows), as He et al. 2015;
	 * a tensor of one row is a bias, and 0. */
	void (*init)(void *arg, uint64_t seed, float *parameters);

	/* Returns the sum of the losses of `count` samples, which may be 0, and adds the gradient of this sum to
	 * gradients, unless NULL. The sums of a rank have bits of their own if and only if those of the
	 * function have: --canonical needs a function of its arguments. */
	double (*loss)(void *arg, const float *parameters, const uint32_t *samples, size_t count,
		       float *gradients);

	/* Returns the number of samples that are predicted correctly. NULL: the accuracy is 0. */
	size_t (*correct)(void *arg, const float *parameters, const uint32_t *samples,
			  size_t count);

	/* Receives the trained parameters, in rank 0's process: with --np that is a child of the caller's. NULL: use
	 * --save or --export. */
	void (*trained)(void *arg, const float *parameters);
} tuttiTrainModel_t;

/* tuttiTrain - train a model as the command line says
 *
 *   argc, argv   of main; --model and --data are the program's, and not accepted
 *   model        the caller keeps it until return
 *   Call         once, from main, before the process has threads or communicators: with --np it forks
 *   Returns      the exit status of tutti-train: 0 success, 1 failure, 2 bad usage; an error is printed.
 *                A training that a signal ends does not return
 *   Thread       the main thread     Blocks   until the training ends */
TUTTI_API int tuttiTrain(int argc, char **argv, const tuttiTrainModel_t *model);

#ifdef __cplusplus
}
#endif

#endif

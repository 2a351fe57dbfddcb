/*
 * compress.h - gradients that are sent in fewer bytes (--compress), with error feedback
 *
 *	v = gradients + error			on each rank; topk: velocity + error
 *	v' = what the rank's message says of v
 *	error = v - v'				is sent by a later step
 *	gradients = the sum of v' over all ranks
 *
 * A compressor is one file compress_NAME.c with a struct train_compressor_ops at its end, and one row
 * of the table in compress.c. Called by strategy_compressed.c; calls the library.
 *
 * Sources: Seide et al. 2014, 1-bit stochastic gradient descent; Karimireddy et al. 2019, Error
 * feedback fixes SignSGD and other gradient compression schemes.
 */
#ifndef TRAIN_COMPRESS_H
#define TRAIN_COMPRESS_H

#include "trainer/rank/rank.h"

struct train_compressor {
	const struct train_compressor_ops *ops;
	double number; /* behind the colon of --compress */
	struct train_rank *t;
	float *error;    /* [parameters] */
	float *velocity; /* [parameters], of this rank; NULL: the optimizer has the momentum */
	uint64_t message_bytes; /* of a rank's gradients in a step */
	void *state;            /* the compressor's own */
};

struct train_compressor_ops {
	const char *name, *syntax, *help;
	double least, most, fallback; /* of the number; all 0: it takes none */
	bool whole;                   /* the number is an integer */
	bool own_momentum; /* each rank has a velocity of its own, in place of the optimizer's */

	/* Sets c->message_bytes and c->state. Returns 0 | TRAIN_FAILED; close it in any case. */
	int (*open)(struct train_compressor *c);
	void (*close)(struct train_compressor *c);

	/* v[parameters] = the sum of v' of all ranks; c->error = v - v'. The sums have the same bits
	 * on all ranks. Returns 0 | TRAIN_FAILED. */
	int (*sum)(struct train_compressor *c, float *v);
};

extern const struct train_compressor_ops train_compress_fp16, train_compress_bf16,
	train_compress_int8, train_compress_topk, train_compress_powersgd;
extern const struct train_compressor_ops *const train_compressors[]; /* ends with NULL */

/* Checks --compress. Returns 0 | TRAIN_USAGE. */
int train_compress_check(const struct train_config *config);

/* The compressor of --compress. Returns 0 | TRAIN_USAGE | TRAIN_FAILED (no memory); close it in any case. */
int train_compressor_open(struct train_compressor *c, struct train_rank *t);
void train_compressor_close(struct train_compressor *c);

/* Adds the error to v, or to the velocity, then sums. Returns 0 | TRAIN_FAILED. */
int train_compressor_sum(struct train_compressor *c, float *v);

#endif

/*
 * nccl_train.h - a small model that is trained over libnccl.so.2 in PyTorch's ways: shared by the files of nccl_train
 *
 * nccl_train.c has the ways and compares; nccl_train_model.c computes a step; nccl_train_calls.c has PyTorch's calls of NCCL,
 * its streams and its events.
 */
#ifndef NCCL_TRAIN_H
#define NCCL_TRAIN_H

#include "tests/nccl/nccl_client.h"
#include "trainer/device/device_cuda.h"

enum { LAYERS = 3, PIXELS = 11, CLASSES = 5, ROWS = 16, STEPS = 4, PARTS = 2 };

struct train_way {
	const char *name, *claim;
	bool sharded;     /* FSDP2, else DDP */
	int data, tensor; /* ranks of a column and of a row of the mesh */
};

/* A layer y = x W + b, or its tensor part. Parameters and gradients: W[in][out], b[out] */
struct layer {
	size_t in, out;
	float *parameters, *gradients, *y, *dy;

	/* summed gradients and the state of SGD, of all parameters or, with FSDP2, of a shard */
	float *sum, *velocity;
	size_t at; /* DDP: offset in the buckets */

	/* FSDP2: a rank's parameters, and those of all ranks; rows of W and b are padded */
	size_t shard_w, shard;
	float *own, *gathered, *scattered;
	enum { ABSENT, ON_THE_WAY, HERE } state;
};

/* A training by a rank; without communicators, by one device that computes the parts of all ranks one after the other. */
struct training {
	struct client_rank *client;
	const struct train_way *way;
	ncclComm_t data, tensor;
	int rank;         /* in data */
	int shares;       /* of the samples, that this device computes */
	int parts, first; /* of a layer, on this device */
	size_t rows;      /* of a share */

	struct train_device device;
	const struct tt_cuda *cu;
	cudaStream_t compute, reduce, gather_in, gather, partial;
	struct layer layer[PARTS][LAYERS];
	char *memory;
	size_t used;
	float *x, *buckets, *losses;
	float *host_parameters[PARTS][LAYERS], host_losses[STEPS];
};

size_t layer_count(const struct layer *l);
float *training_alloc(struct training *t, size_t floats);

/* nccl_train_model.c: all return 0 on success */
int training_open(struct training *t);
int training_run(struct training *t);
void training_close(struct training *t);

/* nccl_train_calls.c */
int calls_open(struct training *t); /* after the parameters of rank 0 are set */
int parameters_prefetch(struct training *t, int layer);
int parameters_fetch(struct training *t, int layer);
int parameters_release(struct training *t, int layer);
int gradients_ready(struct training *t, int layer, int share);
int gradients_wait(struct training *t);
int parameters_changed(struct training *t);
/* Sums y (dy) of a layer over the tensor parts; start and wait: beside computing. */
int parts_sum(struct training *t, int layer);
int parts_sum_back_start(struct training *t, int layer);
int parts_sum_back_wait(struct training *t);
int losses_sum(struct training *t, int step);

#endif

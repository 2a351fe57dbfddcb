/*
 * config.h - the options of a training, as parsed by train_config.c
 */
#ifndef TRAIN_RANK_CONFIG_H
#define TRAIN_RANK_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

enum { TRAIN_FAILURE_STOP, TRAIN_FAILURE_SHRINK };
enum { TRAIN_LR_CONSTANT, TRAIN_LR_STEP, TRAIN_LR_LINEAR, TRAIN_LR_COSINE };
enum { TRAIN_SGD, TRAIN_ADAMW, TRAIN_RMSPROP };
enum {
	TRAIN_AVERAGE_ALLREDUCE,
	TRAIN_AVERAGE_SUPERVISOR,
	TRAIN_AVERAGE_EASGD,
	TRAIN_AVERAGE_DILOCO
};

struct train_config {
	const struct tuttiTrainModel *user; /* the model of a program; NULL: --model and --data */
	bool advise;                        /* measure numbers of ranks, and recommend one */
	int64_t np; /* workers to start on this host; 0: join the ranks of the environment */
	const char *cluster, *task;  /* ranks by roles, and this one's; or NULL */
	double mem_cap;              /* MiB of parameters, gradients and optimizer; 0: unlimited */
	int64_t shards;              /* of a product that tensor ranks may divide */
	const char *mesh, *schedule; /* mesh NULL: data-parallel only */
	int64_t zero;                /* ZeRO's stage: 1: the optimizer is cut over the ranks */
	int64_t micro;               /* micro-batches of a replica; 0: as many as stages */
	const char *compress;        /* NULL: gradients are sent as they are */
	bool shard_data;             /* a rank reads its own samples only */
	const char *data, *data_dir, *model, *strategy, *device, *algo, *transport;
	int64_t context; /* characters of a window of text */
	int64_t global_batch, epochs, steps, seed, bucket_kb;
	double lr, momentum;
	int optimizer; /* TRAIN_SGD ... */
	double beta1, beta2, weight_decay;
	int lr_schedule;    /* TRAIN_LR_ */
	int64_t warmup;     /* steps */
	int canonical;      /* enum train_canonical */
	int64_t leaf;       /* samples of a leaf */
	int on_failure;     /* TRAIN_FAILURE_ */
	int64_t servers;    /* parameter servers: the last ranks, after the workers */
	int64_t devices;    /* ps-strategy: ranks of a worker */
	int64_t k;          /* spare: contributions of a step; 0: nine in ten ranks */
	int64_t ssp;        /* staleness bound in steps; -1: unbounded */
	int64_t stale_drop; /* greatest accepted staleness; -1: no gradient is dropped */
	bool stale_scale;
	int64_t local_steps; /* average: H */
	int average;         /* TRAIN_AVERAGE_ */
	double alpha, outer_lr, outer_momentum;
	int64_t n_fetch, n_push;
	int64_t warm_start; /* first steps, by one worker alone */
	bool adagrad, stagger;
	const char *record, *replay;
	double sim_compute_ms, jitter;
	const char *slow, *kill;
	int64_t check_replicas, eval_every;
	const char *metrics, *jsonl, *timeline, *hashes; /* paths, or NULL */
	int64_t hash_values;     /* step whose parameters are written to hashes; 0: none */
	const char *export;      /* a file of safetensors, or NULL */
	const char *tensorboard; /* a directory, or NULL */
	const char *report;      /* a file of HTML, or NULL */
	double progress;         /* seconds between lines of progress; 0: none */
	const char *save, *resume;
	bool restarts; /* resume is the file of save, and need not exist yet */
	int64_t keep; /* checkpoints of --save-every that stay, with the best; 0: the newest alone */
	const char *grow,
		*join; /* directory of ranks that wait, for ranks of a training and for them; or NULL */
	bool evaluate; /* the checkpoint of resume, without a step */
	int64_t save_every;
};

#endif

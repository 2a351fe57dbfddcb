/*
 * shards.h - which server keeps which parameters
 *
 * A piece is a run of the parameter array that one server keeps; a server's
 * shard is its pieces, one after the other. A function of the model and the
 * number of servers, so all ranks know it. Called by ps_worker.c and ps_server.c.
 */
#ifndef TRAIN_SHARDS_H
#define TRAIN_SHARDS_H

#include "trainer/model/model.h"

struct train_shard_piece {
	size_t at, count; /* in the parameter array */
	int server;
};

struct train_shards {
	int servers;
	struct train_shard_piece *piece;
	size_t pieces;
	size_t *count; /* [servers], floats of a shard */
};

/* Equal runs of the array. */
int train_shards_of_ranges(struct train_shards *s, const struct train_model *m, int servers);

/* Variables whole, each where least is, the largest first; one that is larger than a quarter
 * of a server's fair share is cut into as many parts as there are servers. */
int train_shards_of_variables(struct train_shards *s, const struct train_model *m, int servers);
void train_shards_close(struct train_shards *s);

/* Between the array and one server's shard. */
void train_shards_pack(const struct train_shards *s, int server, const float *array, float *shard);
void train_shards_unpack(const struct train_shards *s, int server, const float *shard, float *array);

#endif

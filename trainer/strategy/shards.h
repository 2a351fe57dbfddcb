/*
 * shards.h - the placement of parameters on servers
 *
 * A piece is a range of the parameter array on one server; a server's shard is the concatenation
 * of its pieces. The placement is a function of the model and the number of servers, so every
 * rank computes it alone. Called by ps_worker.c and ps_server.c.
 */
#ifndef TRAIN_SHARDS_H
#define TRAIN_SHARDS_H

#include "trainer/model/model.h"

#include <stdint.h>

struct train_shard_piece {
	size_t at, count; /* in the parameter array */
	int server;
};

struct train_shards {
	int servers;
	struct train_shard_piece *piece;
	size_t pieces;
	size_t *count; /* [servers], floats of a shard */
	size_t *rows;  /* [servers], rows of a sparse table, with which a shard begins */
};

/* Equal ranges of the array. A row of a sparse table is not cut. Returns 0 | TRAIN_FAILED (no memory). */
int train_shards_of_ranges(struct train_shards *s, const struct train_model *m, int servers);

/* Whole variables, the largest first, each on the server with the smallest shard so far. A
 * variable larger than a quarter of a server's fair share is cut into as many parts as there are
 * servers. Returns 0 | TRAIN_FAILED (no memory). */
int train_shards_of_variables(struct train_shards *s, const struct train_model *m, int servers);
void train_shards_close(struct train_shards *s);

/* The rows of a sparse table that a server has: of row[n], ascending numbers of the table, those of the
 * server as numbers of its shard, to[n] in place or not. Returns how many. */
size_t train_shards_rows(const struct train_shards *s, int server, size_t width,
			 const uint32_t *row, size_t n, uint32_t *to);
/* The place in the array of a float of a server's shard. */
size_t train_shards_place(const struct train_shards *s, int server, size_t at);

/* Copy between the array and one server's shard. */
void train_shards_pack(const struct train_shards *s, int server, const float *array, float *shard);
void train_shards_pack_from(const struct train_shards *s, int server, size_t from,
			    const float *array, float *shard);
void train_shards_unpack(const struct train_shards *s, int server, const float *shard,
			 float *array);
/* _from: the floats of the shard from `from` on alone, which shard[0] begins with. */
void train_shards_unpack_from(const struct train_shards *s, int server, size_t from,
			      const float *shard, float *array);

#endif

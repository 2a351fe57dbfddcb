/* replicas.c - check that the parameters of all ranks are equal (replicas.h) */
#include "trainer/replicas.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t train_hash(const void *data, size_t bytes)
{
	const unsigned char *at = data;
	uint64_t hash = bytes;

	for (size_t i = 0; i < bytes; i += 4) {
		uint32_t word;

		memcpy(&word, at + i, sizeof(word));
		hash = (hash ^ word) * 0x9E3779B97F4A7C15u; /* odd factor: a bijection */
		hash ^= hash >> 32;
	}
	return hash;
}

static void flip_if_asked(const struct train_rank *t, uint64_t step, float *parameters)
{
	const char *text = getenv("TUTTI_TEST_FLIP");
	uint64_t at;
	uint32_t bits;
	int rank;

	if (!text || sscanf(text, "%d@%" SCNu64, &rank, &at) != 2 || rank != t->rank || at != step)
		return;
	memcpy(&bits, parameters, sizeof(bits));
	bits ^= 1;
	memcpy(parameters, &bits, sizeof(bits));
}

/* Sets the error that names the ranks with different hashes. Collective. */
static int name_ranks(struct train_rank *t, uint64_t step, uint64_t own)
{
	uint64_t *all = calloc((size_t)t->nranks, sizeof(*all));
	char text[256] = "";
	size_t used = 0;
	int rc;

	if (!all)
		return train_fail(TRAIN_FAILED,
				  "step %" PRIu64 ": the parameters differ between ranks", step);
	rc = train_check(tuttiAllGather(&own, all, 1, tuttiUint64, t->comm, NULL), t->comm);
	for (int r = 1; r < t->nranks && used < sizeof(text) - 16; r++)
		if (all[r] != all[0])
			used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%d",
						 used ? ", " : "", r);
	free(all);
	if (rc)
		return rc;
	return train_fail(TRAIN_FAILED,
			  "step %" PRIu64 ": the parameters of rank %s differ from those of "
			  "rank 0: the replicas have diverged",
			  step, text);
}

/* The hash of the parameters of all stages, which is that of a model that is not cut. */
static int hash_stages(struct train_rank *t, float *host, uint64_t *ret_hash)
{
	size_t bytes = t->model.whole_parameters * sizeof(float);
	float *whole = malloc(bytes);
	int rc;

	if (!whole)
		return train_fail(TRAIN_FAILED, "no memory to check %zu bytes of parameters",
				  bytes);
	rc = train_mesh_gather(t, host, whole);
	*ret_hash = train_hash(whole, bytes);
	free(whole);
	if (!rc && t->mesh.tensor_rank == 0)
		rc = train_check(tuttiBcast(ret_hash, 1, tuttiUint64, 0, t->mesh.comm, NULL),
				 t->mesh.comm);
	if (!rc && t->mesh.tensor > 1)
		rc = train_check(tuttiBcast(ret_hash, 1, tuttiUint64, 0, t->mesh.tensor_comm, NULL),
				 t->mesh.tensor_comm);
	return rc;
}

int train_replicas_check(struct train_rank *t, uint64_t step, uint64_t *ret_hash)
{
	float *host = train_parameters_download(t);
	uint64_t hash, most[2];
	int rc;

	flip_if_asked(t, step, host);
	hash = train_hash(host, t->model.parameters * sizeof(*host));
	flip_if_asked(t, step, host); /* back */
	most[0] = hash; /* the maximum of the complements is the complement of the minimum */
	most[1] = ~hash;
	rc = train_check(tuttiAllReduce(most, most, 2, tuttiUint64, tuttiMax, t->comm, NULL),
			 t->comm);
	if (!rc && most[0] != ~most[1])
		rc = name_ranks(t, step, hash);
	if (!rc && t->pipeline)
		rc = hash_stages(t, host, &hash);
	if (!rc)
		*ret_hash = hash;
	return rc;
}

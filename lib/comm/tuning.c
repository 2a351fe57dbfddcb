/*
 * tuning.c - one cost table for all ranks: rank 0 reads it and broadcasts it through control
 *
 * Called by comm when ranks join. The table decides the choice of algorithms, so all ranks need the
 * same one. TUTTI_TUNING of ranks other than 0 is ignored.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/tuning.h"

/* bytes of all ranks in one allgather */
#define PIECE_ALL (1u << 20)

int tt_tuning_read(tuttiComm_t c, const char *path, uint64_t *ret_bytes)
{
	int rc;

	*ret_bytes = 0;
	if (c->rank || !path || !*path)
		return 0;
	rc = tt_cost_read(path, &c->cost);
	if (rc)
		return tt_fail(rc, "rank 0: TUTTI_TUNING: %s", tt_error_text());
	*ret_bytes = tt_cost_pack(c->cost, NULL, 0);
	return 0;
}

/* Broadcasts in pieces, by allgather: every rank contributes as many bytes as rank 0, whose piece
 * is used. */
static int broadcast(tuttiComm_t c, uint8_t *packed, uint64_t bytes)
{
	uint64_t piece = PIECE_ALL / (unsigned)c->nranks;
	uint8_t *all;
	int rc = 0;

	piece = piece < 64 ? 64 : piece > bytes ? bytes : piece;
	all = malloc(piece * (unsigned)c->nranks);
	if (!all)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for the cost table", c->rank);
	for (uint64_t at = 0; at < bytes && !rc; at += piece) {
		uint64_t some = bytes - at < piece ? bytes - at : piece;

		rc = tt_control_allgather(c->ctl, packed + at, some, all, c->setup_deadline_ns);
		if (!rc)
			memcpy(packed + at, all, some);
	}
	free(all);
	return rc;
}

/* Checks the size of rank 0's table, which another rank may have changed on its way. */
static int check_size(tuttiComm_t c, uint64_t bytes)
{
	uint64_t least = sizeof(struct tt_cost),
		 most = least + TT_FACTORS_MOST * sizeof(struct tt_factor);

	if (!c->rank)
		least = most = c->cost ? tt_cost_pack(c->cost, NULL, 0) : 0;
	if (bytes >= least && bytes <= most)
		return 0;
	return tt_fail(
		TT_REMOTE,
		"rank %d: the cost table of rank 0 has %llu bytes, of at least %llu and at most "
		"%llu: another version of Tutti?",
		c->rank, (unsigned long long)bytes, (unsigned long long)least,
		(unsigned long long)most);
}

int tt_tuning_share(tuttiComm_t c, uint64_t bytes)
{
	uint8_t *packed;
	int rc;

	if (!bytes)
		return 0;
	rc = check_size(c, bytes);
	if (rc)
		return rc;
	packed = calloc(1, bytes);
	if (!packed)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for the cost table", c->rank);
	if (c->rank == 0)
		tt_cost_pack(c->cost, packed, bytes);
	rc = broadcast(c, packed, bytes);
	if (!rc && c->rank)
		rc = tt_cost_unpack(packed, bytes, &c->cost);
	free(packed);
	return rc;
}

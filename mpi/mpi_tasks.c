/*
 * mpi_tasks.c - each collective of MPI by a call of Tutti
 *
 * Called by mpi_calls.c; a task that waits and one that only starts differ in their stream. Data is
 * moved as bytes, since ranks may describe the same data by different types.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpi/mpi_interpose.h"

static tuttiResult_t cannot_pack(struct mpi_task *k)
{
	fprintf(stderr, "libtutti-mpi: rank %d: no memory for packed data, or MPI cannot pack it\n",
		k->t->rank);
	k->error = MPI_ERR_OTHER;
	return tuttiSystemError;
}

int mpi_end_task(struct mpi_task *k, tuttiResult_t result)
{
	mpi_side_close(&k->in, false);
	if (!mpi_side_close(&k->out, k->receives && !result))
		cannot_pack(k);
	if (k->part && !result)
		memcpy(k->given.out, k->part, k->bytes);
	free(k->part);
	k->part = NULL;
	mpi_reduction_end(&k->reduction, k->t->comm);
	if (k->error)
		mpi_library()->Comm_call_errhandler(k->t->mpi, k->error);
	else
		k->error = mpi_result(k->t, result);
	return k->error ? k->error : k->reduction.error;
}

/* A side of n parts, or of one */
static bool open_all(struct mpi_task *k, struct mpi_side *side, const void *user, MPI_Count count,
		     const struct mpi_table *counts, const struct mpi_table *displs,
		     MPI_Datatype type, bool filled)
{
	return mpi_side_open(side, k->t->mpi, user, k->t->n, count, counts, displs, type, filled);
}

static const struct mpi_table none;

static bool open_one(struct mpi_task *k, struct mpi_side *side, const void *user, MPI_Count count,
		     MPI_Datatype type, bool filled)
{
	return mpi_side_open(side, k->t->mpi, user, 1, count, &none, &none, type, filled);
}

/* Tables of the bytes of parts; the lowest displacement is 0. Returns its place in side->bytes. */
static char *tables(const struct mpi_side *s, size_t *counts, size_t *displs)
{
	ptrdiff_t low = 0;

	for (int p = 0; p < s->nparts; p++) {
		counts[p] = mpi_side_bytes(s, p);
		displs[p] = mpi_side_start(s, p);
		if ((ptrdiff_t)displs[p] < low)
			low = (ptrdiff_t)displs[p];
	}
	for (int p = 0; p < s->nparts; p++)
		displs[p] -= (size_t)low;
	return s->bytes + low;
}

/* ---- reductions ------------------------------------------------------------------------------ */

static const void *input(const struct mpi_given *g)
{
	return g->in == MPI_IN_PLACE ? g->out : g->in;
}

tuttiResult_t mpi_begin_allreduce(struct mpi_task *k)
{
	const struct mpi_given *g = &k->given;
	struct mpi_reduction *r = &k->reduction;
	tuttiResult_t result = mpi_reduction_begin(r, k->t->comm);

	if (result)
		return result;
	return tuttiAllReduce(input(g), g->out, (size_t)g->count * r->per, r->type, r->op,
			      k->t->comm, k->stream);
}

tuttiResult_t mpi_begin_reduce(struct mpi_task *k)
{
	const struct mpi_given *g = &k->given;
	struct mpi_reduction *r = &k->reduction;
	tuttiResult_t result = mpi_reduction_begin(r, k->t->comm);

	if (result)
		return result;
	return tuttiReduce(input(g), k->t->rank == g->root ? g->out : NULL,
			   (size_t)g->count * r->per, r->type, r->op, g->root, k->t->comm,
			   k->stream);
}

/* In place, the input is in out, and the result goes to the start of out; programs expect that the rest
 * of out stays as it was. */
tuttiResult_t mpi_begin_reduce_scatter(struct mpi_task *k)
{
	const struct mpi_given *g = &k->given;
	struct mpi_reduction *r = &k->reduction;
	tuttiResult_t result = mpi_reduction_begin(r, k->t->comm);
	size_t *lengths = k->t->table[0];
	char *part = g->out;

	if (result)
		return result;
	for (int p = 0; p < k->t->n; p++)
		lengths[p] = (size_t)(g->counts.at ? mpi_entry(g->counts, p) : g->count) * r->per;
	if (g->in == MPI_IN_PLACE) {
		k->bytes = lengths[k->t->rank] * r->bytes;
		part = k->part = malloc(k->bytes + 1);
		if (!part)
			return cannot_pack(k);
	}
	if (!g->counts.at && !r->by_mpi)
		return tuttiReduceScatter(input(g), part, lengths[0], r->type, r->op, k->t->comm,
					  k->stream);
	return tuttiReduceScatterv(input(g), part, lengths, r->type, r->op, k->t->comm, k->stream);
}

/* ---- copies ---------------------------------------------------------------------------------- */

tuttiResult_t mpi_begin_bcast(struct mpi_task *k)
{
	const struct mpi_given *g = &k->given;
	bool at_root = k->t->rank == g->root;

	if (!open_one(k, &k->out, g->out, g->out_count, g->out_type, at_root))
		return cannot_pack(k);
	k->receives = !at_root;
	return tuttiBcast(k->out.bytes, mpi_side_bytes(&k->out, 0), tuttiUint8, g->root, k->t->comm,
			  k->stream);
}

tuttiResult_t mpi_begin_gather(struct mpi_task *k)
{
	const struct mpi_given *g = &k->given;
	struct mpi_tutti *t = k->t;
	size_t *lengths = t->table[0], *starts = t->table[1], bytes;
	bool gets = g->root == MPI_ALL || t->rank == g->root;
	bool in_place = gets && g->in == MPI_IN_PLACE;
	const char *mine;
	char *all;

	if ((gets &&
	     !open_all(k, &k->out, g->out, g->count, &g->counts, &g->displs, g->type, in_place)) ||
	    (!in_place && !open_one(k, &k->in, g->in, g->in_count, g->in_type, true)))
		return cannot_pack(k);
	k->receives = gets;
	mine = in_place ? k->out.bytes + mpi_side_start(&k->out, t->rank) : k->in.bytes;
	bytes = in_place ? mpi_side_bytes(&k->out, t->rank) : mpi_side_bytes(&k->in, 0);
	all = gets && g->uneven ? tables(&k->out, lengths, starts) : k->out.bytes;
	if (g->root == MPI_ALL)
		return g->uneven ? tuttiAllGatherv(mine, bytes, all, lengths, starts, tuttiUint8,
						   t->comm, k->stream)
				 : tuttiAllGather(mine, all, bytes, tuttiUint8, t->comm, k->stream);
	return g->uneven ? tuttiGatherv(mine, bytes, all, lengths, starts, tuttiUint8, g->root,
					t->comm, k->stream)
			 : tuttiGather(mine, all, bytes, tuttiUint8, g->root, t->comm, k->stream);
}

tuttiResult_t mpi_begin_scatter(struct mpi_task *k)
{
	const struct mpi_given *g = &k->given;
	struct mpi_tutti *t = k->t;
	size_t *lengths = t->table[0], *starts = t->table[1], bytes;
	bool at_root = t->rank == g->root, in_place = at_root && g->out == MPI_IN_PLACE;
	char *all, *mine;

	if ((at_root &&
	     !open_all(k, &k->in, g->in, g->count, &g->counts, &g->displs, g->type, true)) ||
	    (!in_place && !open_one(k, &k->out, g->out, g->out_count, g->out_type, false)))
		return cannot_pack(k);
	k->receives = true;
	mine = in_place ? k->in.bytes + mpi_side_start(&k->in, g->root) : k->out.bytes;
	bytes = in_place ? mpi_side_bytes(&k->in, g->root) : mpi_side_bytes(&k->out, 0);
	all = at_root && g->uneven ? tables(&k->in, lengths, starts) : k->in.bytes;
	return g->uneven ? tuttiScatterv(all, lengths, starts, mine, bytes, tuttiUint8, g->root,
					 t->comm, k->stream)
			 : tuttiScatter(all, mine, bytes, tuttiUint8, g->root, t->comm, k->stream);
}

tuttiResult_t mpi_begin_alltoall(struct mpi_task *k)
{
	const struct mpi_given *g = &k->given;
	bool in_place = g->in == MPI_IN_PLACE;

	if (!open_all(k, &k->out, g->out, g->count, &none, &none, g->type, in_place) ||
	    (!in_place && !open_all(k, &k->in, g->in, g->in_count, &none, &none, g->in_type, true)))
		return cannot_pack(k);
	k->receives = true;
	return tuttiAlltoAll(in_place ? k->out.bytes : k->in.bytes, k->out.bytes,
			     mpi_side_bytes(&k->out, 0), tuttiUint8, k->t->comm, k->stream);
}

tuttiResult_t mpi_begin_alltoallv(struct mpi_task *k)
{
	const struct mpi_given *g = &k->given;
	size_t **table = k->t->table;
	char *from, *to;

	if (!open_all(k, &k->in, g->in, 0, &g->in_counts, &g->in_displs, g->in_type, true) ||
	    !open_all(k, &k->out, g->out, 0, &g->counts, &g->displs, g->type, false))
		return cannot_pack(k);
	k->receives = true;
	from = tables(&k->in, table[0], table[1]);
	to = tables(&k->out, table[2], table[3]);
	return tuttiAlltoAllv(from, table[0], table[1], to, table[2], table[3], tuttiUint8,
			      k->t->comm, k->stream);
}

tuttiResult_t mpi_begin_barrier(struct mpi_task *k)
{
	return tuttiBarrier(k->t->comm, k->stream);
}

/*
 * mpi_tasks.c - each collective of MPI by a call of Tutti
 *
 * Called by mpi_calls.c; a task that waits and one that only starts differ in their stream. Data is
 * moved as bytes, since ranks may describe the same data by different types.
 */
#include <stdio.h>
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
		memmove(k->whole, k->part, k->bytes);
	mpi_reduction_end(&k->reduction, k->t->comm);
	if (k->error)
		mpi_library()->Comm_call_errhandler(k->t->mpi, k->error);
	else
		k->error = mpi_result(k->t, result);
	return k->error ? k->error : k->reduction.error;
}

/* A side of n parts, or of one */
static bool open_all(struct mpi_task *k, struct mpi_side *side, const void *user, int count,
		     const int *counts, const int *displs, MPI_Datatype type, bool filled)
{
	return mpi_side_open(side, k->t->mpi, user, k->t->n, count, counts, displs, type, filled);
}

static bool open_one(struct mpi_task *k, struct mpi_side *side, const void *user, int count,
		     MPI_Datatype type, bool filled)
{
	return mpi_side_open(side, k->t->mpi, user, 1, count, NULL, NULL, type, filled);
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

tuttiResult_t mpi_begin_allreduce(struct mpi_task *k, const void *in, void *out, int count)
{
	struct mpi_reduction *r = &k->reduction;
	tuttiResult_t result = mpi_reduction_begin(r, k->t->comm);

	if (result)
		return result;
	return tuttiAllReduce(in == MPI_IN_PLACE ? out : in, out, (size_t)count * r->per, r->type,
			      r->op, k->t->comm, k->stream);
}

tuttiResult_t mpi_begin_reduce(struct mpi_task *k, const void *in, void *out, int count, int root)
{
	struct mpi_reduction *r = &k->reduction;
	tuttiResult_t result = mpi_reduction_begin(r, k->t->comm);

	if (result)
		return result;
	return tuttiReduce(in == MPI_IN_PLACE ? out : in, k->t->rank == root ? out : NULL,
			   (size_t)count * r->per, r->type, r->op, root, k->t->comm, k->stream);
}

/* In place, the input is in out, and the result goes to the start of out. */
tuttiResult_t mpi_begin_reduce_scatter(struct mpi_task *k, const void *in, void *out, int count,
				       const int *counts)
{
	struct mpi_reduction *r = &k->reduction;
	tuttiResult_t result = mpi_reduction_begin(r, k->t->comm);
	size_t *lengths = k->t->table[0];
	char *part = out;

	if (result)
		return result;
	for (int p = 0; p < k->t->n; p++) {
		lengths[p] = (size_t)(counts ? counts[p] : count) * r->per;
		if (p < k->t->rank && in == MPI_IN_PLACE)
			part += lengths[p] * r->bytes;
	}
	if (in == MPI_IN_PLACE) {
		in = out;
		k->part = part;
		k->whole = out;
		k->bytes = lengths[k->t->rank] * r->bytes;
	}
	if (!counts && !r->by_mpi)
		return tuttiReduceScatter(in, part, lengths[0], r->type, r->op, k->t->comm,
					  k->stream);
	return tuttiReduceScatterv(in, part, lengths, r->type, r->op, k->t->comm, k->stream);
}

/* ---- copies ---------------------------------------------------------------------------------- */

tuttiResult_t mpi_begin_bcast(struct mpi_task *k, void *buffer, int count, MPI_Datatype type,
			      int root)
{
	bool at_root = k->t->rank == root;

	if (!open_one(k, &k->out, buffer, count, type, at_root))
		return cannot_pack(k);
	k->receives = !at_root;
	return tuttiBcast(k->out.bytes, mpi_side_bytes(&k->out, 0), tuttiUint8, root, k->t->comm,
			  k->stream);
}

tuttiResult_t mpi_begin_gather(struct mpi_task *k, const void *in, int in_count,
			       MPI_Datatype in_type, void *out, int count, const int *counts,
			       const int *displs, MPI_Datatype type, int root, bool uneven)
{
	struct mpi_tutti *t = k->t;
	size_t *lengths = t->table[0], *starts = t->table[1], bytes;
	bool gets = root == MPI_ALL || t->rank == root, in_place = gets && in == MPI_IN_PLACE;
	const char *mine;
	char *all;

	if ((gets && !open_all(k, &k->out, out, count, counts, displs, type, in_place)) ||
	    (!in_place && !open_one(k, &k->in, in, in_count, in_type, true)))
		return cannot_pack(k);
	k->receives = gets;
	mine = in_place ? k->out.bytes + mpi_side_start(&k->out, t->rank) : k->in.bytes;
	bytes = in_place ? mpi_side_bytes(&k->out, t->rank) : mpi_side_bytes(&k->in, 0);
	all = gets && uneven ? tables(&k->out, lengths, starts) : k->out.bytes;
	if (root == MPI_ALL)
		return uneven ? tuttiAllGatherv(mine, bytes, all, lengths, starts, tuttiUint8,
						t->comm, k->stream)
			      : tuttiAllGather(mine, all, bytes, tuttiUint8, t->comm, k->stream);
	return uneven ? tuttiGatherv(mine, bytes, all, lengths, starts, tuttiUint8, root, t->comm,
				     k->stream)
		      : tuttiGather(mine, all, bytes, tuttiUint8, root, t->comm, k->stream);
}

tuttiResult_t mpi_begin_scatter(struct mpi_task *k, const void *in, int count, const int *counts,
				const int *displs, MPI_Datatype type, void *out, int out_count,
				MPI_Datatype out_type, int root, bool uneven)
{
	struct mpi_tutti *t = k->t;
	size_t *lengths = t->table[0], *starts = t->table[1], bytes;
	bool at_root = t->rank == root, in_place = at_root && out == MPI_IN_PLACE;
	char *all, *mine;

	if ((at_root && !open_all(k, &k->in, in, count, counts, displs, type, true)) ||
	    (!in_place && !open_one(k, &k->out, out, out_count, out_type, false)))
		return cannot_pack(k);
	k->receives = true;
	mine = in_place ? k->in.bytes + mpi_side_start(&k->in, root) : k->out.bytes;
	bytes = in_place ? mpi_side_bytes(&k->in, root) : mpi_side_bytes(&k->out, 0);
	all = at_root && uneven ? tables(&k->in, lengths, starts) : k->in.bytes;
	return uneven ? tuttiScatterv(all, lengths, starts, mine, bytes, tuttiUint8, root, t->comm,
				      k->stream)
		      : tuttiScatter(all, mine, bytes, tuttiUint8, root, t->comm, k->stream);
}

tuttiResult_t mpi_begin_alltoall(struct mpi_task *k, const void *in, int in_count,
				 MPI_Datatype in_type, void *out, int count, MPI_Datatype type)
{
	bool in_place = in == MPI_IN_PLACE;

	if (!open_all(k, &k->out, out, count, NULL, NULL, type, in_place) ||
	    (!in_place && !open_all(k, &k->in, in, in_count, NULL, NULL, in_type, true)))
		return cannot_pack(k);
	k->receives = true;
	return tuttiAlltoAll(in_place ? k->out.bytes : k->in.bytes, k->out.bytes,
			     mpi_side_bytes(&k->out, 0), tuttiUint8, k->t->comm, k->stream);
}

tuttiResult_t mpi_begin_alltoallv(struct mpi_task *k, const void *in, const int *in_counts,
				  const int *in_displs, MPI_Datatype in_type, void *out,
				  const int *counts, const int *displs, MPI_Datatype type)
{
	size_t **table = k->t->table;
	char *from, *to;

	if (!open_all(k, &k->in, in, 0, in_counts, in_displs, in_type, true) ||
	    !open_all(k, &k->out, out, 0, counts, displs, type, false))
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

/*
 * mpi_calls.c - MPI's collectives: each takes the call, or passes it on to the MPI library
 *
 * Called by the program. All ranks decide alike, by facts that they share: the communicator (no
 * intercommunicator, more than one rank, all ranks joined) and, for reductions, datatype and op. Data
 * is moved as bytes, since ranks may describe the same data by different types.
 */
#include <stdio.h>
#include <string.h>

#include "mpi/mpi_interpose.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int MPI_Finalize(void);
#define DECLARE(name, ...) EXPORT int MPI_##name(__VA_ARGS__);
MPI_TAKEN(DECLARE)
#undef DECLARE

static int cannot_pack(const struct mpi_tutti *t)
{
	fprintf(stderr, "libtutti-mpi: rank %d: no memory for packed data, or MPI cannot pack it\n",
		t->rank);
	mpi_library()->Comm_call_errhandler(t->mpi, MPI_ERR_OTHER);
	return MPI_ERR_OTHER;
}

/* The end of a taken call; receives: the data of out came. Sides may be NULL. */
static int end(const struct mpi_tutti *t, tuttiResult_t result, struct mpi_side *in,
	       struct mpi_side *out, bool receives)
{
	if (in)
		mpi_side_close(in, false);
	if (out && !mpi_side_close(out, receives && !result))
		return cannot_pack(t);
	return mpi_result(t, result);
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

/* Open the side of the root's or of all parts, and the side of one part, which is NULL in place. */
static bool open_both(const struct mpi_tutti *t, struct mpi_side *all, const void *all_user,
		      int count, const int *counts, const int *displs, MPI_Datatype all_type,
		      bool all_filled, struct mpi_side *one, const void *one_user, int one_count,
		      MPI_Datatype one_type, bool one_filled)
{
	if (!mpi_side_open(all, t->mpi, all_user, t->n, count, counts, displs, all_type,
			   all_filled))
		return false;
	if (one_user == MPI_IN_PLACE ||
	    mpi_side_open(one, t->mpi, one_user, 1, one_count, NULL, NULL, one_type, one_filled))
		return true;
	mpi_side_close(all, false);
	return false;
}

/* ---- reductions ------------------------------------------------------------------------------ */

static int allreduce(struct mpi_tutti *t, const void *in, void *out, size_t count,
		     struct mpi_reduction *r)
{
	tuttiResult_t result = mpi_reduction_begin(r, t->comm);

	if (!result)
		result = tuttiAllReduce(in == MPI_IN_PLACE ? out : in, out, count * r->per, r->type,
					r->op, t->comm, NULL);
	return mpi_reduction_end(r, t, result);
}

int MPI_Allreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
	uint64_t began = mpi_clock();
	struct mpi_reduction r;
	struct mpi_tutti *t = mpi_reduces(type, op, &r) ? mpi_tutti_of(comm) : NULL;
	int rc = t ? allreduce(t, in, out, (size_t)count, &r)
		   : mpi_library()->Allreduce(in, out, count, type, op, comm);

	mpi_count(mpi_Allreduce, t, began);
	return rc;
}

static int reduce(struct mpi_tutti *t, const void *in, void *out, size_t count,
		  struct mpi_reduction *r, int root)
{
	tuttiResult_t result = mpi_reduction_begin(r, t->comm);

	if (!result)
		result = tuttiReduce(in == MPI_IN_PLACE ? out : in, t->rank == root ? out : NULL,
				     count * r->per, r->type, r->op, root, t->comm, NULL);
	return mpi_reduction_end(r, t, result);
}

int MPI_Reduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, int root,
	       MPI_Comm comm)
{
	uint64_t began = mpi_clock();
	struct mpi_reduction r;
	struct mpi_tutti *t = mpi_reduces(type, op, &r) ? mpi_tutti_of(comm) : NULL;
	int rc = t ? reduce(t, in, out, (size_t)count, &r, root)
		   : mpi_library()->Reduce(in, out, count, type, op, root, comm);

	mpi_count(mpi_Reduce, t, began);
	return rc;
}

/* In place, the input is in out, and the result goes to the start of out. */
static int reduce_scatter(struct mpi_tutti *t, const void *in, void *out, const size_t *counts,
			  struct mpi_reduction *r)
{
	bool in_place = in == MPI_IN_PLACE;
	tuttiResult_t result = mpi_reduction_begin(r, t->comm);
	char *part = out;

	for (int p = 0; p < t->rank && in_place; p++)
		part += counts[p] * r->bytes;
	if (!result)
		result = tuttiReduceScatterv(in_place ? out : in, part, counts, r->type, r->op,
					     t->comm, NULL);
	if (!result)
		memmove(out, part, counts[t->rank] * r->bytes);
	return mpi_reduction_end(r, t, result);
}

int MPI_Reduce_scatter(const void *in, void *out, const int *counts, MPI_Datatype type, MPI_Op op,
		       MPI_Comm comm)
{
	uint64_t began = mpi_clock();
	struct mpi_reduction r;
	struct mpi_tutti *t = mpi_reduces(type, op, &r) ? mpi_tutti_of(comm) : NULL;
	int rc;

	for (int p = 0; t && p < t->n; p++)
		t->table[0][p] = (size_t)counts[p] * r.per;
	rc = t ? reduce_scatter(t, in, out, t->table[0], &r)
	       : mpi_library()->Reduce_scatter(in, out, counts, type, op, comm);
	mpi_count(mpi_Reduce_scatter, t, began);
	return rc;
}

int MPI_Reduce_scatter_block(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op,
			     MPI_Comm comm)
{
	uint64_t began = mpi_clock();
	struct mpi_reduction r;
	struct mpi_tutti *t = mpi_reduces(type, op, &r) ? mpi_tutti_of(comm) : NULL;
	int rc;

	for (int p = 0; t && p < t->n; p++)
		t->table[0][p] = (size_t)count * r.per;
	if (!t)
		rc = mpi_library()->Reduce_scatter_block(in, out, count, type, op, comm);
	else if (in == MPI_IN_PLACE || r.by_mpi)
		rc = reduce_scatter(t, in, out, t->table[0], &r);
	else
		rc = mpi_result(t, tuttiReduceScatter(in, out, (size_t)count * r.per, r.type, r.op,
						      t->comm, NULL));
	mpi_count(mpi_Reduce_scatter_block, t, began);
	return rc;
}

/* ---- copies ---------------------------------------------------------------------------------- */

static int bcast(struct mpi_tutti *t, void *buffer, int count, MPI_Datatype type, int root)
{
	bool at_root = t->rank == root;
	struct mpi_side s;

	if (!mpi_side_open(&s, t->mpi, buffer, 1, count, NULL, NULL, type, at_root))
		return cannot_pack(t);
	return end(t, tuttiBcast(s.bytes, mpi_side_bytes(&s, 0), tuttiUint8, root, t->comm, NULL),
		   NULL, &s, !at_root);
}

int MPI_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
	uint64_t began = mpi_clock();
	struct mpi_tutti *t = mpi_tutti_of(comm);
	int rc = t ? bcast(t, buffer, count, type, root)
		   : mpi_library()->Bcast(buffer, count, type, root, comm);

	mpi_count(mpi_Bcast, t, began);
	return rc;
}

/* counts NULL: MPI_Allgather */
static int allgather(struct mpi_tutti *t, const void *in_user, int in_count, MPI_Datatype in_type,
		     void *out_user, int count, const int *counts, const int *displs,
		     MPI_Datatype type)
{
	bool in_place = in_user == MPI_IN_PLACE;
	struct mpi_side in, out;
	tuttiResult_t result;
	const char *mine;
	size_t bytes;
	char *base;

	if (!open_both(t, &out, out_user, count, counts, displs, type, in_place, &in, in_user,
		       in_count, in_type, true))
		return cannot_pack(t);
	mine = in_place ? out.bytes + mpi_side_start(&out, t->rank) : in.bytes;
	bytes = in_place ? mpi_side_bytes(&out, t->rank) : mpi_side_bytes(&in, 0);
	if (counts) {
		base = tables(&out, t->table[0], t->table[1]);
		result = tuttiAllGatherv(mine, bytes, base, t->table[0], t->table[1], tuttiUint8,
					 t->comm, NULL);
	} else {
		result = tuttiAllGather(mine, out.bytes, bytes, tuttiUint8, t->comm, NULL);
	}
	return end(t, result, in_place ? NULL : &in, &out, true);
}

int MPI_Allgather(const void *in, int in_count, MPI_Datatype in_type, void *out, int count,
		  MPI_Datatype type, MPI_Comm comm)
{
	uint64_t began = mpi_clock();
	struct mpi_tutti *t = mpi_tutti_of(comm);
	int rc = t ? allgather(t, in, in_count, in_type, out, count, NULL, NULL, type)
		   : mpi_library()->Allgather(in, in_count, in_type, out, count, type, comm);

	mpi_count(mpi_Allgather, t, began);
	return rc;
}

int MPI_Allgatherv(const void *in, int in_count, MPI_Datatype in_type, void *out, const int *counts,
		   const int *displs, MPI_Datatype type, MPI_Comm comm)
{
	uint64_t began = mpi_clock();
	struct mpi_tutti *t = mpi_tutti_of(comm);
	int rc = t ? allgather(t, in, in_count, in_type, out, 0, counts, displs, type)
		   : mpi_library()->Allgatherv(in, in_count, in_type, out, counts, displs, type,
					       comm);

	mpi_count(mpi_Allgatherv, t, began);
	return rc;
}

static int alltoall(struct mpi_tutti *t, const void *in_user, int in_count, MPI_Datatype in_type,
		    void *out_user, int count, MPI_Datatype type)
{
	bool in_place = in_user == MPI_IN_PLACE;
	struct mpi_side in, out;

	if (!mpi_side_open(&out, t->mpi, out_user, t->n, count, NULL, NULL, type, in_place))
		return cannot_pack(t);
	if (!in_place &&
	    !mpi_side_open(&in, t->mpi, in_user, t->n, in_count, NULL, NULL, in_type, true)) {
		mpi_side_close(&out, false);
		return cannot_pack(t);
	}
	return end(t,
		   tuttiAlltoAll(in_place ? out.bytes : in.bytes, out.bytes,
				 mpi_side_bytes(&out, 0), tuttiUint8, t->comm, NULL),
		   in_place ? NULL : &in, &out, true);
}

int MPI_Alltoall(const void *in, int in_count, MPI_Datatype in_type, void *out, int count,
		 MPI_Datatype type, MPI_Comm comm)
{
	uint64_t began = mpi_clock();
	struct mpi_tutti *t = mpi_tutti_of(comm);
	int rc = t ? alltoall(t, in, in_count, in_type, out, count, type)
		   : mpi_library()->Alltoall(in, in_count, in_type, out, count, type, comm);

	mpi_count(mpi_Alltoall, t, began);
	return rc;
}

static int alltoallv(struct mpi_tutti *t, const void *in_user, const int *in_counts,
		     const int *in_displs, MPI_Datatype in_type, void *out_user, const int *counts,
		     const int *displs, MPI_Datatype type)
{
	struct mpi_side in, out;
	char *from, *to;

	if (!mpi_side_open(&in, t->mpi, in_user, t->n, 0, in_counts, in_displs, in_type, true))
		return cannot_pack(t);
	if (!mpi_side_open(&out, t->mpi, out_user, t->n, 0, counts, displs, type, false)) {
		mpi_side_close(&in, false);
		return cannot_pack(t);
	}
	from = tables(&in, t->table[0], t->table[1]);
	to = tables(&out, t->table[2], t->table[3]);
	return end(t,
		   tuttiAlltoAllv(from, t->table[0], t->table[1], to, t->table[2], t->table[3],
				  tuttiUint8, t->comm, NULL),
		   &in, &out, true);
}

/* In place on one rank means in place on all. */
int MPI_Alltoallv(const void *in, const int *in_counts, const int *in_displs, MPI_Datatype in_type,
		  void *out, const int *counts, const int *displs, MPI_Datatype type, MPI_Comm comm)
{
	uint64_t began = mpi_clock();
	struct mpi_tutti *t = in == MPI_IN_PLACE ? NULL : mpi_tutti_of(comm);
	int rc = t ? alltoallv(t, in, in_counts, in_displs, in_type, out, counts, displs, type)
		   : mpi_library()->Alltoallv(in, in_counts, in_displs, in_type, out, counts,
					      displs, type, comm);

	mpi_count(mpi_Alltoallv, t, began);
	return rc;
}

/* uneven: MPI_Gatherv, whose counts only the root knows */
static int gather(struct mpi_tutti *t, const void *in_user, int in_count, MPI_Datatype in_type,
		  void *out_user, int count, const int *counts, const int *displs,
		  MPI_Datatype type, int root, bool uneven)
{
	bool at_root = t->rank == root, in_place = at_root && in_user == MPI_IN_PLACE;
	struct mpi_side in, out = { 0 };
	tuttiResult_t result;
	const char *mine;
	size_t bytes;
	char *base = NULL;

	if (at_root ? !open_both(t, &out, out_user, count, counts, displs, type, in_place, &in,
				 in_user, in_count, in_type, true)
		    : !mpi_side_open(&in, t->mpi, in_user, 1, in_count, NULL, NULL, in_type, true))
		return cannot_pack(t);
	mine = in_place ? out.bytes + mpi_side_start(&out, root) : in.bytes;
	bytes = in_place ? mpi_side_bytes(&out, root) : mpi_side_bytes(&in, 0);
	if (at_root)
		base = uneven ? tables(&out, t->table[0], t->table[1]) : out.bytes;
	result = uneven ? tuttiGatherv(mine, bytes, base, t->table[0], t->table[1], tuttiUint8,
				       root, t->comm, NULL)
			: tuttiGather(mine, base, bytes, tuttiUint8, root, t->comm, NULL);
	return end(t, result, in_place ? NULL : &in, at_root ? &out : NULL, true);
}

int MPI_Gather(const void *in, int in_count, MPI_Datatype in_type, void *out, int count,
	       MPI_Datatype type, int root, MPI_Comm comm)
{
	uint64_t began = mpi_clock();
	struct mpi_tutti *t = mpi_tutti_of(comm);
	int rc = t ? gather(t, in, in_count, in_type, out, count, NULL, NULL, type, root, false)
		   : mpi_library()->Gather(in, in_count, in_type, out, count, type, root, comm);

	mpi_count(mpi_Gather, t, began);
	return rc;
}

int MPI_Gatherv(const void *in, int in_count, MPI_Datatype in_type, void *out, const int *counts,
		const int *displs, MPI_Datatype type, int root, MPI_Comm comm)
{
	uint64_t began = mpi_clock();
	struct mpi_tutti *t = mpi_tutti_of(comm);
	int rc = t ? gather(t, in, in_count, in_type, out, 0, counts, displs, type, root, true)
		   : mpi_library()->Gatherv(in, in_count, in_type, out, counts, displs, type, root,
					    comm);

	mpi_count(mpi_Gatherv, t, began);
	return rc;
}

static int scatter(struct mpi_tutti *t, const void *in_user, int count, const int *counts,
		   const int *displs, MPI_Datatype type, void *out_user, int out_count,
		   MPI_Datatype out_type, int root, bool uneven)
{
	bool at_root = t->rank == root, in_place = at_root && out_user == MPI_IN_PLACE;
	struct mpi_side in = { 0 }, out;
	tuttiResult_t result;
	char *base = NULL, *mine;
	size_t bytes;

	if (at_root ? !open_both(t, &in, in_user, count, counts, displs, type, true, &out, out_user,
				 out_count, out_type, false)
		    : !mpi_side_open(&out, t->mpi, out_user, 1, out_count, NULL, NULL, out_type,
				     false))
		return cannot_pack(t);
	mine = in_place ? in.bytes + mpi_side_start(&in, root) : out.bytes;
	bytes = in_place ? mpi_side_bytes(&in, root) : mpi_side_bytes(&out, 0);
	if (at_root)
		base = uneven ? tables(&in, t->table[0], t->table[1]) : in.bytes;
	result = uneven ? tuttiScatterv(base, t->table[0], t->table[1], mine, bytes, tuttiUint8,
					root, t->comm, NULL)
			: tuttiScatter(base, mine, bytes, tuttiUint8, root, t->comm, NULL);
	return end(t, result, at_root ? &in : NULL, in_place ? NULL : &out, true);
}

int MPI_Scatter(const void *in, int count, MPI_Datatype type, void *out, int out_count,
		MPI_Datatype out_type, int root, MPI_Comm comm)
{
	uint64_t began = mpi_clock();
	struct mpi_tutti *t = mpi_tutti_of(comm);
	int rc = t ? scatter(t, in, count, NULL, NULL, type, out, out_count, out_type, root, false)
		   : mpi_library()->Scatter(in, count, type, out, out_count, out_type, root, comm);

	mpi_count(mpi_Scatter, t, began);
	return rc;
}

int MPI_Scatterv(const void *in, const int *counts, const int *displs, MPI_Datatype type, void *out,
		 int out_count, MPI_Datatype out_type, int root, MPI_Comm comm)
{
	uint64_t began = mpi_clock();
	struct mpi_tutti *t = mpi_tutti_of(comm);
	int rc = t ? scatter(t, in, 0, counts, displs, type, out, out_count, out_type, root, true)
		   : mpi_library()->Scatterv(in, counts, displs, type, out, out_count, out_type,
					     root, comm);

	mpi_count(mpi_Scatterv, t, began);
	return rc;
}

int MPI_Barrier(MPI_Comm comm)
{
	uint64_t began = mpi_clock();
	struct mpi_tutti *t = mpi_tutti_of(comm);
	int rc = t ? mpi_result(t, tuttiBarrier(t->comm, NULL)) : mpi_library()->Barrier(comm);

	mpi_count(mpi_Barrier, t, began);
	return rc;
}

int MPI_Finalize(void)
{
	const struct mpi_library *mpi = mpi_library();
	int rank = -1;

	mpi->Comm_rank(mpi->MPI_COMM_WORLD, &rank);
	if (rank == 0)
		mpi_print_counts(rank);
	mpi_free_world();
	return mpi->Finalize();
}

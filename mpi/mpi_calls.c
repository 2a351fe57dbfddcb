/*
 * mpi_calls.c - MPI's collectives: each takes the call, or passes it on to the MPI library
 *
 * Called by the program. All ranks decide alike, by facts that they share: the communicator (no
 * intercommunicator, more than one rank, all ranks joined) and, for reductions, datatype and op.
 */
#include <stdlib.h>

#include "mpi/mpi_interpose.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int MPI_Finalize(void);
#define DECLARE(name, started, ...)         \
	EXPORT int MPI_##name(__VA_ARGS__); \
	EXPORT int MPI_##started(__VA_ARGS__, MPI_Request *);
MPI_TAKEN(DECLARE)
#undef DECLARE

/* A task of a call that waits. Calls that were only started come first. */
static bool may_wait(struct mpi_task *k, MPI_Comm comm)
{
	k->t = mpi_tutti_of(comm, true);
	if (k->t)
		mpi_drain(k->t);
	return k->t;
}

#define LIST(...) __VA_ARGS__

/* Both forms of a collective: parameters, arguments to pass on, whether Tutti has the operation, and
 * its beginning for the task k */
#define COLLECTIVE(name, started, parameters, arguments, has, begin)                     \
	int MPI_##name parameters                                                        \
	{                                                                                \
		uint64_t began = mpi_clock();                                            \
		struct mpi_task task = { 0 }, *k = &task;                                \
		bool taken = (has) && may_wait(k, comm);                                 \
		int rc = taken ? mpi_end_task(k, begin) : mpi_library()->name arguments; \
                                                                                         \
		mpi_count(mpi_##name, taken, began);                                     \
		return rc;                                                               \
	}                                                                                \
                                                                                         \
	int MPI_##started(LIST parameters, MPI_Request *request)                         \
	{                                                                                \
		uint64_t began = mpi_clock();                                            \
		struct mpi_task *k = mpi_new_task();                                     \
		bool taken = (has) && mpi_may_start(k, comm);                            \
		int rc = taken ? mpi_start(k, begin, request)                            \
			       : mpi_library()->started(LIST arguments, request);        \
                                                                                         \
		if (!taken)                                                              \
			free(k);                                                         \
		mpi_count(mpi_##started, taken, began);                                  \
		return rc;                                                               \
	}

/* ---- reductions ------------------------------------------------------------------------------ */

COLLECTIVE(Allreduce, Iallreduce,
	   (const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
	   (in, out, count, type, op, comm), mpi_reduces(type, op, &k->reduction),
	   mpi_begin_allreduce(k, in, out, count))

COLLECTIVE(Reduce, Ireduce,
	   (const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, int root,
	    MPI_Comm comm),
	   (in, out, count, type, op, root, comm), mpi_reduces(type, op, &k->reduction),
	   mpi_begin_reduce(k, in, out, count, root))

COLLECTIVE(Reduce_scatter, Ireduce_scatter,
	   (const void *in, void *out, const int *counts, MPI_Datatype type, MPI_Op op,
	    MPI_Comm comm),
	   (in, out, counts, type, op, comm), mpi_reduces(type, op, &k->reduction),
	   mpi_begin_reduce_scatter(k, in, out, 0, counts))

COLLECTIVE(Reduce_scatter_block, Ireduce_scatter_block,
	   (const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
	   (in, out, count, type, op, comm), mpi_reduces(type, op, &k->reduction),
	   mpi_begin_reduce_scatter(k, in, out, count, NULL))

/* ---- copies ---------------------------------------------------------------------------------- */

COLLECTIVE(Bcast, Ibcast, (void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm),
	   (buffer, count, type, root, comm), true, mpi_begin_bcast(k, buffer, count, type, root))

COLLECTIVE(Allgather, Iallgather,
	   (const void *in, int in_count, MPI_Datatype in_type, void *out, int count,
	    MPI_Datatype type, MPI_Comm comm),
	   (in, in_count, in_type, out, count, type, comm), true,
	   mpi_begin_gather(k, in, in_count, in_type, out, count, NULL, NULL, type, MPI_ALL, false))

COLLECTIVE(Allgatherv, Iallgatherv,
	   (const void *in, int in_count, MPI_Datatype in_type, void *out, const int *counts,
	    const int *displs, MPI_Datatype type, MPI_Comm comm),
	   (in, in_count, in_type, out, counts, displs, type, comm), true,
	   mpi_begin_gather(k, in, in_count, in_type, out, 0, counts, displs, type, MPI_ALL, true))

COLLECTIVE(Gather, Igather,
	   (const void *in, int in_count, MPI_Datatype in_type, void *out, int count,
	    MPI_Datatype type, int root, MPI_Comm comm),
	   (in, in_count, in_type, out, count, type, root, comm), true,
	   mpi_begin_gather(k, in, in_count, in_type, out, count, NULL, NULL, type, root, false))

COLLECTIVE(Gatherv, Igatherv,
	   (const void *in, int in_count, MPI_Datatype in_type, void *out, const int *counts,
	    const int *displs, MPI_Datatype type, int root, MPI_Comm comm),
	   (in, in_count, in_type, out, counts, displs, type, root, comm), true,
	   mpi_begin_gather(k, in, in_count, in_type, out, 0, counts, displs, type, root, true))

COLLECTIVE(Scatter, Iscatter,
	   (const void *in, int count, MPI_Datatype type, void *out, int out_count,
	    MPI_Datatype out_type, int root, MPI_Comm comm),
	   (in, count, type, out, out_count, out_type, root, comm), true,
	   mpi_begin_scatter(k, in, count, NULL, NULL, type, out, out_count, out_type, root, false))

COLLECTIVE(Scatterv, Iscatterv,
	   (const void *in, const int *counts, const int *displs, MPI_Datatype type, void *out,
	    int out_count, MPI_Datatype out_type, int root, MPI_Comm comm),
	   (in, counts, displs, type, out, out_count, out_type, root, comm), true,
	   mpi_begin_scatter(k, in, 0, counts, displs, type, out, out_count, out_type, root, true))

COLLECTIVE(Alltoall, Ialltoall,
	   (const void *in, int in_count, MPI_Datatype in_type, void *out, int count,
	    MPI_Datatype type, MPI_Comm comm),
	   (in, in_count, in_type, out, count, type, comm), true,
	   mpi_begin_alltoall(k, in, in_count, in_type, out, count, type))

/* In place on one rank means in place on all. */
COLLECTIVE(Alltoallv, Ialltoallv,
	   (const void *in, const int *in_counts, const int *in_displs, MPI_Datatype in_type,
	    void *out, const int *counts, const int *displs, MPI_Datatype type, MPI_Comm comm),
	   (in, in_counts, in_displs, in_type, out, counts, displs, type, comm), in != MPI_IN_PLACE,
	   mpi_begin_alltoallv(k, in, in_counts, in_displs, in_type, out, counts, displs, type))

COLLECTIVE(Barrier, Ibarrier, (MPI_Comm comm), (comm), true, mpi_begin_barrier(k))

int MPI_Finalize(void)
{
	const struct mpi_library *mpi = mpi_library();
	int rank = -1;

	mpi_complete_requests();
	mpi->Comm_rank(mpi->MPI_COMM_WORLD, &rank);
	if (rank == 0)
		mpi_print_counts(rank);
	mpi_free_world();
	return mpi->Finalize();
}

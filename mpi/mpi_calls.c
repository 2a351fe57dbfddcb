/*
 * mpi_calls.c - MPI's collectives: each takes the call, or passes it on to the MPI library
 *
 * Called by the program. All ranks decide alike, by facts that they share: the communicator (no
 * intercommunicator, more than one rank, all ranks joined) and, for reductions, datatype and op.
 */
#include <stdio.h>
#include <stdlib.h>

#include "mpi/mpi_interpose.h"

/* A task of a call that waits. Calls that were only started come first. */
static bool may_wait(struct mpi_task *k, MPI_Comm comm)
{
	k->t = mpi_tutti_of(comm, true);
	if (k->t)
		mpi_drain(k->t);
	return k->t;
}

/* An MPI library older than MPI 4 has no persistent collectives to pass on to. */
static int no_persistent(MPI_Comm comm)
{
	fputs("libtutti-mpi: a persistent collective that Tutti cannot take, and this MPI library has none\n",
	      stderr);
	mpi_library()->Comm_call_errhandler(comm, MPI_ERR_OTHER);
	return MPI_ERR_OTHER;
}

#define LIST(...) __VA_ARGS__

/* The forms of a collective: parameters, arguments to pass on, whether Tutti has the operation, its
 * beginning, and the arguments for that (struct mpi_given) */
#define COLLECTIVE(name, started, parameters, arguments, has, does, ...)                     \
	int MPI_##name parameters                                                            \
	{                                                                                    \
		uint64_t began = mpi_clock();                                                \
		struct mpi_task task = { .given = { __VA_ARGS__ } }, *k = &task;             \
		bool taken = (has) && may_wait(k, comm);                                     \
		int rc = taken ? mpi_end_task(k, does(k)) : mpi_library()->name arguments;   \
                                                                                             \
		mpi_count(mpi_##name, taken, began);                                         \
		return rc;                                                                   \
	}                                                                                    \
                                                                                             \
	int MPI_##started(LIST parameters, MPI_Request *request)                             \
	{                                                                                    \
		uint64_t began = mpi_clock();                                                \
		struct mpi_task *k = mpi_new_task(does, &(struct mpi_given){ __VA_ARGS__ }); \
		bool taken = (has) && mpi_may_start(k, comm, false);                         \
		int rc = taken ? mpi_start(k, request)                                       \
			       : mpi_library()->started(LIST arguments, request);            \
                                                                                             \
		if (!taken)                                                                  \
			free(k);                                                             \
		mpi_count(mpi_##started, taken, began);                                      \
		return rc;                                                                   \
	}                                                                                    \
                                                                                             \
	int MPI_##name##_init(LIST parameters, MPI_Info info, MPI_Request *request)          \
	{                                                                                    \
		uint64_t began = mpi_clock();                                                \
		struct mpi_task *k = mpi_new_task(does, &(struct mpi_given){ __VA_ARGS__ }); \
		bool taken = (has) && mpi_may_start(k, comm, true);                          \
		int rc = taken ? mpi_make_persistent(k, request)                             \
			 : mpi_library()->name##_init                                        \
				 ? mpi_library()->name##_init(LIST arguments, info, request) \
				 : no_persistent(comm);                                      \
                                                                                             \
		if (!taken)                                                                  \
			free(k);                                                             \
		mpi_count(mpi_##name##_init, taken, began);                                  \
		return rc;                                                                   \
	}

/* ---- reductions ------------------------------------------------------------------------------ */

COLLECTIVE(Allreduce, Iallreduce,
	   (const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
	   (in, out, count, type, op, comm), mpi_reduces(type, op, &k->reduction),
	   mpi_begin_allreduce, .in = in, .out = out, .count = count)

COLLECTIVE(Reduce, Ireduce,
	   (const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, int root,
	    MPI_Comm comm),
	   (in, out, count, type, op, root, comm), mpi_reduces(type, op, &k->reduction),
	   mpi_begin_reduce, .in = in, .out = out, .count = count, .root = root)

COLLECTIVE(Reduce_scatter, Ireduce_scatter,
	   (const void *in, void *out, const int *counts, MPI_Datatype type, MPI_Op op,
	    MPI_Comm comm),
	   (in, out, counts, type, op, comm), mpi_reduces(type, op, &k->reduction),
	   mpi_begin_reduce_scatter, .in = in, .out = out, .counts = counts, .root = MPI_ALL)

COLLECTIVE(Reduce_scatter_block, Ireduce_scatter_block,
	   (const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
	   (in, out, count, type, op, comm), mpi_reduces(type, op, &k->reduction),
	   mpi_begin_reduce_scatter, .in = in, .out = out, .count = count)

/* ---- copies ---------------------------------------------------------------------------------- */

COLLECTIVE(Bcast, Ibcast, (void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm),
	   (buffer, count, type, root, comm), true, mpi_begin_bcast, .out = buffer,
	   .out_count = count, .out_type = type, .root = root)

COLLECTIVE(Allgather, Iallgather,
	   (const void *in, int in_count, MPI_Datatype in_type, void *out, int count,
	    MPI_Datatype type, MPI_Comm comm),
	   (in, in_count, in_type, out, count, type, comm), true, mpi_begin_gather, .in = in,
	   .in_count = in_count, .in_type = in_type, .out = out, .count = count, .type = type,
	   .root = MPI_ALL)

COLLECTIVE(Allgatherv, Iallgatherv,
	   (const void *in, int in_count, MPI_Datatype in_type, void *out, const int *counts,
	    const int *displs, MPI_Datatype type, MPI_Comm comm),
	   (in, in_count, in_type, out, counts, displs, type, comm), true, mpi_begin_gather,
	   .in = in, .in_count = in_count, .in_type = in_type, .out = out, .counts = counts,
	   .displs = displs, .type = type, .root = MPI_ALL, .uneven = true)

COLLECTIVE(Gather, Igather,
	   (const void *in, int in_count, MPI_Datatype in_type, void *out, int count,
	    MPI_Datatype type, int root, MPI_Comm comm),
	   (in, in_count, in_type, out, count, type, root, comm), true, mpi_begin_gather, .in = in,
	   .in_count = in_count, .in_type = in_type, .out = out, .count = count, .type = type,
	   .root = root)

COLLECTIVE(Gatherv, Igatherv,
	   (const void *in, int in_count, MPI_Datatype in_type, void *out, const int *counts,
	    const int *displs, MPI_Datatype type, int root, MPI_Comm comm),
	   (in, in_count, in_type, out, counts, displs, type, root, comm), true, mpi_begin_gather,
	   .in = in, .in_count = in_count, .in_type = in_type, .out = out, .counts = counts,
	   .displs = displs, .type = type, .root = root, .uneven = true)

COLLECTIVE(Scatter, Iscatter,
	   (const void *in, int count, MPI_Datatype type, void *out, int out_count,
	    MPI_Datatype out_type, int root, MPI_Comm comm),
	   (in, count, type, out, out_count, out_type, root, comm), true, mpi_begin_scatter,
	   .in = in, .count = count, .type = type, .out = out, .out_count = out_count,
	   .out_type = out_type, .root = root)

COLLECTIVE(Scatterv, Iscatterv,
	   (const void *in, const int *counts, const int *displs, MPI_Datatype type, void *out,
	    int out_count, MPI_Datatype out_type, int root, MPI_Comm comm),
	   (in, counts, displs, type, out, out_count, out_type, root, comm), true,
	   mpi_begin_scatter, .in = in, .counts = counts, .displs = displs, .type = type,
	   .out = out, .out_count = out_count, .out_type = out_type, .root = root, .uneven = true)

COLLECTIVE(Alltoall, Ialltoall,
	   (const void *in, int in_count, MPI_Datatype in_type, void *out, int count,
	    MPI_Datatype type, MPI_Comm comm),
	   (in, in_count, in_type, out, count, type, comm), true, mpi_begin_alltoall, .in = in,
	   .in_count = in_count, .in_type = in_type, .out = out, .count = count, .type = type,
	   .root = MPI_ALL)

/* In place on one rank means in place on all. */
COLLECTIVE(Alltoallv, Ialltoallv,
	   (const void *in, const int *in_counts, const int *in_displs, MPI_Datatype in_type,
	    void *out, const int *counts, const int *displs, MPI_Datatype type, MPI_Comm comm),
	   (in, in_counts, in_displs, in_type, out, counts, displs, type, comm), in != MPI_IN_PLACE,
	   mpi_begin_alltoallv, .in = in, .in_counts = in_counts, .in_displs = in_displs,
	   .in_type = in_type, .out = out, .counts = counts, .displs = displs, .type = type,
	   .root = MPI_ALL)

COLLECTIVE(Barrier, Ibarrier, (MPI_Comm comm), (comm), true, mpi_begin_barrier, 0)

int MPI_Finalize(void)
{
	const struct mpi_library *mpi = mpi_library();
	int rank = -1;

	mpi_end_requests();
	mpi->Comm_rank(mpi->MPI_COMM_WORLD, &rank);
	if (rank == 0)
		mpi_print_counts(rank);
	mpi_free_world();
	return mpi->Finalize();
}

#define FORMS(name, started, ...)                     \
	PROFILED(name, __VA_ARGS__)                   \
	PROFILED(started, __VA_ARGS__, MPI_Request *) \
	PROFILED(name##_init, __VA_ARGS__, MPI_Info, MPI_Request *)
MPI_TAKEN(FORMS)
PROFILED(Finalize, void)

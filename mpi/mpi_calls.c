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
	if (!mpi_take(k, comm, true))
		return false;
	if (!k->error)
		mpi_drain(k->t);
	return true;
}

/* The end of a task that was only to start, and was refused or passed on */
static int drop(struct mpi_task *k, int rc)
{
	free(k);
	return rc;
}

/* An MPI library older than MPI 4 has no persistent collectives and no large counts to pass on to. */
static int cannot_pass_on(const char *name, MPI_Comm comm)
{
	fprintf(stderr,
		"libtutti-mpi: %s is a call that Tutti cannot take here, and this MPI library lacks it\n",
		name);
	mpi_library()->Comm_call_errhandler(comm, MPI_ERR_OTHER);
	return MPI_ERR_OTHER;
}

#define LIST(...) __VA_ARGS__
#define PASS_ON(name, arguments) \
	(mpi_library()->name ? mpi_library()->name arguments : cannot_pass_on("MPI_" #name, comm))
#define TABLE(entries)                      \
	{                                   \
		entries, sizeof(*(entries)) \
	}

/* The forms of a collective: suffix, parameters, arguments to pass on, whether Tutti has the operation, its
 * beginning, and the arguments for that (struct mpi_given) */
#define FORMS(c, name, started, parameters, arguments, has, does, ...)                               \
	int MPI_##name##c parameters                                                                 \
	{                                                                                            \
		uint64_t began = mpi_clock();                                                        \
		struct mpi_task task = { .begin = does, .given = { __VA_ARGS__ } }, *k = &task;      \
		bool taken = (has) && may_wait(k, comm);                                             \
		int rc = !taken     ? PASS_ON(name##c, arguments)                                    \
			 : k->error ? mpi_refuse(k, "MPI_" #name #c)                                 \
				    : mpi_end_task(k, does(k));                                      \
                                                                                                     \
		mpi_count(mpi_##name##c, taken, began);                                              \
		return rc;                                                                           \
	}                                                                                            \
                                                                                                     \
	int MPI_##started##c(LIST parameters, MPI_Request *request)                                  \
	{                                                                                            \
		uint64_t began = mpi_clock();                                                        \
		struct mpi_task *k = mpi_new_task(does, &(struct mpi_given){ __VA_ARGS__ });         \
		bool taken = (has) && mpi_may_start(k, comm, false);                                 \
		int rc = !taken     ? drop(k, PASS_ON(started##c, (LIST arguments, request)))        \
			 : k->error ? drop(k, mpi_refuse(k, "MPI_" #started #c))                     \
				    : mpi_start(k, request);                                         \
                                                                                                     \
		mpi_count(mpi_##started##c, taken, began);                                           \
		return rc;                                                                           \
	}                                                                                            \
                                                                                                     \
	int MPI_##name##_init##c(LIST parameters, MPI_Info info, MPI_Request *request)               \
	{                                                                                            \
		uint64_t began = mpi_clock();                                                        \
		struct mpi_task *k = mpi_new_task(does, &(struct mpi_given){ __VA_ARGS__ });         \
		bool taken = (has) && mpi_may_start(k, comm, true);                                  \
		int rc = !taken     ? drop(k,                                                        \
					   PASS_ON(name##_init##c, (LIST arguments, info, request))) \
			 : k->error ? drop(k, mpi_refuse(k, "MPI_" #name "_init" #c))                \
				    : mpi_make_persistent(k, request);                               \
                                                                                                     \
		mpi_count(mpi_##name##_init##c, taken, began);                                       \
		return rc;                                                                           \
	}

/* parameters(N, D): with counts of type N and displacements of type D */
#ifdef TUTTI_MPI_OMPI
#define COLLECTIVE(name, started, parameters, ...) \
	FORMS(, name, started, parameters(int, int), __VA_ARGS__)
#else
#define COLLECTIVE(name, started, parameters, ...)                \
	FORMS(, name, started, parameters(int, int), __VA_ARGS__) \
	FORMS(_c, name, started, parameters(MPI_Count, MPI_Aint), __VA_ARGS__)
#endif

/* ---- reductions ------------------------------------------------------------------------------ */

#define ALLREDUCE(N, D) \
	(const void *in, void *out, N count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
COLLECTIVE(Allreduce, Iallreduce, ALLREDUCE, (in, out, count, type, op, comm),
	   mpi_reduces(type, op, &k->reduction), mpi_begin_allreduce, .in = in, .out = out,
	   .count = count)

#define REDUCE(N, D) \
	(const void *in, void *out, N count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm)
COLLECTIVE(Reduce, Ireduce, REDUCE, (in, out, count, type, op, root, comm),
	   mpi_reduces(type, op, &k->reduction), mpi_begin_reduce, .in = in, .out = out,
	   .count = count, .root = root)

#define REDUCE_SCATTER(N, D) \
	(const void *in, void *out, const N *counts, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
COLLECTIVE(Reduce_scatter, Ireduce_scatter, REDUCE_SCATTER, (in, out, counts, type, op, comm),
	   mpi_reduces(type, op, &k->reduction), mpi_begin_reduce_scatter, .in = in, .out = out,
	   .counts = TABLE(counts), .root = MPI_ALL)

#define REDUCE_SCATTER_BLOCK(N, D) \
	(const void *in, void *out, N count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
COLLECTIVE(Reduce_scatter_block, Ireduce_scatter_block, REDUCE_SCATTER_BLOCK,
	   (in, out, count, type, op, comm), mpi_reduces(type, op, &k->reduction),
	   mpi_begin_reduce_scatter, .in = in, .out = out, .count = count)

/* ---- copies ---------------------------------------------------------------------------------- */

#define BCAST(N, D) (void *buffer, N count, MPI_Datatype type, int root, MPI_Comm comm)
COLLECTIVE(Bcast, Ibcast, BCAST, (buffer, count, type, root, comm), true, mpi_begin_bcast,
	   .out = buffer, .out_count = count, .out_type = type, .root = root)

#define ALLGATHER(N, D)                                                                           \
	(const void *in, N in_count, MPI_Datatype in_type, void *out, N count, MPI_Datatype type, \
	 MPI_Comm comm)
COLLECTIVE(Allgather, Iallgather, ALLGATHER, (in, in_count, in_type, out, count, type, comm), true,
	   mpi_begin_gather, .in = in, .in_count = in_count, .in_type = in_type, .out = out,
	   .count = count, .type = type, .root = MPI_ALL)

#define ALLGATHERV(N, D)                                                               \
	(const void *in, N in_count, MPI_Datatype in_type, void *out, const N *counts, \
	 const D *displs, MPI_Datatype type, MPI_Comm comm)
COLLECTIVE(Allgatherv, Iallgatherv, ALLGATHERV,
	   (in, in_count, in_type, out, counts, displs, type, comm), true, mpi_begin_gather,
	   .in = in, .in_count = in_count, .in_type = in_type, .out = out, .counts = TABLE(counts),
	   .displs = TABLE(displs), .type = type, .root = MPI_ALL, .uneven = true)

#define GATHER(N, D)                                                                              \
	(const void *in, N in_count, MPI_Datatype in_type, void *out, N count, MPI_Datatype type, \
	 int root, MPI_Comm comm)
COLLECTIVE(Gather, Igather, GATHER, (in, in_count, in_type, out, count, type, root, comm), true,
	   mpi_begin_gather, .in = in, .in_count = in_count, .in_type = in_type, .out = out,
	   .count = count, .type = type, .root = root)

#define GATHERV(N, D)                                                                  \
	(const void *in, N in_count, MPI_Datatype in_type, void *out, const N *counts, \
	 const D *displs, MPI_Datatype type, int root, MPI_Comm comm)
COLLECTIVE(Gatherv, Igatherv, GATHERV,
	   (in, in_count, in_type, out, counts, displs, type, root, comm), true, mpi_begin_gather,
	   .in = in, .in_count = in_count, .in_type = in_type, .out = out, .counts = TABLE(counts),
	   .displs = TABLE(displs), .type = type, .root = root, .uneven = true)

#define SCATTER(N, D)                                                        \
	(const void *in, N count, MPI_Datatype type, void *out, N out_count, \
	 MPI_Datatype out_type, int root, MPI_Comm comm)
COLLECTIVE(Scatter, Iscatter, SCATTER, (in, count, type, out, out_count, out_type, root, comm),
	   true, mpi_begin_scatter, .in = in, .count = count, .type = type, .out = out,
	   .out_count = out_count, .out_type = out_type, .root = root)

#define SCATTERV(N, D)                                                                   \
	(const void *in, const N *counts, const D *displs, MPI_Datatype type, void *out, \
	 N out_count, MPI_Datatype out_type, int root, MPI_Comm comm)
COLLECTIVE(Scatterv, Iscatterv, SCATTERV,
	   (in, counts, displs, type, out, out_count, out_type, root, comm), true,
	   mpi_begin_scatter, .in = in, .counts = TABLE(counts), .displs = TABLE(displs),
	   .type = type, .out = out, .out_count = out_count, .out_type = out_type, .root = root,
	   .uneven = true)

#define ALLTOALL(N, D)                                                                            \
	(const void *in, N in_count, MPI_Datatype in_type, void *out, N count, MPI_Datatype type, \
	 MPI_Comm comm)
COLLECTIVE(Alltoall, Ialltoall, ALLTOALL, (in, in_count, in_type, out, count, type, comm), true,
	   mpi_begin_alltoall, .in = in, .in_count = in_count, .in_type = in_type, .out = out,
	   .count = count, .type = type, .root = MPI_ALL)

/* In place on one rank means in place on all. */
#define ALLTOALLV(N, D)                                                                           \
	(const void *in, const N *in_counts, const D *in_displs, MPI_Datatype in_type, void *out, \
	 const N *counts, const D *displs, MPI_Datatype type, MPI_Comm comm)
COLLECTIVE(Alltoallv, Ialltoallv, ALLTOALLV,
	   (in, in_counts, in_displs, in_type, out, counts, displs, type, comm), in != MPI_IN_PLACE,
	   mpi_begin_alltoallv, .in = in, .in_counts = TABLE(in_counts),
	   .in_displs = TABLE(in_displs), .in_type = in_type, .out = out, .counts = TABLE(counts),
	   .displs = TABLE(displs), .type = type, .root = MPI_ALL)

FORMS(, Barrier, Ibarrier, (MPI_Comm comm), (comm), true, mpi_begin_barrier, 0)

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

#define PROFILED_FORMS(c, name, started, ...)            \
	PROFILED(name##c, __VA_ARGS__)                   \
	PROFILED(started##c, __VA_ARGS__, MPI_Request *) \
	PROFILED(name##_init##c, __VA_ARGS__, MPI_Info, MPI_Request *)
MPI_TAKEN(PROFILED_FORMS)
MPI_LARGE(PROFILED_FORMS)
PROFILED(Finalize, void)

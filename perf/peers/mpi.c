/*
 * mpi.c - MPI as a peer of perf/compare; compiled by mpicc.openmpi and by mpicc.mpich
 *
 * In-place calls exist for allreduce, reduce and broadcast (MPI_Bcast has one buffer, so broadcast is
 * always in place).
 */
#include <mpi.h>

#include "perf/peers/peer.h"

static int rank, n;

static int join(int *ret_rank, int *ret_n)
{
	if (MPI_Init(NULL, NULL) || MPI_Comm_rank(MPI_COMM_WORLD, &rank) ||
	    MPI_Comm_size(MPI_COMM_WORLD, &n))
		return 1;
	*ret_rank = rank;
	*ret_n = n;
	return 0;
}

static void leave(void)
{
	MPI_Finalize();
}

static int allreduce(const float *in, float *out, size_t count)
{
	return MPI_Allreduce(in == out ? MPI_IN_PLACE : in, out, (int)count, MPI_FLOAT, MPI_SUM,
			     MPI_COMM_WORLD);
}

static int broadcast(const float *in, float *out, size_t count)
{
	(void)in;
	return MPI_Bcast(out, (int)count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static int reduce(const float *in, float *out, size_t count)
{
	const void *from = in == out && rank == 0 ? MPI_IN_PLACE : in;

	return MPI_Reduce(from, rank ? NULL : out, (int)count, MPI_FLOAT, MPI_SUM, 0,
			  MPI_COMM_WORLD);
}

static int allgather(const float *in, float *out, size_t count)
{
	return MPI_Allgather(in, (int)count, MPI_FLOAT, out, (int)count, MPI_FLOAT, MPI_COMM_WORLD);
}

static int reduce_scatter(const float *in, float *out, size_t count)
{
	return MPI_Reduce_scatter_block(in, out, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static int alltoall(const float *in, float *out, size_t count)
{
	return MPI_Alltoall(in, (int)count, MPI_FLOAT, out, (int)count, MPI_FLOAT, MPI_COMM_WORLD);
}

static int gather(const float *in, float *out, size_t count)
{
	return MPI_Gather(in, (int)count, MPI_FLOAT, out, (int)count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static int scatter(const float *in, float *out, size_t count)
{
	return MPI_Scatter(in, (int)count, MPI_FLOAT, out, (int)count, MPI_FLOAT, 0,
			   MPI_COMM_WORLD);
}

static int pingpong(const float *in, float *out, size_t count)
{
	int peer = !rank;

	if (rank == 0)
		return MPI_Send(in, (int)count, MPI_FLOAT, peer, 0, MPI_COMM_WORLD) ||
		       MPI_Recv(out, (int)count, MPI_FLOAT, peer, 0, MPI_COMM_WORLD,
				MPI_STATUS_IGNORE);
	return MPI_Recv(out, (int)count, MPI_FLOAT, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE) ||
	       MPI_Send(in, (int)count, MPI_FLOAT, peer, 0, MPI_COMM_WORLD);
}

static int sendrecv(const float *in, float *out, size_t count)
{
	return MPI_Sendrecv(in, (int)count, MPI_FLOAT, (rank + 1) % n, 0, out, (int)count,
			    MPI_FLOAT, (rank + n - 1) % n, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

const struct peer peer = {
	.open = join,
	.close = leave,
	.calls = { allreduce, broadcast, reduce, allgather, reduce_scatter, alltoall, gather,
		   scatter, pingpong, sendrecv },
};

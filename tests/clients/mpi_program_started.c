/*
 * mpi_program_started.c - messages and calls that only start are pending while a rank waits in a collective
 *
 * Called by mpi_program.c.
 */
#include "mpi_program.h"

void mode_pending(void)
{
	enum { BYTES = 4 << 20 };
	char *data = calloc(1, BYTES), status[64];
	MPI_Request request;
	int one = 1, sum = 0, peer = rank ^ 1;

	for (int round = 0; round < 3; round++) {
		if (rank % 2 == 0 && peer < n) {
			memset(data, round + 1, BYTES);
			MPI_Isend(data, BYTES, MPI_CHAR, peer, 0, MPI_COMM_WORLD, &request);
			MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
			MPI_Wait(&request, MPI_STATUS_IGNORE);
		} else {
			if (peer < n)
				MPI_Recv(data, BYTES, MPI_CHAR, peer, 0, MPI_COMM_WORLD, status);
			MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
			WANT(peer >= n || data[BYTES - 1] == round + 1);
		}
		WANT(sum == n);
	}
	free(data);
}

enum { LARGE = 1 << 20, MANY = 20 };

/* Rank 0 starts a sum, then sends; the others receive, then start theirs: a start must not wait. Of a
 * new communicator, the call is passed on. */
static void send_after_start(MPI_Comm c, int *data)
{
	int one = 1, sum = 0;
	MPI_Request request;

	if (rank)
		MPI_Recv(data, LARGE, MPI_INT, 0, 1, c, MPI_STATUS_IGNORE);
	MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, c, &request);
	for (int r = 1; r < n && !rank; r++)
		MPI_Send(data, LARGE, MPI_INT, r, 1, c);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	WANT(sum == n);
}

/* A call that waits, behind one that was started, while a large message is on its way */
static void wait_behind_start(MPI_Comm c, int *data)
{
	int one = 1, sum = 0, all[16];
	MPI_Request requests[17];

	if (rank)
		MPI_Recv(data, LARGE, MPI_INT, 0, 2, c, MPI_STATUS_IGNORE);
	for (int r = 1; r < n && !rank; r++)
		MPI_Isend(data, LARGE, MPI_INT, r, 2, c, &requests[r]);
	MPI_Iallgather(&rank, 1, MPI_INT, all, 1, MPI_INT, c, &requests[0]);
	MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, c);
	MPI_Waitall(rank ? 1 : n, requests, MPI_STATUS_IGNORE);
	WANT(sum == n);
	for (int r = 0; r < n; r++)
		WANT(all[r] == r);
}

/* Many at once, among messages, completed in any order; the last request is given back at once. */
static void many(MPI_Comm c)
{
	int given[MANY], sums[MANY] = { 0 }, index, done = 0, note = -1;
	MPI_Request requests[MANY + 2];

	for (int i = 0; i < MANY; i++) {
		given[i] = i * (rank + 1);
		MPI_Iallreduce(&given[i], &sums[i], 1, MPI_INT, MPI_SUM, c, &requests[i]);
	}
	MPI_Irecv(&note, 1, MPI_INT, (rank + 1) % n, 3, c, &requests[MANY]);
	MPI_Isend(&rank, 1, MPI_INT, (rank + n - 1) % n, 3, c, &requests[MANY + 1]);
	for (; done < MANY + 2; done++)
		WANT(!MPI_Waitany(MANY + 2, requests, &index, MPI_STATUS_IGNORE));
	for (int i = 0; i < MANY; i++)
		WANT(sums[i] == i * n * (n + 1) / 2);
	WANT(note == (rank + 1) % n);
	MPI_Ibcast(&note, 1, MPI_INT, 0, c, requests);
	MPI_Request_free(requests);
	MPI_Barrier(c);
	WANT(note == 1 % n);
}

/* The tables and the datatype are gone before the call is complete. Of a communicator that has joined */
static void forgotten_arguments(MPI_Comm c)
{
	int *counts = malloc(2 * (size_t)n * sizeof(int)), *displs = counts + n, given[3];
	int *all = calloc((size_t)n, sizeof(given));
	MPI_Datatype ends; /* the first and the last of three integers */
	MPI_Request request;

	for (int r = 0; r < n; r++) {
		counts[r] = 1;
		displs[r] = n - 1 - r;
	}
	for (int i = 0; i < 3; i++)
		given[i] = 10 * rank + i;
	MPI_Type_vector(2, 1, 2, MPI_INT, &ends);
	MPI_Type_commit(&ends);
	MPI_Iallgatherv(given, 1, ends, all, counts, displs, ends, c, &request);
	memset(counts, -1, 2 * (size_t)n * sizeof(int));
	free(counts);
	MPI_Type_free(&ends);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	for (int r = 0; r < n; r++) {
		int *part = all + 3 * (n - 1 - r);

		WANT(part[0] == 10 * r && part[1] == 0 && part[2] == 10 * r + 2);
	}
	free(all);
}

void mode_started(void)
{
	int *data = calloc(LARGE, sizeof(*data));
	MPI_Comm dup;

	MPI_Comm_dup(MPI_COMM_WORLD, &dup);
	for (int round = 0; round < 3; round++) {
		send_after_start(dup, data);
		MPI_Barrier(dup);
		send_after_start(dup, data);
		wait_behind_start(dup, data);
		many(dup);
		forgotten_arguments(dup);
	}
	MPI_Comm_free(&dup);
	free(data);
}

/*
 * mpi_program_persistent.c - requests of MPI_Allreduce_init and others, started many times
 *
 * Called by mpi_program.c. The functions are looked up, since an MPI library older than MPI 4 lacks them.
 */
#include "mpi_program.h"

enum { LARGE = 1 << 20, MANY = 10 };

static int (*sum_init)(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Info,
		       MPI_Request *);
static int (*bcast_init)(void *, int, MPI_Datatype, int, MPI_Comm, MPI_Info, MPI_Request *);

/* A request is complete before its first start and after each completion. It is not before all ranks have
 * started it: the others wait for a message that rank 0 sends behind its test. */
static void starts_and_completes(MPI_Comm c)
{
	int given, sum = 0, flag = 0;
	MPI_Request request;

	WANT(!sum_init(&given, &sum, 1, MPI_INT, MPI_SUM, c, MPI_INFO_NULL, &request));
	for (int round = 0; round < 5; round++) {
		WANT(!MPI_Wait(&request, MPI_STATUS_IGNORE));
		given = rank + round;
		if (rank)
			MPI_Recv(&flag, 1, MPI_INT, 0, round, c, MPI_STATUS_IGNORE);
		WANT(!MPI_Start(&request));
		if (!rank) {
			WANT(!MPI_Test(&request, &flag, MPI_STATUS_IGNORE) && !flag);
			WANT(!MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE) && !flag);
		}
		for (int r = 1; r < n && !rank; r++)
			MPI_Send(&round, 1, MPI_INT, r, round, c);
		while (round % 2 && !flag)
			WANT(!MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
		WANT(!MPI_Wait(&request, MPI_STATUS_IGNORE));
		WANT(sum == n * (n - 1) / 2 + n * round);
	}
	WANT(!MPI_Request_free(&request));
}

/* Requests are started together and completed in any order, among a large message and a call that waits. */
static void many(MPI_Comm c, int *data)
{
	int given[MANY], sums[MANY], index, one = 1, sum;
	MPI_Request requests[MANY + 1];

	for (int i = 0; i < MANY; i++)
		WANT(!sum_init(&given[i], &sums[i], 1, MPI_INT, MPI_SUM, c, MPI_INFO_NULL,
			       &requests[i]));
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < MANY; i++)
			given[i] = i * (rank + 1) + round;
		if (rank == 1)
			MPI_Recv(data, LARGE, MPI_INT, 0, 9, c, MPI_STATUS_IGNORE);
		WANT(!MPI_Startall(MANY, requests));
		requests[MANY] = requests[0];
		if (!rank)
			MPI_Isend(data, LARGE, MPI_INT, 1, 9, c, &requests[MANY]);
		MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, c);
		WANT(sum == n);
		for (int i = 0; i < MANY + !rank; i++)
			WANT(!MPI_Waitany(MANY + !rank, requests, &index, MPI_STATUS_IGNORE) &&
			     index >= 0);
		for (int i = 0; i < MANY; i++)
			WANT(sums[i] == i * n * (n + 1) / 2 + n * round);
	}
	for (int i = 0; i < MANY; i++)
		WANT(!MPI_Request_free(&requests[i]));
}

/* The communicator may be freed before its requests. */
static void outlives(void)
{
	int value = 0;
	MPI_Comm c;
	MPI_Request request;

	MPI_Comm_dup(MPI_COMM_WORLD, &c);
	WANT(!bcast_init(&value, 1, MPI_INT, n - 1, c, MPI_INFO_NULL, &request));
	MPI_Comm_free(&c);
	value = rank;
	WANT(!MPI_Start(&request) && !MPI_Wait(&request, MPI_STATUS_IGNORE));
	WANT(value == n - 1);
	WANT(!MPI_Request_free(&request));
}

void mode_persistent(void)
{
	int *data = calloc(LARGE, sizeof(*data));
	MPI_Comm dup;

	*(void **)&sum_init = find_persistent("MPI_Allreduce_init");
	*(void **)&bcast_init = find_persistent("MPI_Bcast_init");
	if (!sum_init) {
		puts("no persistent collectives");
		return;
	}
	MPI_Comm_dup(MPI_COMM_WORLD, &dup);
	starts_and_completes(dup);
	many(dup, data);
	outlives();
	MPI_Comm_free(&dup);
	free(data);
}

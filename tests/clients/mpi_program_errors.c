/*
 * mpi_program_errors.c - a call that Tutti refuses is an error for the communicator's error handler
 *
 * Called by mpi_program.c. The ranks ask for sums of different lengths: MPI leaves open what happens, and
 * Tutti compares.
 */
#include "mpi_program.h"

static int handled;

static void handle(MPI_Comm *comm, int *code, ...)
{
	(void)comm, (void)code;
	handled++;
}

/* Each form on a communicator of its own, since an error ends the communicator. */
enum mpi_form { WAITS, STARTS, PERSISTS };

static int wrong_sum(enum mpi_form form, MPI_Errhandler handler)
{
	int (*sum_init)(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Info,
			MPI_Request *);
	int given[64] = { 0 }, sums[64], one = 1, count = rank ? 3 : 40, rc;
	MPI_Comm c;
	MPI_Request request;

	*(void **)&sum_init = find_persistent("MPI_Allreduce_init");
	if (form == PERSISTS && !sum_init)
		return 1;
	MPI_Comm_dup(MPI_COMM_WORLD, &c);
	MPI_Comm_set_errhandler(c, handler);
	MPI_Allreduce(&one, sums, 1, MPI_INT, MPI_SUM, c);
	if (form == WAITS) {
		rc = MPI_Allreduce(given, sums, count, MPI_INT, MPI_SUM, c);
	} else if (form == STARTS) {
		WANT(!MPI_Iallreduce(given, sums, count, MPI_INT, MPI_SUM, c, &request));
		rc = MPI_Wait(&request, MPI_STATUS_IGNORE);
	} else {
		WANT(!sum_init(given, sums, count, MPI_INT, MPI_SUM, c, MPI_INFO_NULL, &request));
		WANT(!MPI_Start(&request));
		rc = MPI_Wait(&request, MPI_STATUS_IGNORE);
		MPI_Request_free(&request);
	}
	MPI_Comm_free(&c);
	return rc;
}

void mode_errors(void)
{
	MPI_Errhandler own;

	MPI_Comm_create_errhandler(handle, &own);
	/* Intel MPI raises a request's errors here */
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	for (enum mpi_form form = WAITS; form <= PERSISTS; form++) {
		WANT(wrong_sum(form, MPI_ERRORS_RETURN));
		WANT(!handled);
		WANT(wrong_sum(form, own));
		WANT(handled || (form == PERSISTS && !find_persistent("MPI_Allreduce_init")));
		handled = 0;
	}
	MPI_Errhandler_free(&own);
}

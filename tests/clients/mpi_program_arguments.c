/*
 * mpi_program_arguments.c - wrong arguments are errors of MPI's classes, for the communicator's error handler, and harm nothing
 *
 * Called by mpi_program.c. Each form of a call is made wrongly by all ranks, then by rank 0 alone, then rightly by all.
 */
#include "mpi_program.h"

static int handled;

static void handle(MPI_Comm *comm, int *code, ...)
{
	(void)comm, (void)code;
	handled++;
}

static int buffer[64], out[64], minus[64], starts[64], ones[64];
static MPI_Datatype pair, never; /* never: not committed */
static MPI_Comm c;
static MPI_Request request;

/* Wrong calls, and their classes */
#define IN buffer, 1, MPI_INT
#define OUT out, 1, MPI_INT
#define CALLS(X)                                                                                  \
	X(Allreduce, Iallreduce, (buffer, out, -1, MPI_INT, MPI_SUM, c), MPI_ERR_COUNT)           \
	X(Allreduce, Iallreduce, (NULL, out, 1, MPI_INT, MPI_SUM, c), MPI_ERR_BUFFER)             \
	X(Allreduce, Iallreduce, (buffer, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, c), MPI_ERR_BUFFER)  \
	X(Reduce, Ireduce, (buffer, out, 1, MPI_INT, MPI_SUM, n, c), MPI_ERR_ROOT)                \
	X(Reduce, Ireduce, (buffer, out, -1, MPI_INT, MPI_SUM, 0, c), MPI_ERR_COUNT)              \
	X(Reduce_scatter, Ireduce_scatter, (buffer, out, minus, MPI_INT, MPI_SUM, c),             \
	  MPI_ERR_COUNT)                                                                          \
	X(Reduce_scatter_block, Ireduce_scatter_block, (buffer, out, -1, MPI_INT, MPI_SUM, c),    \
	  MPI_ERR_COUNT)                                                                          \
	X(Bcast, Ibcast, (buffer, -1, MPI_INT, 0, c), MPI_ERR_COUNT)                              \
	X(Bcast, Ibcast, (buffer, 1, MPI_DATATYPE_NULL, 0, c), MPI_ERR_TYPE)                      \
	X(Bcast, Ibcast, (buffer, 1, MPI_INT, -5, c), MPI_ERR_ROOT)                               \
	X(Bcast, Ibcast, (MPI_IN_PLACE, 1, MPI_INT, 0, c), MPI_ERR_BUFFER)                        \
	X(Allgather, Iallgather, (buffer, 1, MPI_DATATYPE_NULL, OUT, c), MPI_ERR_TYPE)            \
	X(Allgather, Iallgather, (IN, out, -1, MPI_INT, c), MPI_ERR_COUNT)                        \
	X(Allgatherv, Iallgatherv, (IN, out, minus, starts, MPI_INT, c), MPI_ERR_COUNT)           \
	X(Allgatherv, Iallgatherv, (IN, out, NULL, starts, MPI_INT, c), MPI_ERR_ARG)              \
	X(Gather, Igather, (IN, OUT, n, c), MPI_ERR_ROOT)                                         \
	X(Gather, Igather, (buffer, 1, MPI_DATATYPE_NULL, OUT, 0, c), MPI_ERR_TYPE)               \
	X(Gatherv, Igatherv, (buffer, -1, MPI_INT, out, ones, starts, MPI_INT, 0, c),             \
	  MPI_ERR_COUNT)                                                                          \
	X(Scatter, Iscatter, (IN, out, -1, MPI_INT, 0, c), MPI_ERR_COUNT)                         \
	X(Scatterv, Iscatterv, (buffer, ones, starts, MPI_INT, OUT, -5, c), MPI_ERR_ROOT)         \
	X(Alltoall, Ialltoall, (buffer, -1, MPI_INT, out, -1, MPI_INT, c), MPI_ERR_COUNT)         \
	X(Alltoallv, Ialltoallv, (buffer, minus, starts, MPI_INT, out, ones, starts, MPI_INT, c), \
	  MPI_ERR_COUNT)                                                                          \
	X(Alltoallv, Ialltoallv,                                                                  \
	  (buffer, ones, starts, MPI_INT, out, ones, starts, MPI_DATATYPE_NULL, c), MPI_ERR_TYPE) \
	X(Allreduce, Iallreduce, (buffer, out, 1, MPI_DATATYPE_NULL, MPI_SUM, c), MPI_ERR_TYPE)   \
	X(Allreduce, Iallreduce, (buffer, out, 1, MPI_INT, MPI_OP_NULL, c), MPI_ERR_OP)           \
	X(Allreduce, Iallreduce, (buffer, out, 1, MPI_DOUBLE, MPI_BAND, c), MPI_ERR_OP)           \
	X(Reduce, Ireduce, (buffer, out, 1, MPI_INT, MPI_MINLOC, 0, c), MPI_ERR_OP)               \
	X(Allreduce, Iallreduce, (buffer, out, 1, pair, MPI_SUM, c), MPI_ERR_OP)

/* One error of the class, raised once */
static void check(int rc, int class, const char *call)
{
	int of_rc = -1;

	if (rc)
		MPI_Error_class(rc, &of_rc);
	if (of_rc == class && handled == 1)
		return;
	failures++;
	fprintf(stderr, "rank %d: %s: class %d, not %d; handler called %d times\n", rank, call,
		of_rc, class, handled);
}

static void check_right(const char *call)
{
	int mine = rank + 1, sum = 0;

	MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, c);
	if (sum == n * (n + 1) / 2)
		return;
	failures++;
	fprintf(stderr, "rank %d: after a wrong %s a sum is %d\n", rank, call, sum);
}

#define LIST(...) __VA_ARGS__
#define TRY(name, started, arguments, class)                                         \
	for (int alone = 0; alone < 2; alone++) {                                    \
		if (rank == 0 || !alone) {                                           \
			handled = 0;                                                 \
			check(MPI_##name arguments, class, "MPI_" #name #arguments); \
			handled = 0;                                                 \
			check(MPI_##started(LIST arguments, &request), class,        \
			      "MPI_" #started #arguments);                           \
		}                                                                    \
		check_right("MPI_" #name #arguments);                                \
	}

/* Only the MPI library knows, and MPICH of PyPI does not look. */
static void try_uncommitted(void)
{
	int at = 0;

	MPI_Type_vector(2, 1, 2, MPI_INT, &never);
	if (MPI_Pack(buffer, 0, never, out, 0, &at, c)) {
		handled = 0;
		check(MPI_Bcast(buffer, 1, never, 0, c), MPI_ERR_TYPE, "MPI_Bcast, uncommitted");
		handled = 0;
		check(MPI_Ibcast(buffer, 1, never, 0, c, &request), MPI_ERR_TYPE,
		      "MPI_Ibcast, uncommitted");
	}
	check_right("MPI_Bcast, uncommitted");
	MPI_Type_free(&never);
}

static void try_persistent(void)
{
	int (*bcast_init)(void *, int, MPI_Datatype, int, MPI_Comm, MPI_Info, MPI_Request *);

	*(void **)&bcast_init = find_persistent("MPI_Bcast_init");
	handled = 0;
	if (bcast_init)
		check(bcast_init(buffer, -1, MPI_INT, 0, c, MPI_INFO_NULL, &request), MPI_ERR_COUNT,
		      "MPI_Bcast_init of -1");
}

void mode_arguments(void)
{
	MPI_Errhandler own;

	for (int p = 0; p < 64; p++) {
		minus[p] = p == n - 1 ? -1 : 1;
		starts[p] = p;
		ones[p] = 1;
	}
	MPI_Comm_create_errhandler(handle, &own);
	MPI_Type_vector(2, 1, 2, MPI_INT, &pair);
	MPI_Type_commit(&pair);
	MPI_Comm_dup(MPI_COMM_WORLD, &c);
	MPI_Comm_set_errhandler(c, own);
	if (rank == 0) /* before the communicator has joined Tutti, too */
		check(MPI_Bcast(buffer, -1, MPI_INT, 0, c), MPI_ERR_COUNT,
		      "MPI_Bcast of -1, first");
	check_right("MPI_Bcast, first");
	CALLS(TRY)
	try_uncommitted();
	try_persistent();
	MPI_Comm_free(&c);
	MPI_Type_free(&pair);
	MPI_Errhandler_free(&own);
}

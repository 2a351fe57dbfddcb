/*
 * mpi_program.c - a program of MPI that knows nothing of Tutti, for mpi.sh
 *
 *   mpi_program pending     Isend of 4 MiB, allreduce, wait; the receiver is in MPI_Recv before it makes
 *                           its allreduce: ends only if a rank in the allreduce drives MPI's progress
 *   mpi_program equal       each collective, and its forms that start and complete apart, against the MPI
 *                           library's own
 *   mpi_program started     calls that only start, among messages and calls that wait
 *   mpi_program persistent  requests that start many times, among the same
 *   mpi_program large N     collectives with large counts, among them a broadcast of N MiB
 *   mpi_program dups N      N duplicates, each with a sum, freed: nothing is left
 *   mpi_program errors      wrong calls reach the error handler of the communicator
 *   mpi_program arguments   wrong arguments are errors of MPI's classes, of the rank alone that gives them
 *   mpi_program orders      ranks free communicators and leave in different orders
 *   mpi_program inter       collectives of an intercommunicator, scans
 *   mpi_program threads     MPI_THREAD_MULTIPLE: two threads with a duplicate each
 *   mpi_program times N     microseconds of a call, in loops of N
 *
 * Prints "right" and exits with 0.
 */
#include "mpi_program.h"

#ifdef TUTTI_MPI_OMPI
#define DECLARE(name, object, ...) extern char object[];
MPI_COMMS(DECLARE)
MPI_TYPES(DECLARE)
MPI_OPS(DECLARE)
MPI_INFOS(DECLARE)
MPI_ERRHANDLERS(DECLARE)
#undef DECLARE
#define VALUE(object, mpich, abi) ((void *)object)
#elif defined(TUTTI_MPI_ABI)
#define VALUE(object, mpich, abi) ((void *)(uintptr_t)abi)
#else
#define VALUE(object, mpich, abi) mpich
#endif
#define HANDLE(name, ...) MPI_Datatype name;
MPI_TYPES(HANDLE)
#undef HANDLE
#define HANDLE(name, ...) MPI_Op name;
MPI_OPS(HANDLE)
#undef HANDLE
#define HANDLE(name, ...) MPI_Comm name;
MPI_COMMS(HANDLE)
#undef HANDLE
#define HANDLE(name, ...) MPI_Info name;
MPI_INFOS(HANDLE)
#undef HANDLE
#define HANDLE(name, ...) MPI_Errhandler name;
MPI_ERRHANDLERS(HANDLE)
#undef HANDLE

int rank, n, failures, times = 20;

static void name_handles(void)
{
#define HANDLE(name, object, mpich, abi) name = VALUE(object, mpich, abi);
	MPI_COMMS(HANDLE)
	MPI_TYPES(HANDLE)
	MPI_OPS(HANDLE)
	MPI_INFOS(HANDLE)
	MPI_ERRHANDLERS(HANDLE)
#undef HANDLE
}

void *find_own(const char *name)
{
	static const char *const libraries[] = { MPI_LIBRARIES };
	void *library = NULL;

	for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]) && !library; i++)
		library = dlopen(libraries[i], RTLD_LAZY | RTLD_NOLOAD);
	return dlsym(library ? library : RTLD_DEFAULT, name);
}

void *find_persistent(const char *name)
{
	return find_own("PMPI_Allreduce_init") ? dlsym(RTLD_DEFAULT, name) : NULL;
}

static const struct mode {
	const char *name;
	void (*run)(void);
} modes[] = { { "pending", mode_pending },
	      { "equal", mode_equal },
	      { "started", mode_started },
	      { "persistent", mode_persistent },
	      { "dups", mode_dups },
	      { "errors", mode_errors },
	      { "arguments", mode_arguments },
	      { "orders", mode_orders },
	      { "inter", mode_inter },
	      { "threads", mode_threads },
	      { "large", mode_large },
	      { "times", mode_times },
	      { NULL, NULL } };

int main(int argc, char **argv)
{
	const struct mode *mode = modes;
	int provided = 0;

	while (mode->name && (argc < 2 || strcmp(argv[1], mode->name)))
		mode++;
	if (!mode->name)
		return fputs("mpi_program: name a mode\n", stderr), 2;
	if (argc > 2)
		times = atoi(argv[2]);
	name_handles();
	MPI_Init_thread(&argc, &argv, mode->run == mode_threads ? MPI_THREAD_MULTIPLE : 0,
			&provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &n);
	if (mode->run == mode_threads && provided < MPI_THREAD_MULTIPLE)
		puts("no threads");
	else
		mode->run();
	if (failures)
		MPI_Abort(MPI_COMM_WORLD, 1);
	MPI_Finalize();
	puts("right");
	return 0;
}

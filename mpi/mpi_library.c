/*
 * mpi_library.c - the MPI library that the program uses, and the counts of its calls
 *
 * Called by the other files of mpi/. A program may have loaded MPI by dlopen and out of sight of
 * other libraries (Python does), so its functions are looked up in the library by name.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mpi/mpi_interpose.h"

static struct mpi_library library;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_bool ready; /* library is complete */
static bool counting;
static const char *const libraries[] = { MPI_LIBRARIES };

static const char *const names[MPI_CALLS] = {
#define NAME(c, name, started, ...) "MPI_" #name #c, "MPI_" #started #c, "MPI_" #name "_init" #c,
	MPI_TAKEN(NAME) MPI_LARGE(NAME)
#undef NAME
};

static struct count {
	atomic_uint_fast64_t calls, ns;
} counts[MPI_CALLS][2];

/* What libraries behind this one define, which has such names itself; or the library out of sight */
static void *find(void *handle, const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);

	return found || !handle ? found : dlsym(handle, name);
}

/* A name that the MPI library must have. The linker may have copied an object of the library into the
 * program: what the program sees comes first. */
static void *look_up(void *handle, const char *name, bool object)
{
	void *found = object ? dlsym(RTLD_DEFAULT, name) : NULL;

	if (!found)
		found = find(handle, name);
	if (found)
		return found;
	fprintf(stderr,
		"libtutti-mpi: this library is for %s, which the program does not use, or which has no %s; preload the libtutti-mpi of the program's MPI library\n",
		libraries[0], name);
	exit(1);
}

/* The MPI library that the process has loaded; NULL: none */
static void *loaded(void)
{
	void *handle = NULL;

	for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]) && !handle; i++)
		handle = dlopen(libraries[i], RTLD_LAZY | RTLD_NOLOAD);
	return handle;
}

static void load(void)
{
	void *handle = loaded();
	const char *wanted = getenv("TUTTI_MPI_STATS");

#define FUNCTION(name, ...) *(void **)&library.name = look_up(handle, "PMPI_" #name, false);
#define OPTIONAL(name) *(void **)&library.name = find(handle, "PMPI_" #name);
#define FORMS(c, name, started, ...) FUNCTION(name) FUNCTION(started) OPTIONAL(name##_init)
#define LARGE(c, name, started, ...) OPTIONAL(name##c) OPTIONAL(started##c) OPTIONAL(name##_init##c)
	MPI_TAKEN(FORMS)
	MPI_LARGE(LARGE)
	MPI_STARTING(FUNCTION)
	MPI_COMPLETING(FUNCTION)
	MPI_USED(FUNCTION)
#undef LARGE
#undef FORMS
#undef OPTIONAL
#undef FUNCTION
#if defined(TUTTI_MPI_OMPI)
#define HANDLE(name, object, mpich, abi) library.name = look_up(handle, #object, true);
#elif defined(TUTTI_MPI_ABI)
#define HANDLE(name, object, mpich, abi) library.name = (void *)(uintptr_t)abi;
#else
#define HANDLE(name, object, mpich, abi) library.name = mpich;
#endif
	MPI_COMMS(HANDLE)
	MPI_REQUESTS(HANDLE)
	MPI_ERRHANDLERS(HANDLE)
	MPI_TYPES(HANDLE)
	MPI_OPS(HANDLE)
#undef HANDLE
	counting = wanted && !strcmp(wanted, "1");
	atomic_store_explicit(&ready, true, memory_order_release);
}

const struct mpi_library *mpi_library(void)
{
	if (!atomic_load_explicit(&ready, memory_order_acquire))
		pthread_once(&once, load);
	return &library;
}

/* ---- counts ---------------------------------------------------------------------------------- */

uint64_t mpi_clock(void)
{
	struct timespec t;

	mpi_library();
	if (!counting)
		return 0;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void mpi_count(enum mpi_call call, bool taken, uint64_t began_ns)
{
	if (!counting)
		return;
	atomic_fetch_add_explicit(&counts[call][taken].calls, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&counts[call][taken].ns, mpi_clock() - began_ns,
				  memory_order_relaxed);
}

void mpi_print_counts(int rank)
{
	if (!counting)
		return;
	fprintf(stderr, "libtutti-mpi: rank %d: %-32s %10s %12s %12s %12s\n", rank, "call", "taken",
		"seconds", "passed on", "seconds");
	for (int c = 0; c < MPI_CALLS; c++)
		if (counts[c][0].calls || counts[c][1].calls)
			fprintf(stderr, "libtutti-mpi: rank %d: %-32s %10lu %12.6f %12lu %12.6f\n",
				rank, names[c], (unsigned long)counts[c][1].calls,
				(double)counts[c][1].ns * 1e-9, (unsigned long)counts[c][0].calls,
				(double)counts[c][0].ns * 1e-9);
}

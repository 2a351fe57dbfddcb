/*
 * with_mpi.c - one program that uses Tutti and MPI, as a rank of any launcher
 *
 * Called by launchers.sh:  with_mpi LIBRARY first|last
 * first: MPI_Init before and MPI_Finalize before the end of Tutti; last: both after Tutti. LIBRARY
 * is loaded by dlopen, so no header of MPI is needed. Prints "both" and exits with 0.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tutti.h"

static int report(const char *what, const char *text)
{
	fprintf(stderr, "with_mpi: %s: %s\n", what, text);
	return 1;
}

static int use_tutti(tuttiComm_t comm)
{
	float one = 1, sum = 0;
	int n = 0;

	tuttiCommCount(comm, &n);
	if (tuttiAllReduce(&one, &sum, 1, tuttiFloat, tuttiSum, comm, NULL))
		return report("allreduce", tuttiGetLastError(comm));
	return n > 1 && sum == (float)n ? 0 : report("allreduce", "wrong sum, or one rank");
}

int main(int argc, char **argv)
{
	void *mpi = argc == 3 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
	int (*init)(int *, char ***) =
		mpi ? (int (*)(int *, char ***))dlsym(mpi, "MPI_Init") : NULL;
	int (*finalize)(void) = mpi ? (int (*)(void))dlsym(mpi, "MPI_Finalize") : NULL;
	bool first = argc == 3 && !strcmp(argv[2], "first");
	tuttiComm_t comm, again;

	if (!init || !finalize)
		return report("library", mpi ? "no MPI_Init" : dlerror());
	if (first && init(NULL, NULL))
		return report("MPI_Init", "failed");
	if (tuttiCommInitEnv(&comm, NULL))
		return report("join", tuttiGetLastError(NULL));
	if (!first && init(NULL, NULL))
		return report("MPI_Init", "failed");
	if (tuttiCommInitEnv(&again, NULL))
		return report("join again", tuttiGetLastError(NULL));
	if (use_tutti(comm) || use_tutti(again))
		return 1;
	if (first)
		finalize();
	if (use_tutti(comm) || tuttiCommDestroy(comm) || tuttiCommDestroy(again))
		return 1;
	if (!first)
		finalize();
	puts("both");
	return 0;
}

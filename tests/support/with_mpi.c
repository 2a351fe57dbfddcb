/*
 * with_mpi.c - one program that uses Tutti and MPI, as a rank of whatever started it
 *
 * Called by launchers.sh:  beside_mpi LIBRARY first|last  MPI is initialised before or after Tutti,
 *                        and ended likewise. No
 * header of MPI is needed, so the test does not need its development package. Prints "both" and
 * exits with 0.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tutti.h"

static int complain(const char *what, const char *text)
{
	fprintf(stderr, "beside_mpi: %s: %s\n", what, text);
	return 1;
}

static int use_tutti(tuttiComm_t comm)
{
	float one = 1, sum = 0;
	int n = 0;

	tuttiCommCount(comm, &n);
	if (tuttiAllReduce(&one, &sum, 1, tuttiFloat, tuttiSum, comm, NULL))
		return complain("allreduce", tuttiGetLastError(comm));
	return n > 1 && sum == (float)n ? 0 : complain("allreduce", "wrong, or alone");
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
		return complain("library", mpi ? "no MPI_Init" : dlerror());
	if (first && init(NULL, NULL))
		return complain("MPI_Init", "failed");
	if (tuttiCommInitEnv(&comm, NULL))
		return complain("join", tuttiGetLastError(NULL));
	if (!first && init(NULL, NULL))
		return complain("MPI_Init", "failed");
	if (tuttiCommInitEnv(&again, NULL))
		return complain("join again", tuttiGetLastError(NULL));
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

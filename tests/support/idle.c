/*
 * idle.c - a rank that joins and makes no call until its communicator fails; for cut_link.sh
 *
 * Prints "joined", then the error's text. Exit status: 1 after an error, 2 after 90 s without one.
 */
#include <stdio.h>
#include <time.h>

#include "tutti.h"

int main(void)
{
	tuttiResult_t error = tuttiSuccess;
	tuttiComm_t comm;

	if (tuttiCommInitEnv(&comm, NULL))
		return fprintf(stderr, "join: %s\n", tuttiGetLastError(NULL)), 3;
	puts("joined");
	fflush(stdout);
	for (int i = 0; i < 900 && !error; i++) {
		nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
		tuttiCommGetAsyncError(comm, &error);
	}
	puts(tuttiGetLastError(comm));
	tuttiCommDestroy(comm);
	return error ? 1 : 2;
}

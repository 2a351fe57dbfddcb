/* groups.c - a ring of sends and receives that progress together */
#include <stdio.h>
#include <tutti.h>

int main(void)
{
	tuttiComm_t comm;
	int rank, n, from = -1;

	if (tuttiCommInitEnv(&comm, NULL) || tuttiCommUserRank(comm, &rank) ||
	    tuttiCommCount(comm, &n))
		return fprintf(stderr, "%s\n", tuttiGetLastError(NULL)), 1;
	tuttiGroupStart();
	tuttiSend(&rank, 1, tuttiInt, (rank + 1) % n, comm, NULL);
	tuttiRecv(&from, 1, tuttiInt, (rank + n - 1) % n, comm, NULL);
	if (tuttiGroupEnd())
		return fprintf(stderr, "%s\n", tuttiGetLastError(comm)), 1;
	printf("rank %d has a message of rank %d\n", rank, from);
	return tuttiCommDestroy(comm);
}

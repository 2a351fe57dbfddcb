/* even_odd.c - a communicator for the even ranks and one for the odd ranks */
#include <stdio.h>
#include <tutti.h>

int main(void)
{
	tuttiComm_t comm, half;
	int rank, sum;

	if (tuttiCommInitEnv(&comm, NULL) || tuttiCommUserRank(comm, &rank) ||
	    tuttiCommSplit(comm, rank % 2, rank, &half, NULL))
		return fprintf(stderr, "%s\n", tuttiGetLastError(NULL)), 1;
	if (tuttiAllReduce(&rank, &sum, 1, tuttiInt, tuttiSum, half, NULL))
		return fprintf(stderr, "%s\n", tuttiGetLastError(half)), 1;
	printf("rank %d: the ranks of this half add to %d\n", rank, sum);
	tuttiCommDestroy(half);
	return tuttiCommDestroy(comm);
}

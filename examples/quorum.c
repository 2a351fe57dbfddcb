/* quorum.c - a sum of all ranks, or of those that have contributed when 10 s are over */
#include <stdio.h>
#include <tutti.h>

int main(void)
{
	tuttiQuorum_t quorum = TUTTI_QUORUM_INITIALIZER;
	tuttiComm_t comm;
	float x = 1, sum;
	int n;

	if (tuttiCommInitEnv(&comm, NULL) || tuttiCommCount(comm, &n))
		return fprintf(stderr, "%s\n", tuttiGetLastError(NULL)), 1;
	if (tuttiAllReduceQuorum(&x, &sum, 1, tuttiFloat, tuttiSum, n, 10000, comm, NULL, &quorum))
		return fprintf(stderr, "%s\n", tuttiGetLastError(comm)), 1;
	printf("%d of %d ranks are in the sum\n", quorum.count, n);
	tuttiBarrier(comm, NULL); /* rank 0, which computes the sum, stays until all have it */
	return tuttiCommDestroy(comm);
}

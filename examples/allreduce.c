#include <stdio.h>
#include <tutti.h>

int main(void)
{
	tuttiComm_t comm;
	float x = 1;

	if (tuttiCommInitEnv(&comm, NULL) ||
	    tuttiAllReduce(&x, &x, 1, tuttiFloat, tuttiSum, comm, NULL))
		return fprintf(stderr, "%s\n", tuttiGetLastError(NULL)), 1;
	printf("%g ranks are here\n", x);
	return tuttiCommDestroy(comm);
}

/* stream.c - an allreduce in a host stream, and an event that tells when it is complete */
#include <stdio.h>
#include <tutti.h>

int main(void)
{
	tuttiComm_t comm;
	tuttiStream_t stream;
	tuttiEvent_t event;
	float x = 1;

	if (tuttiCommInitEnv(&comm, NULL) || tuttiStreamCreate(&stream) || tuttiEventCreate(&event))
		return fprintf(stderr, "%s\n", tuttiGetLastError(NULL)), 1;
	if (tuttiAllReduce(&x, &x, 1, tuttiFloat, tuttiSum, comm, stream) ||
	    tuttiEventRecord(event, stream) || /* the program may compute here */
	    tuttiEventSynchronize(event))
		return fprintf(stderr, "%s\n", tuttiGetLastError(comm)), 1;
	printf("%g ranks are here\n", x);
	tuttiEventDestroy(event);
	tuttiStreamDestroy(stream);
	return tuttiCommDestroy(comm);
}

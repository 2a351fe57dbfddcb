/*
 * device.c - the CUDA context of a rank
 *
 * Called by init.c for each join and by jobs.c in the thread that runs it. Host memory only: there is none.
 */
#include "nccl/layer.h"

void *nc_context_of_caller(void)
{
	return NULL;
}

void *nc_context_of_device(int device)
{
	(void)device;
	return NULL;
}

void nc_context_enter(void *context)
{
	(void)context;
}

/*
 * nccl_client_memory.c - the memory under test: the host's
 *
 * Called by nccl_client_ranks.c and the cases.
 */
#include <stdlib.h>

#include "nccl_client.h"

int memory_open(struct seat *seat)
{
	return ncclMemAlloc(&seat->in, ROOM) || ncclMemAlloc(&seat->out, ROOM);
}

void memory_close(struct seat *seat)
{
	ncclMemFree(seat->in);
	ncclMemFree(seat->out);
}

int memory_write(struct seat *seat, void *to, const void *from, size_t bytes)
{
	(void)seat;
	memcpy(to, from, bytes);
	return 0;
}

int memory_read(struct seat *seat, void *to, const void *from, size_t bytes)
{
	(void)seat;
	memcpy(to, from, bytes);
	return 0;
}

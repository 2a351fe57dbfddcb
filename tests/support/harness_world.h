/*
 * harness_world.h - ranks for tests that need no communicator: threads or forked processes in one
 * struct tt_world
 *
 * The world's sockets are real TCP connections over loopback, made beforehand; its allgather is a
 * piece of shared memory.
 */
#ifndef HARNESS_WORLD_H
#define HARNESS_WORLD_H

#include <stdio.h>

#include "transports/transport.h"

struct harness {
	int nranks, nchannels;
	size_t message_bytes;
	bool threads;              /* ranks are threads of this process, else forked processes */
	const int *host_of;        /* [nranks], NULL: all on one host */
	int takes_before_socket;   /* how often take says "not yet" first */
};

/* Runs body as every rank and waits for all. Returns a mask:
 * bit r is set when rank r gave non-zero or died. */
uint64_t harness_run(const struct harness *h, int (*body)(const struct tt_world *world, void *arg),
		     void *arg);

/* All ranks wait for each other; also tells every rank the largest of the values. */
uint64_t harness_meet(const struct tt_world *world, uint64_t value);

/* In a body: report and give up. */
#define EXPECT(condition)									\
	do {											\
		if (!(condition)) {								\
			fprintf(stderr, "%s:%d: rank %d: not so: %s (last error: %s)\n",	\
					__FILE__, __LINE__,					\
				world->rank, #condition, tt_error_text());			\
			return 1;								\
		}										\
	} while (0)

#endif

/*
 * harness_world.h - ranks without a communicator, for tests of transports: threads or forked
 * processes of one struct tt_world
 *
 * The sockets are TCP connections over loopback that exist before the ranks start; allgather uses
 * shared memory.
 */
#ifndef HARNESS_WORLD_H
#define HARNESS_WORLD_H

#include <stdio.h>

#include "transports/transport.h"

struct harness {
	int nranks, nchannels;
	size_t message_bytes;
	bool threads;            /* ranks are threads of this process, else forked processes */
	const int *host_of;      /* [nranks], NULL: all on one host */
	bool encrypt;            /* TUTTI_ENCRYPT=on, else auto */
	int takes_before_socket; /* calls of take that return 0 (not connected yet) first */
};

/* Runs body as every rank and waits for all ranks. Returns a mask: bit r is set when the body of
 * rank r returned non-zero or the rank died. */
uint64_t harness_run(const struct harness *h, int (*body)(const struct tt_world *world, void *arg),
		     void *arg);

/* announce of t, where it has one, and the exchange of all ranks' announcements. 0 | < 0 */
int harness_announce(const struct tt_world *world, const struct tt_transport *t);
/* announce, open and settle, with the exchanges of all ranks in between. 0 | < 0 */
int harness_open(const struct tt_world *world, const struct tt_transport *t,
		 struct tt_endpoint **ret_ep);

/* Barrier; returns the maximum of the values of all ranks. */
uint64_t harness_barrier(const struct tt_world *world, uint64_t value);

/* In a body: fail with a line on stderr unless condition holds. */
#define EXPECT(condition)                                                                         \
	do {                                                                                      \
		if (!(condition)) {                                                               \
			fprintf(stderr, "%s:%d: rank %d: false: %s (last error: %s)\n", __FILE__, \
				__LINE__, world->rank, #condition, tt_error_text());              \
			return 1;                                                                 \
		}                                                                                 \
	} while (0)

#endif

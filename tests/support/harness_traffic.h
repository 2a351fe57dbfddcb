/*
 * harness_traffic.h - random messages over any transport, checked by the receiver
 *
 * A flow is one direction of one link. Sizes, bytes and stamps of its messages follow from a seed
 * that both sides know, so the receiver detects every loss, change of order and wrong byte. Called
 * by test_transports.c, other tests of transports and race_transports.c.
 */
#ifndef HARNESS_TRAFFIC_H
#define HARNESS_TRAFFIC_H

#include "tests/support/harness_world.h"

struct traffic {
	const struct tt_transport *t;
	int nchannels;       /* channels in use, at most the world's */
	uint32_t messages;   /* per flow */
	const size_t *sizes; /* [nsizes], cyclic; NULL: random, up to message_bytes */
	uint32_t nsizes;
	bool sleepy;      /* a rank without progress dozes at once */
	bool slow_reader; /* poll for messages in one round of 16 */
	uint64_t seed;
};

/* An endpoint of a transport with links to all peers that the transport reaches:
 * links[peer * nchannels + channel], all ready. rig_open: 0 | < 0 */
struct rig {
	struct tt_endpoint *ep;
	struct tt_link **links;
	int nchannels;
};
int rig_open(struct rig *rig, const struct tt_transport *t, const struct tt_world *world,
	     int nchannels);
void rig_close(struct rig *rig);

/* Sends and receives on all links of the rig at once, until all messages have arrived. 0 | < 0,
 * with the reason on stderr. */
int traffic_run(const struct rig *rig, const struct tt_world *world, const struct traffic *traffic);

/* A body: opens a rig, runs traffic_run with the struct traffic in setup->arg, closes the rig.
 * TUTTI_TEST_FEWER divides the number of messages, for an emulated machine. */
int traffic_body(const struct tt_world *world, void *arg);

/* run_on: runs body as every rank, with a struct setup as its argument; transport self always has
 * one rank; tcp runs twice, the second time encrypted. Returns the mask of harness_run. runs: is a
 * transport tested on this host? verbs needs a NIC; TUTTI_TEST_TRANSPORT selects one transport.
 * run_all: every tested transport, with forked ranks and with threads; returns all masks
 * combined. */
bool runs(const struct tt_transport *t);
struct setup {
	const struct tt_transport *t;
	void *arg;
};
typedef int body_fn(const struct tt_world *world, void *arg);
uint64_t run_on(const struct tt_transport *t, int nranks, int nchannels, size_t message_bytes,
		bool threads, body_fn *body, void *arg);
uint64_t run_all(int nranks, int nchannels, size_t message_bytes, body_fn *body, void *arg);

/* The other rank of two; the only rank of one. */
int peer_of(const struct tt_world *world);

/* Sends a message without waiting; false: no room. */
bool try_send(struct tt_link *l, const void *buf, size_t bytes, uint32_t stamp);

/* Send or receive one message; wait for room or for the message, with yields. 0 | < 0 */
int send_one(struct tt_link *l, const void *buf, size_t bytes, uint32_t stamp);
int receive_one(struct tt_link *l, void *buf, size_t bytes, uint32_t stamp);

uint64_t mix(uint64_t x); /* a good 64-bit hash */

#endif

/*
 * harness_traffic.h - random messages over any transport, checked against what must come
 *
 * A flow is one direction of one link. Sizes, bytes and stamps of its messages follow from a seed
 * that both sides know, so the receiver can tell every loss, change of order and wrong byte. The
 * suite and the race program use it.
 */
#ifndef HARNESS_TRAFFIC_H
#define HARNESS_TRAFFIC_H

#include "tests/support/harness_world.h"

struct traffic {
	const struct tt_transport *t;
	int nchannels;             /* used, at most the world's */
	uint32_t messages;         /* per flow */
	const size_t *sizes;       /* [nsizes] in turn; NULL: random, up to message_bytes */
	uint32_t nsizes;
	bool sleepy;               /* whoever cannot go on dozes at once */
	bool slow_reader;          /* look for messages seldom */
	uint64_t seed;
};

/* The endpoint of t with all links to the peers it reaches ready, in links[peer * nchannels +
 * channel]. 0 | failed. */
struct rig {
	struct tt_endpoint *ep;
	struct tt_link **links;
	int nchannels;
};
int rig_open(struct rig *rig, const struct tt_transport *t, const struct tt_world *world,
	     int nchannels);
void rig_close(struct rig *rig);

/* Sends and receives on all links of the rig at once, until all messages have come. 0 | failed,
 * with words on stderr. */
int traffic_run(const struct rig *rig, const struct tt_world *world, const struct traffic *traffic);

/* A body that opens a rig, runs the struct traffic that is setup->arg on it, and closes.
 * TUTTI_TEST_FEWER divides the number of messages, for an emulated machine. */
int traffic_body(const struct tt_world *world, void *arg);

/* body as every rank, with a struct setup as its argument. self runs with one rank whatever nranks.
 * Gives harness_run's mask. runs: is it to be tried here? Verbs only where a card is;
 * TUTTI_TEST_TRANSPORT names the only one that is. run_all: over every such transport, with forked
 * ranks and with threads; the masks together. */
bool runs(const struct tt_transport *t);
struct setup {
	const struct tt_transport *t;
	void *arg;
};
typedef int body_fn(const struct tt_world *world, void *arg);
uint64_t run_on(const struct tt_transport *t, int nranks, int nchannels, size_t message_bytes,
		bool threads, body_fn *body, void *arg);
uint64_t run_all(int nranks, int nchannels, size_t message_bytes, body_fn *body, void *arg);

/* The other rank of two, or oneself. */
int peer_of(const struct tt_world *world);

/* Sends a message, or is refused, without waiting. */
bool try_send(struct tt_link *l, const void *buf, size_t bytes, uint32_t stamp);

/* One message, waiting for room or for the message. Spin, then yield. 0 | code */
int send_one(struct tt_link *l, const void *buf, size_t bytes, uint32_t stamp);
int receive_one(struct tt_link *l, void *buf, size_t bytes, uint32_t stamp);

uint64_t mix(uint64_t x);      /* a good 64-bit hash */

#endif

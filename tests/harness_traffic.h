/*
 * harness_traffic.h - random messages over any transport, checked against what must come
 *
 * A flow is one direction of one link. Sizes, bytes and stamps of its messages follow from a seed that both sides know, so
 * the receiver can tell every loss, change of order and wrong byte. The suite and the race program use it.
 */
#ifndef HARNESS_TRAFFIC_H
#define HARNESS_TRAFFIC_H

#include "harness_world.h"

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

/* The endpoint of t with all links to the peers it reaches ready, in links[peer * nchannels + channel]. 0 | failed. */
struct rig {
	struct tt_endpoint *ep;
	struct tt_link **links;
	int nchannels;
};
int rig_open(struct rig *rig, const struct tt_transport *t, const struct tt_world *world, int nchannels);
void rig_close(struct rig *rig);

/* Sends and receives on all links of the rig at once, until all messages have come. 0 | failed, with words on stderr. */
int traffic_run(const struct rig *rig, const struct tt_world *world, const struct traffic *traffic);

/* One message, waiting for room or for the message. Spin, then yield. 0 | code */
int send_one(struct tt_link *l, const void *buf, size_t bytes, uint32_t stamp);
int receive_one(struct tt_link *l, void *buf, size_t bytes, uint32_t stamp);

uint64_t mix(uint64_t x);      /* a good 64-bit hash */

#endif

/*
 * self.c - messages of a rank to itself: the receiver gets the sender's own pointer
 *
 * Called through tt_self by comm and run. Nothing is copied: a post records the buffer, and
 * completes when the same rank releases the peeked message.
 */
#include <stdlib.h>

#include "base/futex.h"
#include "transports/transport.h"

#define DEPTH 64 /* most posts in flight on a channel */

struct posted_buffer {
	const void *buf;
	size_t bytes;
	uint32_t stamp;
};

struct self_link {
	struct tt_link base;
	struct posted_buffer posts[DEPTH];
};

struct self_ep {
	struct tt_endpoint base;
	_Atomic uint32_t bell;
	_Atomic size_t memory;
	struct self_link *links[]; /* by channel */
};

static int self_probe(char *why, size_t bytes)
{
	(void)why, (void)bytes;
	return 1;
}

static int self_open(const struct tt_world *world, struct tt_endpoint **ret_ep)
{
	size_t bytes = sizeof(struct self_ep) +
		       (size_t)world->nchannels * sizeof(struct self_link *);
	struct self_ep *ep = calloc(1, bytes);

	if (!ep)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for %d channels to itself",
			       world->rank, world->nchannels);
	ep->base = (struct tt_endpoint){ .t = &tt_self, .world = world };
	ep->memory = bytes;
	*ret_ep = &ep->base;
	return 0;
}

static bool self_reaches(struct tt_endpoint *ep, int peer)
{
	return peer == ep->world->rank;
}

static int self_alike(const struct tt_endpoint *ep, int peer)
{
	return tt_world_side(ep->world, peer);
}

static int self_connect(struct tt_endpoint *base, int peer, int channel, struct tt_link **ret_link)
{
	struct self_ep *ep = (struct self_ep *)base;
	struct self_link *l = ep->links[channel];

	if (!l) {
		l = calloc(1, sizeof(*l));
		if (!l)
			return tt_fail(TT_SYSTEM, "rank %d: no memory for a channel to itself",
				       peer);
		l->base = (struct tt_link){
			.t = &tt_self, .ep = base, .peer = peer, .channel = channel
		};
		ep->links[channel] = l;
		ep->memory += sizeof(*l);
	}
	*ret_link = &l->base;
	return 0;
}

static int self_ready(struct tt_link *l)
{
	(void)l;
	return 1;
}

static int self_post(struct tt_link *l, const void *buf, size_t bytes, uint32_t stamp)
{
	struct self_link *self = (struct self_link *)l;

	if (l->posted - l->completed == DEPTH)
		return 0;
	self->posts[l->posted % DEPTH] = (struct posted_buffer){ buf, bytes, stamp };
	l->posted++;
	l->messages++;
	l->sent_bytes += bytes;
	return 1;
}

static int self_peek(struct tt_link *l, size_t bytes, uint32_t stamp, const void **ret_data)
{
	const struct posted_buffer *post = &((struct self_link *)l)->posts[l->completed % DEPTH];

	if (l->posted == l->completed)
		return 0;
	if (post->bytes != bytes || post->stamp != stamp)
		return tt_fail(
			TT_USAGE,
			"rank %d sent itself %zu bytes of call %08x, but receives %zu bytes of call %08x",
			l->peer, post->bytes, post->stamp, bytes, stamp);
	*ret_data = post->buf;
	return 1;
}

static void self_release(struct tt_link *l)
{
	l->completed++;
	l->received++;
}

static uint32_t self_arm(struct tt_endpoint *ep)
{
	return atomic_load(&((struct self_ep *)ep)->bell);
}

static void self_doze(struct tt_endpoint *ep, uint32_t ticket, uint32_t timeout_us)
{
	tt_futex_wait(&((struct self_ep *)ep)->bell, ticket, timeout_us);
}

static void self_disarm(struct tt_endpoint *ep)
{
	(void)ep;
}

static void self_wake(struct tt_endpoint *ep)
{
	tt_futex_wake(&((struct self_ep *)ep)->bell);
}

static size_t self_memory(struct tt_endpoint *ep)
{
	return atomic_load(&((struct self_ep *)ep)->memory);
}

static void self_close(struct tt_endpoint *base)
{
	struct self_ep *ep = (struct self_ep *)base;

	for (int i = 0; i < base->world->nchannels; i++)
		free(ep->links[i]);
	free(ep);
}

const struct tt_transport tt_self = {
	.name = "self",
	.help = "messages of a rank to itself; nothing is copied",
	.flags = TT_T_POST,
	.spins = 4000,
	.probe = self_probe,
	.open = self_open,
	.reaches = self_reaches,
	.alike = self_alike,
	.connect = self_connect,
	.ready = self_ready,
	.post = self_post,
	.peek = self_peek,
	.release = self_release,
	.arm = self_arm,
	.doze = self_doze,
	.disarm = self_disarm,
	.wake = self_wake,
	.memory = self_memory,
	.close = self_close,
};

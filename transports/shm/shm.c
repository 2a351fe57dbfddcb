/*
 * shm.c - messages through memory that the ranks of a host share
 *
 * Called through tt_shm by comm, run and local. shm_segment.c opens the memory, shm_link.c makes a link, shm_ring.c moves
 * its messages, shm_slots.c has the slots, shm_single_copy.c reads peers' own memory, shm_rndv.c has the messages that
 * go so. This file has the endpoint, its links, and sleep.
 *
 * Sleep: a rank that arms sets `sleeping` in its bell, then polls its links once more. A rank that
 * commits or releases checks the bell. Between the store and the load each side needs a fence. The
 * rank that goes to sleep has time, so it issues the fence for all ranks: membarrier(2), an
 * asymmetric fence. membarrier interrupts every core that runs a rank. So where ranks outnumber
 * cores and sleep often, or where some rank has no membarrier, `fences` is set, and each rank
 * issues its own fences.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fence.h"
#include "base/futex.h"
#include "transports/shm/shm_ring.h"

#define ALONE_US 1000

/* ---- endpoint and links ---------------------------------------------------------------------- */

static int shm_probe(char *why, size_t bytes)
{
	int fd = memfd_create("tutti-probe", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0) {
		snprintf(why, bytes, "memfd_create: %m");
		return 0;
	}
	close(fd);
	return 1;
}

static void shm_close(struct tt_endpoint *base)
{
	struct tt_shm_ep *ep = (struct tt_shm_ep *)base;

	for (int i = 0; i < ep->segment.nlocal * ep->segment.nchannels && ep->links; i++)
		tt_shm_link_close(ep->links[i]);
	free(ep->links);
	tt_shm_single_copy_close(ep);
	free(ep->mapped);
	tt_shm_segment_close(&ep->segment);
	free(ep);
}

static int shm_start(const struct tt_world *world, struct tt_endpoint **ret_ep)
{
	struct tt_shm_ep *ep = calloc(1, sizeof(*ep));
	size_t nlinks;
	int rc;

	if (!ep)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for the endpoint of shared memory",
			       world->rank);
	ep->base = (struct tt_endpoint){ .t = &tt_shm,
					 .slot_ops = tt_shm.slot_ops,
					 .peer_memory_ops = tt_shm.peer_memory_ops,
					 .world = world };
	rc = tt_shm_segment_open(world, &ep->segment);
	if (rc) {
		free(ep);
		return rc;
	}
	nlinks = (size_t)ep->segment.nlocal * (size_t)world->nchannels;
	ep->links = calloc(nlinks + 1, sizeof(struct tt_shm_link *));
	ep->mapped = calloc((size_t)ep->segment.nlocal + 1, TT_SHM_WINDOWS * sizeof(*ep->mapped));
	if (!ep->links || !ep->mapped) {
		shm_close(&ep->base);
		return tt_fail(TT_SYSTEM, "rank %d: no memory for %zu links of shared memory",
			       world->rank, nlinks);
	}
	if (ep->segment.header)
		ep->bell = &ep->segment.header->bells[ep->segment.me];
	*ret_ep = &ep->base;
	return 0;
}

static bool shm_joined(const struct tt_endpoint *base)
{
	return ((const struct tt_shm_ep *)base)->segment.header != NULL;
}

static bool shm_settle(struct tt_endpoint *base, bool (*has_joined)(const void *ctx, int rank),
		       const void *ctx)
{
	return tt_shm_segment_settle(&((struct tt_shm_ep *)base)->segment, base->world->nranks,
				     has_joined, ctx);
}

static bool shm_reaches(struct tt_endpoint *base, int peer)
{
	return peer != base->world->rank && ((struct tt_shm_ep *)base)->segment.local_of[peer] >= 0;
}

static int shm_connect(struct tt_endpoint *base, int peer, int channel, struct tt_link **ret_link)
{
	struct tt_shm_ep *ep = (struct tt_shm_ep *)base;
	struct tt_shm_link **l =
		&ep->links[ep->segment.local_of[peer] * ep->segment.nchannels + channel];
	int rc = *l ? 0 : tt_shm_link_open(ep, peer, channel, l);

	if (!rc)
		*ret_link = &(*l)->base;
	return rc;
}

static int shm_ready(struct tt_link *l)
{
	(void)l;
	return 1;
}

/* ---- sleep ----------------------------------------------------------------------------------- */

static uint32_t shm_arm(struct tt_endpoint *base)
{
	struct tt_shm_ep *ep = (struct tt_shm_ep *)base;
	uint32_t ticket;

	if (!ep->bell)
		return 0;
	/* Read the ticket first: a rank that rings from now on changes the word, which ends the
	 * doze. This matters also for messages of other links, because that rank clears sleeping,
	 * and no other rank would ring. */
	ticket = atomic_load_explicit(&ep->bell->word, memory_order_acquire);
	atomic_store_explicit(&ep->bell->sleeping, 1, memory_order_relaxed);
	if (atomic_load_explicit(&ep->segment.header->fences, memory_order_relaxed) ||
	    !tt_membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED))
		tt_full_fence();
	return ticket;
}

static void shm_doze(struct tt_endpoint *base, uint32_t ticket, uint32_t timeout_us)
{
	struct tt_shm_ep *ep = (struct tt_shm_ep *)base;

	if (ep->bell)
		tt_futex_wait(&ep->bell->word, ticket, timeout_us);
	else
		usleep(timeout_us < ALONE_US ? timeout_us : ALONE_US);
}

static void shm_disarm(struct tt_endpoint *base)
{
	struct tt_shm_ep *ep = (struct tt_shm_ep *)base;

	if (ep->bell)
		atomic_store_explicit(&ep->bell->sleeping, 0, memory_order_relaxed);
}

static void shm_wake(struct tt_endpoint *base)
{
	struct tt_shm_ep *ep = (struct tt_shm_ep *)base;

	if (ep->bell)
		tt_futex_wake(&ep->bell->word);
}

static _Atomic uint8_t *shm_notes(struct tt_endpoint *base)
{
	struct tt_shm_header *header = ((struct tt_shm_ep *)base)->segment.header;

	return header ? header->notes : NULL;
}

static size_t shm_memory(struct tt_endpoint *base)
{
	return atomic_load(&((struct tt_shm_ep *)base)->segment.claimed);
}

static const struct tt_slot_ops slot_ops = { .post = tt_shm_slot_post,
					     .room = tt_shm_slot_room,
					     .poll = tt_shm_slot_poll,
					     .release = tt_shm_slot_release,
					     .released = tt_shm_slot_released };

static const struct tt_peer_memory_ops peer_memory_ops = {
	.describe = tt_shm_describe,
	.attach = tt_shm_attach,
	.pointer = tt_shm_pointer,
	.read = tt_shm_read,
	.post = tt_shm_pscw_post,
	.test_start = tt_shm_pscw_test_start,
	.complete = tt_shm_pscw_complete,
	.test_complete = tt_shm_pscw_test_complete,
};

static const struct tt_zcopy_ops zcopy_ops = { .can_send = tt_shm_can_send,
					       .abandon = tt_shm_abandon };

const struct tt_transport tt_shm = {
	.name = "shm",
	.help = "shared memory between the ranks of a host; small messages take one cache line",
	.flags = TT_T_RESERVE,
	.spins = 4000, /* polls of about 10 ns: some 40 us */
	.slot_ops = &slot_ops,
	.peer_memory_ops = &peer_memory_ops,
	.zcopy_ops = &zcopy_ops,
	.probe = shm_probe,
	.announce = tt_shm_segment_announce,
	.open = shm_start,
	.joined = shm_joined,
	.settle = shm_settle,
	.reaches = shm_reaches,
	.connect = shm_connect,
	.ready = shm_ready,
	.reserve = tt_shm_reserve,
	.commit = tt_shm_commit,
	.post = tt_shm_post,
	.peek = tt_shm_peek,
	.release = tt_shm_release,
	.put = tt_shm_put,
	.get = tt_shm_get,
	.progress = tt_shm_progress,
	.arm = shm_arm,
	.doze = shm_doze,
	.disarm = shm_disarm,
	.wake = shm_wake,
	.notes = shm_notes,
	.memory = shm_memory,
	.close = shm_close,
};

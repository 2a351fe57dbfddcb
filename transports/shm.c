/*
 * shm.c - messages through memory that the ranks of a host share
 *
 * Called through tt_shm by comm and run; shm_segment.c makes the memory. Each direction of each (pair, channel) is a
 * ring of 32 lines, and slots for what does not fit into a line:
 *
 *   up to 56 B   | payload ............ flag |      one cache line carries bytes and flag: one transfer
 *   more         | offset ............. flag | -->  a cell (an eighth of slot 0) or a slot
 *
 * flag = message number and a mix of stamp and length, stored last. The reader compares it with what it expects: equal
 * means the message is there; the same number with another mix means that the peer is in another call. The reader counts
 * what it released in `done`; the writer looks there only when its copy of the count leaves no room. Every word has one
 * writer, nothing is read-modify-write, and neither side touches a line of the other without need.
 *
 * Slots are claimed one by one, when all claimed ones are in use; so links that are used little cost little, and memory
 * that runs out later only makes the ring shorter. The lowest free slot is taken, since it is the most likely in cache.
 *
 * Sleep: a writer looks at the reader's bell only once somebody has slept (header.sleepers). The very first sleep of a
 * rank is short, because a writer may have looked at sleepers just before it was set and then misses the sleeper.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "transports/futex.h"
#include "transports/shm_segment.h"

#define FIRST_DOZE_US 1000
#define CELLS ((1u << TT_SHM_CELLS) - 1)       /* in masks: a bit a cell, then a bit for each slot from 1 on */

struct shm_link {
	struct tt_link base;

	/* writing */
	struct tt_shm_ring *tx;
	uint8_t *room;                 /* reserved outside the line, not committed yet */
	uint64_t sent, drained;        /* messages; drained: my copy of done */
	uint32_t taken, busy;          /* masks: by the reserved message, by those under way */
	uint32_t taken_by[TT_SHM_LINES];
	uint32_t nslots, most_slots;   /* claimed; worth trying to claim */
	bool starved;

	/* reading */
	struct tt_shm_ring *rx;
	uint64_t got;

	const _Atomic uint32_t *sleepers;
	struct tt_shm_bell *peer_bell;
};

struct shm_ep {
	struct tt_endpoint base;
	struct tt_shm_segment segment;
	struct tt_shm_bell *bell;
	bool has_dozed;
	_Atomic size_t memory;
	struct shm_link **links;       /* [nlocal * nchannels] */
};

static uint64_t flag_of(uint64_t number, size_t bytes, uint32_t stamp)
{
	return number << 32 | (stamp ^ (uint32_t)bytes * 0x9e3779b1u);
}

/* ---- waking ----------------------------------------------------------------------------------------------------- */

static void ring_bell(struct tt_shm_bell *bell)
{
	if (!atomic_load_explicit(&bell->sleeping, memory_order_relaxed))
		return;
	atomic_fetch_add(&bell->word, 1);      /* first: whoever finds sleeping cleared may rely on it */
	if (atomic_exchange(&bell->sleeping, 0))
		tt_futex_wake(&bell->word);
}

static __attribute__((noinline)) void wake_reader(struct shm_link *l)
{
	tt_full_fence();               /* my flag before its sleeping; pairs with shm_arm */
	ring_bell(l->peer_bell);
}

static __attribute__((noinline)) void wake_writer(struct shm_link *l)
{
	tt_full_fence();               /* my done before its starved; pairs with starve */
	if (atomic_load_explicit(&l->rx->starved, memory_order_relaxed))
		ring_bell(l->peer_bell);
}

static bool anyone_sleeps(const struct shm_link *l)
{
	return tt_unlikely(atomic_load_explicit(l->sleepers, memory_order_relaxed));
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

/* See what the reader has released since. */
static void reclaim(struct shm_link *l)
{
	uint64_t done = atomic_load_explicit(&l->tx->done, memory_order_acquire);

	for (; l->drained < done; l->drained++) {
		l->busy &= ~l->taken_by[l->drained % TT_SHM_LINES];
		l->taken_by[l->drained % TT_SHM_LINES] = 0;
	}
}

static uint8_t *slot(const struct shm_link *l, uint32_t i)
{
	const struct shm_ep *ep = (const struct shm_ep *)l->base.ep;

	return (uint8_t *)l->tx + TT_SHM_PAGE + i * ep->segment.slot_bytes;
}

/* Claim one more slot. Without memory for it the ring stays as short as it is. */
static bool grow(struct shm_link *l)
{
	struct shm_ep *ep = (struct shm_ep *)l->base.ep;

	if (l->nslots == l->most_slots || l->sent - l->drained == TT_SHM_LINES)
		return false;
	if (tt_shm_segment_claim(&ep->segment, slot(l, l->nslots), ep->segment.slot_bytes)) {
		l->most_slots = l->nslots;
		return false;
	}
	l->nslots++;
	ep->memory += ep->segment.slot_bytes;
	return true;
}

/* Room outside the line among what is free by my copy of done: sets room and taken. Cells go round, so that small
 * messages look at done once in eight. */
static bool pick(struct shm_link *l, size_t bytes)
{
	const struct shm_ep *ep = (const struct shm_ep *)l->base.ep;
	size_t cell_bytes = ep->segment.slot_bytes / TT_SHM_CELLS;
	uint32_t cell = l->sent % TT_SHM_CELLS;

	if (l->sent - l->drained == TT_SHM_LINES)
		return false;
	if (bytes <= cell_bytes && !(l->busy & 1u << cell)) {
		l->taken = 1u << cell;
		l->room = slot(l, 0) + cell * cell_bytes;
		return true;
	}
	for (uint32_t i = 0; i < l->nslots; i++) {
		uint32_t mask = i ? 1u << (TT_SHM_CELLS + i - 1) : CELLS;

		if (l->busy & mask)
			continue;
		l->taken = mask;
		l->room = slot(l, i);
		return true;
	}
	return false;
}

static bool find_room(struct shm_link *l, size_t bytes)
{
	if (bytes <= TT_SHM_INLINE)
		return l->sent - l->drained < TT_SHM_LINES;
	return pick(l, bytes);
}

/* Nothing is free: ask to be woken for room, and look once more, because the reader may not have seen that. */
static bool starve(struct shm_link *l, size_t bytes)
{
	if (l->starved)
		return false;
	l->starved = true;
	atomic_store_explicit(&l->tx->starved, 1, memory_order_relaxed);
	tt_full_fence();
	reclaim(l);
	return find_room(l, bytes);
}

static __attribute__((noinline)) bool make_room(struct shm_link *l, size_t bytes)
{
	reclaim(l);
	if (!find_room(l, bytes) && !(bytes > TT_SHM_INLINE && grow(l) && find_room(l, bytes)) && !starve(l, bytes))
		return false;
	if (l->starved) {
		l->starved = false;
		atomic_store_explicit(&l->tx->starved, 0, memory_order_relaxed);
	}
	return true;
}

static void *shm_reserve(struct tt_link *base, size_t bytes)
{
	struct shm_link *l = (struct shm_link *)base;

	if (l->room)
		return l->room;
	if (tt_unlikely(!find_room(l, bytes)) && !make_room(l, bytes))
		return NULL;
	return bytes <= TT_SHM_INLINE ? l->tx->lines[l->sent % TT_SHM_LINES].payload : l->room;
}

static void shm_commit(struct tt_link *base, size_t bytes, uint32_t stamp)
{
	struct shm_link *l = (struct shm_link *)base;
	uint32_t at = l->sent % TT_SHM_LINES;
	struct tt_shm_line *line = &l->tx->lines[at];

	if (bytes > TT_SHM_INLINE) {
		line->offset = (uint64_t)(l->room - (uint8_t *)l->tx);
		l->taken_by[at] = l->taken;
		l->busy |= l->taken;
		l->room = NULL;
	}
	l->sent++;
	atomic_store_explicit(&line->flag, flag_of(l->sent, bytes, stamp), memory_order_release);
	base->messages++;
	base->sent_bytes += bytes;
	if (anyone_sleeps(l))
		wake_reader(l);
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static __attribute__((noinline)) int other_call(const struct shm_link *l, size_t bytes, uint32_t stamp)
{
	return tt_fail(TT_USAGE, "rank %d: message %llu of rank %d (channel %d) is not the %zu bytes of call %08x that "
		       "are expected: the ranks make different calls", l->base.ep->world->rank,
		       (unsigned long long)l->got, l->base.peer, l->base.channel, bytes, stamp);
}

static int shm_peek(struct tt_link *base, size_t bytes, uint32_t stamp, const void **ret_data)
{
	struct shm_link *l = (struct shm_link *)base;
	const struct tt_shm_line *line = &l->rx->lines[l->got % TT_SHM_LINES];
	uint64_t flag = atomic_load_explicit(&line->flag, memory_order_acquire);
	const struct shm_ep *ep;

	if (flag != flag_of(l->got + 1, bytes, stamp))
		return flag >> 32 == (uint32_t)(l->got + 1) ? other_call(l, bytes, stamp) : 0;
	if (bytes <= TT_SHM_INLINE) {
		*ret_data = line->payload;
		return 1;
	}
	ep = (const struct shm_ep *)base->ep;
	if (tt_unlikely(line->offset > ep->segment.ring_bytes || bytes > ep->segment.ring_bytes - line->offset))
		return tt_fail(TT_INTERNAL, "rank %d: rank %d points out of its ring", ep->base.world->rank, base->peer);
	*ret_data = (const uint8_t *)l->rx + line->offset;
	return 1;
}

static void shm_release(struct tt_link *base)
{
	struct shm_link *l = (struct shm_link *)base;

	l->got++;
	base->received++;
	atomic_store_explicit(&l->rx->done, l->got, memory_order_release);
	if (anyone_sleeps(l))
		wake_writer(l);
}

/* ---- endpoint and links ----------------------------------------------------------------------------------------- */

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
	struct shm_ep *ep = (struct shm_ep *)base;

	for (int i = 0; i < ep->segment.nlocal * ep->segment.nchannels && ep->links; i++)
		free(ep->links[i]);
	free(ep->links);
	tt_shm_segment_close(&ep->segment);
	free(ep);
}

static int shm_start(const struct tt_world *world, struct tt_endpoint **ret_ep)
{
	struct shm_ep *ep = calloc(1, sizeof(*ep));
	size_t nlinks;
	int rc;

	if (!ep)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for shared memory's endpoint", world->rank);
	ep->base = (struct tt_endpoint){ &tt_shm, world };
	rc = tt_shm_segment_open(world, &ep->segment);
	if (rc) {
		free(ep);
		return rc;
	}
	nlinks = (size_t)ep->segment.nlocal * (size_t)world->nchannels;
	ep->links = calloc(nlinks + 1, sizeof(struct shm_link *));
	if (!ep->links) {
		shm_close(&ep->base);
		return tt_fail(TT_SYSTEM, "rank %d: no memory for %zu links of shared memory", world->rank, nlinks);
	}
	if (ep->segment.header)
		ep->bell = &ep->segment.header->bells[ep->segment.me];
	*ret_ep = &ep->base;
	return 0;
}

static bool shm_reaches(struct tt_endpoint *base, int peer)
{
	return peer != base->world->rank && ((struct shm_ep *)base)->segment.local_of[peer] >= 0;
}

/* Both control pages, because the peer may connect later, and the first slot. */
static int claim(struct shm_ep *ep, struct shm_link *l)
{
	size_t bytes = TT_SHM_PAGE + ep->segment.slot_bytes;
	int why = tt_shm_segment_claim(&ep->segment, l->tx, bytes);

	if (!why)
		why = tt_shm_segment_claim(&ep->segment, l->rx, TT_SHM_PAGE);
	if (why)
		return tt_fail(TT_SYSTEM, "rank %d: no %zu bytes of shared memory for messages to rank %d: %s; allow more "
			       "memory (container or cgroup limit, vm.overcommit_memory), or use fewer ranks or smaller "
			       "tiles (TUTTI_TILE_BYTES)", ep->base.world->rank, bytes + TT_SHM_PAGE, l->base.peer,
			       strerror(why));
	ep->memory += bytes;
	l->nslots = 1;
	l->most_slots = ep->segment.nslots;
	return 0;
}

static int shm_connect(struct tt_endpoint *base, int peer, int channel, struct tt_link **ret_link)
{
	struct shm_ep *ep = (struct shm_ep *)base;
	const struct tt_shm_segment *s = &ep->segment;
	int other = s->local_of[peer], rc;
	struct shm_link **l = &ep->links[other * s->nchannels + channel];

	if (!*l) {
		struct shm_link *made = calloc(1, sizeof(*made));

		if (!made)
			return tt_fail(TT_SYSTEM, "rank %d: no memory for a link to rank %d", base->world->rank, peer);
		made->base = (struct tt_link){ .t = &tt_shm, .ep = base, .peer = peer, .channel = channel };
		made->tx = tt_shm_segment_ring(s, s->me, other, channel);
		made->rx = tt_shm_segment_ring(s, other, s->me, channel);
		made->sleepers = &s->header->sleepers;
		made->peer_bell = &s->header->bells[other];
		rc = claim(ep, made);
		if (rc) {
			free(made);
			return rc;
		}
		*l = made;
	}
	*ret_link = &(*l)->base;
	return 0;
}

static int shm_ready(struct tt_link *l)
{
	(void)l;
	return 1;
}

/* ---- sleep ------------------------------------------------------------------------------------------------------ */

static uint32_t shm_arm(struct tt_endpoint *base)
{
	struct shm_ep *ep = (struct shm_ep *)base;

	if (!ep->bell)
		return 0;
	if (!atomic_load_explicit(&ep->segment.header->sleepers, memory_order_relaxed))
		atomic_store_explicit(&ep->segment.header->sleepers, 1, memory_order_relaxed);
	atomic_store_explicit(&ep->bell->sleeping, 1, memory_order_relaxed);
	tt_full_fence();
	return atomic_load_explicit(&ep->bell->word, memory_order_acquire);
}

static void shm_doze(struct tt_endpoint *base, uint32_t ticket, uint32_t timeout_us)
{
	struct shm_ep *ep = (struct shm_ep *)base;

	if (!ep->bell) {
		usleep(timeout_us < FIRST_DOZE_US ? timeout_us : FIRST_DOZE_US);
		return;
	}
	if (!ep->has_dozed && timeout_us > FIRST_DOZE_US)
		timeout_us = FIRST_DOZE_US;
	ep->has_dozed = true;
	tt_futex_wait(&ep->bell->word, ticket, timeout_us);
}

static void shm_disarm(struct tt_endpoint *base)
{
	struct shm_ep *ep = (struct shm_ep *)base;

	if (ep->bell)
		atomic_store_explicit(&ep->bell->sleeping, 0, memory_order_relaxed);
}

static void shm_wake(struct tt_endpoint *base)
{
	struct shm_ep *ep = (struct shm_ep *)base;

	if (ep->bell)
		tt_futex_wake(&ep->bell->word);
}

static size_t shm_memory(struct tt_endpoint *base)
{
	return atomic_load(&((struct shm_ep *)base)->memory);
}

const struct tt_transport tt_shm = {
	.name = "shm",
	.help = "shared memory between the ranks of a host; small messages take one cache line",
	.flags = TT_T_RESERVE,
	.probe = shm_probe,
	.open = shm_start,
	.reaches = shm_reaches,
	.connect = shm_connect,
	.ready = shm_ready,
	.reserve = shm_reserve,
	.commit = shm_commit,
	.peek = shm_peek,
	.release = shm_release,
	.arm = shm_arm,
	.doze = shm_doze,
	.disarm = shm_disarm,
	.wake = shm_wake,
	.memory = shm_memory,
	.close = shm_close,
};

/*
 * shm_rndv.c - the rendezvous protocol of long messages of Send and Recv: the receiver reads the sender's buffer
 *
 *   sender                                       receiver
 *                                           <-   `reads` of the ring: messages of these sizes by rendezvous
 *   RTS, a line with the address of a tile  ->
 *                                                reads the tile into the caller's buffer (process_vm_readv)
 *                                           <-   releases the line: the tile is sent
 *                                                or, if the read fails: `refused` of the ring
 *   the same line with a cell               ->
 *                                           <-   releases the line
 *
 * Called through tt_shm by run, and by shm_ring.c. The kernel copies a byte once, cells move it twice: where no cache
 * of a core keeps the message, the kernel may be faster, else cells are (4 MiB in both directions, Xeon, 2, 4 and 8
 * ranks on 2 cores, us: 569, 1573, 4231 by cells, 582, 1075, 2408 by rendezvous). So the receiver tries both ways
 * (base/trial.h), and asks for one. A tile shows its way, so the two ranks need not agree.
 *
 * A read fails where the system forbids it from some time on, and where the sender has died: then the receiver asks for
 * cells from there on, and its wait for the cell ends when the death is known. A read fails, too, where the buffer cannot
 * be read (a mapping of a device, secret memory) or memory is short: then the receiver asks for cells for a while.
 *
 * A sender that gives up a message sets `withdrawn` before its caller may use the buffer again; the receiver looks
 * there after each read, so that it takes no later content for the message.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fence.h"
#include "mem/copy.h"
#include "transports/shm/shm_ring.h"

/* Bytes of messages that go so, LONGEST exclusive: longer ones bypass the caches */
#define SHORTEST ((size_t)1 << 20)
#define LONGEST ((size_t)8 << 20)
#define LEAST_TILE (16u << 10) /* of a message; only the last one is shorter */
#define TILES 4                /* least number of them, so that times tell something */
#define PAUSE 128              /* messages by cells after a buffer that could not be read */

/* Number of the trial of messages of that length, -1: none */
static int size_of(size_t message)
{
	return message < SHORTEST || message >= LONGEST ? -1 : message >= 4 * SHORTEST;
}

/* ---- the sender ------------------------------------------------------------------------------ */

bool tt_shm_can_send(struct tt_link *link, const void *buf, size_t bytes)
{
	struct tt_shm_link *l = (struct tt_shm_link *)link;
	int size = size_of(link->sending);

	(void)buf;
	return size >= 0 && bytes >= LEAST_TILE && !l->room &&
	       atomic_load_explicit(&l->tx->reads, memory_order_relaxed) >> size & 1;
}

/* The links of ep, of all peers and channels */
static int nlinks(const struct tt_shm_ep *ep)
{
	return ep->segment.nlocal * ep->segment.nchannels;
}

int tt_shm_progress(struct tt_endpoint *base)
{
	struct tt_shm_ep *ep = (struct tt_shm_ep *)base;
	unsigned released = 0;

	for (int i = 0; ep->nrts && i < nlinks(ep); i++)
		if (ep->links[i] && ep->links[i]->rts)
			released += tt_shm_ring_look(ep->links[i]);
	return released > 0;
}

void tt_shm_abandon(struct tt_endpoint *base)
{
	struct tt_shm_ep *ep = (struct tt_shm_ep *)base;

	for (int i = 0; ep->nrts && i < nlinks(ep); i++)
		if (ep->links[i] && ep->links[i]->rts) {
			atomic_store(&ep->links[i]->tx->withdrawn, 1);
			ep->links[i]->rts = 0; /* nor does this rank copy them */
		}
	tt_full_fence(); /* before later stores to the buffers */
}

void tt_shm_rndv_complete(struct tt_shm_link *l, uint64_t line)
{
	l->rts &= ~(1ull << (line % TT_SHM_LINES));
	l->base.completed++;
	((struct tt_shm_ep *)l->base.ep)->nrts--;
}

/* The line is the oldest one that is not released, and a cell is left for it (leaves_one of shm_ring.c). */
bool tt_shm_rndv_copy(struct tt_shm_link *l)
{
	struct tt_shm_line *line = tt_shm_line_at(l->tx, l->drained);
	struct tt_shm_cells *s = &l->large;
	unsigned at = (unsigned)(l->drained % TT_SHM_LINES),
		 i = s->busy == UINT32_MAX ? 32 : (unsigned)__builtin_ctz(~s->busy);
	uint8_t *cell = s->at + i * s->bytes;

	if (!(l->rts >> at & 1) || l->room || i >= s->claimed ||
	    atomic_load_explicit(&l->tx->refused, memory_order_acquire) != l->drained + 1)
		return false;
	tt_copy(cell, (const void *)(uintptr_t)line->offset, line->bytes);
	s->busy |= 1u << i;
	s->taken_by[at] = 1u << i;
	s->line_of[i] = (uint8_t)at;
	line->offset = (uint64_t)(cell - (uint8_t *)l->tx);
	line->nontemporal = line->granted = line->returned = false;
	atomic_store_explicit(&line->rts, false, memory_order_release);
	tt_shm_rndv_complete(l, l->drained);
	return true;
}

/* ---- the receiver ---------------------------------------------------------------------------- */

static void ask(struct tt_shm_link *l)
{
	uint32_t sizes = 0;

	for (int i = 0; i < TT_SHM_RNDV_SIZES; i++)
		sizes |= (uint32_t)l->rndv.trial[i].way << i;
	if (l->rndv.refuses || l->rndv.paused)
		sizes = 0;
	atomic_store_explicit(&l->rx->reads, sizes, memory_order_relaxed);
}

/* Messages come this way until a trial says otherwise. */
static void start(struct tt_shm_link *l, unsigned way)
{
	for (int i = 0; i < TT_SHM_RNDV_SIZES; i++) {
		tt_trial_begin(&l->rndv.trial[i], way);
		tt_trial_next(&l->rndv.trial[i], NULL);
	}
	ask(l);
}

static bool is_read(const struct tt_shm_rndv *r, const struct tt_shm_line *line, const char *to,
		    size_t bytes, uint32_t stamp)
{
	uint64_t ahead = line->offset - r->read_from;

	return stamp == r->read_stamp && ahead <= r->read_bytes && bytes <= r->read_bytes - ahead &&
	       to == r->read_to + ahead;
}

/* A buffer may be unreadable, or memory short: later messages may be read. Else the system forbids it, or the process
 * is gone. */
static void note_failure(struct tt_shm_link *l, size_t bytes, int why)
{
	bool passes = why == EFAULT || why == ENOMEM;

	l->rndv.paused = passes ? PAUSE : 0;
	l->rndv.refuses = !passes;
	ask(l);
	tt_log(TT_LOG_INFO,
	       "rank %d: cannot read %zu bytes of rank %d's memory: %s; messages are copied%s",
	       l->base.ep->world->rank, bytes, l->base.peer, strerror(why),
	       passes ? " for a while" : "");
}

/* 0 | TT_REMOTE */
static int check_withdrawn(const struct tt_shm_link *l)
{
	atomic_thread_fence(memory_order_acquire); /* after a read */
	return !atomic_load_explicit(&l->rx->withdrawn, memory_order_relaxed)
		       ? 0
		       : tt_fail(TT_REMOTE, "rank %d: rank %d has given up its message",
				 l->base.ep->world->rank, l->base.peer);
}

/* Reads bytes of a message. 1 | 0: the tile will come in a cell | TT_REMOTE */
static int read_some(struct tt_shm_link *l, const struct tt_shm_line *line, void *to, size_t bytes)
{
	struct tt_endpoint *ep = l->base.ep;
	bool reads = !l->rndv.refuses && !l->rndv.paused;
	int why = reads ? tt_shm_try_read(ep, l->base.peer, to, line->offset, bytes) : 0;
	int rc = check_withdrawn(l);

	if (rc)
		return rc;
	if (reads && !why) {
		ep->read_bytes += bytes;
		return 1;
	}
	if (why)
		note_failure(l, bytes, why);
	tt_shm_ring_refuse(l);
	return 0;
}

/* For a caller that only looks: one tile, which it may copy */
static int bounce(struct tt_shm_link *l, const struct tt_shm_line *line, size_t bytes,
		  const void **ret_data)
{
	struct tt_shm_rndv *r = &l->rndv;
	int rc = 1;

	if (!r->bounce && !(r->bounce = malloc(l->base.ep->world->message_bytes)))
		return tt_fail(TT_SYSTEM, "rank %d: no memory for a message of rank %d",
			       l->base.ep->world->rank, l->base.peer);
	if (r->bounced != l->got + 1)
		rc = read_some(l, line, r->bounce, bytes);
	r->bounced = rc > 0 ? l->got + 1 : 0;
	*ret_data = r->bounce;
	return rc;
}

void tt_shm_rndv_prefer_cells(struct tt_shm_link *l)
{
	for (int i = 0; i < TT_SHM_RNDV_SIZES; i++)
		tt_trial_prefer(&l->rndv.trial[i], TT_SHM_BY_CELLS);
	ask(l);
}

/* The sender's buffer is complete and stays until its last tile is released, so the first RTS is for the whole
 * message. */
int tt_shm_rndv_read(struct tt_shm_link *l, const struct tt_shm_line *line, void *to, size_t bytes,
		     uint32_t stamp, const void **ret_data)
{
	struct tt_shm_rndv *r = &l->rndv;
	size_t moved = stamp == r->stamp ? r->moved : 0, all = bytes;
	uint64_t began;
	int rc;

	if (atomic_load_explicit(&l->rx->refused, memory_order_relaxed) == l->got + 1)
		return check_withdrawn(l); /* the sender writes the line now */
	if (!to)
		return bounce(l, line, bytes, ret_data);
	*ret_data = to;
	if (is_read(r, line, to, bytes, stamp))
		return 1;
	if (line->rest > bytes && moved < l->base.receiving &&
	    line->rest <= l->base.receiving - moved)
		all = line->rest;
	began = tt_now_ns();
	rc = read_some(l, line, to, all);
	if (rc <= 0)
		return rc;
	r->read_ns = (stamp == r->read_stamp ? r->read_ns : 0) + tt_now_ns() - began;
	r->read_from = line->offset;
	r->read_bytes = all;
	r->read_to = to;
	r->read_stamp = stamp;
	return 1;
}

static bool can_read(const struct tt_shm_link *l)
{
	const struct tt_peer_memory any = { .slot = -1 };

	return l->base.ep->world->cma != TT_CMA_OFF &&
	       tt_shm_attach(l->base.ep, l->base.peer, &any);
}

/* The first long message: is there a choice? */
static void begin(struct tt_shm_link *l)
{
	bool reads = can_read(l);

	l->rndv.tries = reads && l->base.ep->world->cma != TT_CMA_ON;
	start(l, reads && !l->rndv.tries ? TT_SHM_BY_RNDV : TT_SHM_BY_CELLS);
}

static void note_message(struct tt_shm_link *l, struct tt_trial *t, bool by_rndv, uint64_t ns)
{
	if (!l->rndv.tries ||
	    by_rndv != t->way) /* the sender has begun it before it saw the change */
		return;
	tt_trial_note(t, ns);
	tt_trial_next(t, NULL);
	ask(l);
}

/* By cells, the first tile's own time is not known: the others stand for it. The last tile may be shorter, and come in
 * another way: it does not count. */
void tt_shm_rndv_note(struct tt_shm_link *l, size_t bytes, uint32_t stamp, bool by_rndv)
{
	struct tt_shm_rndv *r = &l->rndv;
	size_t message = l->base.receiving;
	int size = size_of(message);
	uint64_t now;

	if (size < 0)
		return;
	now = tt_now_ns();
	if (stamp != r->stamp) {
		if (r->paused && !--r->paused)
			ask(l);
		r->stamp = stamp;
		r->by_rndv = by_rndv;
		r->mixed = bytes < LEAST_TILE || message < TILES * bytes;
		r->first = r->moved = bytes;
		r->began_ns = now;
		return;
	}
	if (!r->trial[size].gap && !r->mixed)
		begin(l);
	r->moved += bytes;
	if (bytes < r->first || r->mixed)
		return;
	r->mixed = by_rndv != r->by_rndv;
	if (r->mixed || message < r->moved || message - r->moved >= r->first)
		return;
	note_message(l, &r->trial[size], by_rndv,
		     by_rndv ? r->read_ns : (now - r->began_ns) * message / (r->moved - r->first));
	r->mixed = true; /* the rest does not count */
}

/*
 * shm_rndv.c - the rendezvous protocol of long messages of Send and Recv: the receiver reads the sender's buffer
 *
 *   sender                                       receiver
 *                                           <-   `reads` of the ring: messages of these sizes by rendezvous
 *   RTS, a line with the address of a tile  ->
 *                                                reads the tile into the caller's buffer (process_vm_readv)
 *                                           <-   releases the line: the tile is sent
 *
 * Called through tt_shm by run, and by shm_ring.c. The kernel copies a byte once, cells move it twice: where no cache
 * of a core keeps the message, the kernel may be faster, else cells are (4 MiB in both directions, Xeon, 2, 4 and 8
 * ranks on 2 cores, us: 569, 1573, 4231 by cells, 582, 1075, 2408 by rendezvous). So the receiver times some messages
 * of either way, and asks for the faster one; it tries the other one now and then. A tile shows its way, so the two
 * ranks need not agree.
 *
 * A sender that gives up a message sets `withdrawn` before its caller may use the buffer again; the receiver looks
 * there after each read, so that it takes no later content for the message.
 */
#include <stdlib.h>

#include "base/fence.h"
#include "transports/shm/shm_ring.h"

/* Bytes of messages that go so, LONGEST exclusive: longer ones bypass the caches */
#define SHORTEST ((size_t)1 << 20)
#define LONGEST ((size_t)8 << 20)
#define LEAST_TILE (16u << 10) /* of a message; only the last one is shorter */
#define TILES 4                /* least number of them, so that times tell something */
#define TRY 3                  /* messages of a trial */
/* messages until the next trial: SOON after one that the other way has won; doubled after each that it has lost, up to
 * LATE */
#define SOON 8
#define LATE 128

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
		if (ep->links[i] && ep->links[i]->rts)
			atomic_store(&ep->links[i]->tx->withdrawn, 1);
	tt_full_fence(); /* before later stores to the buffers */
}

/* ---- the receiver ---------------------------------------------------------------------------- */

static void ask(struct tt_shm_link *l)
{
	uint32_t sizes = 0;

	for (int i = 0; i < TT_SHM_RNDV_SIZES; i++)
		sizes |= (uint32_t)l->rndv.trial[i].by_rndv << i;
	atomic_store_explicit(&l->rx->reads, sizes, memory_order_relaxed);
}

static bool is_read(const struct tt_shm_rndv *r, const struct tt_shm_line *line, const char *to,
		    size_t bytes, uint32_t stamp)
{
	uint64_t ahead = line->offset - r->read_from;

	return stamp == r->read_stamp && ahead <= r->read_bytes && bytes <= r->read_bytes - ahead &&
	       to == r->read_to + ahead;
}

/* Reads bytes of a message. 0 | TT_REMOTE */
static int read_some(struct tt_shm_link *l, const struct tt_shm_line *line, void *to, size_t bytes)
{
	struct tt_endpoint *ep = l->base.ep;
	int rc = tt_shm_read(ep, l->base.peer, to, line->offset, bytes);

	if (rc)
		return rc;
	atomic_thread_fence(memory_order_acquire);
	if (atomic_load_explicit(&l->rx->withdrawn, memory_order_relaxed))
		return tt_fail(TT_REMOTE, "rank %d: rank %d has given up its message",
			       ep->world->rank, l->base.peer);
	ep->read_bytes += bytes;
	return 0;
}

/* For a caller that only looks: one tile, which it may copy */
static int bounce(struct tt_shm_link *l, const struct tt_shm_line *line, size_t bytes,
		  const void **ret_data)
{
	struct tt_shm_rndv *r = &l->rndv;
	int rc = 0;

	if (!r->bounce && !(r->bounce = malloc(l->base.ep->world->message_bytes)))
		return tt_fail(TT_SYSTEM, "rank %d: no memory for a message of rank %d",
			       l->base.ep->world->rank, l->base.peer);
	if (r->bounced != l->got + 1)
		rc = read_some(l, line, r->bounce, bytes);
	r->bounced = rc ? 0 : l->got + 1;
	*ret_data = r->bounce;
	return rc ? rc : 1;
}

void tt_shm_rndv_refuse(struct tt_shm_link *l)
{
	for (int i = 0; i < TT_SHM_RNDV_SIZES; i++)
		l->rndv.trial[i].by_rndv = l->rndv.trial[i].prefers_rndv = false;
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
	if (rc)
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

static uint64_t least_of(const uint64_t ns[2])
{
	return ns[0] < ns[1] ? ns[0] : ns[1];
}

/* A trial of the other way is over; the first one decides at once, later ones if it wins twice in a row. */
static void judge(struct tt_shm_trial *t)
{
	bool wins = least_of(t->ns[!t->prefers_rndv]) < least_of(t->ns[t->prefers_rndv]);

	t->gap = wins ? SOON : t->gap < LATE ? 2 * t->gap : LATE;
	if (wins && !t->won && t->judged) {
		t->won = true;
	} else {
		t->prefers_rndv ^= wins;
		t->won = false;
	}
	t->judged = true;
	t->left = t->won ? SOON : t->gap;
}

/* The first message of this size: is there a choice? */
static void begin_trials(struct tt_shm_link *l, struct tt_shm_trial *t)
{
	bool reads = can_read(l), chooses = reads && l->base.ep->world->cma != TT_CMA_ON;

	t->gap = SOON;
	t->by_rndv = t->prefers_rndv = reads && !chooses;
	t->left = chooses ? TRY : UINT32_MAX;
	ask(l);
}

static void note_message(struct tt_shm_link *l, struct tt_shm_trial *t, bool by_rndv, uint64_t ns)
{
	if (by_rndv != t->by_rndv) /* the sender has begun it before it saw the change */
		return;
	if (t->warm) {
		t->ns[by_rndv][1] = t->ns[by_rndv][0] ? t->ns[by_rndv][0] : ns;
		t->ns[by_rndv][0] = ns;
	}
	t->warm = true;
	if (t->left == UINT32_MAX || --t->left > 0)
		return;
	if (t->by_rndv == t->prefers_rndv) {
		t->by_rndv = !t->prefers_rndv;
		t->left = TRY;
	} else {
		judge(t);
		t->by_rndv = t->prefers_rndv;
	}
	t->warm = false;
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
		r->stamp = stamp;
		r->by_rndv = by_rndv;
		r->mixed = bytes < LEAST_TILE || message < TILES * bytes;
		r->first = r->moved = bytes;
		r->began_ns = now;
		return;
	}
	if (!r->trial[size].gap && !r->mixed)
		begin_trials(l, &r->trial[size]);
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

/*
 * single_copy.c - the way by peers' memory: in large collectives of few ranks of one host, ranks
 * read each other's buffers, and no messages are sent
 *
 *   exchange   post the addresses of my buffers to a slot; poll those of all ranks
 *   agree      only for memory that was not in a call before: can every rank read every other? Post
 *              my answer; all must say yes
 *   sum        allreduce, reduce-scatter: my part of all inputs, in rank order, directly from the
 *              peers' memory. Allreduce then posts that its part is there
 *   fetch      all but reduce-scatter: the pieces that I need of each peer, once they are there
 *   complete   post that I read no peer any more; the call ends when all ranks have posted. Copies of
 *              crowded ranks complete by pairs (single_copy_pscw.c)
 *
 * An allreduce has the bits of one-shot and two-shot, a reduce-scatter those of linear, so they
 * take this way only where those were chosen. In place works, because part r is written by rank r
 * alone, after all have read it. No rank writes into another's memory, so a rank that was stopped
 * and comes back late cannot corrupt anything.
 *
 * If ranks cannot read each other, or reading is the slower way (single_copy_choice.c), the
 * operation declines to the next way; after some such calls, most calls skip the exchange. All
 * ranks decide by the same posts, or by those of earlier calls. Called by run through tt_single_copy_way.
 */
#include <string.h>

#include "local/single_copy.h"
#include "local/slots.h"
#include "local/ways.h"

#define SLICE_MAPPED (256u << 10) /* bytes that one step of advance sums or copies */

_Static_assert(TT_SINGLE_COPY_RANKS <= TT_SLOT_RANKS && TT_SINGLE_COPY_RANKS <= TT_PSCW_RANKS &&
		       TT_SINGLE_COPY_RANKS <= TT_MAX_SOURCES,
	       "one post, one sum");

static struct tt_single_copy *of(const struct tt_op *op)
{
	return op->comm->single_copy;
}

/* ---- begin ----------------------------------------------------------------------------------- */

/* Where ranks share cores, a post by slots waits for nobody. Several posts of each rank take longer than to read
 * windows (n = 4 on 2 cores, alltoall of 4 MiB: 1434 and 940 us). */
static bool fits(const struct tt_op *op)
{
	const struct tt_form f = tt_smsc_form(op);
	bool several = tt_form_is_full(&f) && tt_form_posted(&f) > TT_SLOT_BYTES;

	return of(op) && tt_smsc_fits(op) &&
	       (several || !tt_smsc_crowded(op->comm) || !tt_slot_way.fits(op));
}

static bool takes(const struct tt_op *op)
{
	struct tt_single_copy *s = of(op);
	enum tt_smsc_by way;

	s->follows = tt_smsc_follows(op, &way);
	if (s->follows)
		return way == TT_BY_READING;
	return (s->memory != TT_SMSC_UNREADABLE || s->maps) && tt_smsc_worth(op);
}

static int begin(struct tt_op *op)
{
	struct tt_single_copy *s = of(op);
	size_t n = (size_t)op->comm->nranks;

	op->cursors.n = 1;
	s->phase = TT_SMSC_START;
	s->ordinary = s->windows = s->bounces = false;
	s->done = 0;
	s->fetched = 1u << op->comm->rank;
	s->fetching = -1;
	s->trial = NULL;
	s->pscw = tt_pscw_applies(op);
	s->pairwise = tt_pscw_is_pairwise(op);
	s->part = ((op->bound.block + n - 1) / n + TT_LINE - 1) / TT_LINE * TT_LINE;
	return 0;
}

void tt_smsc_post(struct tt_op *op, const void *data, size_t bytes, enum tt_smsc_phase next)
{
	tt_fault_point(op->comm);
	tt_slots_post(op->comm, data, bytes, op->call.stamp + next, false);
	of(op)->phase = next;
	op->slots.awaited = 0;
}

int tt_smsc_poll(struct tt_op *op, size_t bytes, const void **data)
{
	tuttiComm_t c = op->comm;
	int from = 0, rc;

	rc = tt_slots_poll(c, bytes, op->call.stamp + of(op)->phase, data, &from);
	op->slots.awaited = from;
	return rc;
}

/* ---- sum and fetch --------------------------------------------------------------------------- */

static size_t slice(const struct tt_op *op, size_t left)
{
	size_t most = of(op)->bounces ? TT_SMSC_BOUNCED : SLICE_MAPPED;

	return left < most ? left : most;
}

static int sum_slice(struct tt_op *op, const struct tt_smsc_piece *p, size_t bytes)
{
	struct tt_single_copy *s = of(op);
	tuttiComm_t c = op->comm;
	size_t from = p->from + s->done;
	const void *src[TT_SINGLE_COPY_RANKS];

	for (int r = 0; r < c->nranks; r++) {
		char *bounce = s->bounces ? (char *)s->bounce + (size_t)r * TT_SMSC_BOUNCED : NULL;

		src[r] = s->in_at[r] ? s->in_at[r] + from : bounce;
		if (!s->in_at[r] &&
		    c->paths.slots->peer_memory_ops->read(c->paths.slots, r, bounce,
							  s->of[r].in.at + from, bytes))
			return TT_REMOTE;
	}
	tt_reduce_from_peer(op->bound.reduce, op->bound.base[TT_OUT] + p->to + s->done, NULL, src,
			    c->nranks, bytes, op->bound.element_bytes);
	c->paths.slots->read_bytes += bytes * (size_t)(c->nranks - 1);
	s->done += bytes;
	return 1;
}

static int sum(struct tt_op *op)
{
	struct tt_single_copy *s = of(op);
	struct tt_smsc_piece p = tt_smsc_piece(op, op->comm->rank);
	size_t bytes = slice(op, p.bytes - s->done);
	int rc = bytes ? sum_slice(op, &p, bytes) : 1;
	uint8_t flag = 1;

	if (rc > 0 && s->done == p.bytes) {
		s->done = 0;
		tt_smsc_post(op, &flag, 1,
			     op->call.request->collective == TT_ALLREDUCE ? TT_SMSC_FETCH
									  : TT_SMSC_COMPLETE);
	}
	return rc;
}

static int fetch_from(struct tt_op *op, int peer)
{
	struct tt_single_copy *s = of(op);
	struct tt_endpoint *ep = op->comm->paths.slots;
	struct tt_smsc_piece p = tt_smsc_piece(op, peer);
	size_t bytes = slice(op, p.bytes - s->done), from = p.from + s->done;
	char *to = op->bound.base[TT_OUT] + p.to + s->done;
	const char *there = tt_smsc_sums(op) ? s->out_at[peer] : s->in_at[peer];
	const struct tt_peer_memory *r = tt_smsc_sums(op) ? &s->of[peer].out : &s->of[peer].in;

	if (bytes && there && op->bound.past)
		tt_copy_nontemporal(to, there + from, bytes);
	else if (bytes && there && op->call.request->collective == TT_SCATTER)
		tt_copy_ahead(to, there + from, bytes); /* the root copies its own part */
	else if (bytes && there)
		tt_copy_from_peer(to, there + from, bytes);
	else if (bytes && ep->peer_memory_ops->read(ep, peer, to, r->at + from, bytes))
		return TT_REMOTE;
	s->done += bytes;
	ep->read_bytes += bytes;
	s->fetching = peer;
	if (s->done == p.bytes) {
		s->done = 0;
		s->fetching = -1;
		s->fetched |= 1u << peer;
		if (s->pairwise)
			tt_pscw_complete(op, peer);
	}
	return 1;
}

/* The first peer in rotated order that is not fetched yet and whose bytes are there (the peer posts
 * that for a sum and in PSCW); -1 none | < -1 */
static int next_to_fetch(struct tt_op *op)
{
	struct tt_single_copy *s = of(op);
	tuttiComm_t c = op->comm;
	const void *data;

	for (int i = 1; i < c->nranks; i++) {
		int peer = (c->rank + i) % c->nranks, rc = 1;

		if (s->fetched >> peer & 1)
			continue;
		if (tt_smsc_sums(op))
			rc = tt_slots_poll_peer(c, peer, 1, op->call.stamp + s->phase, &data);
		else if (s->pscw)
			rc = tt_pscw_start(op, peer);
		if (rc)
			return rc > 0 ? peer : rc;
		op->slots.awaited = peer;
	}
	return -1;
}
_Static_assert(TT_USAGE < -1, "codes are no ranks");

/* This rank's own piece comes last: no other rank waits for it. */
static int finish_fetching(struct tt_op *op)
{
	struct tt_smsc_piece p = tt_smsc_piece(op, op->comm->rank);
	char *const *base = op->bound.base;
	uint8_t flag = 1;

	if (!tt_smsc_sums(op) && p.bytes && base[TT_IN] + p.from != base[TT_OUT] + p.to)
		tt_op_copy(op, TT_OUT, base[TT_OUT] + p.to, base[TT_IN] + p.from, p.bytes);
	if (of(op)->pairwise)
		of(op)->phase = TT_SMSC_COMPLETE;
	else
		tt_smsc_post(op, &flag, 1, TT_SMSC_COMPLETE);
	return 1;
}

static int fetch(struct tt_op *op)
{
	struct tt_single_copy *s = of(op);
	int peer;

	if (s->fetched + 1u == 1u << op->comm->nranks)
		return finish_fetching(op);
	peer = s->fetching >= 0 ? s->fetching : next_to_fetch(op);
	if (peer < 0)
		return peer == -1 ? 0 : peer;
	op->comm->calls.last_received[peer] = op->comm->calls.seq;
	return fetch_from(op, peer);
}

static int complete(struct tt_op *op)
{
	const void *posts[TT_SINGLE_COPY_RANKS];
	int rc = of(op)->pairwise ? tt_pscw_test(op) : tt_smsc_poll(op, 1, posts);

	if (rc > 0)
		op->cursors.nfinished = op->cursors.n;
	return rc;
}

static int advance(struct tt_op *op)
{
	static int (*const phases[])(struct tt_op * op) = {
		[TT_SMSC_START] = tt_smsc_start, [TT_SMSC_EXCHANGE] = tt_smsc_exchange,
		[TT_SMSC_AGREE] = tt_smsc_agree, [TT_SMSC_SUM] = sum,
		[TT_SMSC_FETCH] = fetch,         [TT_SMSC_COMPLETE] = complete,
	};
	struct tt_single_copy *s = of(op);
	int rc, moved = 0;

	while (op->way == &tt_single_copy_way && op->cursors.nfinished < op->cursors.n) {
		bool works = s->phase == TT_SMSC_SUM || s->phase == TT_SMSC_FETCH;

		rc = phases[s->phase](op);
		if (rc <= 0)
			return rc < 0 ? rc : moved;
		moved = 1;
		if (works && s->done)
			break; /* other operations of the set advance in between */
	}
	return moved;
}

static void finish(struct tt_op *op)
{
	if (of(op)->trial)
		tt_smsc_measure(op);
}

const struct tt_way tt_single_copy_way = {
	.name = "peer memory",
	.open = tt_smsc_open,
	.close = tt_smsc_close,
	.memory = tt_smsc_memory,
	.fits = fits,
	.takes = takes,
	.begin = begin,
	.advance = advance,
	.waits_for = tt_slots_wait_for,
	.finish = finish,
};

/*
 * single_copy.c - large collectives of few ranks of one host:
 * everyone reads the others' buffers, nobody sends
 *
 *   meet    cast where my buffers are; see where the others' are
 *   agree   only when something is new: can everyone read everyone? Cast my answer; all must say
 *           yes
 *   sum     allreduce, reduce-scatter: my part of all inputs, in rank order, gdr from where
 *           they lie. Allreduce slot_posts then that its part is there
 *   fetch   all but reduce-scatter: what I need of each, as soon as it is there
 *   leave   cast that I need nobody's memory any more; over when all have said so
 *
 * An allreduce so has the bits of one-shot and two-shot, a reduce-scatter those of direct; only
 * where those were chosen. In place works, because part r is written by rank r alone until all have
 * read it. Nobody writes into another's memory: a rank that was stopped and comes back late can
 * spoil nothing.
 *
 * If they cannot read each other, or that is the slower way (single_copy_choice.c), the operation goes on
 * without it, and after some such calls most do not even meet. Who takes which way is agreed: every
 * rank sees the same slot_posts. Called by run, for an operation with `direct` set.
 */
#include <string.h>

#include "local/single_copy.h"

#define SLICE_MAPPED (256u << 10)        /* bytes a call of advance sums or copies */
#define SLICE_READ (128u << 10)          /* the same through a stage, which stays in L2 */

_Static_assert(sizeof(struct tt_address_exchange) <= 2 * TT_SLOT_LINE, "a meeting is two lines");
_Static_assert(TT_SINGLE_COPY_RANKS <= TT_SLOT_RANKS && TT_SINGLE_COPY_RANKS <= TT_MAX_SOURCES,
	       "one cast, one sum");

enum { CAN_READ = 1, CAN_MAP = 2 };      /* in the answer: ordinary memory, windows */

/* ---- slot_posts ----------------------------------------------------------------------------------- */

bool tt_single_copy_takes(const struct tt_op *op)
{
	tuttiComm_t c = op->comm;

	return c->slots && c->slots->peer_memory_ops && c->nranks <= TT_SINGLE_COPY_RANKS &&
	       tt_single_copy_fits(op) && (c->reads != TT_READS_NOT || c->maps) && tt_single_copy_choice_barrier(op);
}

void tt_single_copy_begin(struct tt_op *op)
{
	size_t n = (size_t)op->comm->nranks;

	op->direct = true;
	op->ncursors = 1;
	op->phase = TT_SINGLE_COPY_START;
	op->ordinary = op->windows = op->staged = false;
	op->done = 0;
	op->fetched = 1u << op->comm->rank;
	op->fetching = -1;
	op->offers = tt_pscw_take(op);
	op->part = ((op->block + n - 1) / n + TT_LINE - 1) / TT_LINE * TT_LINE;
}

static void cast(struct tt_op *op, const void *data, size_t bytes, enum tt_single_copy_phase next)
{
	tuttiComm_t c = op->comm;

	tt_fault_point(c);
	c->slots->slot_ops->post(c->slots, data, bytes, ++c->slot_posts, op->stamp + next);
	op->phase = next;
	op->awaited = 0;
}

/* The slot_posts of all that were awaited in this phase: 1 there, lines points at them | 0 | < 0 */
static int look(struct tt_op *op, size_t bytes, const void **lines)
{
	tuttiComm_t c = op->comm;

	for (int r = 0; r < c->nranks; r++) {
		int rc = r == c->rank ? 1
				      : c->slots->slot_ops->poll(c->slots, r, bytes, c->slot_posts,
							   op->stamp + op->phase, &lines[r]);

		op->awaited = r;
		if (rc <= 0)
			return rc;
		c->last_received[r] = c->seq;
	}
	return 1;
}

/* A cast of up to two lines, without the flags between. */
static void unfold(void *to, const void *line, size_t bytes)
{
	size_t first = bytes < TT_SLOT_LINE ? bytes : TT_SLOT_LINE;

	memcpy(to, line, first);
	memcpy((char *)to + first, (const char *)line + TT_LINE, bytes - first);
}

/* ---- meet and agree -------------------------------------------------------------------------- */

static void describe(const struct tt_op *op, const void *p, size_t bytes, struct tt_peer_memory *ret)
{
	if (bytes)
		op->comm->slots->peer_memory_ops->describe(op->comm->slots, p, bytes, ret);
	else
		*ret = (struct tt_peer_memory){ .slot = TT_NO_SLOT };
}

static int announce(struct tt_op *op)
{
	struct tt_address_exchange *mine = &op->met[op->comm->rank];

	if (op->offers) {
		tt_pscw_begin(op);
		return 1;
	}
	tt_single_copy_choice_tell(op, mine);
	describe(op, op->base[TT_IN], tt_single_copy_in_bytes(op, op->comm->rank), &mine->in);
	describe(op, op->base[TT_OUT], tt_single_copy_out_bytes(op), &mine->out);
	cast(op, mine, sizeof(*mine), TT_SINGLE_COPY_BARRIER);
	return 1;
}

static const char *at(const struct tt_op *op, int peer, const struct tt_peer_memory *r, size_t bytes)
{
	struct tt_endpoint *ep = op->comm->slots;

	return r->slot == TT_NO_SLOT ? NULL : ep->peer_memory_ops->pointer(ep, peer, r, bytes);
}

/* Does what is in this call suffice, by what was agreed so far? */
static int go(struct tt_op *op)
{
	tuttiComm_t c = op->comm;

	bool can = (!op->ordinary || (c->reads == TT_READS && tt_single_copy_choice_reads(op))) &&
		   (!op->windows || c->maps);

	tt_single_copy_choice_met(op, !can);
	if (!can)
		return tt_op_otherwise(op);
	for (int r = 0; r < c->nranks; r++) {
		bool me = r == c->rank;

		op->in_at[r] =
			me ? op->base[TT_IN] : at(op, r, &op->met[r].in, tt_single_copy_in_bytes(op, r));
		op->out_at[r] =
			me ? op->base[TT_OUT] : at(op, r, &op->met[r].out, tt_single_copy_out_bytes(op));
		op->staged |= !op->in_at[r];
	}
	op->phase = tt_single_copy_sums(op) ? TT_SINGLE_COPY_SUM : TT_SINGLE_COPY_FETCH;
	if (tt_single_copy_sums(op) && op->staged && !tt_comm_bounce(c, (size_t)c->nranks * SLICE_READ))
		return TT_SYSTEM;
	return 1;
}

static bool map_fresh(struct tt_op *op, int peer, const struct tt_peer_memory *r)
{
	return !r->fresh || op->comm->slots->peer_memory_ops->attach(op->comm->slots, peer, r);
}

/* Windows that are shown for the first time, and ordinary memory when it is first in a call, are
 * tried by everyone. */
static uint8_t try_all(struct tt_op *op, bool ordinary)
{
	static const struct tt_peer_memory anything = { .slot = -1 };
	tuttiComm_t c = op->comm;
	uint8_t can = CAN_READ | CAN_MAP;

	for (int r = 0; r < c->nranks; r++) {
		if (r == c->rank)
			continue;
		if (ordinary && (can & CAN_READ) && !c->slots->peer_memory_ops->attach(c->slots, r, &anything))
			can &= ~CAN_READ;
		if (!map_fresh(op, r, &op->met[r].in) || !map_fresh(op, r, &op->met[r].out))
			can &= ~CAN_MAP;
	}
	return can;
}

static int meet(struct tt_op *op)
{
	const void *lines[TT_SLOT_RANKS];
	tuttiComm_t c = op->comm;
	bool fresh = false;
	int rc = look(op, sizeof(struct tt_address_exchange), lines);

	if (rc <= 0)
		return rc;
	for (int r = 0; r < c->nranks; r++) {
		struct tt_address_exchange *m = &op->met[r];

		if (r != c->rank)
			unfold(m, lines[r], sizeof(*m));
		fresh |= m->in.fresh || m->out.fresh;
		op->ordinary |= m->in.slot == -1 || m->out.slot == -1;
		op->windows |= m->in.slot >= 0 || m->out.slot >= 0;
	}
	if (!fresh && !(op->ordinary && c->reads == TT_READS_UNTRIED))
		return go(op);
	op->can = try_all(op, op->ordinary && c->reads == TT_READS_UNTRIED);
	cast(op, &op->can, 1, TT_SINGLE_COPY_AGREE);
	return 1;
}

/* What was found out is for good. */
static int agree(struct tt_op *op)
{
	const void *lines[TT_SLOT_RANKS];
	tuttiComm_t c = op->comm;
	uint8_t all = op->can;
	int rc = look(op, 1, lines);

	if (rc <= 0)
		return rc;
	for (int r = 0; r < c->nranks; r++)
		all &= r == c->rank ? all : *(const uint8_t *)lines[r];
	if (op->ordinary && c->reads == TT_READS_UNTRIED)
		c->reads = all & CAN_READ ? TT_READS : TT_READS_NOT;
	c->maps = c->maps && (all & CAN_MAP);
	return go(op);
}

/* ---- work ------------------------------------------------------------------------------------ */

static size_t slice(const struct tt_op *op, size_t left)
{
	size_t most = op->staged ? SLICE_READ : SLICE_MAPPED;

	return left < most ? left : most;
}

static int sum_slice(struct tt_op *op, const struct tt_single_copy_piece_of_peer *p, size_t bytes)
{
	tuttiComm_t c = op->comm;
	size_t from = p->from + op->done;
	const void *src[TT_SLOT_RANKS];

	for (int r = 0; r < c->nranks; r++) {
		char *stage = op->staged ? (char *)c->bounce + (size_t)r * SLICE_READ : NULL;

		src[r] = op->in_at[r] ? op->in_at[r] + from : stage;
		if (!op->in_at[r] &&
		    c->slots->peer_memory_ops->read(c->slots, r, stage, op->met[r].in.at + from, bytes))
			return TT_REMOTE;
	}
	op->reduce(op->base[TT_OUT] + p->to + op->done, NULL, src, c->nranks,
		   bytes / op->element_bytes);
	c->slots->read_bytes += bytes * (size_t)(c->nranks - 1);
	op->done += bytes;
	return 1;
}

static int sum(struct tt_op *op)
{
	struct tt_single_copy_piece_of_peer p = tt_single_copy_piece(op, op->comm->rank);
	size_t bytes = slice(op, p.bytes - op->done);
	int rc = bytes ? sum_slice(op, &p, bytes) : 1;
	uint8_t word = 1;

	if (rc > 0 && op->done == p.bytes) {
		op->done = 0;
		cast(op, &word, 1,
		     op->request->collective == TT_ALLREDUCE ? TT_SINGLE_COPY_FETCH : TT_SINGLE_COPY_LEAVE);
	}
	return rc;
}

static int fetch_from(struct tt_op *op, int peer)
{
	struct tt_endpoint *ep = op->comm->slots;
	struct tt_single_copy_piece_of_peer p = tt_single_copy_piece(op, peer);
	size_t bytes = slice(op, p.bytes - op->done), from = p.from + op->done,
	       to = p.to + op->done;
	const char *there = tt_single_copy_sums(op) ? op->out_at[peer] : op->in_at[peer];
	const struct tt_peer_memory *r = tt_single_copy_sums(op) ? &op->met[peer].out : &op->met[peer].in;

	if (bytes && there)
		tt_op_copy(op, TT_OUT, op->base[TT_OUT] + to, there + from, bytes);
	else if (bytes && ep->peer_memory_ops->read(ep, peer, op->base[TT_OUT] + to, r->at + from, bytes))
		return TT_REMOTE;
	op->done += bytes;
	ep->read_bytes += bytes;
	op->fetching = peer;
	if (op->done == p.bytes) {
		op->done = 0;
		op->fetching = -1;
		op->fetched |= 1u << peer;
	}
	return 1;
}

/* The first in rotated order that is not fetched yet and whose bytes are there (a sum and an offer
 * must be told); -1 none | < -1 */
static int next_to_fetch(struct tt_op *op)
{
	tuttiComm_t c = op->comm;
	const void *line;

	for (int i = 1; i < c->nranks; i++) {
		int peer = (c->rank + i) % c->nranks, rc = 1;

		if (op->fetched >> peer & 1)
			continue;
		if (tt_single_copy_sums(op))
			rc = c->slots->slot_ops->poll(c->slots, peer, 1, c->slot_posts, op->stamp + op->phase,
						&line);
		else if (op->offers)
			rc = tt_pscw_of(op, peer);
		if (rc)
			return rc > 0 ? peer : rc;
		op->awaited = peer;
	}
	return -1;
}
_Static_assert(TT_USAGE < -1, "codes are no ranks");

/* What this rank takes of itself comes last: the others wait for none of it. */
static int finish_fetching(struct tt_op *op)
{
	struct tt_single_copy_piece_of_peer p = tt_single_copy_piece(op, op->comm->rank);
	uint8_t word = 1;

	if (!tt_single_copy_sums(op) && p.bytes && op->base[TT_IN] + p.from != op->base[TT_OUT] + p.to)
		tt_op_copy(op, TT_OUT, op->base[TT_OUT] + p.to, op->base[TT_IN] + p.from, p.bytes);
	if (op->offers)
		tt_pscw_leave(op);
	else
		cast(op, &word, 1, TT_SINGLE_COPY_LEAVE);
	return 1;
}

static int fetch(struct tt_op *op)
{
	int peer;

	if (op->fetched + 1u == 1u << op->comm->nranks)
		return finish_fetching(op);
	peer = op->fetching >= 0 ? op->fetching : next_to_fetch(op);
	if (peer < 0)
		return peer == -1 ? 0 : peer;
	op->comm->last_received[peer] = op->comm->seq;
	return fetch_from(op, peer);
}

static int leave(struct tt_op *op)
{
	const void *lines[TT_SLOT_RANKS];
	int rc = op->offers ? tt_pscw_left(op) : look(op, 1, lines);

	if (rc > 0)
		op->nfinished = op->ncursors;
	return rc;
}

int tt_single_copy_advance(struct tt_op *op)
{
	static int (*const phases[])(struct tt_op *op) = {
		[TT_SINGLE_COPY_START] = announce, [TT_SINGLE_COPY_BARRIER] = meet, [TT_SINGLE_COPY_AGREE] = agree,
		[TT_SINGLE_COPY_SUM] = sum,
		[TT_SINGLE_COPY_FETCH] = fetch, [TT_SINGLE_COPY_LEAVE] = leave,
	};
	int rc, moved = 0;

	while (op->direct && op->nfinished < op->ncursors) {
		bool works = op->phase == TT_SINGLE_COPY_SUM || op->phase == TT_SINGLE_COPY_FETCH;

		rc = phases[op->phase](op);
		if (rc <= 0)
			return rc < 0 ? rc : moved;
		moved = 1;
		if (works && op->done)
			break;                  /* others of the set have their turn */
	}
	return moved;
}

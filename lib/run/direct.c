/*
 * direct.c - large allreduces of few ranks of one host: everyone reads the others' buffers, nobody sends
 *
 * One-shot's and two-shot's sums without messages: rank r sums part r of all inputs, in rank order, straight from where they
 * lie, into its own output; then everyone copies the other parts from the outputs of those who summed them. The bits are the
 * plans'. Nobody writes into another's memory: a rank that was stopped and comes back late can spoil nothing. In place
 * works, because part r is written by rank r alone until all have read it.
 *
 *   meet    cast where my buffers are; see where the others' are
 *   agree   only when something is new: can everyone read everyone? Cast my answer; all must say yes
 *   sum     my part; then cast that it is there
 *   fetch   the other parts, each as soon as it is there; then cast that I need nobody's memory any more
 *   leave   when all have said so
 *
 * If they cannot read each other, the operation goes on without it. Who takes which way is agreed: every rank sees the same
 * casts. Called by run, for an operation with `direct` set.
 */
#include <string.h>

#include "run/op.h"

#define SLICE_MAPPED (256u << 10)        /* bytes a call of advance sums or copies */
#define SLICE_READ (128u << 10)          /* the same through a stage, which stays in L2 */

extern const struct tt_algorithm tt_allreduce_one_shot, tt_allreduce_two_shot;

enum { CAN_READ = 1, CAN_MAP = 2 };

bool tt_direct_takes(const struct tt_op *op)
{
	tuttiComm_t c = op->comm;

	return c->caster && c->caster->t->describe && op->total >= TT_DIRECT_BYTES && c->nranks <= TT_CAST_RANKS &&
	       (op->kept->algorithm == &tt_allreduce_one_shot || op->kept->algorithm == &tt_allreduce_two_shot) &&
	       (c->reads != TT_READS_NOT || c->maps);
}

void tt_direct_begin(struct tt_op *op)
{
	size_t n = (size_t)op->comm->nranks;

	op->direct = true;
	op->ncursors = 1;
	op->phase = TT_DIRECT_START;
	op->ordinary = op->windows = op->staged = false;
	op->done = 0;
	op->part = ((op->total + n - 1) / n + TT_LINE - 1) / TT_LINE * TT_LINE;
}

static void cast(struct tt_op *op, const void *data, size_t bytes, enum tt_direct_phase next)
{
	tuttiComm_t c = op->comm;

	tt_fault_point(c);
	c->caster->t->cast(c->caster, data, bytes, ++c->casts, op->stamp + next);
	op->phase = next;
	op->awaited = 0;
}

/* The casts of all that were awaited in this phase: 1 there, lines points at them | 0 | < 0 */
static int look(struct tt_op *op, size_t bytes, const void **lines)
{
	tuttiComm_t c = op->comm;

	for (int r = 0; r < c->nranks; r++) {
		int rc = r == c->rank ? 1 : c->caster->t->seen(c->caster, r, bytes, c->casts, op->stamp + op->phase, &lines[r]);

		op->awaited = r;
		if (rc <= 0)
			return rc;
		c->heard[r] = c->seq;
	}
	return 1;
}

/* A cast of up to two lines, without the flags between. */
static void unfold(void *to, const void *line, size_t bytes)
{
	size_t first = bytes < TT_CAST_LINE ? bytes : TT_CAST_LINE;

	memcpy(to, line, first);
	memcpy((char *)to + first, (const char *)line + TT_LINE, bytes - first);
}

/* ---- meet and agree --------------------------------------------------------------------------------------------- */

static int announce(struct tt_op *op)
{
	tuttiComm_t c = op->comm;
	struct tt_meeting *mine = &op->met[c->rank];

	c->caster->t->describe(c->caster, op->base[TT_IN], op->total, &mine->in);
	c->caster->t->describe(c->caster, op->base[TT_OUT], op->total, &mine->out);
	cast(op, mine, sizeof(*mine), TT_DIRECT_MEET);
	return 1;
}

/* Does what is in this call suffice, by what was agreed so far? */
static int go(struct tt_op *op)
{
	tuttiComm_t c = op->comm;

	if ((op->ordinary && c->reads == TT_READS_NOT) || (op->windows && !c->maps))
		return tt_op_otherwise(op);
	for (int r = 0; r < c->nranks; r++) {
		op->in_at[r] = r == c->rank ? op->base[TT_IN] : c->caster->t->at(c->caster, r, &op->met[r].in, op->total);
		op->out_at[r] = r == c->rank ? op->base[TT_OUT] : c->caster->t->at(c->caster, r, &op->met[r].out, op->total);
		op->staged |= !op->in_at[r] || !op->out_at[r];
	}
	op->phase = TT_DIRECT_SUM;
	return !op->staged || tt_comm_stage(c, (size_t)c->nranks * SLICE_READ) ? 1 : TT_SYSTEM;
}

static bool map_fresh(struct tt_op *op, int peer, const struct tt_remote *r)
{
	return !r->fresh || op->comm->caster->t->reach(op->comm->caster, peer, r);
}

/* Windows that are shown for the first time, and ordinary memory when it is first in a call, are tried by everyone. */
static uint8_t try_all(struct tt_op *op, bool ordinary)
{
	static const struct tt_remote anything = { .place = -1 };
	tuttiComm_t c = op->comm;
	uint8_t can = CAN_READ | CAN_MAP;

	for (int r = 0; r < c->nranks; r++) {
		if (r == c->rank)
			continue;
		if (ordinary && (can & CAN_READ) && !c->caster->t->reach(c->caster, r, &anything))
			can &= ~CAN_READ;
		if (!map_fresh(op, r, &op->met[r].in) || !map_fresh(op, r, &op->met[r].out))
			can &= ~CAN_MAP;
	}
	return can;
}

static int meet(struct tt_op *op)
{
	const void *lines[TT_CAST_RANKS];
	tuttiComm_t c = op->comm;
	bool fresh = false;
	int rc = look(op, sizeof(struct tt_meeting), lines);

	if (rc <= 0)
		return rc;
	for (int r = 0; r < c->nranks; r++) {
		struct tt_meeting *m = &op->met[r];

		if (r != c->rank)
			unfold(m, lines[r], sizeof(*m));
		fresh |= m->in.fresh || m->out.fresh;
		op->ordinary |= m->in.place < 0 || m->out.place < 0;
		op->windows |= m->in.place >= 0 || m->out.place >= 0;
	}
	if (!fresh && !(op->ordinary && c->reads == TT_READS_UNTRIED))
		return go(op);
	op->can = try_all(op, op->ordinary && c->reads == TT_READS_UNTRIED);
	cast(op, &op->can, 1, TT_DIRECT_AGREE);
	return 1;
}

/* A no is for good. */
static int agree(struct tt_op *op)
{
	const void *lines[TT_CAST_RANKS];
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

/* ---- work ------------------------------------------------------------------------------------------------------- */

static size_t part_bytes(const struct tt_op *op, int part)
{
	size_t from = (size_t)part * op->part;

	return from >= op->total ? 0 : op->total - from < op->part ? op->total - from : op->part;
}

static size_t slice(const struct tt_op *op, size_t left)
{
	size_t most = op->staged ? SLICE_READ : SLICE_MAPPED;

	return left < most ? left : most;
}

static int sum(struct tt_op *op)
{
	tuttiComm_t c = op->comm;
	size_t left = part_bytes(op, c->rank) - op->done, bytes = slice(op, left);
	size_t offset = (size_t)c->rank * op->part + op->done;
	const void *src[TT_CAST_RANKS];
	uint8_t there = 1;

	for (int r = 0; r < c->nranks && bytes; r++) {
		char *stage = (char *)c->stage + (size_t)r * SLICE_READ;

		src[r] = op->in_at[r] ? op->in_at[r] + offset : stage;
		if (!op->in_at[r] && c->caster->t->read(c->caster, r, stage, op->met[r].in.at + offset, bytes))
			return TT_REMOTE;
	}
	if (bytes)
		op->reduce(op->base[TT_OUT] + offset, NULL, src, c->nranks, bytes / op->element_bytes);
	op->done += bytes;
	c->caster->read_bytes += bytes * (size_t)(c->nranks - 1);
	if (left == bytes) {
		op->done = 0;
		op->fetching = -1;
		op->fetched = 1u << c->rank;
		cast(op, &there, 1, TT_DIRECT_FETCH);
	}
	return 1;
}

static int fetch_from(struct tt_op *op, int peer)
{
	tuttiComm_t c = op->comm;
	size_t left = part_bytes(op, peer) - op->done, bytes = slice(op, left), offset = (size_t)peer * op->part + op->done;
	char *to = op->base[TT_OUT] + offset;

	if (op->out_at[peer])
		memcpy(to, op->out_at[peer] + offset, bytes);
	else if (bytes && c->caster->t->read(c->caster, peer, to, op->met[peer].out.at + offset, bytes))
		return TT_REMOTE;
	op->done += bytes;
	c->caster->read_bytes += bytes;
	op->fetching = peer;
	if (left == bytes) {
		op->done = 0;
		op->fetching = -1;
		op->fetched |= 1u << peer;
	}
	return 1;
}

/* The first in rotated order whose sum is there and not fetched yet; -1 none is there | < -1 */
static int next_to_fetch(struct tt_op *op)
{
	tuttiComm_t c = op->comm;
	const void *line;

	for (int i = 1; i < c->nranks; i++) {
		int peer = (c->rank + i) % c->nranks, rc;

		if (op->fetched >> peer & 1)
			continue;
		rc = c->caster->t->seen(c->caster, peer, 1, c->casts, op->stamp + op->phase, &line);
		if (rc)
			return rc > 0 ? peer : rc;
		op->awaited = peer;
	}
	return -1;
}
_Static_assert(TT_USAGE < -1, "codes are no ranks");

static int fetch(struct tt_op *op)
{
	tuttiComm_t c = op->comm;
	uint8_t over = 1;
	int peer;

	if (op->fetched + 1u == 1u << c->nranks) {
		cast(op, &over, 1, TT_DIRECT_LEAVE);
		return 1;
	}
	peer = op->fetching >= 0 ? op->fetching : next_to_fetch(op);
	if (peer < 0)
		return peer == -1 ? 0 : peer;
	c->heard[peer] = c->seq;
	return fetch_from(op, peer);
}

static int leave(struct tt_op *op)
{
	const void *lines[TT_CAST_RANKS];
	int rc = look(op, 1, lines);

	if (rc > 0)
		op->nfinished = op->ncursors;
	return rc;
}

int tt_direct_advance(struct tt_op *op)
{
	static int (*const phases[])(struct tt_op *op) = {
		[TT_DIRECT_START] = announce, [TT_DIRECT_MEET] = meet, [TT_DIRECT_AGREE] = agree, [TT_DIRECT_SUM] = sum,
		[TT_DIRECT_FETCH] = fetch, [TT_DIRECT_LEAVE] = leave,
	};
	int rc, moved = 0;

	while (op->direct && op->nfinished < op->ncursors) {
		bool works = op->phase == TT_DIRECT_SUM || op->phase == TT_DIRECT_FETCH;

		rc = phases[op->phase](op);
		if (rc <= 0)
			return rc < 0 ? rc : moved;
		moved = 1;
		if (works)
			break;                  /* others of the set have their turn */
	}
	return moved;
}

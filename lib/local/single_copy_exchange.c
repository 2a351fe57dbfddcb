/*
 * single_copy_exchange.c - the first phases of a single copy: addresses of all buffers, and the
 * agreement that every rank can read every other
 *
 * Called by single_copy.c. Ends in the phase SUM or FETCH, or in tt_op_decline.
 */
#include <string.h>

#include "local/single_copy.h"
#include "local/slots.h"
#include "local/ways.h"

_Static_assert(sizeof(struct tt_smsc_addresses) <= 2 * TT_SLOT_LINE, "addresses take two lines");

enum { CAN_READ = 1, CAN_MAP = 2 }; /* the answer: ordinary memory, windows */

static struct tt_single_copy *of(const struct tt_op *op)
{
	return op->comm->single_copy;
}

/* Copy a post of up to two lines, without the flags between them. */
static void unfold(void *to, const void *line, size_t bytes)
{
	size_t first = bytes < TT_SLOT_LINE ? bytes : TT_SLOT_LINE;

	memcpy(to, line, first);
	memcpy((char *)to + first, (const char *)line + TT_LINE, bytes - first);
}

static void describe(const struct tt_op *op, const void *p, size_t bytes,
		     struct tt_peer_memory *ret)
{
	if (bytes)
		op->comm->paths.slots->peer_memory_ops->describe(op->comm->paths.slots, p, bytes,
								 ret);
	else
		*ret = (struct tt_peer_memory){ .slot = TT_NO_SLOT };
}

int tt_smsc_start(struct tt_op *op)
{
	struct tt_smsc_addresses *mine = &of(op)->of[op->comm->rank];
	int rc;

	if (of(op)->pscw) {
		tt_pscw_post(op);
		return 1;
	}
	rc = tt_slots_ready(op->comm, sizeof(*mine), &op->slots.awaited);
	if (rc <= 0)
		return rc;
	tt_smsc_report(op, mine);
	describe(op, op->bound.base[TT_IN], tt_smsc_in_bytes(op, op->comm->rank), &mine->in);
	describe(op, op->bound.base[TT_OUT], tt_smsc_out_bytes(op), &mine->out);
	tt_smsc_post(op, mine, sizeof(*mine), TT_SMSC_EXCHANGE);
	return 1;
}

static const char *at(const struct tt_op *op, int peer, const struct tt_peer_memory *r,
		      size_t bytes)
{
	struct tt_endpoint *ep = op->comm->paths.slots;

	return r->slot == TT_NO_SLOT ? NULL : ep->peer_memory_ops->pointer(ep, peer, r, bytes);
}

static void find_buffers(struct tt_op *op)
{
	struct tt_single_copy *s = of(op);

	for (int r = 0; r < op->comm->nranks; r++) {
		bool me = r == op->comm->rank;

		s->in_at[r] = me ? op->bound.base[TT_IN]
				 : at(op, r, &s->of[r].in, tt_smsc_in_bytes(op, r));
		s->out_at[r] = me ? op->bound.base[TT_OUT]
				  : at(op, r, &s->of[r].out, tt_smsc_out_bytes(op));
		s->bounces |= !s->in_at[r];
	}
}

/* Calls that go another way are measured, too. */
static int decline(struct tt_op *op)
{
	int rc = tt_op_decline(op);

	if (of(op)->trial)
		tt_op_observe(op, &tt_single_copy_way);
	return rc;
}

/* The addresses are known and everything is agreed: read, or decline. */
static int go(struct tt_op *op)
{
	struct tt_single_copy *s = of(op);
	tuttiComm_t c = op->comm;
	bool can = (!s->windows || s->maps) && tt_smsc_choose(op) == TT_BY_READING;

	tt_smsc_note(op, !can);
	if (!can)
		return decline(op);
	find_buffers(op);
	s->phase = tt_smsc_sums(op) ? TT_SMSC_SUM : TT_SMSC_FETCH;
	if (tt_smsc_sums(op) && s->bounces &&
	    tt_smsc_open_bounce(c, (size_t)c->nranks * TT_SMSC_BOUNCED))
		return TT_SYSTEM;
	return 1;
}

static bool map_fresh(struct tt_op *op, int peer, const struct tt_peer_memory *r)
{
	return !r->fresh ||
	       op->comm->paths.slots->peer_memory_ops->attach(op->comm->paths.slots, peer, r);
}

/* Every rank tries windows that are new, and ordinary memory when it is first in a call. */
static uint8_t try_all(struct tt_op *op, bool ordinary)
{
	static const struct tt_peer_memory anything = { .slot = -1 };
	struct tt_single_copy *s = of(op);
	tuttiComm_t c = op->comm;
	uint8_t can = CAN_READ | CAN_MAP;

	for (int r = 0; r < c->nranks; r++) {
		if (r == c->rank)
			continue;
		if (ordinary && (can & CAN_READ) &&
		    !c->paths.slots->peer_memory_ops->attach(c->paths.slots, r, &anything))
			can &= ~CAN_READ;
		if (!map_fresh(op, r, &s->of[r].in) || !map_fresh(op, r, &s->of[r].out))
			can &= ~CAN_MAP;
	}
	return can;
}

int tt_smsc_exchange(struct tt_op *op)
{
	const void *posts[TT_SINGLE_COPY_RANKS];
	struct tt_single_copy *s = of(op);
	bool fresh = false;
	int rc = tt_smsc_poll(op, sizeof(struct tt_smsc_addresses), posts);

	if (rc <= 0)
		return rc;
	for (int r = 0; r < op->comm->nranks; r++) {
		struct tt_smsc_addresses *a = &s->of[r];

		if (r != op->comm->rank)
			unfold(a, posts[r], sizeof(*a));
		fresh |= a->in.fresh || a->out.fresh;
		s->ordinary |= a->in.slot == -1 || a->out.slot == -1;
		s->windows |= a->in.slot >= 0 || a->out.slot >= 0;
	}
	if (!fresh && !(s->ordinary && s->memory == TT_SMSC_UNTRIED))
		return go(op);
	s->can = try_all(op, s->ordinary && s->memory == TT_SMSC_UNTRIED);
	tt_smsc_post(op, &s->can, 1, TT_SMSC_AGREE);
	return 1;
}

/* The result holds for the life of the communicator. */
int tt_smsc_agree(struct tt_op *op)
{
	const void *posts[TT_SINGLE_COPY_RANKS];
	struct tt_single_copy *s = of(op);
	uint8_t all = s->can;
	int rc = tt_smsc_poll(op, 1, posts);

	if (rc <= 0)
		return rc;
	for (int r = 0; r < op->comm->nranks; r++)
		all &= r == op->comm->rank ? all : *(const uint8_t *)posts[r];
	if (s->ordinary && s->memory == TT_SMSC_UNTRIED)
		s->memory = all & CAN_READ ? TT_SMSC_READABLE : TT_SMSC_UNREADABLE;
	s->maps = s->maps && (all & CAN_MAP);
	return go(op);
}

/*
 * direct_way.c - which way a large call on ordinary memory goes:
 * by messages, or by reading peers' memory
 *
 * Called by direct.c, when the ranks have met and could read each other. The kernel's copy moves a
 * byte once where messages move it twice, but it looks up every page, only the reader works, and
 * caches are met differently: what is quicker depends on the machine, the collective, the size and
 * on whether it is in place. So both are taken and timed, and then the quicker; now and then the
 * other again, since what else the machine does changes. Which comes first is what was the quicker
 * for the next smaller size. What a rank measured it tells in the next meeting, so that all sum the
 * same numbers and decide alike. Where ranks share cores, sums by reading were never
 * quicker by more than the meetings cost (n = 4 on 2 cores, 64 KiB to 64 MiB), so they are not
 * tried; what is only copied goes by offers then (direct_offers.c).
 */
#include "run/direct.h"

/* Calls of a row: 1, 2 one way, not timed the first time, as memory is new to it; 3 the other; then
 * the quicker. */
#define TRIES 3
#define AGAIN 64                 /* later one call in so many takes the other way, at first more */

static struct tt_ways *ways_of(const struct tt_op *op)
{
	unsigned size = 0;

	for (size_t b = op->block / TT_DIRECT_BYTES; b > 1 && size < TT_WAY_SIZES - 1; b >>= 2)
		size++;
	return &op->comm->ways[op->request->collective][size];
}

static bool first_of_sizes(const struct tt_op *op, const struct tt_ways *w)
{
	return w == op->comm->ways[op->request->collective];
}

/* ---- is it worth while to meet? -------------------------------------------------------------- */

/* after so many meetings in a row that led to nothing ... */
#define IN_VAIN 3
#define SELDOM 16                        /* ... one call in so many tries again, */
#define LONG_CALL (512u << 10)           /* or one of so many bytes, which does not feel it */

bool tt_way_meets(const struct tt_op *op)
{
	struct tt_ways *w = ways_of(op);

	return w->in_vain < IN_VAIN || op->block >= LONG_CALL || ++w->passed_by % SELDOM == 0;
}

void tt_way_met(const struct tt_op *op, bool in_vain)
{
	struct tt_ways *w = ways_of(op);

	w->in_vain = in_vain ? w->in_vain + 1 : 0;
}

/* ---- the quicker way ------------------------------------------------------------------------- */

static bool in_place(const struct tt_op *op)
{
	uintptr_t in = (uintptr_t)op->base[TT_IN], out = (uintptr_t)op->base[TT_OUT];
	uintptr_t mine = (uintptr_t)op->comm->rank * op->block;

	return in == out || in == out + mine || out == in + mine;
}

void tt_way_tell(const struct tt_op *op, struct tt_meeting *mine)
{
	const struct tt_ways *w = ways_of(op);

	mine->in_place = in_place(op);
	mine->insists = op->comm->cma == TT_CMA_ON;
	for (int place = 0; place < 2; place++)
		for (int way = 0; way < 2; way++)
			mine->ns[place][way] = w->trial[place].ns[way];
}

/* Soon only where the other way was not much slower. */
static bool tries_again(uint32_t call, uint64_t ns, uint64_t other_ns)
{
	if (call < AGAIN)
		return call > 4 && (call & (call - 1)) == 0 && 2 * other_ns < 3 * ns;
	return call % AGAIN == 0;
}

/* The way of the next call of a row, ns being what all ranks measured together. */
static bool next_way(struct tt_trial *t, const struct tt_trial *smaller, const uint64_t ns[2])
{
	if (++t->calls == 1)
		t->prefers = smaller && smaller->prefers;
	if (t->calls <= TRIES)
		return t->prefers != (t->calls == TRIES);
	t->prefers = ns[true] < ns[false];
	return t->prefers != tries_again(t->calls, ns[t->prefers], ns[!t->prefers]);
}

bool tt_way_reads(struct tt_op *op)
{
	struct tt_ways *w = ways_of(op);
	uint64_t ns[2] = { 0, 0 };
	bool place = false, insists = false;

	for (int r = 0; r < op->comm->nranks; r++) {
		place |= op->met[r].in_place;
		insists |= op->met[r].insists;
	}
	if (insists || (op->comm->cores && op->comm->nranks > op->comm->cores))
		return insists;
	for (int r = 0; r < op->comm->nranks; r++)
		for (int way = 0; way < 2; way++)
			ns[way] += op->met[r].ns[place][way];
	op->trial = &w->trial[place];
	op->reads = next_way(op->trial, first_of_sizes(op, w) ? NULL : &w[-1].trial[place], ns);
	op->met_ns = tt_now_ns();
	return op->reads;
}

/* A slow average: what disturbs a single call counts for little. */
void tt_way_learn(const struct tt_op *op)
{
	struct tt_trial *t = op->trial;
	uint64_t took = tt_now_ns() - op->met_ns;
	uint32_t *ns = &t->ns[op->reads], now = took < UINT32_MAX ? (uint32_t)took : UINT32_MAX;

	if (t->calls > 1 && (!*ns || now < *ns))
		*ns = now;
	else if (t->calls > 1)
		*ns += (now - *ns < *ns ? now - *ns : *ns) / 4;
	if ((t->calls & (t->calls - 1)) == 0)
		tt_log(TT_LOG_DEBUG,
		       "rank %d: %s of %zu bytes: %u us by messages, %u us by reading",
		       op->comm->rank, tt_collective_name(op->request->collective), op->block,
		       t->ns[false] / 1000, t->ns[true] / 1000);
}

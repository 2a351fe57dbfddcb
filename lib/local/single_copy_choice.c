/*
 * single_copy_choice.c - which way a large call on ordinary memory goes:
 * by messages, or by reading peers' memory
 *
 * Called by single_copy.c, when the ranks have met and could read each other. The kernel's copy moves a
 * byte once where messages move it twice, but it looks up every page, only the reader works, and
 * caches are met differently: what is quicker depends on the machine, the collective, the size and
 * on whether it is in place. So both are tried, some calls of one and some of the other, and then
 * the quicker is taken; now and then the other is tried again, since what else the machine does
 * changes. Which comes first is what was the quicker for the next smaller size.
 *
 * Calls of one way follow each other, and the first is not timed: slots and pages are then in no
 * cache (messages, n = 2, in place, 1 MiB: 322 us after a call that read, 196 after its like; a
 * single call in between would always seem slow). Compared are the least of the last two calls of
 * either way, which lie next to each other in time; and what was the slower must win two trials
 * in a row, since other work on the machine decides some. What a rank measured it tells in the next
 * meeting, so that all sum the same numbers and decide alike.
 *
 * Where ranks share cores, sums by reading were never quicker by more than the meetings cost
 * (n = 4 on 2 cores, 64 KiB to 64 MiB), so they are not tried; what is only copied goes by offers
 * then (single_copy_pscw.c).
 */
#include "local/single_copy.h"

#define TRY 3                    /* calls of a trial */
#define SOON 8                   /* calls until the next, after one that the other way has won, */
#define LATE 128                 /* and at most: twice as many after each that it has lost */

static struct tt_single_copy_history *ways_of(const struct tt_op *op)
{
	unsigned size = 0;

	for (size_t b = op->block / TT_SINGLE_COPY_BYTES; b > 1 && size < TT_SINGLE_COPY_SIZES - 1; b >>= 2)
		size++;
	return &op->comm->single_copy[op->request->collective][size];
}

static bool first_of_sizes(const struct tt_op *op, const struct tt_single_copy_history *w)
{
	return w == op->comm->single_copy[op->request->collective];
}

/* ---- is it worth while to meet? -------------------------------------------------------------- */

/* after so many meetings in a row that led to nothing ... */
#define IN_VAIN 3
#define SELDOM 16                        /* ... one call in so many tries again, */
#define LONG_CALL (512u << 10)           /* or one of so many bytes, which does not feel it */

bool tt_single_copy_choice_barrier(const struct tt_op *op)
{
	struct tt_single_copy_history *w = ways_of(op);

	return w->in_vain < IN_VAIN || op->block >= LONG_CALL || ++w->passed_by % SELDOM == 0;
}

void tt_single_copy_choice_met(const struct tt_op *op, bool in_vain)
{
	struct tt_single_copy_history *w = ways_of(op);

	w->in_vain = in_vain ? w->in_vain + 1 : 0;
}

/* ---- the quicker way ------------------------------------------------------------------------- */

static bool in_place(const struct tt_op *op)
{
	uintptr_t in = (uintptr_t)op->base[TT_IN], out = (uintptr_t)op->base[TT_OUT];
	uintptr_t mine = (uintptr_t)op->comm->rank * op->block;

	return in == out || in == out + mine || out == in + mine;
}

static uint32_t least_of(const uint32_t ns[2])
{
	return ns[0] < ns[1] ? ns[0] : ns[1];
}

void tt_single_copy_choice_tell(const struct tt_op *op, struct tt_address_exchange *mine)
{
	const struct tt_single_copy_history *w = ways_of(op);

	mine->in_place = in_place(op);
	mine->insists = op->comm->cma == TT_CMA_ON;
	for (int place = 0; place < 2; place++)
		for (int way = 0; way < 2; way++)
			mine->ns[place][way] = least_of(w->trial[place].ns[way]);
}

/* The calls of a stretch, or of a trial, are over; ns is what all ranks measured together. */
static void next_stretch(struct tt_single_copy_trial *t, const struct tt_single_copy_trial *smaller, const uint64_t ns[2])
{
	bool wins;

	if (t->gap == 0) {                       /* the first call */
		t->gap = SOON;
		t->reads = t->prefers = smaller && smaller->prefers;
		t->left = TRY;
		t->won = true;
	} else if (t->reads == t->prefers) {
		t->reads = !t->prefers;
		t->left = TRY;
	} else {
		wins = ns[t->reads] < ns[t->prefers];
		t->gap = wins ? SOON : t->gap < LATE ? 2 * t->gap : LATE;
		t->prefers = t->prefers != (wins && t->won);
		t->won = wins && t->reads != t->prefers;
		t->reads = t->prefers;
		t->left = t->gap;
	}
}

static bool next_way(struct tt_single_copy_trial *t, const struct tt_single_copy_trial *smaller, const uint64_t ns[2])
{
	bool before = t->reads, first = t->gap == 0;

	if (t->left == 0)
		next_stretch(t, smaller, ns);
	t->left--;
	t->timed = !first && t->reads == before;
	return t->reads;
}

bool tt_single_copy_choice_reads(struct tt_op *op)
{
	struct tt_single_copy_history *w = ways_of(op);
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

void tt_single_copy_choice_learn(const struct tt_op *op)
{
	struct tt_single_copy_trial *t = op->trial;
	uint64_t took = tt_now_ns() - op->met_ns;
	uint32_t *ns = t->ns[op->reads];

	if (!t->timed)
		return;
	ns[1] = ns[0];
	ns[0] = took < UINT32_MAX ? (uint32_t)took : UINT32_MAX;
	if (t->left == 0)
		tt_log(TT_LOG_DEBUG, "rank %d: %s of %zu bytes %s: %u and %u us",
		       op->comm->rank, tt_collective_name(op->request->collective), op->block,
		       op->reads ? "by reading" : "by messages", ns[1] / 1000, ns[0] / 1000);
}

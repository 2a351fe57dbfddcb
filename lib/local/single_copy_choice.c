/*
 * single_copy_choice.c - is a large call faster by messages or slots, or by reading peers' memory?
 *
 * Called by single_copy.c, when the address exchange is done and ranks can read each other. The
 * kernel's copy moves a byte once where messages move it twice, but it looks up every page, only
 * the reader works, and caches are used differently: the faster way depends on the machine, the
 * collective, the size, and on whether the call is in place. So both ways are tried (base/trial.h).
 * The first way tried is the faster one of the next smaller size. The first call of a trial is slower, since slots
 * and pages are in no cache (messages, n = 2, in place, 1 MiB: 322 us after a call that read, 196 after a call by
 * messages). A rank posts its measurements in the next address exchange, so all ranks sum the same numbers and decide
 * alike.
 *
 * Where ranks share cores, sums by reading were never faster by more than the cost of the exchanges
 * (n = 4 on 2 cores, 64 KiB to 64 MiB), so they are not tried; copying collectives use PSCW there
 * (single_copy_pscw.c) where slots do not take them. An allreduce of two ranks on ordinary memory goes by slots
 * (slot_pair.c), which were never slower (n = 2, 64 KiB to 16 MiB, near and distant cores). Broadcasts, gathers and
 * short allgathers of two ranks by one post do not come here (is_posted in single_copy_pieces.c). Of the other calls that
 * slots take, only long alltoalls are tried: 4 MiB, 2, 4 and 8 ranks on 2 cores, times by reading to times by
 * slots: Xeon (cores with 2 MiB of their own) 0.78, 0.78, 0.70; EPYC 9004, 4 ranks, 1.2.
 *
 * Windows are read without the kernel, so calls on them read, except for an allreduce of two ranks, which
 * tries slots as well: it reads a result where the peer has just written it, line by line between distant
 * cores (EPYC 9004, 1 MiB, us, reading and slots: near cores 32 and 60, distant cores 242 and 125); and for a gather of
 * two ranks, which tries messages: its giver copies, too, and goes on (Xeon, 4 MiB, us, reading and messages: 364 and 220).
 */
#include "local/single_copy.h"
#include "local/ways.h"

static struct tt_smsc_history *history_of(const struct tt_op *op)
{
	/* a block of TT_SINGLE_COPY_BYTES, which slots take between two ranks, is of the first size alone */
	size_t blocks = (op->bound.block - 1) / TT_SINGLE_COPY_BYTES;
	unsigned size = 0;

	for (; blocks > 0 && size < TT_SMSC_SIZES - 1; blocks >>= 2)
		size++;
	return &op->comm->single_copy->history[op->call.request->collective][size];
}

static bool first_of_sizes(const struct tt_op *op, const struct tt_smsc_history *w)
{
	return w == op->comm->single_copy->history[op->call.request->collective];
}

/* ---- is an address exchange worth its cost? -------------------------------------------------- */

#define IN_VAIN 3 /* exchanges in a row after which messages ran */
#define SELDOM 16 /* then one call in SELDOM exchanges addresses, */
#define LONG_CALL \
	(512u << 10) /* or a call of this size that slots do not take: the cost is small; */
/* of those that they take, an alltoall in which a rank takes these bytes, or twice as much where each rank has a core:
 * two ranks, 1 MiB, Xeon, us, tried 73.1, by slots 65.5 */
#define LONG_TAKEN (512u << 10)

/* Is reading tried for calls like this one, where slots take them? */
static bool tried_with_slots(const struct tt_op *op)
{
	size_t least = tt_smsc_crowded(op->comm) ? LONG_TAKEN : 2 * LONG_TAKEN;

	return op->call.request->collective == TT_ALLTOALL &&
	       op->comm->single_copy->memory != TT_SMSC_UNREADABLE &&
	       op->bound.block * (size_t)(op->comm->nranks - 1) >= least;
}

/* In place, an alltoall reads a copy (run/operation.c), so its trial is that of calls out of place. */
bool tt_smsc_follows(const struct tt_op *op, enum tt_smsc_by *ret_way)
{
	struct tt_smsc_trial *t = &history_of(op)->trial[0];

	if (!tt_smsc_crowded(op->comm) || op->comm->single_copy->memory != TT_SMSC_READABLE ||
	    !tt_slot_way.fits(op) || !tried_with_slots(op) || t->windows ||
	    !tt_trial_is_settled(&t->trial))
		return false;
	*ret_way = tt_trial_next(&t->trial, NULL);
	return true;
}

bool tt_smsc_worth(const struct tt_op *op)
{
	struct tt_smsc_history *w = history_of(op);

	return w->in_vain < IN_VAIN ||
	       (tt_slot_way.fits(op) ? tried_with_slots(op) : op->bound.block >= LONG_CALL) ||
	       ++w->skipped % SELDOM == 0;
}

void tt_smsc_note(const struct tt_op *op, bool in_vain)
{
	const struct tt_smsc_trial *t = op->comm->single_copy->trial;
	struct tt_smsc_history *w = history_of(op);

	if (t && t->trial.prefers == TT_BY_READING)
		in_vain = false;
	w->in_vain = in_vain ? w->in_vain + 1 : 0;
}

/* ---- the faster way -------------------------------------------------------------------------- */

static bool in_place(const struct tt_op *op)
{
	uintptr_t in = (uintptr_t)op->bound.base[TT_IN], out = (uintptr_t)op->bound.base[TT_OUT];
	uintptr_t mine = (uintptr_t)op->comm->rank * op->bound.block;

	return in == out || in == out + mine || out == in + mine;
}

void tt_smsc_report(const struct tt_op *op, struct tt_smsc_addresses *mine)
{
	const struct tt_smsc_history *w = history_of(op);

	mine->in_place = in_place(op);
	mine->insists = op->comm->settings.cma == TT_CMA_ON;
	for (int place = 0; place < 2; place++)
		for (unsigned way = 0; way < TT_BY_ALL; way++)
			mine->ns[place][way] = tt_trial_least(&w->trial[place].trial, way);
}

/* smaller: the trial of the next smaller size, or NULL */
static void begin(struct tt_smsc_trial *t, const struct tt_smsc_trial *smaller)
{
	if (smaller && smaller->trial.judged && smaller->windows == t->windows)
		tt_trial_begin(&t->trial, smaller->trial.prefers);
	else
		tt_trial_begin(&t->trial, t->windows ? TT_BY_READING : TT_BY_MESSAGES);
}

/* Windows: are slots tried for an allreduce, or messages for a gather? */
static bool tries_others(const struct tt_op *op)
{
	if (op->comm->nranks != 2)
		return false;
	return op->call.request->collective == TT_ALLREDUCE
		       ? tt_slot_way.fits(op)
		       : op->call.request->collective == TT_GATHER && !tt_smsc_crowded(op->comm);
}

/* Ordinary memory: is reading tried? */
static bool is_tried(const struct tt_op *op)
{
	return tt_slot_way.fits(op) ? tried_with_slots(op) : !tt_smsc_crowded(op->comm);
}

/* The trial of this call. One of the other kind of memory is forgotten. */
static struct tt_smsc_trial *trial_of(const struct tt_op *op, bool place)
{
	struct tt_smsc_trial *t = &history_of(op)->trial[place];
	bool windows = !op->comm->single_copy->ordinary;

	if (t->windows != windows)
		*t = (struct tt_smsc_trial){ .windows = windows };
	return t;
}

enum tt_smsc_by tt_smsc_choose(struct tt_op *op)
{
	struct tt_single_copy *s = op->comm->single_copy;
	struct tt_smsc_history *w = history_of(op);
	uint64_t ns[TT_BY_ALL] = { 0 };
	bool place = false, insists = false;

	for (int r = 0; r < op->comm->nranks; r++) {
		place |= s->of[r].in_place;
		insists |= s->of[r].insists;
	}
	if (s->ordinary ? insists && s->memory == TT_SMSC_READABLE : insists || !tries_others(op))
		return TT_BY_READING;
	if (s->ordinary && (s->memory != TT_SMSC_READABLE || !is_tried(op)))
		return TT_BY_MESSAGES;
	for (int r = 0; r < op->comm->nranks; r++)
		for (int way = 0; way < TT_BY_ALL; way++)
			ns[way] += s->of[r].ns[place][way];
	s->trial = trial_of(op, place);
	if (!s->trial->trial.gap)
		begin(s->trial, first_of_sizes(op, w) ? NULL : &w[-1].trial[place]);
	s->way = tt_trial_next(&s->trial->trial, ns);
	s->exchanged_ns = tt_now_ns();
	return s->way;
}

void tt_smsc_measure(const struct tt_op *op)
{
	const struct tt_single_copy *s = op->comm->single_copy;
	struct tt_trial *t = &s->trial->trial;
	static const char *const names[TT_BY_ALL] = {
		[TT_BY_MESSAGES] = "messages", [TT_BY_READING] = "reading"
	};

	tt_trial_note(t, tt_now_ns() - s->exchanged_ns);
	if (t->left == 0 && tt_trial_is_timed(t))
		tt_log(TT_LOG_DEBUG, "rank %d: %s of %zu bytes by %s: %u and %u us", op->comm->rank,
		       tt_collective_name(op->call.request->collective), op->bound.block,
		       names[s->way], t->ns[s->way][1] / 1000, t->ns[s->way][0] / 1000);
}

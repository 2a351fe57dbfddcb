/*
 * control_allgather.c - allgather over the tree: the parts go up, the result comes down
 *
 * Called by comm and transports while they set up, never during a collective. A child may be one
 * exchange ahead of this rank: its part is kept until this rank begins. A child
 * cannot be two exchanges ahead, because the result of the first one needs this rank's part. Parts
 * stay in the messages that brought them; equal parts of neighbors take a bit there, and no pointer.
 *   up    number, bytes of a rank's parts, the parts of the ranks from the sender on downwards
 *   down  number, bytes of a rank's parts, all parts
 * Parts are in columns (parts.h). Most exchanges are agreements, in which all ranks send the same, so a rank
 * receives two bytes for 2,048 other ranks, and at most 1.5 bits for each where parts differ.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/control_internal.h"
#include "control/parts.h"

/* extra time for rank 0's error message, which names more ranks than this rank knows of */
#define GRACE_NS (TT_SECOND / 4)
#define PARTS_HEAD 12 /* bytes of a message before its parts */
/* from the deadline, for ranks to answer that they are alive; at least ANSWER_LEAST_NS from the question */
#define ANSWER_NS (TT_SECOND * 3 / 4)
#define ANSWER_LEAST_NS (TT_SECOND * 3 / 10)

/* ---- the ranks from one on downwards in the tree ------------------------------------------------ */

struct below {
	int low, high; /* of the level of `rank` */
	int rank;      /* nranks or more: no rank is left */
};

static struct below from_on(int top)
{
	return (struct below){ top, top, top };
}

static void step(struct below *b)
{
	if (b->rank++ < b->high)
		return;
	b->low = b->rank = b->low * TT_FANOUT + 1;
	b->high = b->high * TT_FANOUT + TT_FANOUT;
}

/* Is rank below this rank in the tree, and its part of this exchange missing? */
static bool absent(const void *ctx, int rank)
{
	const struct tt_control *ctl = ctx;
	int child = rank;

	while (child > 0 && tt_tree_parent(child) > ctl->rank)
		child = tt_tree_parent(child);
	return tt_tree_child(child, ctl->rank) && !ctl->gather.full &&
	       !ctl->gather.child[(child - 1) % TT_FANOUT].data;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static struct tt_parts_reader parts_of(const uint8_t *message, size_t bytes)
{
	return (struct tt_parts_reader){ .r = { .at = message + PARTS_HEAD,
						.left = bytes - PARTS_HEAD } };
}

/* Are these the parts of n ranks? Counts the runs of each column. */
static bool check_parts(struct tt_control *ctl, const uint8_t *message, size_t bytes, int n)
{
	struct tt_parts_reader p = parts_of(message, bytes);

	return tt_parts_count(&p, ctl->gather.columns, ctl->gather.ncolumns, n);
}

static int count_below(const struct tt_control *ctl, int top)
{
	int n = 0;

	for (int low = top, high = top; low < ctl->nranks;
	     low = low * TT_FANOUT + 1, high = high * TT_FANOUT + TT_FANOUT)
		n += (high < ctl->nranks ? high + 1 : ctl->nranks) - low;
	return n;
}

/* This rank's part of a column, and those of its children's messages level by level: a child has the same
 * share of each level. */
static void put_column(const struct tt_control *ctl, const struct tt_parts *column,
		       struct tt_parts_reader child[TT_FANOUT], struct tt_writer *w)
{
	struct tt_parts_writer out = { .w = w, .bytes = column->bytes };
	const uint8_t *before = NULL;

	for (struct below b = from_on(ctl->rank); column->bytes && b.rank < ctl->nranks; step(&b)) {
		int share = (b.high - b.low + 1) / TT_FANOUT;
		const uint8_t *part = column->mine;

		if (share) {
			struct tt_parts_reader *from = &child[(b.rank - b.low) / share];

			tt_parts_next(from, column->bytes);
			part = from->part;
		}
		if (before && !memcmp(part, before, column->bytes))
			part = NULL;
		else
			before = part;
		tt_parts_put(&out, part);
	}
	tt_parts_put_end(&out);
}

static void put_parts(const struct tt_control *ctl, struct tt_writer *w)
{
	struct tt_parts_reader child[TT_FANOUT] = { 0 };

	for (int i = 0; i < TT_FANOUT; i++)
		if (ctl->gather.child[i].data)
			child[i] = parts_of(ctl->gather.child[i].data, ctl->gather.child[i].bytes);
	for (int i = 0; i < ctl->gather.ncolumns; i++) {
		put_column(ctl, &ctl->gather.columns[i], child, w);
		for (int k = 0; k < TT_FANOUT; k++)
			tt_parts_next_column(&child[k]);
	}
}

static bool fail_sizes(struct tt_control *ctl, int peer, size_t theirs)
{
	char text[160];

	snprintf(text, sizeof(text),
		 "rank %d exchanges %zu bytes where rank %d exchanges %zu: they run different code",
		 peer, theirs, ctl->rank, ctl->gather.bytes);
	tt_control_break(ctl, TT_USAGE, peer, 0, text, -1);
	return true;
}

static void drop(struct tt_child_parts *message)
{
	free(message->data);
	*message = (struct tt_child_parts){ 0 };
}

static void drop_all(struct tt_control *ctl)
{
	for (int i = 0; i < TT_FANOUT; i++)
		drop(&ctl->gather.child[i]);
}

/* Take the parts of a child. false: they are malformed, and still missing */
static bool absorb(struct tt_control *ctl, int child)
{
	struct tt_child_parts *message = &ctl->gather.child[(child - 1) % TT_FANOUT];
	struct tt_reader r = { .at = message->data, .left = message->bytes };
	uint64_t number = tt_get(&r, 8), each = tt_get(&r, 4);
	bool now = !r.failed && number == ctl->gather.number, fits = each == ctl->gather.bytes;

	if (now && fits && check_parts(ctl, message->data, message->bytes, count_below(ctl, child)))
		return true;
	drop(message);
	return now && !fits && fail_sizes(ctl, child, each);
}

/* The result has come. Keeps message. */
static bool finish(struct tt_control *ctl, uint8_t *message, size_t bytes)
{
	struct tt_reader r = { .at = message, .left = bytes };
	uint64_t number = tt_get(&r, 8), each = tt_get(&r, 4);

	if (r.failed || number != ctl->gather.number || each != ctl->gather.bytes ||
	    !check_parts(ctl, message, bytes, ctl->nranks))
		return false;
	ctl->gather.message = message;
	ctl->gather.message_bytes = bytes;
	ctl->gather.complete = true;
	tt_control_changed(ctl);
	return true;
}

/* A rank that left after this exchange has its part in it, and its copy of the result. */
void tt_gather_gone(struct tt_control *ctl, int rank)
{
	char text[128];

	if (!ctl->gather.running || ctl->gather.complete ||
	    tt_flood_goodbye_of(ctl, rank)->exchanges >= ctl->gather.number)
		return;
	snprintf(text, sizeof(text), "rank %d left; exchange %llu among all ranks waits for it",
		 rank, (unsigned long long)ctl->gather.number);
	tt_control_break(ctl, TT_REMOTE, rank, 0, text, -1);
}

/* Does the message fit into a frame? Equal parts of neighbors take a bit, so only messages tell. */
static bool fits(struct tt_control *ctl, const struct tt_writer *message)
{
	char text[160];

	if (message->have <= TT_FRAME_MOST - 64)
		return true;
	snprintf(
		text, sizeof(text),
		"an exchange of %zu bytes among %d ranks is too large: %zu bytes in all, as the ranks' parts differ",
		ctl->gather.bytes, ctl->nranks, message->have);
	tt_control_break(ctl, TT_USAGE, -1, 0, text, -1);
	return false;
}

/* The parts of this rank and of all below, once they have come, go up; rank 0's are the result. */
static void forward(struct tt_control *ctl)
{
	struct tt_writer w = { 0 };

	for (int i = 1; i <= TT_FANOUT && ctl->rank * TT_FANOUT + i < ctl->nranks; i++)
		if (absent(ctl, ctl->rank * TT_FANOUT + i))
			return;
	tt_put(&w, ctl->gather.number, 8);
	tt_put(&w, ctl->gather.bytes, 4);
	put_parts(ctl, &w);
	drop_all(ctl);
	ctl->gather.full = true;
	if (!fits(ctl, &w)) {
		free(w.data);
		return;
	}
	if (ctl->rank) {
		tt_control_post(ctl, TT_TO_PARENT, -1, TT_F_GATHER_UP, &w);
		return;
	}
	if (w.failed || !finish(ctl, w.data, w.have)) {
		free(w.data);
		tt_control_no_memory(ctl);
		return;
	}
	tt_control_send(ctl, TT_TO_CHILDREN, -1, TT_F_GATHER_DOWN, w.data, w.have);
}

bool tt_gather_up(struct tt_control *ctl, int from, const uint8_t *data, size_t bytes)
{
	struct tt_child_parts *message;

	if (!tt_tree_child(from, ctl->rank))
		return false;
	message = &ctl->gather.child[(from - 1) % TT_FANOUT];
	if (message->data)
		return false;
	message->data = malloc(bytes + 1);
	if (!message->data) {
		tt_control_no_memory(ctl);
		return true;
	}
	memcpy(message->data, data, bytes);
	message->bytes = bytes;
	if (!ctl->gather.running || ctl->gather.full || ctl->gather.complete)
		return true; /* of the next exchange */
	if (!absorb(ctl, from))
		return false;
	forward(ctl);
	return true;
}

void tt_gather_free(struct tt_control *ctl)
{
	drop_all(ctl);
	free(ctl->gather.message);
}

bool tt_gather_down(struct tt_control *ctl, int from, const uint8_t *data, size_t bytes)
{
	uint8_t *copy;

	if (!tt_tree_child(ctl->rank, from))
		return false;
	if (!ctl->gather.running || ctl->gather.complete)
		return ctl->broken; /* this rank has timed out */
	copy = malloc(bytes + 1);
	if (!copy) {
		tt_control_no_memory(ctl);
		return true;
	}
	memcpy(copy, data, bytes);
	if (!finish(ctl, copy, bytes)) {
		free(copy);
		return false;
	}
	tt_control_send(ctl, TT_TO_CHILDREN, -1, TT_F_GATHER_DOWN, data, bytes);
	return true;
}

/* false: the part of a child is malformed */
static bool absorb_early(struct tt_control *ctl)
{
	for (int i = 0; i < TT_FANOUT; i++)
		if (ctl->gather.child[i].data && !absorb(ctl, ctl->rank * TT_FANOUT + i + 1)) {
			drop_all(ctl);
			return false;
		}
	return true;
}

/* false: the early part of a child is malformed */
static bool begin(struct tt_control *ctl, struct tt_parts *columns, int ncolumns, size_t bytes)
{
	ctl->gather.number++;
	ctl->gather.running = true;
	ctl->gather.full = false;
	ctl->gather.bytes = bytes;
	ctl->gather.columns = columns;
	ctl->gather.ncolumns = ncolumns;
	for (int r = tt_set_next(ctl->departed.left, ctl->nranks, 0); r < ctl->nranks;
	     r = tt_set_next(ctl->departed.left, ctl->nranks, r + 1))
		tt_gather_gone(ctl, r);
	if (!absorb_early(ctl))
		return false;
	forward(ctl);
	return true;
}

/* Is ctl a split's or a shrink's that is not complete? Then a rank may not have it yet, and the parent
 * finds the silent ranks. */
static bool is_forming(const struct tt_control *ctl)
{
	for (const struct tt_control *c = ctl->ep->controls; c; c = c->next)
		if (c->split.child == ctl)
			return true;
	return false;
}

/* Wait for the result. */
static void await_result(struct tt_control *ctl, uint64_t until_ns)
{
	while (!ctl->broken && !ctl->gather.complete && tt_endpoint_await(ctl->ep, until_ns))
		;
}

/* The deadline has passed: wait a little for the result, or for the reason. silent: "", or the ranks
 * that do not answer. Where all answer, those that are missing have late_ns to come. */
static void linger(struct tt_control *ctl, uint64_t deadline_ns, uint64_t late_ns, char *silent,
		   size_t bytes)
{
	uint64_t now = tt_now_ns(), until = deadline_ns + ANSWER_NS;

	if (until < now + ANSWER_LEAST_NS)
		until = now + ANSWER_LEAST_NS;
	silent[0] = '\0';
	if (!ctl->join.complete || is_forming(ctl)) {
		if (ctl->rank && ctl->gather.full)
			await_result(ctl, deadline_ns + GRACE_NS);
	} else if (!tt_status_silent(ctl, until - now, silent, bytes)) {
		await_result(ctl, now + late_ns);
	}
}

static int too_late(struct tt_control *ctl, const char *silent)
{
	char ranks[256] = "", text[800], in[160] = "", other[200] = "";
	int n = tt_rank_list(ctl->nranks, absent, ctl, ranks, sizeof(ranks)), first = -1;

	for (int r = 0; r < ctl->nranks && !in[0]; r++)
		if (absent(ctl, r))
			tt_deadlock_text(ctl, first = r, in, sizeof(in));
	if (in[0])
		snprintf(other, sizeof(other), "; rank %d is in %s", first, in);
	if (silent[0])
		snprintf(text, sizeof(text), "rank %d: exchange %llu among all ranks timed out: %s",
			 ctl->rank, (unsigned long long)ctl->gather.number, silent);
	else if (n)
		snprintf(text, sizeof(text),
			 "rank %d: exchange %llu among all ranks timed out: %s did not take part%s",
			 ctl->rank, (unsigned long long)ctl->gather.number, ranks, other);
	else
		snprintf(
			text, sizeof(text),
			"rank %d: exchange %llu among all ranks timed out: no message from rank %d, "
			"its parent in the tree",
			ctl->rank, (unsigned long long)ctl->gather.number,
			tt_tree_parent(ctl->rank));
	tt_control_break(ctl, TT_TIMEOUT, -1, 0, text, -1);
	return tt_control_fail(ctl);
}

static void free_columns(struct tt_parts *columns, int ncolumns)
{
	for (int i = 0; i < ncolumns; i++)
		tt_parts_free(&columns[i]);
}

int tt_gather_columns(struct tt_control *ctl, struct tt_parts *columns, int ncolumns,
		      uint64_t deadline_ns, uint64_t late_ns)
{
	size_t bytes = 0;
	char silent[500];
	struct tt_parts_reader p;
	int rc = 0;

	for (int i = 0; i < ncolumns; i++)
		bytes += columns[i].bytes;
	if (bytes > TT_FRAME_MOST - 64)
		return tt_fail(TT_ARG, "an exchange of %zu bytes among %d ranks is too large",
			       bytes, ctl->nranks);
	tt_control_lock(ctl);
	ctl->gather.complete = false; /* of the exchange before */
	if (!ctl->broken && !begin(ctl, columns, ncolumns, bytes))
		tt_control_break(ctl, TT_INTERNAL, -1, 0, "the ranks' exchanges are out of step",
				 -1);
	await_result(ctl, deadline_ns);
	if (!ctl->broken && !ctl->gather.complete)
		linger(ctl, deadline_ns, late_ns, silent, sizeof(silent));
	if (!ctl->gather.complete)
		rc = ctl->broken ? tt_control_fail(ctl) : too_late(ctl, silent);
	ctl->gather.running = false;
	columns[ncolumns - 1].message = ctl->gather.message;
	ctl->gather.message = NULL;
	tt_control_unlock(ctl);
	if (!rc) {
		p = parts_of(columns[ncolumns - 1].message, ctl->gather.message_bytes);
		if (!tt_parts_find_runs(&p, columns, ncolumns, ctl->nranks))
			rc = tt_control_absent(ctl);
	}
	if (rc)
		free_columns(columns, ncolumns);
	return rc;
}

int tt_control_allgather_columns(struct tt_control *ctl, struct tt_parts *columns, int ncolumns,
				 uint64_t deadline_ns)
{
	return tt_gather_columns(ctl, columns, ncolumns, deadline_ns, 0);
}

int tt_control_allgather(struct tt_control *ctl, const void *mine, size_t bytes, void *all,
			 uint64_t deadline_ns)
{
	struct tt_parts parts = { .mine = mine, .bytes = bytes };
	int rc = tt_control_allgather_columns(ctl, &parts, 1, deadline_ns);

	if (rc)
		return rc;
	for (int i = 0; bytes && i < parts.nruns; i++)
		for (int r = parts.from[i]; r < parts.from[i + 1]; r++)
			memcpy((uint8_t *)all + (size_t)r * bytes, parts.part[i], bytes);
	tt_parts_free(&parts);
	return 0;
}

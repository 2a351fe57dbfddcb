/*
 * control_allgather.c - allgather over the tree: the parts go up, the result comes down
 *
 * Called by comm and transports while they set up, never during a collective. A child may be one
 * exchange ahead of this rank: its part is kept until this rank begins. A child
 * cannot be two exchanges ahead, because the result of the first one needs this rank's part. Parts
 * stay in the messages that brought them, so that an exchange takes a pointer for each rank.
 *   up    number, bytes of a rank's parts, the parts of the ranks from the sender on downwards
 *   down  number, bytes of a rank's parts, all parts
 * Parts are in columns, a column in the order of ranks, in groups of eight: a byte, of which a bit says
 * that the rank's part differs from the part before, and the parts that differ. Most exchanges are
 * agreements, in which all ranks send the same, so a rank receives little more than a bit for each
 * other rank.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/control_internal.h"

/* extra time for rank 0's error message, which names more ranks than this rank knows of */
#define GRACE_NS (TT_SECOND / 4)
#define ANSWER_NS (TT_SECOND * 2 / 5) /* for ranks to answer that they are alive */

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

static void put_column(const struct tt_parts *column, int top, int nranks, struct tt_writer *w)
{
	const uint8_t *before = NULL;

	for (struct below b = from_on(top); column->bytes && b.rank < nranks;) {
		const uint8_t *differs[8];
		unsigned bits = 0, n = 0;

		for (int i = 0; i < 8 && b.rank < nranks; i++, step(&b)) {
			const uint8_t *part = column->part[b.rank];

			if (before && !memcmp(part, before, column->bytes))
				continue;
			bits |= 1u << i;
			differs[n++] = before = part;
		}
		tt_put(w, bits, 1);
		for (unsigned i = 0; i < n; i++)
			tt_put_bytes(w, differs[i], column->bytes);
	}
}

/* The parts stay in the message. false: it is malformed */
static bool get_column(const struct tt_parts *column, int top, int nranks, struct tt_reader *r)
{
	const uint8_t *part = NULL;

	for (struct below b = from_on(top); column->bytes && b.rank < nranks;) {
		unsigned bits = (unsigned)tt_get(r, 1);

		for (int i = 0; i < 8 && b.rank < nranks; i++, step(&b)) {
			if (bits & 1u << i)
				part = tt_get_bytes(r, column->bytes);
			if (!part)
				return false;
			column->part[b.rank] = part;
		}
	}
	return true;
}

static bool get_parts(const struct tt_control *ctl, int top, struct tt_reader *r)
{
	for (int i = 0; i < ctl->gather.ncolumns; i++)
		if (!get_column(&ctl->gather.columns[i], top, ctl->nranks, r))
			return false;
	return tt_get_end(r);
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

	if (now && fits && get_parts(ctl, child, &r))
		return true;
	drop(message);
	return now && !fits && fail_sizes(ctl, child, each);
}

/* The result has come. Keeps message. */
static bool finish(struct tt_control *ctl, uint8_t *message, size_t bytes)
{
	struct tt_reader r = { .at = message, .left = bytes };
	uint64_t number = tt_get(&r, 8), each = tt_get(&r, 4);

	if (number != ctl->gather.number || each != ctl->gather.bytes || !get_parts(ctl, 0, &r))
		return false;
	ctl->gather.message = message;
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

/* The parts of this rank and of all below, once they have come, go up; rank 0's are the result. */
static void forward(struct tt_control *ctl)
{
	struct tt_writer w = { 0 };

	for (int i = 1; i <= TT_FANOUT && ctl->rank * TT_FANOUT + i < ctl->nranks; i++)
		if (absent(ctl, ctl->rank * TT_FANOUT + i))
			return;
	tt_put(&w, ctl->gather.number, 8);
	tt_put(&w, ctl->gather.bytes, 4);
	for (int i = 0; i < ctl->gather.ncolumns; i++)
		put_column(&ctl->gather.columns[i], ctl->rank, ctl->nranks, &w);
	drop_all(ctl);
	ctl->gather.full = true;
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
	for (int i = 0; i < ncolumns; i++)
		if (columns[i].bytes)
			columns[i].part[ctl->rank] = columns[i].mine;
	for (int r = 0; r < ctl->nranks; r++)
		if (tt_set_has(ctl->departed.left, r))
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

/* The deadline has passed: wait a little for the result, or for the reason. silent: "", or the ranks
 * that do not answer. */
static void linger(struct tt_control *ctl, uint64_t deadline_ns, char *silent, size_t bytes)
{
	silent[0] = '\0';
	if (ctl->join.complete && !is_forming(ctl))
		tt_status_silent(ctl, ANSWER_NS, silent, bytes);
	else if (ctl->rank && ctl->gather.full)
		while (!ctl->broken && !ctl->gather.complete &&
		       tt_endpoint_await(ctl->ep, deadline_ns + GRACE_NS))
			;
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

/* false: no memory */
static bool make_columns(struct tt_parts *columns, int ncolumns, int nranks)
{
	for (int i = 0; i < ncolumns; i++)
		if (columns[i].bytes &&
		    !(columns[i].part = calloc((size_t)nranks, sizeof(uint8_t *))))
			return false;
	return true;
}

static void free_columns(struct tt_parts *columns, int ncolumns)
{
	for (int i = 0; i < ncolumns; i++)
		tt_parts_free(&columns[i]);
}

int tt_control_allgather_columns(struct tt_control *ctl, struct tt_parts *columns, int ncolumns,
				 uint64_t deadline_ns)
{
	size_t bytes = 0;
	char silent[500];
	int rc = 0;

	for (int i = 0; i < ncolumns; i++)
		bytes += columns[i].bytes;
	if (bytes > (TT_FRAME_MOST - 64) / (size_t)ctl->nranks - 8)
		return tt_fail(TT_ARG, "an exchange of %zu bytes among %d ranks is too large",
			       bytes, ctl->nranks);
	if (!make_columns(columns, ncolumns, ctl->nranks)) {
		free_columns(columns, ncolumns);
		return tt_control_absent(ctl);
	}
	tt_control_lock(ctl);
	ctl->gather.complete = false; /* of the exchange before */
	if (!ctl->broken && !begin(ctl, columns, ncolumns, bytes))
		tt_control_break(ctl, TT_INTERNAL, -1, 0, "the ranks' exchanges are out of step",
				 -1);
	while (!ctl->broken && !ctl->gather.complete && tt_endpoint_await(ctl->ep, deadline_ns))
		;
	if (!ctl->broken && !ctl->gather.complete)
		linger(ctl, deadline_ns, silent, sizeof(silent));
	if (!ctl->gather.complete)
		rc = ctl->broken ? tt_control_fail(ctl) : too_late(ctl, silent);
	ctl->gather.running = false;
	columns[ncolumns - 1].message = ctl->gather.message;
	ctl->gather.message = NULL;
	tt_control_unlock(ctl);
	if (rc)
		free_columns(columns, ncolumns);
	return rc;
}

void tt_parts_free(struct tt_parts *parts)
{
	free(parts->part);
	free(parts->message);
	parts->part = NULL;
	parts->message = NULL;
}

int tt_control_allgather(struct tt_control *ctl, const void *mine, size_t bytes, void *all,
			 uint64_t deadline_ns)
{
	struct tt_parts parts = { .mine = mine, .bytes = bytes };
	int rc = tt_control_allgather_columns(ctl, &parts, 1, deadline_ns);

	if (rc)
		return rc;
	for (int r = 0; bytes && r < ctl->nranks; r++)
		tt_part_get(&parts, r, (uint8_t *)all + (size_t)r * bytes);
	tt_parts_free(&parts);
	return 0;
}

/* ---- agreement ------------------------------------------------------------------------------- */

struct agree_record {
	int32_t code;
	char text[508];
};

/* A reason of the rank's own outranks a timeout, and a timeout outranks a report from other ranks. */
static int severity(int code)
{
	return code == 0 ? 0 : code == TT_REMOTE ? 1 : code == TT_TIMEOUT ? 2 : 3;
}

/* Some rank failed: exchange the sentences, and choose one. */
static int share_reasons(struct tt_control *ctl, int code, const char *why, const char *context,
			 uint64_t deadline_ns)
{
	struct agree_record mine = { .code = code }, worst = { 0 }, other;
	struct tt_parts all = { .mine = &mine, .bytes = sizeof(mine) };
	int rc, first = 0;

	snprintf(mine.text, sizeof(mine.text), "%.507s", why);
	rc = tt_control_allgather_columns(ctl, &all, 1, deadline_ns);
	if (rc)
		return rc;
	for (int r = 0; r < ctl->nranks; r++) {
		tt_part_get(&all, r, &other);
		if (r && severity(other.code) <= severity(worst.code))
			continue;
		worst = other;
		first = r;
	}
	tt_parts_free(&all);
	worst.text[sizeof(worst.text) - 1] = '\0';
	if (!worst.code) /* bytes of another rank that changed on their way */
		return tt_fail(TT_REMOTE, "rank %d: %s failed, and no rank has a reason", ctl->rank,
			       context);
	if (severity(code) == 3 || first == ctl->rank)
		return tt_fail(code, "%s", why);
	return tt_fail(tt_flood_code(worst.code), "rank %d: %s failed at rank %d: %s", ctl->rank,
		       context, first, worst.text);
}

/* The others would wait for this rank. */
int tt_control_absent(struct tt_control *ctl)
{
	tt_control_lock(ctl);
	tt_control_no_memory(ctl);
	tt_control_unlock(ctl);
	return tt_control_fail(ctl);
}

int tt_control_agree(struct tt_control *ctl, int code, const char *context, struct tt_parts *facts,
		     uint64_t deadline_ns)
{
	int32_t mine = code, worst = 0, other;
	struct tt_parts columns[2] = { { .mine = &mine, .bytes = sizeof(mine) } };
	char why[1024];
	int rc;

	if (facts)
		columns[1] = *facts;
	snprintf(why, sizeof(why), "%s", tt_error_text());
	rc = tt_control_allgather_columns(ctl, columns, 2, deadline_ns);
	for (int r = 0; !rc && r < ctl->nranks; r++) {
		tt_part_get(&columns[0], r, &other);
		worst |= other;
	}
	tt_parts_free(&columns[0]);
	if (!worst && !rc && facts) {
		*facts = columns[1];
		return 0;
	}
	tt_parts_free(&columns[1]);
	if (worst)
		return share_reasons(ctl, code, why, context, deadline_ns);
	return rc && code ? tt_fail(code, "%s", why) : rc;
}

/*
 * builder.c - the functions that append steps to lanes, and the location of every value
 *
 * Called by algorithms/; calls builder_open.c for the first and the last location of a block.
 */
#include "plan/builder.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tt_builder_fail(struct tt_builder *b, int code, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	if (b->error)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	b->error = tt_fail(code, "rank %d: %s", b->shape->rank, text);
}

/* ---- locations of values --------------------------------------------------------------------- */

/* Scratch consists of layers of nblocks, because scratch block i has the length of block
 * i % nblocks. A layer is added at its first use. */
static tt_ref scratch(struct tt_builder *b, enum tt_layer kind, struct tt_span s)
{
	uint32_t index;

	if (!b->layer[kind])
		b->layer[kind] = ++b->nlayers;
	index = (b->layer[kind] - 1) * b->nblocks + s.first;
	if (!b->scratch_blocks || index < b->scratch_first)
		b->scratch_first = index;
	if (b->scratch_blocks < index + s.count)
		b->scratch_blocks = index + s.count;
	return tt_ref_make(TT_SCRATCH, index);
}

/* Home of a whole span; TT_REF_NONE: its blocks have none, or not consecutive ones. */
static tt_ref home_of_span(const struct tt_builder *b, struct tt_span s)
{
	tt_ref home = tt_builder_home(b, s.first);

	for (uint32_t i = 1; i < s.count && home != TT_REF_NONE; i++)
		if (tt_builder_home(b, s.first + i) != home + i)
			return TT_REF_NONE;
	return home;
}

/* Scratch that does not hold the current value. */
static tt_ref aside(struct tt_builder *b, struct tt_span s)
{
	tt_ref first = scratch(b, TT_LAYER_RESULT, s);

	return first == b->where[s.first] ? scratch(b, TT_LAYER_ASIDE, s) : first;
}

/* Location of the next result. */
static tt_ref result_ref(struct tt_builder *b, struct tt_span s)
{
	tt_ref home = home_of_span(b, s);
	bool away = b->aside;

	b->aside = false;
	if (away)
		return aside(b, s);
	return home != TT_REF_NONE ? home : scratch(b, TT_LAYER_RESULT, s);
}

static tt_ref value_of(struct tt_builder *b, struct tt_span s)
{
	tt_ref at = b->where[s.first];

	for (uint32_t i = 0; i < s.count; i++)
		if (b->where[s.first + i] == TT_REF_NONE)
			tt_builder_fail(b, TT_INTERNAL, "block %u has no value yet", s.first + i);
		else if (b->where[s.first + i] != at + i)
			tt_builder_fail(b, TT_INTERNAL,
					"blocks %u..%u are not consecutive; copy them first",
					s.first, s.first + s.count - 1);
	return at;
}

static void set_value(struct tt_builder *b, struct tt_span s, tt_ref at)
{
	for (uint32_t i = 0; i < s.count; i++) {
		b->where[s.first + i] = at + i;
		b->sent[s.first + i] = false;
	}
}

/* ---- appending ------------------------------------------------------------------------------- */

static struct tt_step *new_records(struct tt_builder *b, uint32_t count)
{
	struct tt_build_lane *l = &b->lanes[b->lane];

	if (l->count + count > l->room) {
		uint32_t room = 2 * l->room + 16;
		struct tt_step *more = realloc(l->steps, room * sizeof(*more));

		if (!more) {
			tt_builder_fail(b, TT_SYSTEM, "no memory for a plan of %u steps", l->count);
			return NULL;
		}
		l->steps = more;
		l->room = room;
	}
	l->last = l->count;
	l->count += count;
	return memset(&l->steps[l->last], 0, count * sizeof(*l->steps));
}

static int waits_due(const struct tt_build_lane *l)
{
	int due = 0;

	for (uint32_t i = 0; i < TT_MAX_LANES; i++)
		due += l->wait[i] > l->waited[i];
	return due;
}

/* Moves the next due wait of this lane, if any, to a step. */
static void take_wait(struct tt_build_lane *l, uint32_t lanes, struct tt_step *s)
{
	uint32_t i = 0;

	s->wait_lane = TT_NO_LANE;
	while (i < lanes && l->wait[i] <= l->waited[i])
		i++;
	if (i == lanes)
		return;
	l->waited[i] = l->wait[i];
	s->wait_lane = (uint8_t)i;
	s->wait_step = l->wait[i] - 1;
}

/* A step has one wait; NOPs before the step carry further ones. */
static struct tt_step *append(struct tt_builder *b, enum tt_opcode op, const tt_ref *src, int nsrc,
			      uint32_t nblocks)
{
	struct tt_build_lane *l = &b->lanes[b->lane];
	struct tt_step *s;

	while (!b->error && b->cut.lanes > 2 && waits_due(l) > 1) {
		s = new_records(b, 1);
		if (!s)
			return NULL;
		take_wait(l, b->cut.lanes, s);
		s->dst = s->to = s->src[0] = s->src[1] = TT_REF_NONE;
	}
	s = b->error ? NULL : new_records(b, nsrc > 2 ? 2 : 1);
	if (!s)
		return NULL;
	take_wait(l, b->cut.lanes, s);
	s->op = (uint8_t)op;
	s->nsrc = (uint8_t)nsrc;
	s->dst = s->to = TT_REF_NONE;
	s->src[0] = src[0];
	s->src[1] = nsrc > 1 ? src[1] : TT_REF_NONE;
	s->nblocks = nblocks;
	if (nsrc > 2) {
		struct tt_more *more = (struct tt_more *)(s + 1);

		more->op = TT_MORE;
		more->n = (uint8_t)(nsrc - 2);
		memcpy(more->src, src + 2, (size_t)more->n * sizeof(*src));
	}
	return s;
}

static tt_ref wire(struct tt_builder *b, int peer)
{
	int rank = peer < 0 || peer >= b->n ? -1 : b->members ? b->members[peer] : peer;

	if (rank < 0 || rank == b->shape->rank) {
		tt_builder_fail(b, TT_INTERNAL, "rank %d of a group of %d cannot be a peer", peer,
				b->n);
		return TT_REF_NONE;
	}
	return tt_ref_make(TT_WIRE, (uint32_t)rank);
}

/* ---- values sent, then reduced --------------------------------------------------------------- */

/* Is dst the memory of the current value, if the call is in place? */
static bool same_memory(const struct tt_builder *b, struct tt_span s, tt_ref dst)
{
	tt_ref at = b->where[s.first];

	return dst == at ||
	       (at == tt_builder_input(b, s.first) && dst == tt_builder_home(b, s.first));
}

/* Called before a result overwrites the value of s. A peer may still be reading the old value and
 * wait for the new result, which would deadlock. The steps that sent the value therefore send it
 * from scratch; the first of them also copies it there. */
static void send_from_scratch(struct tt_builder *b, struct tt_span s)
{
	struct tt_build_lane *l = &b->lanes[b->lane];
	tt_ref at = b->where[s.first], copy = TT_REF_NONE;
	uint32_t from = 0;
	bool was_sent = false;

	for (uint32_t i = 0; i < s.count; i++)
		was_sent |= b->sent[s.first + i];
	if (!was_sent)
		return;
	for (uint32_t i = 0; i<l->count; i += l->steps[i].nsrc> 2 ? 2 : 1)
		if (l->steps[i].dst < at + s.count && at < l->steps[i].dst + l->steps[i].nblocks)
			from = i; /* wrote the value */
	for (uint32_t i = from; i<l->count; i += l->steps[i].nsrc> 2 ? 2 : 1) {
		struct tt_step *sent = &l->steps[i];

		if (sent->op != TT_COPY || sent->dst != TT_REF_NONE ||
		    sent->src[0] >= at + s.count || at >= sent->src[0] + sent->nblocks)
			continue;
		if (sent->src[0] != at || sent->nblocks != s.count)
			tt_builder_fail(b, TT_INTERNAL,
					"block %u was sent in pieces and is reduced afterwards",
					s.first);
		else if (copy != TT_REF_NONE)
			sent->src[0] = copy;
		else
			sent->dst = copy = scratch(b, TT_LAYER_SENT, s);
	}
}

/* Appends one step of at most 8 sources with its result in dst. */
static void combine(struct tt_builder *b, struct tt_span s, const tt_ref *src, int nsrc, tt_ref dst)
{
	struct tt_step *step;

	if (!b->error && same_memory(b, s, dst))
		send_from_scratch(b, s);
	step = append(b, TT_COMBINE, src, nsrc, s.count);
	if (step)
		step->dst = dst;
}

/* ---- steps ----------------------------------------------------------------------------------- */

void tt_step_send(struct tt_builder *b, int peer, struct tt_span s)
{
	if (b->error || !s.count)
		return;
	tt_ref to = wire(b, peer), value = value_of(b, s);
	struct tt_step *step = append(b, TT_COPY, &value, 1, s.count);

	if (step)
		step->to = to;
	memset(b->sent + s.first, true, s.count * sizeof(*b->sent));
}

void tt_step_recv(struct tt_builder *b, int peer, struct tt_span s)
{
	if (b->error || !s.count)
		return;
	tt_ref from = wire(b, peer), dst = result_ref(b, s);
	struct tt_step *step = append(b, TT_COPY, &from, 1, s.count);

	if (step)
		step->dst = dst;
	set_value(b, s, dst);
}

void tt_step_recv_reduce(struct tt_builder *b, int peer, struct tt_span s, enum tt_order order)
{
	if (b->error || !s.count)
		return;
	tt_ref from = wire(b, peer), mine = value_of(b, s), dst = result_ref(b, s);
	tt_ref src[2] = { order == TT_MINE_FIRST ? mine : from,
			  order == TT_MINE_FIRST ? from : mine };

	combine(b, s, src, 2, dst);
	set_value(b, s, dst);
}

void tt_step_reduce(struct tt_builder *b, const int *ranks, int n, struct tt_span s)
{
	if (b->error || !s.count || n == 1)
		return;
	tt_ref src[8], acc = TT_REF_NONE;
	bool mine = false;

	for (int i = 0; i < n && !b->error;) {
		int nsrc = 0;

		if (acc != TT_REF_NONE)
			src[nsrc++] = acc;
		for (; nsrc < 8 && i < n; i++) {
			int rank = ranks ? ranks[i] : i;

			mine |= rank == b->rank;
			src[nsrc++] = rank == b->rank ? value_of(b, s) : wire(b, rank);
		}
		if (i == n)
			acc = result_ref(b, s);
		else if (acc == TT_REF_NONE && mine)
			acc = home_of_span(b, s);
		/* keep this rank's own value until its operand is due */
		if (acc == TT_REF_NONE)
			acc = aside(b, s);
		combine(b, s, src, nsrc, acc);
	}
	if (!mine)
		tt_builder_fail(b, TT_INTERNAL, "reduces block %u without its own contribution",
				s.first);
	set_value(b, s, acc);
}

void tt_step_copy(struct tt_builder *b, struct tt_span s)
{
	for (uint32_t i = 0, run; i < s.count && !b->error; i += run) {
		tt_ref home = tt_builder_home(b, s.first + i), from = b->where[s.first + i];

		run = 1;
		if (home == TT_REF_NONE || from == home || from == TT_REF_NONE)
			continue;
		while (i + run < s.count && tt_builder_home(b, s.first + i + run) == home + run &&
		       b->where[s.first + i + run] == from + run)
			run++;
		struct tt_step *step = append(b, TT_COPY, &from, 1, run);

		if (step)
			step->dst = home;
		set_value(b, (struct tt_span){ s.first + i, run }, home);
	}
}

void tt_aside(struct tt_builder *b)
{
	b->aside = true;
}

void tt_lane(struct tt_builder *b, uint32_t lane)
{
	if (lane >= b->cut.lanes)
		tt_builder_fail(b, TT_INTERNAL, "uses lane %u of a plan of %u lanes", lane,
				b->cut.lanes);
	else
		b->lane = lane;
}

void tt_wait(struct tt_builder *b, uint32_t lane)
{
	if (lane >= b->cut.lanes)
		tt_builder_fail(b, TT_INTERNAL, "waits for lane %u of a plan of %u lanes", lane,
				b->cut.lanes);
	else if (lane != b->lane && b->lanes[lane].count)
		b->lanes[b->lane].wait[lane] = b->lanes[lane].last + 1;
}

/* ---- rows ------------------------------------------------------------------------------------ */

void tt_row_begin(struct tt_builder *b)
{
	b->row = b->lanes[b->lane].count;
}

void tt_row_end(struct tt_builder *b)
{
	struct tt_build_lane *l = &b->lanes[b->lane];
	bool several = false;

	for (uint32_t i = b->row; i<l->count; i += l->steps[i].nsrc> 2 ? 2 : 1)
		several |= l->steps[i].nblocks > 1;
	for (uint32_t i = b->row; several && i<l->last; i += l->steps[i].nsrc> 2 ? 2 : 1)
		if (l->steps[i].op != TT_NOP)
			l->steps[i].flags |= TT_STEP_INTERLEAVED;
}

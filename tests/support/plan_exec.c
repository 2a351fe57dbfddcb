/*
 * plan_exec.c - a small executor of plans: real numbers, random scheduling, little buffering
 * (plan_exec.h)
 *
 * Every block holds 0, 1 or 2 elements; an element is an integer and a double. Sums of integers
 * are exact and reveal a missing, doubled or foreign contribution. Sums of doubles depend on the
 * order and reveal a rank that combines in another order.
 */
#include "tests/support/plan_exec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ELEMENTS 2

struct exec_element {
	uint64_t exact;
	double rounded;
};
struct block {
	struct exec_element e[MAX_ELEMENTS];
};

/* A message: a copy of its blocks, or a reference to the sender's cells, read by the receiver. */
struct exec_message {
	uint32_t nblocks, elements;
	struct block *copy; /* owned; NULL: by reference */
	uint32_t cell;      /* 1 + first cell of the sender; 0: a copy */
};

/* Messages from one rank to another in one lane. */
struct pipe {
	struct exec_message *m;
	uint32_t head, count, room;
};

struct lane_state {
	uint32_t at;
	bool reading;        /* the step has read its sources, but not written */
	uint32_t elements;   /* elements of the current step */
	struct block *value; /* [nblocks] owned */
};

struct rank_state {
	const struct tt_plan *plan;
	struct block *cell;
	uint32_t base[3], count[3];
	uint8_t *references; /* [ncells] messages that refer to a cell */
	uint32_t ncells;
	struct lane_state lane[TT_MAX_LANES];
};

struct exec_world {
	int nranks;
	uint64_t random;
	uint32_t elements; /* EVEN: in the whole buffer; EQUAL: in a block */
	uint32_t slots;    /* most messages in a pipe */
	bool posts;        /* messages refer to the sender's cells */
	bool at_once;      /* a step receives only when it has room to send */
	struct rank_state *rank;
	struct pipe *pipe; /* [from][to][lane] */
	const char *error; /* first error, static text; NULL: none */
};

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static uint32_t chance(struct exec_world *w, uint32_t n)
{
	w->random = mix(w->random);
	return (uint32_t)(w->random >> 32) % n;
}

/* The contribution of rank; the same for every seed. */
static struct exec_element input(int rank, uint32_t block, uint32_t i)
{
	uint64_t x = mix((uint64_t)rank << 40 | (uint64_t)block << 8 | i);

	return (struct exec_element){ x, (double)(x >> 12) * (x & 1 ? 0x1p-40 : -0x1p-37) };
}

static uint32_t length(const struct exec_world *w, const struct tt_plan *p, uint32_t index)
{
	if (p->rule == TT_EQUAL)
		return w->elements;
	uint32_t before = index % p->nblocks * MAX_ELEMENTS;

	if (w->elements <= before)
		return 0;
	return w->elements - before < MAX_ELEMENTS ? w->elements - before : MAX_ELEMENTS;
}

static bool fail(struct exec_world *w, const char *why)
{
	if (!w->error)
		w->error = why;
	return false;
}

static struct pipe *pipe_of(struct exec_world *w, uint32_t from, uint32_t to, uint32_t lane)
{
	return &w->pipe[((size_t)from * (size_t)w->nranks + to) * TT_MAX_LANES + lane];
}

/* The cell of a block, or UINT32_MAX with an error if the block does not exist. */
static uint32_t cell_of(struct exec_world *w, const struct rank_state *r, tt_ref ref, uint32_t k)
{
	enum tt_buf buf = tt_ref_buf(ref);

	if (buf > TT_SCRATCH || tt_ref_index(ref) + k >= r->count[buf] ||
	    (buf == TT_SCRATCH && tt_ref_index(ref) < r->plan->scratch_first)) {
		fail(w, "names a block that does not exist");
		return UINT32_MAX;
	}
	return r->base[buf] + tt_ref_index(ref) + k;
}

static const struct tt_step *step_of(const struct rank_state *r, uint32_t lane)
{
	return &r->plan->steps[r->plan->lanes[lane].first + r->lane[lane].at];
}

/* Elements of a step; a step of empty blocks is skipped. A step that only forwards has the length
 * of its message. */
static uint32_t elements_of(struct exec_world *w, const struct rank_state *r,
			    const struct tt_step *s, uint32_t lane)
{
	tt_ref ref = s->dst;
	uint32_t sum = 0;

	for (int i = 0; i < s->nsrc && tt_ref_buf(ref) > TT_SCRATCH; i++)
		ref = tt_step_source(s, i);
	if (tt_ref_buf(ref) <= TT_SCRATCH) {
		for (uint32_t k = 0; k < s->nblocks; k++)
			sum += length(w, r->plan, tt_ref_index(ref) + k);
		return sum;
	}
	if (!s->nsrc)
		return 0;
	struct pipe *p = pipe_of(w, tt_ref_index(tt_step_source(s, 0)), (uint32_t)r->plan->rank,
				 lane);

	return p->count ? p->m[p->head].elements : 1;
}

/* ---- is a step ready? ------------------------------------------------------------------------ */

static bool wires_exist(struct exec_world *w, const struct rank_state *r, const struct tt_step *s)
{
	for (int i = -1; i < s->nsrc; i++) {
		tt_ref ref = i < 0 ? s->to : tt_step_source(s, i);

		if (tt_ref_buf(ref) == TT_WIRE && (tt_ref_index(ref) >= (uint32_t)w->nranks ||
						   (int)tt_ref_index(ref) == r->plan->rank))
			return fail(w, "names a rank that does not exist, or itself");
	}
	return true;
}

static bool has_room(struct exec_world *w, const struct rank_state *r, const struct tt_step *s,
		     uint32_t lane)
{
	return pipe_of(w, (uint32_t)r->plan->rank, tt_ref_index(s->to), lane)->count < w->slots;
}

static bool may_read(struct exec_world *w, const struct rank_state *r, uint32_t lane)
{
	const struct tt_step *s = step_of(r, lane);

	if (s->wait_lane != TT_NO_LANE && r->lane[s->wait_lane].at <= s->wait_step)
		return false;
	if (s->op == TT_NOP || !wires_exist(w, r, s) || !elements_of(w, r, s, lane))
		return true;
	for (int i = 0; i < s->nsrc; i++) {
		tt_ref ref = tt_step_source(s, i);

		if (tt_ref_buf(ref) == TT_WIRE &&
		    !pipe_of(w, tt_ref_index(ref), (uint32_t)r->plan->rank, lane)->count)
			return false;
	}
	if (w->at_once && s->to != TT_REF_NONE && !has_room(w, r, s, lane))
		return false;
	for (uint32_t k = 0; s->dst != TT_REF_NONE && k < s->nblocks; k++) {
		uint32_t cell = cell_of(w, r, s->dst, k);

		if (cell != UINT32_MAX && r->references[cell])
			return false;
	}
	return true;
}

/* ---- first half: read the sources ------------------------------------------------------------ */

static void add(struct block *sum, const struct block *b, bool first)
{
	for (int i = 0; i < MAX_ELEMENTS; i++) {
		sum->e[i].exact = b->e[i].exact + (first ? 0 : sum->e[i].exact);
		sum->e[i].rounded = first ? b->e[i].rounded : sum->e[i].rounded + b->e[i].rounded;
	}
}

static void pop(struct exec_world *w, int from, struct pipe *p)
{
	struct exec_message *m = &p->m[p->head];

	for (uint32_t k = 0; m->cell && k < m->nblocks; k++)
		w->rank[from].references[m->cell - 1 + k]--;
	free(m->copy);
	p->head = (p->head + 1) % p->room;
	p->count--;
}

/* Receives the blocks of a message into value; checks the lengths that the step expects. */
static void read_wire(struct exec_world *w, struct rank_state *r, const struct tt_step *s,
		      uint32_t lane, int i, uint32_t sum)
{
	int from = (int)tt_ref_index(tt_step_source(s, i));
	struct pipe *p = pipe_of(w, (uint32_t)from, (uint32_t)r->plan->rank, lane);

	if (!p->count) { /* another source of the step received the only message */
		fail(w, "receives two messages where one was sent");
		return;
	}
	struct exec_message *m = &p->m[p->head];

	if (m->nblocks != s->nblocks || m->elements != sum) {
		fail(w, "a message has another length than the step that receives it");
		return;
	}
	for (uint32_t k = 0; k < s->nblocks; k++)
		add(&r->lane[lane].value[k],
		    m->cell ? &w->rank[from].cell[m->cell - 1 + k] : &m->copy[k], i == 0);
	pop(w, from, p);
}

static void read_sources(struct exec_world *w, struct rank_state *r, uint32_t lane)
{
	const struct tt_step *s = step_of(r, lane);
	uint32_t sum = elements_of(w, r, s, lane);
	struct block *value = calloc(s->nblocks + 1, sizeof(*value));

	r->lane[lane].value = value;
	r->lane[lane].elements = sum;
	for (int i = 0; i < s->nsrc && !w->error; i++) {
		tt_ref ref = tt_step_source(s, i);
		uint32_t local = 0;

		if (tt_ref_buf(ref) == TT_WIRE) {
			read_wire(w, r, s, lane, i, sum);
			continue;
		}
		for (uint32_t k = 0; k < s->nblocks; k++) {
			uint32_t cell = cell_of(w, r, ref, k);

			if (cell == UINT32_MAX)
				return;
			add(&value[k], &r->cell[cell], i == 0);
			local += length(w, r->plan, tt_ref_index(ref) + k);
		}
		if (local != sum)
			fail(w, "operands have different lengths");
	}
}

/* ---- second half: write and send ------------------------------------------------------------- */

static void push(struct exec_world *w, struct rank_state *r, const struct tt_step *s, uint32_t lane,
		 uint32_t sum)
{
	struct pipe *p = pipe_of(w, (uint32_t)r->plan->rank, tt_ref_index(s->to), lane);
	struct exec_message m = { .nblocks = s->nblocks, .elements = sum };
	bool stored = s->dst != TT_REF_NONE && !(s->flags & TT_STEP_PASSING);
	tt_ref from = stored ? s->dst : TT_REF_NONE;

	if (s->dst == TT_REF_NONE && s->op == TT_COPY)
		from = s->src[0];
	if (w->posts && tt_ref_buf(from) <= TT_SCRATCH) {
		m.cell = 1 + cell_of(w, r, from, 0);
		for (uint32_t k = 0; k < s->nblocks; k++)
			r->references[m.cell - 1 + k]++;
	} else {
		m.copy = malloc(s->nblocks * sizeof(*m.copy));
		memcpy(m.copy, r->lane[lane].value, s->nblocks * sizeof(*m.copy));
	}
	if (p->count == p->room) { /* grow: unroll the ring */
		struct exec_message *more = malloc((2 * p->room + 4) * sizeof(*more));

		for (uint32_t i = 0; i < p->count; i++)
			more[i] = p->m[(p->head + i) % p->room];
		free(p->m);
		p->m = more;
		p->head = 0;
		p->room = 2 * p->room + 4;
	}
	p->m[(p->head + p->count++) % p->room] = m;
}

static void write_results(struct exec_world *w, struct rank_state *r, uint32_t lane)
{
	const struct tt_step *s = step_of(r, lane);
	struct lane_state *l = &r->lane[lane];

	for (uint32_t k = 0; s->dst != TT_REF_NONE && k < s->nblocks; k++) {
		uint32_t cell = cell_of(w, r, s->dst, k);

		if (cell == UINT32_MAX)
			return;
		if (tt_ref_buf(s->dst) == TT_IN) {
			fail(w, "writes the caller's input");
			return;
		}
		/* a passing result need not be stored: store garbage */
		if (s->flags & TT_STEP_PASSING)
			memset(&r->cell[cell], 0x5a, sizeof(r->cell[cell]));
		else
			r->cell[cell] = l->value[k];
	}
	if (s->to != TT_REF_NONE)
		push(w, r, s, lane, l->elements);
}

/* ---- the run --------------------------------------------------------------------------------- */

static void finish_step(struct rank_state *r, uint32_t lane)
{
	struct lane_state *l = &r->lane[lane];

	l->at += 1 + (step_of(r, lane)->nsrc > 2);
	l->reading = false;
	free(l->value);
	l->value = NULL;
}

/* Run one half of one step; false: the step is not ready. */
static bool run_half_step(struct exec_world *w, struct rank_state *r, uint32_t lane)
{
	struct lane_state *l = &r->lane[lane];

	if (l->at >= r->plan->lanes[lane].nsteps)
		return false;
	const struct tt_step *s = step_of(r, lane);

	if (l->reading) {
		if (s->to != TT_REF_NONE && !has_room(w, r, s, lane))
			return false;
		write_results(w, r, lane);
		finish_step(r, lane);
		return true;
	}
	if (!may_read(w, r, lane))
		return false;
	if (w->error)
		return true;
	if (s->op == TT_NOP || !elements_of(w, r, s, lane)) {
		finish_step(r, lane);
		return true;
	}
	read_sources(w, r, lane);
	l->reading = true;
	return true;
}

static bool at_end(const struct exec_world *w)
{
	for (int i = 0; i < w->nranks; i++)
		for (uint32_t lane = 0; lane < w->rank[i].plan->nlanes; lane++)
			if (w->rank[i].lane[lane].at < w->rank[i].plan->lanes[lane].nsteps)
				return false;
	return true;
}

static void run(struct exec_world *w)
{
	uint32_t n = (uint32_t)w->nranks * TT_MAX_LANES;

	while (!w->error) {
		uint32_t start = chance(w, n), tried = 0;

		for (; tried < n; tried++) {
			uint32_t at = (start + tried) % n, lane = at % TT_MAX_LANES;
			struct rank_state *r = &w->rank[at / TT_MAX_LANES];

			if (lane < r->plan->nlanes && run_half_step(w, r, lane))
				break;
		}
		if (tried == n)
			break;
	}
	if (!w->error && !at_end(w))
		fail(w, "stuck");
	for (size_t i = 0; i < (size_t)w->nranks * n; i++)
		if (!w->error && w->pipe[i].count)
			fail(w, "a message is left over");
}

/* ---- the verdict ----------------------------------------------------------------------------- */

static bool gives(const struct tt_plan *p, enum tt_buf buf)
{
	if (p->rank == p->root)
		return true;
	if (buf == TT_IN)
		return p->collective != TT_BROADCAST && p->collective != TT_SCATTER;
	return p->collective != TT_REDUCE && p->collective != TT_GATHER;
}

static uint64_t want(const struct exec_world *w, const struct tt_plan *p, uint32_t b, uint32_t i)
{
	uint32_t rank = (uint32_t)p->rank, block = p->collective == TT_REDUCE_SCATTER ? rank : b;
	uint64_t sum = 0;

	switch (p->collective) {
	case TT_BROADCAST:
		return input(p->root, b, i).exact;
	case TT_SCATTER:
		return input(p->root, rank, i).exact;
	case TT_ALLTOALL:
		return input((int)b, rank, i).exact;
	case TT_GATHER:
	case TT_ALLGATHER:
		return input((int)b, 0, i).exact;
	default:
		break;
	}
	for (int r = 0; r < w->nranks; r++)
		sum += input(r, block, i).exact;
	return sum;
}

static void judge(struct exec_world *w)
{
	for (int i = 0; i < w->nranks && !w->error; i++) {
		const struct rank_state *r = &w->rank[i], *first = &w->rank[0];

		for (uint32_t b = 0; gives(r->plan, TT_OUT) && b < r->count[TT_OUT]; b++) {
			for (uint32_t k = 0; k < length(w, r->plan, b); k++) {
				const struct exec_element *e = &r->cell[r->base[TT_OUT] + b].e[k];

				if (e->exact != want(w, r->plan, b, k))
					fail(w, "wrong result");
				else if (r->plan->collective == TT_ALLREDUCE &&
					 memcmp(&e->rounded,
						&first->cell[first->base[TT_OUT] + b].e[k].rounded,
						sizeof(double)))
					fail(w, "ranks have different bits");
			}
		}
	}
}

/* ---- setting up ------------------------------------------------------------------------------ */

static void lay_out(struct rank_state *r, bool in_place)
{
	const struct tt_plan *p = r->plan;

	r->count[TT_IN] = gives(p, TT_IN) ? p->in_blocks : 0;
	r->count[TT_OUT] = gives(p, TT_OUT) ? p->out_blocks : 0;
	r->count[TT_SCRATCH] = p->scratch_blocks;
	r->base[TT_OUT] = r->count[TT_IN];
	r->base[TT_SCRATCH] = r->count[TT_IN] + r->count[TT_OUT];
	r->ncells = r->base[TT_SCRATCH] + p->scratch_blocks;
	if (!in_place || !r->count[TT_IN] || !r->count[TT_OUT])
		return;
	r->base[TT_OUT] = 0; /* some cells after the shorter buffer stay unused */
	if (p->collective == TT_ALLGATHER || p->collective == TT_GATHER)
		r->base[TT_IN] = (uint32_t)p->rank;
	else if (p->collective == TT_REDUCE_SCATTER || p->collective == TT_SCATTER)
		r->base[TT_OUT] = (uint32_t)p->rank;
}

static void open_world(struct exec_world *w, struct tt_plan *const *plans, int nranks,
		       uint64_t seed, bool in_place)
{
	static const uint32_t slots[] = { 1, 1, 2, 1000 };

	*w = (struct exec_world){ .nranks = nranks, .random = mix(seed) };
	w->rank = calloc((size_t)nranks, sizeof(*w->rank));
	w->pipe = calloc((size_t)nranks * (size_t)nranks * TT_MAX_LANES, sizeof(*w->pipe));
	w->slots = slots[seed % 4];
	w->posts = seed % 4 == 0;
	w->at_once = seed % 4 == 2;
	w->elements = MAX_ELEMENTS * plans[0]->nblocks;
	if (plans[0]->rule == TT_EQUAL)
		w->elements = 1 + chance(w, MAX_ELEMENTS);
	else if (seed % 3 == 0)
		w->elements = chance(w, w->elements + 1);
	for (int i = 0; i < nranks; i++) {
		struct rank_state *r = &w->rank[i];

		r->plan = plans[i];
		lay_out(r, in_place);
		r->cell = malloc((r->ncells + 1) * sizeof(*r->cell));
		r->references = calloc(r->ncells + 1, 1);
		for (uint32_t c = 0; c < r->ncells; c++)
			for (uint32_t k = 0; k < MAX_ELEMENTS; k++)
				r->cell[c].e[k] = input(i + 1000, c, 7 + chance(w, 100));
		for (uint32_t b = 0; b < r->count[TT_IN]; b++)
			for (uint32_t k = 0; k < MAX_ELEMENTS; k++)
				r->cell[r->base[TT_IN] + b].e[k] = input(i, b, k);
	}
}

static void close_world(struct exec_world *w)
{
	for (size_t i = 0; i < (size_t)w->nranks * (size_t)w->nranks * TT_MAX_LANES; i++) {
		for (; w->pipe[i].count; w->pipe[i].count--, w->pipe[i].head++)
			free(w->pipe[i].m[w->pipe[i].head % w->pipe[i].room].copy);
		free(w->pipe[i].m);
	}
	for (int i = 0; i < w->nranks; i++) {
		for (int lane = 0; lane < TT_MAX_LANES; lane++)
			free(w->rank[i].lane[lane].value);
		free(w->rank[i].cell);
		free(w->rank[i].references);
	}
	free(w->rank);
	free(w->pipe);
}

const char *plan_execute(struct tt_plan *const *plans, int nranks, uint64_t seed, bool in_place)
{
	struct exec_world w;

	open_world(&w, plans, nranks, seed, in_place);
	run(&w);
	judge(&w);
	close_world(&w);
	return w.error;
}

/*
 * check.c - proof of the plans of all ranks together, and judgment of the results
 *
 * Static checks (check_steps.c, check_messages.c, check_order.c) come before a symbolic run of all
 * ranks on expressions instead of numbers (check_run.c). The run is done twice, out of place and in
 * place. This file judges the results: every block of out holds the value that the collective
 * promises, with each contribution once, and the same expression on every rank that has the block,
 * out of place and in place; so the same bits.
 *
 * Called by `tutti plan --verify` and the tests.
 */
#include "verify/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int tt_check_fail(int rank, uint32_t lane, uint32_t step, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return tt_fail(TT_USAGE, "rank %d lane %u step %u: %s", rank, lane, step, text);
}

const char *tt_check_cell_name(const struct tt_check_rank *r, uint32_t cell, char text[24])
{
	enum tt_buf buf = cell - r->base[TT_OUT] < r->nout ? TT_OUT : TT_IN;

	if (cell >= r->base[TT_SCRATCH])
		buf = TT_SCRATCH;

	snprintf(text, 24, "%s[%u]", tt_buf_name(buf), cell - r->base[buf]);
	return text;
}

/* ---- promises of the collective -------------------------------------------------------------- */

/* Text of a value, for errors. */
static const char *value_text(const struct tt_exprs *t, tt_expr e, char text[64])
{
	if (e == TT_EXPR_NOTHING)
		snprintf(text, 64, "nothing");
	else if (e == TT_EXPR_PASSED)
		snprintf(text, 64, "a value that was only passed on");
	else if (tt_expr_rank(t, e) >= 0)
		snprintf(text, 64, "block %u of rank %d", tt_expr_block(t, e), tt_expr_rank(t, e));
	else
		snprintf(text, 64, "a combination of block %u", tt_expr_block(t, e));
	return text;
}

/* Promised value of a block of out: all ranks' contributions to `block` combined, or `block` of
 * `rank`. */
struct promise {
	bool combined;
	int rank;
	uint32_t block;
};

static struct promise promise_of(const struct tt_plan *p, uint32_t b)
{
	switch (p->collective) {
	case TT_ALLREDUCE:
	case TT_REDUCE:
		return (struct promise){ .combined = true, .block = b };
	case TT_REDUCE_SCATTER:
		return (struct promise){ .combined = true, .block = (uint32_t)p->rank };
	case TT_BROADCAST:
		return (struct promise){ .rank = p->root, .block = b };
	case TT_SCATTER:
		return (struct promise){ .rank = p->root, .block = (uint32_t)p->rank };
	case TT_ALLTOALL:
		return (struct promise){ .rank = (int)b, .block = (uint32_t)p->rank };
	default: /* gather, allgather */
		return (struct promise){ .rank = (int)b };
	}
}

static int broken(const struct tt_check *c, int rank, uint32_t b, tt_expr value,
		  const struct promise *promise)
{
	const struct tt_check_rank *r = &c->ranks[rank];
	uint32_t writer = r->writer[r->base[TT_OUT] + b];
	bool known = value != TT_EXPR_NOTHING && value != TT_EXPR_PASSED;
	char at[48] = "", got[64], want[64] = "every rank's contribution to block ";

	if (writer != UINT32_MAX)
		snprintf(at, sizeof(at), " lane %u step %u", writer & 7, writer >> 3);
	if (promise->combined && known && tt_expr_block(c->exprs, value) == promise->block)
		return tt_fail(TT_USAGE,
			       "rank %d%s: leaves out[%u] without rank %d's contribution%s", rank,
			       at, b, tt_expr_lacks(c->exprs, value), c->placement);
	if (promise->combined)
		snprintf(want + strlen(want), sizeof(want) - strlen(want), "%u", promise->block);
	else
		snprintf(want, sizeof(want), "block %u of rank %d", promise->block, promise->rank);
	return tt_fail(TT_USAGE, "rank %d%s: leaves in out[%u] %s instead of %s%s", rank, at, b,
		       value_text(c->exprs, value, got), want, c->placement);
}

static bool keeps(const struct tt_check *c, tt_expr value, const struct promise *promise)
{
	if (value == TT_EXPR_NOTHING || value == TT_EXPR_PASSED)
		return false;
	if (!promise->combined)
		return value == tt_expr_leaf(c->exprs, promise->rank, promise->block);
	return tt_expr_block(c->exprs, value) == promise->block &&
	       tt_expr_lacks(c->exprs, value) < 0;
}

/* Reports two ranks with different expressions for one block. */
static int differ(const struct tt_check *c, int rank, int other, uint32_t b)
{
	const struct tt_check_rank *r = &c->ranks[rank], *o = &c->ranks[other];
	uint32_t at = r->base[TT_OUT] + b, writer = r->writer[at];
	char here[128], there[128];

	return tt_check_fail(
		rank, writer & 7, writer >> 3,
		"leaves out[%u] combined in another order than on rank %d%s: %s, there %s", b,
		other, c->placement, tt_expr_text(c->exprs, r->value[at], here),
		tt_expr_text(c->exprs, o->value[o->base[TT_OUT] + b], there));
}

static int judge(const struct tt_check *c)
{
	for (int rank = 0; rank < c->nranks; rank++) {
		const struct tt_plan *p = c->plans[rank];
		const struct tt_check_rank *r = &c->ranks[rank], *first = &c->ranks[0];

		for (uint32_t b = 0; tt_check_has(p, TT_OUT) && b < p->out_blocks; b++) {
			tt_expr value = r->value[r->base[TT_OUT] + b];
			struct promise promise = promise_of(p, b);
			bool shared = p->collective == TT_ALLREDUCE && rank > 0;

			if (shared && value == first->value[first->base[TT_OUT] + b])
				continue;
			if (!keeps(c, value, &promise))
				return broken(c, rank, b, value, &promise);
			if (shared)
				return differ(c, rank, 0, b);
		}
	}
	return TT_OK;
}

/* ---- a proof: open, prove out of place or in place, close ------------------------------------ */

/* Assigns cells to a rank's blocks. */
static void assign_cells(struct tt_check *c, int rank)
{
	const struct tt_plan *p = c->plans[rank];
	struct tt_check_rank *r = &c->ranks[rank];
	uint32_t in = tt_check_has(p, TT_IN) ? p->in_blocks : 0,
		 out = tt_check_has(p, TT_OUT) ? p->out_blocks : 0;
	bool one = c->in_place && in && out;

	r->nout = out;
	/* (all)gather: in is block `rank` of out */
	r->base[TT_IN] = one && in < out ? (uint32_t)rank : 0;
	/* (reduce_)scatter: the reverse */
	r->base[TT_OUT] = !one ? in : in > out ? (uint32_t)rank : 0;
	r->base[TT_SCRATCH] = !one ? in + out : in > out ? in : out;
	r->ncells = r->base[TT_SCRATCH] + p->scratch_blocks;
}

static void check_close(struct tt_check *c)
{
	for (int rank = 0; c->ranks && rank < c->nranks; rank++) {
		free(c->ranks[rank].value);
		free(c->ranks[rank].writer);
		free(c->ranks[rank].in_flight);
	}
	free(c->ranks);
	free(c->peer_index);
	free(c->channels);
	free(c->payload);
}

static int no_memory(const struct tt_check *c)
{
	return tt_fail(TT_SYSTEM, "no memory to check plans of %d ranks", c->nranks);
}

/* Runs the static checks and allocates the state of a run. */
static int check_open(struct tt_check *c, struct tt_plan *const *plans, int nranks,
		      struct tt_exprs *exprs)
{
	size_t n = (size_t)nranks;
	int rc;

	*c = (struct tt_check){ .plans = plans, .nranks = nranks, .exprs = exprs, .placement = "" };
	c->classes = plans[0]->rule == TT_EVEN ? plans[0]->nblocks : 1;
	c->ranks = calloc(n, sizeof(*c->ranks));
	c->peer_index = malloc(n * n * sizeof(*c->peer_index));
	if (!c->ranks || !c->peer_index)
		return no_memory(c);
	memset(c->peer_index, 0xff, n * n * sizeof(*c->peer_index));
	for (int rank = 0; rank < nranks; rank++) {
		struct tt_check_rank *r = &c->ranks[rank];

		assign_cells(c, rank);
		r->value = malloc((r->ncells + 1) * sizeof(*r->value));
		r->writer = malloc((r->ncells + 1) * sizeof(*r->writer));
		r->in_flight = malloc((r->ncells + 1) * sizeof(*r->in_flight));
		if (!r->value || !r->writer || !r->in_flight)
			return no_memory(c);
		if (c->nlanes < plans[rank]->nlanes)
			c->nlanes = plans[rank]->nlanes;
	}
	if ((rc = tt_check_steps(c)))
		return rc;
	for (int rank = 0; rank < nranks; rank++) {
		c->ranks[rank].first_channel = c->nchannels;
		c->nchannels += (size_t)plans[rank]->npeers * c->nlanes;
	}
	c->channels = calloc(c->nchannels + 1, sizeof(*c->channels));
	if (!c->channels)
		return no_memory(c);
	if ((rc = tt_check_messages(c)))
		return rc;
	c->payload = malloc((c->payload_blocks + 1) * sizeof(*c->payload));
	return c->payload ? TT_OK : no_memory(c);
}

static int prove_placement(struct tt_check *c, bool in_place)
{
	int rc;

	c->in_place = in_place;
	c->placement = in_place ? " (in place)" : "";
	for (int rank = 0; rank < c->nranks; rank++)
		assign_cells(c, rank);
	if ((rc = tt_check_order(c)) || (rc = tt_check_run(c)))
		return rc;
	return judge(c);
}

/* ---- the results of two proofs --------------------------------------------------------------- */

static size_t count_results(const struct tt_check *c)
{
	size_t n = 0;

	for (int rank = 0; rank < c->nranks; rank++)
		n += tt_check_has(c->plans[rank], TT_OUT) ? c->plans[rank]->out_blocks : 0;
	return n;
}

/* Stores the results of the run in `results` (first), or compares them with `results`. */
static int compare(const struct tt_check *c, tt_expr *results, bool first, const char *with)
{
	for (int rank = 0; rank < c->nranks; rank++) {
		const struct tt_check_rank *r = &c->ranks[rank];
		uint32_t n = tt_check_has(c->plans[rank], TT_OUT) ? c->plans[rank]->out_blocks : 0;

		for (uint32_t b = 0; b < n; b++, results++) {
			tt_expr value = r->value[r->base[TT_OUT] + b];

			if (first)
				*results = value;
			else if (*results != value)
				return tt_check_fail(rank, r->writer[r->base[TT_OUT] + b] & 7,
						     r->writer[r->base[TT_OUT] + b] >> 3,
						     "combines out[%u] in another order than %s", b,
						     with);
		}
	}
	return TT_OK;
}

/* Proves one set of plans out of place and in place. *results: results to compare with; NULL: set
 * to the results of this set. */
static int prove(struct tt_plan *const *plans, int nranks, struct tt_exprs *exprs,
		 tt_expr **results)
{
	struct tt_check c;
	bool first = !*results;
	int rc = check_open(&c, plans, nranks, exprs);

	if (!rc && first) {
		*results = malloc((count_results(&c) + 1) * sizeof(**results));
		rc = *results ? TT_OK : no_memory(&c);
	}
	if (!rc)
		rc = prove_placement(&c, false);
	if (!rc)
		rc = compare(&c, *results, first, "the other plan");
	if (!rc && plans[0]->collective != TT_ALLTOALL) {
		rc = prove_placement(&c, true);
		if (!rc)
			rc = compare(&c, *results, false, "out of place");
	}
	check_close(&c);
	return rc;
}

static int check_heads_alike(struct tt_plan *const *plans, struct tt_plan *const *others)
{
	const struct tt_plan *p = plans[0], *q = others[0];

	if (p->collective == q->collective && p->root == q->root && p->rule == q->rule &&
	    p->nblocks == q->nblocks)
		return TT_OK;
	return tt_fail(TT_USAGE, "the plans are for different calls, or split blocks differently");
}

int tt_plan_check_forms(struct tt_plan *const *const *forms, int nforms, int nranks, int *ret_form)
{
	struct tt_exprs *exprs = NULL;
	tt_expr *results = NULL;
	uint32_t blocks = 1;
	int rc = TT_OK;

	for (*ret_form = 0; *ret_form < nforms; ++*ret_form)
		if ((rc = tt_check_heads(forms[*ret_form], nranks)) ||
		    (rc = check_heads_alike(forms[0], forms[*ret_form])))
			return rc;
	*ret_form = 0;
	for (int r = 0; r < nranks; r++)
		blocks = forms[0][r]->in_blocks > blocks ? forms[0][r]->in_blocks : blocks;
	if ((uint64_t)blocks * (uint64_t)nranks > INT32_MAX)
		return tt_fail(TT_USAGE, "%d ranks with %u blocks each are too many to check",
			       nranks, blocks);
	rc = tt_exprs_open(nranks, blocks, &exprs);
	while (!rc && *ret_form < nforms) {
		rc = prove(forms[*ret_form], nranks, exprs, &results);
		*ret_form += !rc;
	}
	tt_exprs_close(exprs);
	free(results);
	return rc;
}

int tt_plan_check_same(struct tt_plan *const *plans, struct tt_plan *const *others, int nranks)
{
	struct tt_plan *const *const forms[] = { plans, others };
	int form;

	return tt_plan_check_forms(forms, 2, nranks, &form);
}

int tt_plan_check(struct tt_plan *const *plans, int nranks)
{
	int form;

	return tt_plan_check_forms(&plans, 1, nranks, &form);
}

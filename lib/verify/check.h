/*
 * check.h - the plan checker: proof that the plans of all ranks compute their collective
 *
 * check.c            opens a proof, runs its parts out of place and in place, judges the results
 * check_steps.c      heads, lanes and steps are well formed
 * check_messages.c   each lane of each pair of ranks receives as many messages as are sent
 * check_order.c      steps of a rank have no data races
 * check_run.c        the symbolic run of all ranks: values, messages, deadlock
 * check_expr.c       the values: hash-consed expressions over the ranks' input blocks
 * expand.c           the same plan with steps of single blocks only
 *
 * Called by the `tutti plan` command and the tests. Thread: any, one proof at a time per plan.
 */
#ifndef TT_CHECK_H
#define TT_CHECK_H

#include "verify/walk.h"

/* Prove the plans of all ranks together. 0 | TT_USAGE: a promise of the collective is broken; the
 * error text says which, and the rank, lane and step | TT_SYSTEM. */
int tt_plan_check(struct tt_plan *const *plans, int nranks);
/* Prove several forms of the plans of one call (as written, compiled, expanded), and that all give
 * every block the same expression, so the same bits. 0 | TT_USAGE with an error text; *ret_form:
 * the form at fault | TT_SYSTEM. */
int tt_plan_check_forms(struct tt_plan *const *const *forms, int nforms, int nranks, int *ret_form);
int tt_plan_check_same(struct tt_plan *const *plans, struct tt_plan *const *others, int nranks);

/* The same plan with steps of single blocks only: the order in which run executes rows when every
 * block is a message of its own. The caller frees it by tt_plan_free. 0 | TT_SYSTEM */
int tt_plan_expand(const struct tt_plan *plan, struct tt_plan **ret_plan);

/* ---- expressions ----------------------------------------------------------------------------- */

/* Value of a block: a leaf (block of a rank's input) or an ordered combination of expressions.
 * Equal expressions have equal numbers. A combination holds each rank's contribution at most once,
 * and contributions to one block only. */
typedef uint32_t tt_expr;
#define TT_EXPR_NOTHING 0u        /* value of a block never written */
#define TT_EXPR_PASSED UINT32_MAX /* value of a passing step, possibly not stored */

struct tt_exprs;
int tt_exprs_open(int nranks, uint32_t blocks, struct tt_exprs **ret_table);
void tt_exprs_close(struct tt_exprs *t);

tt_expr tt_expr_leaf(const struct tt_exprs *t, int rank, uint32_t block);
/* 0 | TT_EXPR_TWICE (*ret_what: the rank that is counted twice) | TT_EXPR_MIXED (*ret_what: the
 * second block) | TT_SYSTEM */
enum { TT_EXPR_TWICE = 1, TT_EXPR_MIXED };
int tt_expr_combine(struct tt_exprs *t, const tt_expr *child, uint32_t n, tt_expr *ret_expr,
		    uint32_t *ret_what);
uint32_t tt_expr_block(const struct tt_exprs *t, tt_expr e);
/* Rank of a leaf, or -1 for a combination. */
int tt_expr_rank(const struct tt_exprs *t, tt_expr e);
/* Lowest rank without a contribution, or -1. */
int tt_expr_lacks(const struct tt_exprs *t, tt_expr e);
/* Text of an expression, g2 being rank 2's contribution: "(g0 + g1) + g2"; truncated with "...". */
const char *tt_expr_text(const struct tt_exprs *t, tt_expr e, char text[128]);

/* ---- a proof --------------------------------------------------------------------------------- */

/* All messages of one lane from one rank to another; at most one is in flight. */
struct tt_check_channel {
	uint32_t sent, taken; /* totals of the plans; taken: received */
	bool full;
	uint32_t nblocks, class; /* of the message in flight */
	uint32_t from;           /* cell of the sender, read-only while in flight */
	tt_expr *values;         /* [nblocks] in payload */
};

/* One rank's blocks as cells of one array; in place, blocks of in and out are the same cells. */
struct tt_check_rank {
	uint32_t base[3]; /* cell of in[0], out[0], scratch[0] */
	uint32_t nout, ncells;
	tt_expr *value;            /* [ncells] */
	uint32_t *writer;          /* [ncells] step << 3 | lane; UINT32_MAX none */
	uint16_t *in_flight;       /* [ncells] messages in flight that still read the cell */
	uint32_t at[TT_MAX_LANES]; /* current step of each lane */
	/* result that the current step of the lane has yet to send, NULL if it has not received */
	tt_expr *result[TT_MAX_LANES];
	size_t first_channel;
};

struct tt_check {
	struct tt_plan *const *plans;
	int nranks;
	uint32_t classes; /* equal index modulo classes: equal length */
	bool in_place;
	const char *placement; /* "" or " (in place)", for error texts */
	struct tt_check_rank *ranks;
	uint16_t *peer_index; /* [from * nranks + to] index in the peers of from */
	uint32_t nlanes;      /* of the rank with the most lanes */
	size_t nchannels;
	struct tt_check_channel *channels;
	tt_expr *payload; /* [payload_blocks] values of all messages of one run */
	size_t payload_blocks;
	struct tt_exprs *exprs; /* borrowed */
};

#define TT_NOT_A_PEER UINT16_MAX

/* Is `to` in the list of peers of `from`? */
static inline bool tt_check_knows(const struct tt_check *c, int from, int to)
{
	return c->peer_index[(size_t)from * (size_t)c->nranks + (size_t)to] != TT_NOT_A_PEER;
}

static inline struct tt_check_channel *tt_check_channel(const struct tt_check *c, int from, int to,
							uint32_t lane)
{
	uint16_t peer = c->peer_index[(size_t)from * (size_t)c->nranks + (size_t)to];

	return &c->channels[c->ranks[from].first_channel + (size_t)peer * c->nlanes + lane];
}

/* The cell of a local operand's first block. */
static inline uint32_t tt_check_cell(const struct tt_check_rank *r, tt_ref ref)
{
	return r->base[tt_ref_buf(ref)] + tt_ref_index(ref);
}

/* Does this rank have that buffer? Only the root has in of broadcast and scatter, and out of reduce
 * and gather. */
bool tt_check_has(const struct tt_plan *p, enum tt_buf buf);
/* Set the error text for a step; returns TT_USAGE. */
int tt_check_fail(int rank, uint32_t lane, uint32_t step, const char *fmt, ...) TT_PRINTF(4, 5);
/* Name of a cell, "out[3]", into text. */
const char *tt_check_cell_name(const struct tt_check_rank *r, uint32_t cell, char text[24]);

/* Parts of the proof; each returns 0 | TT_USAGE | TT_SYSTEM. */
int tt_check_heads(struct tt_plan *const *plans, int nranks);
int tt_check_steps(const struct tt_check *c);
int tt_check_messages(struct tt_check *c);
int tt_check_order(const struct tt_check *c);
int tt_check_run(struct tt_check *c);

#endif

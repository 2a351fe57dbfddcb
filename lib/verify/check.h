/*
 * check.h - what the parts of the plan checker share
 *
 * check.c         opens a proof, runs the parts for both placements of the buffers, and judges
 * check_steps.c   every step well formed; as many messages sent as taken
 * check_order.c   no two unordered steps of a rank touch one block, one of them writing
 * check_run.c     the symbolic run of all ranks: values, messages, deadlock
 * check_expr.c    the values: hash-consed expressions over the ranks' input blocks
 *
 * Used by tt_plan_check, the `tutti plan` command and the tests.
 */
#ifndef TT_CHECK_H
#define TT_CHECK_H

#include "verify/walk.h"

/* Proves several forms of the plans of one call (as written, compiled, expanded), and that all give
 * every block the same expression, so the same bits. 0 | TT_USAGE with the sentence, and which form
 * is at fault | TT_SYSTEM. */
int tt_plan_check_forms(struct tt_plan *const *const *forms, int nforms, int nranks, int *ret_form);
int tt_plan_check_same(struct tt_plan *const *plans, struct tt_plan *const *others, int nranks);

/* ---- expressions ----------------------------------------------------------------------------- */

/* What a block holds: a leaf (block of a rank's input) or a combination of expressions in order.
 * Equal expressions have equal numbers. A combination holds each rank's contribution once, and of
 * one block only. */
typedef uint32_t tt_expr;
#define TT_EXPR_NOTHING 0u               /* never written */
#define TT_EXPR_PASSED UINT32_MAX        /* written by a passing step, which need not store it */

struct tt_exprs;
int tt_exprs_open(int nranks, uint32_t blocks, struct tt_exprs **ret_table);
void tt_exprs_close(struct tt_exprs *t);

tt_expr tt_expr_leaf(const struct tt_exprs *t, int rank, uint32_t block);
/* 0 | TT_EXPR_TWICE (*ret_what: the rank counted twice) | TT_EXPR_MIXED (*ret_what: the other
 * block) | TT_SYSTEM */
enum { TT_EXPR_TWICE = 1, TT_EXPR_MIXED };
int tt_expr_combine(struct tt_exprs *t, const tt_expr *child, uint32_t n, tt_expr *ret_expr,
		    uint32_t *ret_what);
uint32_t tt_expr_block(const struct tt_exprs *t, tt_expr e);
/* A leaf's rank, or -1 for a combination. */
int tt_expr_rank(const struct tt_exprs *t, tt_expr e);
/* The lowest rank that contributes nothing, or -1. */
int tt_expr_lacks(const struct tt_exprs *t, tt_expr e);
/* As people write it, g2 for what rank 2 contributes: "(g0 + g1) + g2"; cut where it is long. */
const char *tt_expr_text(const struct tt_exprs *t, tt_expr e, char text[128]);

/* ---- a proof --------------------------------------------------------------------------------- */

/* All messages of one lane from one rank to another: the run knows at most one in flight. */
struct tt_check_channel {
	uint32_t sent, taken;            /* in all, counted over the plans */
	bool full;
	uint32_t nblocks, class;         /* of the message in flight */
	/* cell of the sender; must not be written until the message is taken */
	uint32_t from;
	tt_expr *values;                 /* [nblocks] in payload */
};

/* One rank's blocks as cells of one array; in place, blocks of in and out are the same cells. */
struct tt_check_rank {
	uint32_t base[3];                /* cell of in[0], out[0], scratch[0] */
	uint32_t nout, ncells;
	tt_expr *value;                  /* [ncells] */
	/* [ncells] step << 3 | lane that wrote it last, UINT32_MAX none */
	uint32_t *writer;
	/* [ncells] messages in flight that may still be read from here */
	uint16_t *held;
	uint32_t at[TT_MAX_LANES];       /* next step of each lane ... */
	/* ... or what this step has still to send, once it has taken and combined */
	tt_expr *result[TT_MAX_LANES];
	size_t first_channel;
};

struct tt_check {
	struct tt_plan *const *plans;
	int nranks;
	uint32_t classes;                /* blocks of equal index modulo it have equal length */
	bool in_place;
	const char *placement;           /* "" or " (in place)", for sentences */
	struct tt_check_rank *ranks;
	uint16_t *peer_index;            /* [from * nranks + to]: which peer of `from` is `to` */
	uint32_t nlanes;                 /* the most any rank has */
	size_t nchannels;
	struct tt_check_channel *channels;
	tt_expr *payload;                /* [payload_blocks] what all messages of one run carry */
	size_t payload_blocks;
	struct tt_exprs *exprs;          /* borrowed */
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

/* Does this rank's caller give that buffer? Only root gives in of broadcast and scatter, out of
 * reduce and gather. */
bool tt_check_has(const struct tt_plan *p, enum tt_buf buf);
/* Says what is wrong with a step; returns TT_USAGE. */
int tt_check_fail(int rank, uint32_t lane, uint32_t step, const char *fmt, ...) TT_PRINTF(4, 5);
/* "out[3]" of a cell, into text */
const char *tt_check_cell_name(const struct tt_check_rank *r, uint32_t cell, char text[24]);

/* what the plans say of themselves */
int tt_check_heads(struct tt_plan *const *plans, int nranks);
int tt_check_steps(const struct tt_check *c);
int tt_check_messages(struct tt_check *c);
int tt_check_order(const struct tt_check *c);
int tt_check_run(struct tt_check *c);

#endif

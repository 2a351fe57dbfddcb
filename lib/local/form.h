/*
 * form.h - the form of a collective on one host: who gives bytes, who takes them, who sums
 *
 * Ranks of one host read each other's inputs, in slots (express.c) or in place (single_copy.c). The
 * table tt_needs (run/request.h) says which buffers a collective has; the form follows from its row:
 *
 *   giver   a rank with an input: every rank (in_all), or the root; but not the only taker
 *   taker   a rank with an output: every rank (out_all), or the root
 *   piece   of each giver's input the taker's part (in_parts), or all of the input; it belongs into the
 *           giver's part of the output (out_parts), or is all of the output
 *   sum     the output of a collective that reduces is the sum of all pieces, in rank order
 */
#ifndef TT_FORM_H
#define TT_FORM_H

#include "run/request.h"

struct tt_form {
	const struct tt_need *need;
	int rank, nranks, root;
	size_t block; /* bytes of the call's count */
};

static inline struct tt_form tt_form_of(tuttiComm_t c, unsigned collective, int root, size_t block)
{
	return (struct tt_form){ &tt_needs[collective], c->rank, c->nranks, root, block };
}

static inline bool tt_form_has_input(const struct tt_form *f, int rank)
{
	return f->need->in_all || rank == f->root;
}

/* Do other ranks take from this rank? */
static inline bool tt_form_gives(const struct tt_form *f, int rank)
{
	return tt_form_has_input(f, rank) && (f->need->out_all || rank != f->root);
}

static inline bool tt_form_takes(const struct tt_form *f, int rank)
{
	return f->need->out_all || rank == f->root;
}

/* Does every rank give, and take from all others? */
static inline bool tt_form_is_full(const struct tt_form *f)
{
	return f->need->in_all && f->need->out_all;
}

/* Bytes of a giver's input; of a taker's output */
static inline size_t tt_form_given(const struct tt_form *f)
{
	return f->need->in_parts ? f->block * (size_t)f->nranks : f->block;
}

static inline size_t tt_form_taken(const struct tt_form *f)
{
	return f->need->out_parts ? f->block * (size_t)f->nranks : f->block;
}

/* Does a post leave out the giver's own part? Between two ranks, the other's part is one piece. */
static inline bool tt_form_posts_part(const struct tt_form *f)
{
	return f->need->in_parts && f->nranks == 2;
}

/* Bytes that a giver posts; their offset in this rank's input; offset of this rank's piece in a post */
static inline size_t tt_form_posted(const struct tt_form *f)
{
	return tt_form_posts_part(f) ? f->block : tt_form_given(f);
}

static inline size_t tt_form_posted_from(const struct tt_form *f)
{
	return tt_form_posts_part(f) && f->rank == 0 ? f->block : 0;
}

static inline size_t tt_form_piece(const struct tt_form *f)
{
	return f->need->in_parts && !tt_form_posts_part(f) ? f->block * (size_t)f->rank : 0;
}

/* Bytes that other ranks take from a giver */
static inline size_t tt_form_sent(const struct tt_form *f)
{
	return f->need->out_all ? f->block * (size_t)(f->nranks - 1) : f->block;
}

/* Offset of this rank's piece in each giver's input; of giver's piece in this rank's output */
static inline size_t tt_form_from(const struct tt_form *f)
{
	return f->need->in_parts ? f->block * (size_t)f->rank : 0;
}

static inline size_t tt_form_to(const struct tt_form *f, int giver)
{
	return f->need->out_parts ? f->block * (size_t)giver : 0;
}

#endif

/*
 * builder.h - how an algorithm writes its steps down
 *
 * Used by the files of algorithms/; plan.c opens a builder, lets the algorithm speak, and closes it
 * into a plan. The first error sticks: later verbs do nothing, and tt_plan_build returns it, so
 * that an algorithm reads like its paper:
 *
 *	for (int i = 0; i < n - 1; i++) {                         // reduce-scatter
 *		tt_step_send(b, next, tt_part(b, rank - i - 1));
 *		tt_step_recv_reduce(b, prev, tt_part(b, rank - i - 2), TT_PEER_FIRST);
 *	}
 *
 * Values, not places. An algorithm names parts; the builder knows where the current value of each
 * block lies (in, out or scratch), puts results where they belong as early as that is safe also in
 * place, and at the end copies to out what is still only in `in`. A part that was sent and is then
 * reduced upon is sent by way of scratch, since the peer may still be reading it.
 *
 * Groups. All ranks and parts are those of the current group: at first all ranks and all blocks;
 * inside tt_group_enter..leave a list of ranks and a range of blocks, cut into parts anew. So one
 * algorithm is used by another.
 */
#ifndef TT_BUILDER_H
#define TT_BUILDER_H

#include "plan/plan.h"

/* What all ranks must know before the first step: how many blocks the buffer is cut into, how many
 * lanes are used. */
struct tt_cut { uint32_t blocks, lanes; };

/* Blocks that one step moves as one message. Made by tt_part, tt_parts and tt_all. */
struct tt_span { uint32_t first, count; };

/* which operand stands left: it decides the bits */
enum tt_order { TT_MINE_FIRST, TT_PEER_FIRST };

struct tt_build_lane {
	struct tt_step *steps;                     /* TT_MORE records too */
	uint32_t count, room, last;                /* last: index of the last step */
	/* 1 + the step of that lane the next step has to wait for, 0 none */
	uint32_t wait[TT_MAX_LANES];
	uint32_t waited[TT_MAX_LANES];             /* the same, of all steps so far */
};

/* Uses of scratch: results without a home in out,
 * results beside them, values on their way to peers. */
enum tt_layer { TT_LAYER_RESULT, TT_LAYER_ASIDE, TT_LAYER_SENT, TT_LAYERS };

struct tt_builder {
	/* the current group, for algorithms to read */
	int rank, n, root;
	uint32_t parts;

	/* the whole */
	const struct tt_shape *shape;
	struct tt_cut cut;
	int error;

	/* the builder's own */
	const int *members;                        /* [n] ranks of the group, NULL: all */
	uint32_t first, per_part;                  /* its blocks */
	uint32_t nblocks;                          /* of the plan; EQUAL: nranks */
	uint32_t in_blocks, out_blocks, scratch_blocks;
	/* layer: 1 + its place in scratch, 0 not in use */
	uint32_t nlayers, layer[TT_LAYERS];
	tt_ref *where;                             /* [nblocks] current value, or TT_REF_NONE */
	/* [nblocks] the current value went to a peer from where it lies */
	bool *sent;
	bool aside;
	uint32_t lane, row;                        /* row: where it began in the lane */
	struct tt_build_lane lanes[TT_MAX_LANES];
};

/* Part i of the group, counted modulo the number of parts (so rank - 1 may be -1); several from
 * first on; all. */
struct tt_span tt_part(const struct tt_builder *b, int i);
struct tt_span tt_parts(struct tt_builder *b, uint32_t first, uint32_t count);
struct tt_span tt_all(const struct tt_builder *b);

/* ---- verbs: append to the current lane ------------------------------------------------------- */

void tt_step_send(struct tt_builder *b, int peer, struct tt_span s);
/* What peer sends becomes the value. */
void tt_step_recv(struct tt_builder *b, int peer, struct tt_span s);
/* value = peer's op value, or value op peer's */
void tt_step_recv_reduce(struct tt_builder *b, int peer, struct tt_span s, enum tt_order order);
/* value = what these n ranks have, combined in the order of the list (NULL: 0..n-1); this rank is
 * in it, the others send. One rounding for the first eight, one more for each further seven. */
void tt_step_reduce(struct tt_builder *b, const int *ranks, int n, struct tt_span s);
/* Copy the value to out now (otherwise at the end), if it belongs there. */
void tt_step_copy(struct tt_builder *b, struct tt_span s);

/* The steps between begin and end are a row (plan.h): for exchanges of spans, since two ranks that
 * both first sent a whole span of many messages would wait for each other. Block k of a span may
 * depend on blocks k of the others alone. */
void tt_row_begin(struct tt_builder *b);
void tt_row_end(struct tt_builder *b);

/* The next result goes to scratch, for algorithms that
 * send a value on before they reduce upon it. */
void tt_aside(struct tt_builder *b);
/* Verbs from here on append to this lane (0 at first), which the cut must have. */
void tt_lane(struct tt_builder *b, uint32_t lane);
/* The next step of the current lane waits for all steps that `lane` has now. */
void tt_wait(struct tt_builder *b, uint32_t lane);

/* ---- groups ---------------------------------------------------------------------------------- */

/* What tt_group_leave goes back to. */
struct tt_group {
	int rank, n, root;
	uint32_t parts;
	const int *members;
	uint32_t first, per_part;
};

/* Speak for a group: members[n] are ranks of the whole plan, this rank among them; they share the
 * blocks of s, cut into `parts`. The caller keeps members until it leaves. */
struct tt_group tt_group_enter(struct tt_builder *b, const int *members, int n, struct tt_span s,
			       uint32_t parts);
void tt_group_leave(struct tt_builder *b, const struct tt_group *outer);

/* ---- for plan.c, and between the builder's files --------------------------------------------- */

int tt_builder_open(struct tt_builder *b, const struct tt_shape *shape, struct tt_cut cut);
/* The last copies, and the plan out of it; frees the builder's memory in any case. */
int tt_builder_close(struct tt_builder *b, struct tt_plan **ret_plan);
/* Where a block's value is before the first step,
 * and where it must be after the last; TT_REF_NONE: nowhere. */
tt_ref tt_builder_input(const struct tt_builder *b, uint32_t block);
tt_ref tt_builder_home(const struct tt_builder *b, uint32_t block);
/* Note the first error. */
void tt_builder_fail(struct tt_builder *b, int code, const char *fmt, ...) TT_PRINTF(3, 4);

#endif

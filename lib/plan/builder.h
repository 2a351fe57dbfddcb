/*
 * builder.h - the functions by which an algorithm appends its steps
 *
 * Called by the files of algorithms/. plan.c opens a builder, calls the algorithm's build, and
 * closes the builder into a plan. The first error sticks: later calls do nothing, and tt_plan_build
 * returns the error, so an algorithm reads like its paper:
 *
 *	for (int i = 0; i < n - 1; i++) {                         // reduce-scatter
 *		tt_step_send(b, next, tt_part(b, rank - i - 1));
 *		tt_step_recv_reduce(b, prev, tt_part(b, rank - i - 2), TT_PEER_FIRST);
 *	}
 *
 * Values, not addresses. An algorithm names parts; the builder tracks where the current value of
 * each block lies (in, out or scratch), writes results to their final block as early as that is
 * safe (also in place), and at the end copies to out the values that are still only in `in`. A part
 * that was sent and is reduced afterwards is sent from scratch, since the peer may still be reading
 * the old value.
 *
 * Groups. Ranks and parts are those of the current group: at first all ranks and all blocks; inside
 * tt_group_enter..leave, a list of ranks and a range of blocks with its own parts. By groups, one
 * algorithm uses another.
 */
#ifndef TT_BUILDER_H
#define TT_BUILDER_H

#include "plan/plan.h"

/* Cut of the buffer, equal on all ranks: number of blocks, number of lanes. */
struct tt_cut {
	uint32_t blocks, lanes;
};

/* Consecutive blocks that one step moves. Made by tt_part, tt_parts and tt_all. */
struct tt_span {
	uint32_t first, count;
};

/* Order of the operands of a reduction: decides the bits. */
enum tt_order { TT_MINE_FIRST, TT_PEER_FIRST };

struct tt_build_lane {
	struct tt_step *steps;      /* with TT_MORE records */
	uint32_t count, room, last; /* last: index of the last step */
	/* [lane] 1 + the step of that lane that the next step waits for, 0 none */
	uint32_t wait[TT_MAX_LANES];
	/* [lane] 1 + the latest step of that lane that any step so far waits for */
	uint32_t waited[TT_MAX_LANES];
};

/* Uses of scratch: results without a block in out, results beside the current value, values in
 * flight to peers. */
enum tt_layer { TT_LAYER_RESULT, TT_LAYER_ASIDE, TT_LAYER_SENT, TT_LAYERS };

struct tt_builder {
	/* the current group, for algorithms to read */
	int rank, n, root;
	uint32_t parts;

	/* the whole call */
	const struct tt_shape *shape;
	struct tt_cut cut;
	int error;

	/* private to the builder */
	const int *members;       /* [n] ranks of the group, NULL: all */
	uint32_t first, per_part; /* first block of the group, blocks of a part */
	uint32_t nblocks;         /* of the plan; EQUAL: nranks */
	uint32_t in_blocks, out_blocks, scratch_first, scratch_blocks;
	uint32_t nlayers, layer[TT_LAYERS]; /* [use] 1 + layer of scratch, 0 unused */
	tt_ref *where;                      /* [nblocks] current value, or TT_REF_NONE */
	bool *sent;                         /* [nblocks] was the current value sent? */
	bool aside;                         /* the next result goes to scratch */
	uint32_t lane, row;                 /* row: its first record in the lane */
	struct tt_build_lane lanes[TT_MAX_LANES];
};

/* Spans: part i of the group, modulo the number of parts (rank - 1 may be -1); `count` parts from
 * `first` on; all parts. */
struct tt_span tt_part(const struct tt_builder *b, int i);
struct tt_span tt_parts(struct tt_builder *b, uint32_t first, uint32_t count);
struct tt_span tt_all(const struct tt_builder *b);

/* ---- steps: append to the current lane ------------------------------------------------------- */

void tt_step_send(struct tt_builder *b, int peer, struct tt_span s);
/* value = the message of peer */
void tt_step_recv(struct tt_builder *b, int peer, struct tt_span s);
/* value = peer's op value (TT_PEER_FIRST), or value op peer's */
void tt_step_recv_reduce(struct tt_builder *b, int peer, struct tt_span s, enum tt_order order);
/* value = the values of n ranks, combined in the order of the list (NULL: 0..n-1). This rank must
 * be in the list; the others send. One rounding for the first eight ranks, one more for each
 * further seven. */
void tt_step_reduce(struct tt_builder *b, const int *ranks, int n, struct tt_span s);
/* Copy the value to out now, if its block belongs there (otherwise copied at the end). */
void tt_step_copy(struct tt_builder *b, struct tt_span s);

/* The steps between begin and end are a row (plan.h). Exchanges of spans need rows: two ranks that
 * both send a whole span of many messages first would wait for each other. Block k of a span may
 * depend only on blocks k of the other spans. */
void tt_row_begin(struct tt_builder *b);
void tt_row_end(struct tt_builder *b);

/* The next result goes to scratch: for algorithms that send a value and reduce it afterwards. */
void tt_aside(struct tt_builder *b);
/* The following steps go to this lane (0 at first), which must be below cut.lanes. */
void tt_lane(struct tt_builder *b, uint32_t lane);
/* The next step of the current lane waits for all steps that `lane` has now. */
void tt_wait(struct tt_builder *b, uint32_t lane);

/* ---- groups ---------------------------------------------------------------------------------- */

/* The outer group, restored by tt_group_leave. */
struct tt_group {
	int rank, n, root;
	uint32_t parts;
	const int *members;
	uint32_t first, per_part;
};

/* Enter a group: members[n] are ranks of the whole plan, with this rank; they share the blocks of
 * s, cut into `parts`. The caller keeps members until tt_group_leave. */
struct tt_group tt_group_enter(struct tt_builder *b, const int *members, int n, struct tt_span s,
			       uint32_t parts);
void tt_group_leave(struct tt_builder *b, const struct tt_group *outer);

/* ---- for plan.c and the builder's own files -------------------------------------------------- */

int tt_builder_open(struct tt_builder *b, const struct tt_shape *shape, struct tt_cut cut);
/* Append the final copies and make the plan; frees the builder's memory also on error. */
int tt_builder_close(struct tt_builder *b, struct tt_plan **ret_plan);
/* The ref of a block's value before the first step (input) and after the last (home); TT_REF_NONE:
 * this rank has none. */
tt_ref tt_builder_input(const struct tt_builder *b, uint32_t block);
tt_ref tt_builder_home(const struct tt_builder *b, uint32_t block);
/* Record an error, unless an earlier one stands. */
void tt_builder_fail(struct tt_builder *b, int code, const char *fmt, ...) TT_PRINTF(3, 4);

#endif

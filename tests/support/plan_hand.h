/*
 * plan_hand.h - plans written by hand, step by step, for tests of code that reads plans
 *
 * Up to HAND_STEPS records a lane; the list of peers is made by hand_finish.
 */
#ifndef PLAN_HAND_H
#define PLAN_HAND_H

#include "plan/plan.h"

enum { HAND_STEPS = 64 };

static inline tt_ref in(uint32_t block) { return tt_ref_make(TT_IN, block); }
static inline tt_ref out(uint32_t block) { return tt_ref_make(TT_OUT, block); }
static inline tt_ref scratch(uint32_t block) { return tt_ref_make(TT_SCRATCH, block); }
static inline tt_ref wire(int peer) { return tt_ref_make(TT_WIRE, (uint32_t)peer); }
static const tt_ref none = TT_REF_NONE;

/* A plan without steps. The blocks of in and out follow from the collective; nblocks is used for
 * TT_EVEN. */
struct tt_plan *hand_plan(enum tt_collective collective, int nranks, int rank, int root,
			  uint32_t nblocks, uint32_t scratch_blocks);
/* Append a step; return it for further changes. Sources end with TT_REF_NONE. */
struct tt_step *hand_step(struct tt_plan *p, uint32_t lane, uint8_t op, tt_ref dst, tt_ref to, ...);
void hand_finish(struct tt_plan *p);
void hand_free(struct tt_plan **plans, int n);

/* Right plans: a ring; an exchange through scratch (n = 2); a sum in rank order at 0 with n
 * sources, then broadcast (n <= 5); the same with the broadcast in a second lane. */
void hand_ring(struct tt_plan **ret_plans, int n);
void hand_exchange(struct tt_plan **ret_plans);
void hand_star(struct tt_plan **ret_plans, int n);
void hand_star_lanes(struct tt_plan **ret_plans, int n);

#endif

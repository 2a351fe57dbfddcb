/*
 * plan_exec.h - executes plans on real numbers in memory: a verdict without the checker
 *
 * Shares no code with lib/verify/check*.c. Called by the mutation test, test_mutants.c.
 */
#ifndef PLAN_EXEC_H
#define PLAN_EXEC_H

#include "plan/plan.h"

/*
 * Runs all ranks once: ranks and lanes are scheduled at random (seed), a step reads first and
 * writes later, blocks have different lengths, and messages are slots of limited number or
 * references to the sender's memory. Returns NULL when every rank has the right sums of integers
 * and the same floats; else the error, in static text.
 */
const char *plan_execute(struct tt_plan *const *plans, int nranks, uint64_t seed, bool in_place);

#endif

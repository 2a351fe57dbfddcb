/*
 * plan_exec.h - run plans on real numbers in memory, to judge them without the checker
 *
 * Shares no code with lib/plan/check*.c. Called by the mutation test.
 */
#ifndef PLAN_EXEC_H
#define PLAN_EXEC_H

#include "plan/plan.h"

/*
 * Runs all ranks once: ranks and lanes take turns by chance (seed), steps read first and write
 * later, blocks have different lengths, messages are slots of limited number or read from the
 * sender's memory when they are taken. Returns NULL when every rank has the right sums of integers
 * and the same floats; else what went wrong, in static text.
 */
const char *plan_execute(struct tt_plan *const *plans, int nranks, uint64_t seed, bool in_place);

#endif

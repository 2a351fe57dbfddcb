/* plan_checked.h - verdicts of the checker on plans written by hand; for test_check.c and
 * test_check_order.c */
#ifndef TESTS_PLAN_CHECKED_H
#define TESTS_PLAN_CHECKED_H

#include <criterion/criterion.h>
#include <string.h>

#include "verify/check.h"
#include "tests/support/plan_hand.h"

#define step(p, lane, i) (&(p)->steps[(p)->lanes[lane].first + (i)])

static inline void passes(struct tt_plan **plans, int n)
{
	tt_error_clear();
	cr_expect_eq(tt_plan_check(plans, n), TT_OK, "%s", tt_error_text());
	hand_free(plans, n);
}

/* The checker refuses the plans with an error text that begins with at and contains part. */
static inline void refused(struct tt_plan **plans, int n, const char *at, const char *part)
{
	tt_error_clear();
	cr_expect_eq(tt_plan_check(plans, n), TT_USAGE);
	cr_expect(!strncmp(tt_error_text(), at, strlen(at)) && strstr(tt_error_text(), part),
		  "expected \"%s ... %s\", got \"%s\"", at, part, tt_error_text());
	hand_free(plans, n);
}

#endif

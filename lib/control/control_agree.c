/*
 * control_agree.c - one outcome for all ranks, by an exchange of their codes
 *
 * Called by comm and control_split.c while they set up. Where some rank failed, a second exchange brings the
 * sentence of one of them, which all choose by the codes.
 */
#include <stdio.h>
#include <string.h>

#include "control/control_internal.h"

/* after the deadline, for ranks whose own step failed there: they come as soon as they have flooded their failure */
#define LATE_NS (TT_SECOND * 3 / 10)

/* A reason of the rank's own outranks a timeout, and a timeout outranks a report from other ranks. */
static int severity(int code)
{
	return code == 0 ? 0 : code == TT_REMOTE ? 1 : code == TT_TIMEOUT ? 2 : 3;
}

/* Some rank failed, and all know the codes: the first rank with the worst one sends its sentence. */
static int share_reason(struct tt_control *ctl, int code, const char *why, const char *context,
			int first, int worst, uint64_t deadline_ns)
{
	char mine[512] = "", reason[512];
	struct tt_parts all = { .mine = mine, .bytes = sizeof(mine) };
	int rc;

	if (code && ctl->rank == first)
		snprintf(mine, sizeof(mine), "%.511s", why);
	rc = tt_gather_columns(ctl, &all, 1, deadline_ns, LATE_NS);
	if (rc)
		return rc;
	tt_part_get(&all, first, reason);
	tt_parts_free(&all);
	reason[sizeof(reason) - 1] = '\0';
	if (severity(code) == 3 || (code && first == ctl->rank))
		return tt_fail(code, "%s", why);
	if (!*reason) /* bytes of another rank that changed on their way */
		return tt_fail(TT_REMOTE, "rank %d: %s failed, and no rank has a reason", ctl->rank,
			       context);
	return tt_fail(tt_flood_code(worst), "rank %d: %s failed at rank %d: %s", ctl->rank,
		       context, first, reason);
}

/* The others would wait for this rank. */
int tt_control_absent(struct tt_control *ctl)
{
	tt_control_lock(ctl);
	tt_control_no_memory(ctl);
	tt_control_unlock(ctl);
	return tt_control_fail(ctl);
}

/* The first rank with the most severe code; *ret_code: that code, 0: all ranks give 0 */
static int find_worst(const struct tt_parts *codes, int nranks, int32_t *ret_code)
{
	int first = 0;
	int32_t other;

	*ret_code = 0;
	for (int r = 0; r < nranks; r = tt_part_end(codes, r)) {
		tt_part_get(codes, r, &other);
		if (severity(other) > severity(*ret_code)) {
			*ret_code = other;
			first = r;
		}
	}
	return first;
}

int tt_control_agree(struct tt_control *ctl, int code, const char *context, struct tt_parts *facts,
		     uint64_t deadline_ns)
{
	int32_t mine = code, worst = 0;
	struct tt_parts columns[2] = { { .mine = &mine, .bytes = sizeof(mine) } };
	char why[1024];
	int rc, first = 0;

	if (facts)
		columns[1] = *facts;
	snprintf(why, sizeof(why), "%s", tt_error_text());
	rc = tt_gather_columns(ctl, columns, 2, deadline_ns, LATE_NS);
	if (!rc)
		first = find_worst(&columns[0], ctl->nranks, &worst);
	tt_parts_free(&columns[0]);
	if (!worst && !rc && facts) {
		*facts = columns[1];
		return 0;
	}
	tt_parts_free(&columns[1]);
	if (worst)
		return share_reason(ctl, code, why, context, first, worst, deadline_ns);
	return rc && code ? tt_fail(code, "%s", why) : rc;
}

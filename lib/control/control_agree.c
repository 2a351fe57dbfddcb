/*
 * control_agree.c - one outcome for all ranks, by an exchange of their codes
 *
 * Called by comm and control_split.c while they set up. Where some rank failed, a second exchange brings the
 * sentences, and each rank chooses the same one.
 */
#include <stdio.h>
#include <string.h>

#include "control/control_internal.h"

struct agree_record {
	int32_t code;
	char text[508];
};

/* A reason of the rank's own outranks a timeout, and a timeout outranks a report from other ranks. */
static int severity(int code)
{
	return code == 0 ? 0 : code == TT_REMOTE ? 1 : code == TT_TIMEOUT ? 2 : 3;
}

/* Some rank failed: exchange the sentences, and choose one. */
static int share_reasons(struct tt_control *ctl, int code, const char *why, const char *context,
			 uint64_t deadline_ns)
{
	struct agree_record mine = { .code = code }, worst = { 0 }, other;
	struct tt_parts all = { .mine = &mine, .bytes = sizeof(mine) };
	int rc, first = 0;

	snprintf(mine.text, sizeof(mine.text), "%.507s", why);
	rc = tt_control_allgather_columns(ctl, &all, 1, deadline_ns);
	if (rc)
		return rc;
	for (int r = 0; r < ctl->nranks; r = tt_part_end(&all, r)) {
		tt_part_get(&all, r, &other);
		if (r && severity(other.code) <= severity(worst.code))
			continue;
		worst = other;
		first = r;
	}
	tt_parts_free(&all);
	worst.text[sizeof(worst.text) - 1] = '\0';
	if (!worst.code) /* bytes of another rank that changed on their way */
		return tt_fail(TT_REMOTE, "rank %d: %s failed, and no rank has a reason", ctl->rank,
			       context);
	if (severity(code) == 3 || first == ctl->rank)
		return tt_fail(code, "%s", why);
	return tt_fail(tt_flood_code(worst.code), "rank %d: %s failed at rank %d: %s", ctl->rank,
		       context, first, worst.text);
}

/* The others would wait for this rank. */
int tt_control_absent(struct tt_control *ctl)
{
	tt_control_lock(ctl);
	tt_control_no_memory(ctl);
	tt_control_unlock(ctl);
	return tt_control_fail(ctl);
}

int tt_control_agree(struct tt_control *ctl, int code, const char *context, struct tt_parts *facts,
		     uint64_t deadline_ns)
{
	int32_t mine = code, worst = 0, other;
	struct tt_parts columns[2] = { { .mine = &mine, .bytes = sizeof(mine) } };
	char why[1024];
	int rc;

	if (facts)
		columns[1] = *facts;
	snprintf(why, sizeof(why), "%s", tt_error_text());
	rc = tt_control_allgather_columns(ctl, columns, 2, deadline_ns);
	for (int r = 0; !rc && r < ctl->nranks; r = tt_part_end(&columns[0], r)) {
		tt_part_get(&columns[0], r, &other);
		worst |= other;
	}
	tt_parts_free(&columns[0]);
	if (!worst && !rc && facts) {
		*facts = columns[1];
		return 0;
	}
	tt_parts_free(&columns[1]);
	if (worst)
		return share_reasons(ctl, code, why, context, deadline_ns);
	return rc && code ? tt_fail(code, "%s", why) : rc;
}

/*
 * split.c - a communicator of a subset of the ranks of another one
 *
 * Called by api. All ranks of the parent take part. shrink.c does the same without the dead ranks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "comm/comm_internal.h"

#define AGREE_LATE_MS 300 /* after a time-out, for the ranks that still answer */

struct split_settings {
	char transport[16], algo[64];
};

static struct split_settings settings_of(const struct tt_parts *all, int rank)
{
	struct split_settings s;

	tt_part_get(all, rank, &s);
	s.transport[sizeof(s.transport) - 1] = s.algo[sizeof(s.algo) - 1] = '\0';
	return s;
}

/* A join compares settings in control. A split compares here: each rank may have its own config. */
int tt_comm_agree(tuttiComm_t c)
{
	struct split_settings mine, root;
	struct tt_parts all;
	int rc;

	memcpy(mine.transport, c->settings.transport, sizeof(mine.transport));
	memcpy(mine.algo, c->settings.algo, sizeof(mine.algo));
	rc = tt_control_allgather_parts(c->ctl, &mine, sizeof(mine), &all, c->setup_deadline_ns);
	if (rc)
		return rc;
	root = settings_of(&all, 0);
	for (int r = 0; !rc && r < c->nranks; r++) {
		struct split_settings other = settings_of(&all, r);

		if (strcmp(other.transport, root.transport) || strcmp(other.algo, root.algo))
			rc = tt_fail(
				TT_USAGE,
				"rank 0 splits with transport %s, algo %s, rank %d with transport %s, "
				"algo %s: they must be equal",
				root.transport, root.algo, r, other.transport, other.algo);
	}
	tt_parts_free(&all);
	return rc;
}

/* The child has the settings of the parent and room for all its ranks, because its size is not
 * known yet. */
int tt_comm_child(tuttiComm_t parent, const tuttiConfig_t *config, struct tt_env *ret_env,
		  tuttiComm_t *ret_comm)
{
	tuttiComm_t c = tt_comm_alloc(parent->rank, parent->nranks);
	int rc;

	if (!c)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for a communicator of %d ranks",
			       parent->rank, parent->nranks);
	rc = tt_comm_settings(c, parent, config, ret_env);
	c->setup_deadline_ns = tt_deadline_ns(c->settings.timeout_ms);
	ret_env->tuning = ""; /* the cost table of the parent stays */
	if (!rc && parent->cost)
		rc = tt_cost_copy(parent->cost, &c->cost);
	if (rc)
		tt_comm_free(c);
	else
		*ret_comm = c;
	return rc;
}

/* The new communicator's failure, in words that tell its rank numbers from the parent's. */
static int fail_child(tuttiComm_t parent, int rc)
{
	char text[900];

	snprintf(text, sizeof(text), "%s", tt_error_text());
	return tt_fail(rc, "rank %d: in the new communicator: %s", parent->rank, text);
}

/* One outcome for all ranks. Every rank comes here soon after the failure of one, which control
 * floods; but a rank that let the others time out may never come. A death or a silent rank in the
 * parent is the cause of what ranks reported of the new communicator. */
static int agree(tuttiComm_t parent, int rc, uint64_t deadline_ns)
{
	uint64_t now = tt_now_ns(),
		 from = rc == TT_TIMEOUT || now > deadline_ns ? now : deadline_ns;
	int agreed = tt_control_agree(parent->ctl, rc, "the split",
				      from + AGREE_LATE_MS * 1000000ull);

	if ((rc == TT_REMOTE || rc == TT_TIMEOUT) && tt_control_broken(parent->ctl))
		return tt_control_fail(parent->ctl);
	return agreed;
}

int tt_comm_split(tuttiComm_t parent, int color, int key, const tuttiConfig_t *config, int code,
		  tuttiComm_t *ret_comm)
{
	struct tt_env env;
	struct tt_control *ctl = NULL;
	tuttiComm_t c = NULL;
	uint64_t deadline_ns = tt_deadline_ns(parent->settings.timeout_ms);
	int rc, rank, nranks;

	if (!code && color >= 0)
		code = tt_comm_child(parent, config, &env, &c);
	rc = tt_control_split(parent->ctl, color, key, code, parent->settings.timeout_ms, &ctl,
			      &rank, &nranks);
	if (!rc && c) {
		c->ctl = ctl;
		c->rank = rank;
		c->nranks = nranks;
		if ((rc = tt_comm_agree(c)) || (rc = tt_comm_setup(c, &env)))
			rc = fail_child(parent, rc);
	}
	rc = agree(parent, rc, deadline_ns);
	tt_control_formed(parent->ctl);
	if (rc) {
		tt_comm_free(c);
		c = NULL;
	}
	if (ret_comm)
		*ret_comm = c; /* NULL also for a rank without color */
	return rc;
}

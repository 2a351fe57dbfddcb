/*
 * split.c - a communicator of a subset of the ranks of another one
 *
 * Called by api. All ranks of the parent take part, in two exchanges among them: their colors with
 * their facts and announcements, and the outcome with facts about their paths. NICs and GPUs add exchanges
 * of their own. shrink.c does the same without the dead ranks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "comm/comm_internal.h"
#include "comm/paths.h"

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
 * floods; but a rank that let the others time out may never come, and is asked at once. A death or a
 * silent rank in the parent is the cause of what ranks reported of the new communicator. */
static int agree(tuttiComm_t parent, int rc, struct tt_parts *paths, uint64_t deadline_ns)
{
	uint64_t now = tt_now_ns();
	int agreed = tt_control_agree(parent->ctl, rc, "the split", paths,
				      rc == TT_TIMEOUT && now < deadline_ns ? now : deadline_ns);

	if ((rc == TT_REMOTE || rc == TT_TIMEOUT) && tt_control_broken(parent->ctl))
		return tt_control_fail(parent->ctl);
	return agreed;
}

/* Everything before the second exchange; ret_path: this rank's part of it. A rank that reaches no peer
 * by the named transport fails here. */
static int prepare(tuttiComm_t parent, tuttiComm_t c, int color, const struct tt_env *env,
		   const struct tt_parts *all, struct tt_path_facts *ret_path)
{
	uint64_t mark = tt_mix(tt_mix(parent->mark, parent->splits), (uint64_t)color);
	int rc = tt_comm_prepare(c, env, all, mark);

	rc = rc ? rc : tt_paths_facts(c, ret_path);
	if (!rc && ret_path->unreached >= 0)
		rc = tt_paths_unreached(c, c->rank, ret_path);
	return rc ? fail_child(parent, rc) : 0;
}

int tt_comm_split(tuttiComm_t parent, int color, int key, const tuttiConfig_t *config, int code,
		  tuttiComm_t *ret_comm)
{
	struct tt_rank_facts mine = { 0 };
	struct tt_path_facts path = { 0 };
	struct tt_announcement none = { .fd = -1 };
	struct tt_parts all[TT_FIRST_COLUMNS] = { 0 },
			paths = { .mine = &path, .bytes = sizeof(path) };
	struct tt_env env;
	struct tt_members members = { 0 };
	struct tt_control *ctl = NULL;
	tuttiComm_t c = NULL;
	uint64_t deadline_ns = tt_deadline_ns(parent->settings.timeout_ms);
	int rc;

	parent->splits++;
	if (!code && color >= 0)
		code = tt_comm_child(parent, config, &env, &c);
	if (c)
		code = tt_comm_facts(c, parent->ctl, &env, &mine);
	tt_comm_columns(&mine, c ? &c->paths.announcement : &none, all);
	rc = tt_control_split(parent->ctl, color, key, code, parent->settings.timeout_ms, all,
			      TT_FIRST_COLUMNS, &ctl, &members);
	if (!rc && c) {
		c->ctl = ctl;
		c->rank = members.rank;
		c->nranks = members.map.n;
		rc = prepare(parent, c, color, &env, all, &path);
	}
	rc = agree(parent, rc, &paths, deadline_ns);
	if (!rc && c) {
		paths.members = &members.map;
		rc = tt_comm_complete(c, &paths);
	}
	tt_parts_free(&paths);
	tt_comm_free_columns(all);
	tt_rank_map_free(&members.map);
	tt_control_formed(parent->ctl);
	if (rc) {
		tt_comm_free(c);
		c = NULL;
	}
	if (ret_comm)
		*ret_comm = c; /* NULL also for a rank without color */
	return rc;
}

/*
 * detect.c - find the launcher that started this process
 *
 * Called by api. A launcher counts only with a complete environment. The first launcher of the table
 * wins; a later launcher with another rank or size is an error, because only the user can decide
 * between them.
 */
#include <stdio.h>
#include <string.h>

#include "launch/launch.h"

static const struct tt_job alone = { .launcher = "alone",
				     .nranks = 1,
				     .local_nranks = 1,
				     .one_host = true,
				     .on_root_host = true,
				     .name = "alone" };

static int describe(const struct tt_launcher *e, const struct tt_env *env, struct tt_job *ret_job)
{
	*ret_job = (struct tt_job){ .launcher = e->name, .local_rank = -1, .nports = 1 };
	return e->describe(env, ret_job);
}

static bool disagree(const struct tt_job *a, const struct tt_job *b)
{
	return a->rank != b->rank || (a->nranks && b->nranks && a->nranks != b->nranks);
}

static int named(const struct tt_env *env, struct tt_job *ret_job)
{
	const struct tt_launcher *e = tt_launchers;
	int rc;

	while (strcmp(e->name, env->launch))
		e++;
	rc = describe(e, env, ret_job);
	return rc ? (rc > 0 ? 0 : rc)
		  : tt_fail(TT_USAGE,
			    "TUTTI_LAUNCH=%s, but this process has no variable of that launcher",
			    env->launch);
}

int tt_launch_detect(const struct tt_env *env, struct tt_job *ret_job)
{
	struct tt_job job, first = alone;
	bool found = false, half = false;
	char text[600] = "";

	if (strcmp(env->launch, "auto"))
		return strcmp(env->launch, "alone") ? named(env, ret_job) : (*ret_job = alone, 0);
	for (const struct tt_launcher *e = tt_launchers; e->name; e++) {
		int rc = describe(e, env, &job);

		if (rc < 0 && !half)
			snprintf(text, sizeof(text), "%s", tt_error_text());
		half |= rc < 0;
		if (rc > 0 && found && disagree(&first, &job))
			return tt_fail(
				TT_USAGE,
				"two environments disagree: rank %d of %d by %s, rank %d of %d by %s; "
				"TUTTI_LAUNCH=%s or TUTTI_LAUNCH=%s decides",
				first.rank, first.nranks, first.launcher, job.rank, job.nranks,
				job.launcher, first.launcher, job.launcher);
		if (rc > 0 && !found)
			first = job;
		found |= rc > 0;
	}
	if (half && !found)
		return tt_fail(TT_USAGE, "%s", text);
	*ret_job = first;
	return 0;
}

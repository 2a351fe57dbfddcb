/*
 * nccl_group.c - ncclGroupStart and ncclGroupEnd: the calls of a thread in between run together at
 * the end
 *
 * Called by users and by nccl_init.c; calls nccl_jobs.c and tutti.h. tutti.h's own group collects
 * the collectives. Joins and splits are collected here, because those of a nonblocking communicator
 * continue after the end of the group.
 */
#include <stdio.h>
#include <string.h>

#include "nccl/nccl_layer.h"

static __thread struct nccl_group {
	int depth, error;
	char text[1024];
	struct nccl_job *first, **last;
} group;

ncclResult_t nccl_group_fail(int code)
{
	if (group.depth && !group.error) {
		group.error = code;
		snprintf(group.text, sizeof(group.text), "%s", tt_error_text());
	}
	return nccl_result(code);
}

ncclResult_t nccl_group_job(struct nccl_job *job)
{
	if (!group.depth)
		return nccl_result(nccl_jobs_run(job));
	if (!group.first)
		group.last = &group.first;
	*group.last = job;
	group.last = &job->next;
	return ncclSuccess;
}

NCCL_CALL(ncclResult_t, ncclGroupStart, void)
{
	group.depth++;
	return nccl_result(nccl_code(tuttiGroupStart()));
}

NCCL_CALL(ncclResult_t, ncclGroupEnd, void)
{
	struct nccl_group g = group;
	int rc = 0, joined = 0;

	if (!g.depth)
		return nccl_result(tt_fail(TT_USAGE, "ncclGroupEnd without ncclGroupStart"));
	if (--group.depth)
		return nccl_result(nccl_code(tuttiGroupEnd()));
	memset(&group, 0, sizeof(group));
	if (g.error) /* a call of the group failed before its end */
		nccl_jobs_discard(g.first);
	else if (g.first)
		joined = nccl_jobs_run(g.first);
	if (joined < 0)
		snprintf(g.text, sizeof(g.text), "%s", tt_error_text());
	rc = g.error ? g.error : joined < 0 ? joined : 0;
	if (rc)
		/* tutti.h's group runs nothing then */
		tt_nccl_group_fail(tt_fail(rc, "%s", g.text));
	rc = nccl_code(tuttiGroupEnd());
	return nccl_result(rc ? rc : joined);
}

/* NCCL estimates the time of the group; Tutti does not. The group is closed, and none of its calls
 * runs. */
NCCL_CALL(ncclResult_t, ncclGroupSimulateEnd, ncclSimInfo_t *info)
{
	struct nccl_group g = group;

	(void)info;
	if (!g.depth)
		return nccl_result(
			tt_fail(TT_USAGE, "ncclGroupSimulateEnd without ncclGroupStart"));
	tt_nccl_group_fail(tt_fail(TT_USAGE, "ncclGroupSimulateEnd is not built"));
	if (!--group.depth) {
		memset(&group, 0, sizeof(group));
		nccl_jobs_discard(g.first);
	}
	tuttiGroupEnd();
	return nccl_result(tt_fail(
		TT_USAGE,
		"ncclGroupSimulateEnd is not built: the time of a group cannot be estimated; "
		"the group was closed and not run"));
}

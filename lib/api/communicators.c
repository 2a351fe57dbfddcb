/*
 * communicators.c - public calls that create, query and free communicators
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/api.h"
#include "base/sock.h"
#include "gpu/gpu.h"

TUTTI_API tuttiResult_t tuttiGetUniqueId(tuttiUniqueId *uniqueId)
{
	struct tt_env env;
	int rc;

	if (!uniqueId)
		return tt_result(tt_fail(TT_ARG, "tuttiGetUniqueId: uniqueId is NULL"));
	tt_sock_guard_standard_streams();
	rc = tt_env_read(&env);
	return tt_result(rc ? rc : tt_id_make(env.ifname, env.ports, uniqueId));
}

int tt_config_check(const tuttiConfig_t *config)
{
	if (!config)
		return 0;
	if (config->magic != TUTTI_CONFIG_MAGIC ||
	    config->size < offsetof(tuttiConfig_t, timeout_ms))
		return tt_fail(
			TT_ARG,
			"config was not made by TUTTI_CONFIG_INITIALIZER (magic %#x, size %zu)",
			config->magic, config->size);
	if (config->version / 10000 != TUTTI_MAJOR)
		return tt_fail(TT_ARG, "config is of version %u, this library is %d",
			       config->version, TUTTI_VERSION_CODE);
	if (config->size >= offsetof(tuttiConfig_t, transport) && config->timeout_ms < 0)
		return tt_fail(
			TT_ARG,
			"config: timeout_ms is %d; want milliseconds, or 0 for TUTTI_TIMEOUT_MS",
			config->timeout_ms);
	return 0;
}

/* A config of an older header is shorter: missing fields stay 0, the default. */
void tt_config_copy(struct tt_joining *j, const tuttiConfig_t *config)
{
	j->configured = config != NULL;
	if (config)
		memcpy(&j->config, config,
		       config->size < sizeof(j->config) ? config->size : sizeof(j->config));
}

static int run_join(struct tt_joining *j)
{
	return tt_comm_join(&j->id, j->nranks, j->rank, j->configured ? &j->config : NULL, j->comm);
}

static int run_split(struct tt_joining *j)
{
	int rc = tt_comm_enter(j->parent, "tuttiCommSplit", TT_ONE_CALL);

	if (rc)
		return rc;
	tt_run_drain(j->parent);
	if (j->result)
		tt_fail(j->result, "%s", j->text);
	rc = tt_comm_split(j->parent, j->color, j->key, j->configured ? &j->config : NULL,
			   j->result, j->comm);
	pthread_mutex_lock(&j->parent->lock);
	snprintf(j->parent->failure.split, sizeof(j->parent->failure.split), "%s",
		 rc ? tt_error_text() : "");
	pthread_mutex_unlock(&j->parent->lock);
	return tt_comm_leave(j->parent, TT_ONE_CALL, rc);
}

TUTTI_API tuttiResult_t tuttiCommInitRankConfig(tuttiComm_t *comm, int nranks, tuttiUniqueId commId,
						int rank, tuttiConfig_t *config)
{
	struct tt_joining j = {
		.run = run_join, .comm = comm, .id = commId, .nranks = nranks, .rank = rank
	};
	int rc = tt_config_check(config);

	if (!comm)
		rc = tt_fail(TT_ARG, "tuttiCommInitRank: comm is NULL");
	if (rc || (rc = tt_comm_check_ranks("tuttiCommInitRank", rank, nranks)))
		return tt_result(tt_group_fail(rc));
	tt_config_copy(&j, config);
	return tt_group_join(&j);
}

TUTTI_API tuttiResult_t tuttiCommInitRank(tuttiComm_t *comm, int nranks, tuttiUniqueId commId,
					  int rank)
{
	return tuttiCommInitRankConfig(comm, nranks, commId, rank, NULL);
}

TUTTI_API tuttiResult_t tuttiCommInitAll(tuttiComm_t *comms, int ndev, const int *devlist)
{
	tuttiUniqueId id;
	tuttiResult_t rc;

	(void)devlist; /* ranks use host memory: no device to choose */
	if (!comms || ndev < 1 || ndev > TT_RANKS_MOST)
		return tt_result(
			tt_fail(TT_ARG,
				"tuttiCommInitAll: comms %p, ndev %d: want an array of 1 to %d",
				(void *)comms, ndev, TT_RANKS_MOST));
	rc = tuttiGetUniqueId(&id);
	if (rc)
		return rc;
	tuttiGroupStart();
	for (int i = 0; i < ndev; i++)
		tuttiCommInitRank(&comms[i], ndev, id, i);
	return tuttiGroupEnd();
}

TUTTI_API tuttiResult_t tuttiCommSplit(tuttiComm_t comm, int color, int key, tuttiComm_t *newcomm,
				       tuttiConfig_t *config)
{
	struct tt_joining j = {
		.run = run_split, .comm = newcomm, .parent = comm, .color = color, .key = key
	};
	tuttiResult_t joined;
	int rc = tt_comm_check(comm);

	if (rc)
		return tt_result(tt_group_fail(rc));
	if (atomic_load(&comm->order.finalized))
		rc = tt_fail(TT_USAGE, "rank %d: tuttiCommSplit: the communicator was finalized",
			     comm->rank);
	if (!rc && !newcomm)
		rc = tt_fail(TT_ARG, "rank %d: tuttiCommSplit: newcomm is NULL", comm->rank);
	if (!rc && color < 0 && color != TUTTI_SPLIT_NOCOLOR)
		rc = tt_fail(
			TT_ARG,
			"rank %d: tuttiCommSplit: color %d: want 0 or more, or TUTTI_SPLIT_NOCOLOR",
			comm->rank, color);
	if (!rc)
		rc = tt_config_check(config);
	/* the other ranks wait for this rank: it takes part in the split to report its error */
	j.result = rc;
	if (rc)
		snprintf(j.text, sizeof(j.text), "%s", tt_error_text());
	else
		tt_config_copy(&j, config);
	j.ctx = comm->gpu ? comm->gpu->ctx : NULL;
	joined = tt_group_join(&j);
	return joined ? joined : tt_result(rc);
}

static int run_shrink(struct tt_joining *j)
{
	int rc = tt_comm_enter(j->parent, "tuttiCommShrink", TT_ONE_CALL);

	if (!rc) {
		tt_run_drain(j->parent);
		rc = tt_comm_shrink(j->parent, j->excluded, j->nexcluded,
				    j->configured ? &j->config : NULL, j->comm);
		rc = tt_comm_leave(j->parent, TT_ONE_CALL, rc);
	}
	free(j->excluded);
	return rc;
}

/* Converts the list to a table [nranks]; NULL: an empty list. 0 | TT_ARG, TT_SYSTEM */
static int read_excluded(tuttiComm_t comm, const int *list, int n, bool **ret_excluded)
{
	bool *excluded = n ? calloc((size_t)comm->nranks, sizeof(*excluded)) : NULL;

	if (n && !excluded)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for a list of %d ranks", comm->rank,
			       comm->nranks);
	for (int i = 0; i < n; i++) {
		if (list[i] < 0 || list[i] >= comm->nranks || list[i] == comm->rank) {
			free(excluded);
			if (list[i] != comm->rank)
				return tt_fail(
					TT_ARG,
					"rank %d: tuttiCommShrink: there is no rank %d to exclude",
					comm->rank, list[i]);
			return tt_fail(
				TT_ARG,
				"rank %d: tuttiCommShrink: this rank is on the list of ranks to exclude; "
				"only surviving ranks call",
				comm->rank);
		}
		excluded[list[i]] = true;
	}
	*ret_excluded = excluded;
	return 0;
}

static void abort_operations(tuttiComm_t comm)
{
	char text[96];

	snprintf(text, sizeof(text),
		 "rank %d shrinks the communicator and fails its running operations", comm->rank);
	tt_control_raise(comm->ctl, TT_REMOTE, comm->rank, text);
}

TUTTI_API tuttiResult_t tuttiCommShrink(tuttiComm_t comm, int *excludeRanksList,
					int excludeRanksCount, tuttiComm_t *newcomm,
					tuttiConfig_t *config, int shrinkFlags)
{
	struct tt_joining j = {
		.run = run_shrink, .comm = newcomm, .parent = comm, .nexcluded = excludeRanksCount
	};
	int rc = tt_comm_check(comm);

	if (rc)
		return tt_result(tt_group_fail(rc));
	if (atomic_load(&comm->order.finalized))
		rc = tt_fail(TT_USAGE, "rank %d: tuttiCommShrink: the communicator was finalized",
			     comm->rank);
	if (!rc && (!newcomm || excludeRanksCount < 0 || (excludeRanksCount && !excludeRanksList) ||
		    (shrinkFlags != TUTTI_SHRINK_DEFAULT && shrinkFlags != TUTTI_SHRINK_ABORT)))
		rc = tt_fail(
			TT_ARG,
			"rank %d: tuttiCommShrink: newcomm %p, %d ranks to exclude in %p, flags %d; want a pointer for the result, a list of that length, and TUTTI_SHRINK_DEFAULT or TUTTI_SHRINK_ABORT",
			comm->rank, (void *)newcomm, excludeRanksCount, (void *)excludeRanksList,
			shrinkFlags);
	if (!rc && !(rc = tt_config_check(config)))
		rc = read_excluded(comm, excludeRanksList, excludeRanksCount, &j.excluded);
	if (rc)
		return tt_result(tt_group_fail(rc));
	if (shrinkFlags == TUTTI_SHRINK_ABORT)
		abort_operations(comm);
	tt_config_copy(&j, config);
	return tt_group_join(&j);
}

/* Waits for every operation of an entered communicator. 0 | the error that broke it */
static int finalize(tuttiComm_t comm)
{
	int rc;

	atomic_store(&comm->order.finalized, true);
	tt_gpu_settle(comm);
	tt_run_drain(comm);
	pthread_mutex_lock(&comm->lock);
	rc = comm->failure.code ? tt_fail(comm->failure.code, "%s", comm->failure.text) : 0;
	pthread_mutex_unlock(&comm->lock);
	return rc;
}

TUTTI_API tuttiResult_t tuttiCommFinalize(tuttiComm_t comm)
{
	int rc = tt_comm_enter(comm, "tuttiCommFinalize", TT_ONE_CALL);

	return tt_result(rc ? rc : tt_comm_leave(comm, TT_ONE_CALL, finalize(comm)));
}

/* Closes comm, on which nothing runs any more and nothing starts. */
static void end(tuttiComm_t comm)
{
	atomic_store(&comm->magic, 0);
	tt_run_close(comm);
	tt_comm_free(comm);
}

/* Reports the abort to the other ranks, with this rank's error if the other ranks do not know it. A
 * communicator that is already broken keeps its first cause. */
static void report_abort(tuttiComm_t comm)
{
	char text[720];

	const struct tt_comm_failure *failure = &comm->failure;

	pthread_mutex_lock(&comm->lock);
	snprintf(text, sizeof(text), "rank %d aborted the communicator%s%.640s", comm->rank,
		 failure->code     ? ", which had failed there: "
		 : *failure->split ? ", whose split had failed there: "
				   : "",
		 failure->code ? failure->text : failure->split);
	pthread_mutex_unlock(&comm->lock);
	tt_control_raise(comm->ctl, TT_REMOTE, comm->rank, text);
}

TUTTI_API tuttiResult_t tuttiCommAbort(tuttiComm_t comm)
{
	struct timespec pause = { .tv_nsec = 200000 };
	int rc;

	if (!comm)
		return tuttiSuccess;
	rc = tt_comm_check(comm);
	if (rc)
		return tt_result(rc);
	atomic_store(&comm->order.finalized, true);
	atomic_store(&comm->magic, 0);
	tt_asymmetric_fence();
	/* before the other ranks learn of the abort: queued operations must not start and fail
	 * there */
	tt_run_cancel(comm);
	report_abort(comm);
	tt_am_abort(comm->am);
	while (atomic_load(&comm->order.inside) || atomic_load(&comm->order.caller))
		nanosleep(&pause, NULL);
	end(comm);
	return tuttiSuccess;
}

/* While another thread is in a call, that call has to end before comm can be freed: an abort. */
TUTTI_API tuttiResult_t tuttiCommDestroy(tuttiComm_t comm)
{
	int rc = comm ? tt_comm_enter(comm, "tuttiCommDestroy", TT_ONE_CALL) : 0;

	if (!comm || rc == TT_ARG) /* not a live communicator: nothing to free */
		return tt_result(rc);
	if (rc) {
		tuttiCommAbort(comm);
		return tt_result(rc);
	}
	rc = finalize(comm);
	end(comm);
	return tt_result(rc);
}

TUTTI_API tuttiResult_t tuttiCommGetAsyncError(tuttiComm_t comm, tuttiResult_t *asyncError)
{
	int rc = tt_comm_visit(comm), error;

	if (rc)
		return tt_result(rc);
	tt_gpu_take_report(comm);
	tt_gpu_take_failure(comm);
	pthread_mutex_lock(&comm->lock);
	error = comm->failure.code;
	pthread_mutex_unlock(&comm->lock);
	if (!error)
		error = tt_control_broken(comm->ctl);
	if (!asyncError)
		rc = tt_fail(TT_ARG, "rank %d: tuttiCommGetAsyncError: asyncError is NULL",
			     comm->rank);
	else
		*asyncError = (tuttiResult_t)-error;
	atomic_fetch_sub(&comm->order.inside, 1);
	return tt_result(rc);
}

static tuttiResult_t set_result(tuttiComm_t comm, int *to, int value)
{
	int rc = tt_comm_check(comm);

	if (!rc && !to)
		rc = tt_fail(TT_ARG, "rank %d: the pointer for the result is NULL", comm->rank);
	if (rc)
		return tt_result(rc);
	*to = value;
	return tuttiSuccess;
}

TUTTI_API tuttiResult_t tuttiCommCount(const tuttiComm_t comm, int *count)
{
	return set_result(comm, count, comm ? comm->nranks : 0);
}

TUTTI_API tuttiResult_t tuttiCommUserRank(const tuttiComm_t comm, int *rank)
{
	return set_result(comm, rank, comm ? comm->rank : 0);
}

TUTTI_API tuttiResult_t tuttiCommCuDevice(const tuttiComm_t comm, int *device)
{
	return set_result(comm, device,
			  comm && tt_comm_is_live(comm) && comm->gpu ? comm->gpu->device : -1);
}

TUTTI_API tuttiResult_t tuttiCommSetWaitHook(tuttiComm_t comm, tuttiWaitHook_t hook, void *ctx)
{
	int rc = tt_comm_enter(comm, "tuttiCommSetWaitHook", TT_ONE_CALL);

	if (rc)
		return tt_result(rc);
	comm->wait.hook = hook;
	comm->wait.hook_ctx = ctx;
	return tt_result(tt_comm_leave(comm, TT_ONE_CALL, 0));
}

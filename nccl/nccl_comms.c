/*
 * nccl_comms.c - communicator handles: queries, finalize, destroy, abort
 *
 * Called by users; calls tutti.h and nccl_jobs.c. Queries read atomic fields of the handle, so a
 * watchdog may call them at any time, also while another thread joins, works or aborts.
 */
#include <string.h>

#include "nccl/nccl_layer.h"

ncclComm_t nccl_comm_new(bool blocking)
{
	ncclComm_t c = tt_handle_new(sizeof(*c));

	if (!c) {
		tt_fail(TT_SYSTEM, "no memory for a communicator");
		return NULL;
	}
	c->blocking = blocking;
	c->users = 1;
	atomic_store(&c->state, ncclInProgress);
	atomic_store(&c->magic, NC_MAGIC);
	return c;
}

static int check_handle(ncclComm_t c, const char *call)
{
	if (!c)
		return tt_fail(TT_ARG, "%s: the communicator is NULL", call);
	if (atomic_load_explicit(&c->magic, memory_order_relaxed) != NC_MAGIC)
		return tt_fail(
			TT_ARG,
			"%s: the communicator was destroyed or aborted, or is not a communicator",
			call);
	return 0;
}

int nccl_comm_check(ncclComm_t c, const char *call, tuttiComm_t *ret_tutti)
{
	tuttiComm_t tutti;
	int rc = check_handle(c, call), state;

	if (tt_unlikely(rc))
		return rc;
	state = atomic_load_explicit(&c->state, memory_order_acquire);
	tutti = atomic_load_explicit(&c->tutti, memory_order_relaxed);
	if (tt_unlikely(state == ncclInProgress))
		return tt_fail(
			TT_ARG,
			"%s: the communicator is still in progress; call ncclCommGetAsyncError until it returns "
			"another result",
			call);
	if (tt_unlikely(!tutti))
		return tt_fail(TT_ARG, "%s: the communicator has never joined: %s", call, c->text);
	*ret_tutti = tutti;
	return 0;
}

/* Fails only for an invalid handle. The state of the communicator is stored in *asyncError. */
NCCL_CALL(ncclResult_t, ncclCommGetAsyncError, ncclComm_t comm, ncclResult_t *asyncError)
{
	tuttiResult_t broken = tuttiSuccess;
	tuttiComm_t tutti;
	int state, rc = check_handle(comm, "ncclCommGetAsyncError");

	if (!rc && !asyncError)
		rc = tt_fail(TT_ARG, "ncclCommGetAsyncError: asyncError is NULL");
	if (rc)
		return nccl_result(rc);
	state = atomic_load(&comm->state);
	tutti = atomic_load(&comm->tutti);
	/* aborted meanwhile: the fields were read as zeros */
	if ((rc = check_handle(comm, "ncclCommGetAsyncError")))
		return nccl_result(rc);
	if (tutti && (state == ncclSuccess || state == ncclInProgress) &&
	    !tuttiCommGetAsyncError(tutti, &broken) && broken)
		state = nccl_result(tt_fail(nccl_code(broken), "%s", tuttiGetLastError(tutti)));
	*asyncError = (ncclResult_t)state;
	return ncclSuccess;
}

static ncclResult_t query(ncclComm_t comm, const char *call, int *to,
			  tuttiResult_t (*ask)(const tuttiComm_t, int *))
{
	tuttiComm_t tutti;
	int rc = nccl_comm_check(comm, call, &tutti);

	if (!rc && !to)
		rc = tt_fail(TT_ARG, "%s: the pointer for the result is NULL", call);
	return nccl_result(rc ? rc : nccl_code(ask(tutti, to)));
}

NCCL_CALL(ncclResult_t, ncclCommCount, const ncclComm_t comm, int *count)
{
	return query(comm, "ncclCommCount", count, tuttiCommCount);
}

NCCL_CALL(ncclResult_t, ncclCommUserRank, const ncclComm_t comm, int *rank)
{
	return query(comm, "ncclCommUserRank", rank, tuttiCommUserRank);
}

NCCL_CALL(ncclResult_t, ncclCommCuDevice, const ncclComm_t comm, int *device)
{
	return query(comm, "ncclCommCuDevice", device, tuttiCommCuDevice);
}

static int run_finalize(struct nccl_job *job)
{
	return nccl_code(tuttiCommFinalize(atomic_load(&job->comm->tutti)));
}

NCCL_CALL(ncclResult_t, ncclCommFinalize, ncclComm_t comm)
{
	struct nccl_job *job;
	tuttiComm_t tutti;
	int rc;

	if (!comm)
		return ncclSuccess;
	rc = nccl_comm_check(comm, "ncclCommFinalize", &tutti);
	if (!rc && comm->blocking)
		rc = nccl_code(tuttiCommFinalize(tutti));
	if (rc || comm->blocking)
		return nccl_result(rc);
	job = nccl_job_new(run_finalize, comm, NULL, false);
	return nccl_result(job ? nccl_jobs_run(job) : TT_SYSTEM);
}

/* Waits for a join that is still in progress, so that the other ranks do not lose a rank in the
 * middle of it. */
NCCL_CALL(ncclResult_t, ncclCommDestroy, ncclComm_t comm)
{
	tuttiComm_t tutti = NULL;
	int rc;

	if (!comm)
		return ncclSuccess;
	rc = check_handle(comm, "ncclCommDestroy");
	if (rc)
		return nccl_result(rc);
	nccl_jobs_wait(comm);
	if (!nccl_comm_take(comm, false, &tutti))
		return nccl_result(check_handle(comm, "ncclCommDestroy"));
	rc = tutti ? nccl_code(tuttiCommDestroy(tutti)) : 0;
	nccl_comm_drop(comm);
	return nccl_result(rc);
}

NCCL_CALL(ncclResult_t, ncclCommAbort, ncclComm_t comm)
{
	tuttiComm_t tutti = NULL;
	int rc;

	if (!comm)
		return ncclSuccess;
	rc = check_handle(comm, "ncclCommAbort");
	if (rc || !nccl_comm_take(comm, true, &tutti))
		return nccl_result(rc ? rc : check_handle(comm, "ncclCommAbort"));
	rc = tutti ? nccl_code(tuttiCommAbort(tutti)) : 0;
	nccl_comm_drop(comm);
	return nccl_result(rc);
}

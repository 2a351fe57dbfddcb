/*
 * nccl_errors.c - result codes and error texts
 *
 * Called by users and by every file of nccl/. NCCL's users call ncclGetLastError in another thread
 * than the one that failed (a watchdog does), so the last error text of the process is stored,
 * besides the last text of each thread.
 */
#include <pthread.h>
#include <stdio.h>

#include "nccl/nccl_layer.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char last[1024]; /* under lock */

static void keep(const char *text)
{
	pthread_mutex_lock(&lock);
	snprintf(last, sizeof(last), "%s", text);
	pthread_mutex_unlock(&lock);
}

/* NCCL 2.28 has no code for a time-out. The code for a failed rank fits best, since its users can
 * act on missing ranks. */
ncclResult_t nccl_result(int code)
{
	if (code >= 0)
		return code ? ncclInProgress : ncclSuccess;
	keep(tt_error_text());
	return code == TT_TIMEOUT ? ncclRemoteError : (ncclResult_t)-code;
}

NCCL_CALL(ncclResult_t, ncclGetVersion, int *version)
{
	if (!version)
		return nccl_result(tt_fail(TT_ARG, "ncclGetVersion: version is NULL"));
	*version = NCCL_VERSION_CODE;
	return ncclSuccess;
}

NCCL_CALL(const char *, ncclGetErrorString, ncclResult_t result)
{
	static const char *const texts[ncclNumResults] = {
		[ncclSuccess] = "no error",
		[ncclUnhandledCudaError] = "a CUDA call failed (ncclGetLastError says which)",
		[ncclSystemError] = "a system call failed (ncclGetLastError says which)",
		[ncclInternalError] = "a defect of the communication library (ncclGetLastError)",
		[ncclInvalidArgument] =
			"an argument has an impossible value (ncclGetLastError says which)",
		[ncclInvalidUsage] =
			"a call that is not possible here, or not built (ncclGetLastError says why)",
		[ncclRemoteError] =
			"another rank died, left or did not come (ncclGetLastError says which)",
		[ncclInProgress] = "still in progress",
	};

	return (unsigned)result < ncclNumResults ? texts[result] : "unknown result code";
}

NCCL_CALL(const char *, ncclGetLastError, ncclComm_t comm)
{
	static __thread char text[sizeof(last)];
	tuttiComm_t tutti = comm && atomic_load(&comm->magic) == NC_MAGIC
				    ? atomic_load(&comm->tutti)
				    : NULL;
	tuttiResult_t broken = tuttiSuccess;

	if (tutti && !tuttiCommGetAsyncError(tutti, &broken) && broken)
		snprintf(text, sizeof(text), "%s", tuttiGetLastError(tutti));
	else {
		pthread_mutex_lock(&lock);
		snprintf(text, sizeof(text), "%s", last);
		pthread_mutex_unlock(&lock);
	}
	return text;
}

/* TUTTI_LOG controls debug output; programs still call this function. */
NCCL_CALL(void, ncclResetDebugInit, void) {}

EXPORTED void ncclResetDebugInitInternal(void);
EXPORTED void ncclResetDebugInitInternal(void) {}

/*
 * errors.c - public calls for errors and the version
 */
#include <stdio.h>

#include "api/api.h"

tuttiResult_t tt_result_other(int code)
{
	if (code > 0)
		return tuttiInProgress;
	tt_log(TT_LOG_INFO, "%s", tt_error_text());
	return (tuttiResult_t)-code;
}

TUTTI_API tuttiResult_t tuttiGetVersion(int *version)
{
	if (!version)
		return tt_result(tt_fail(TT_ARG, "tuttiGetVersion: version is NULL"));
	*version = TUTTI_VERSION_CODE;
	return tuttiSuccess;
}

TUTTI_API const char *tuttiGetErrorString(tuttiResult_t result)
{
	static const char *const texts[tuttiNumResults] = {
		[tuttiSuccess] = "no error",
		[tuttiUnhandledCudaError] = "a CUDA call failed",
		[tuttiSystemError] = "a system call failed",
		[tuttiInternalError] = "internal error",
		[tuttiInvalidArgument] = "invalid argument",
		[tuttiInvalidUsage] = "invalid usage",
		[tuttiRemoteError] = "another rank failed or left",
		[tuttiInProgress] = "in progress",
		[tuttiTimeout] = "timed out",
	};

	return (unsigned)result < tuttiNumResults ? texts[result] : "unknown result code";
}

TUTTI_API const char *tuttiGetLastError(tuttiComm_t comm)
{
	static __thread char text[1024];

	if (!comm || comm->magic != TT_COMM_MAGIC)
		return tt_error_text();
	pthread_mutex_lock(&comm->lock);
	snprintf(text, sizeof(text), "%s", comm->failure.code ? comm->failure.text : "");
	pthread_mutex_unlock(&comm->lock);
	if (!text[0] && tt_control_broken(comm->ctl))
		snprintf(text, sizeof(text), "rank %d: %s", comm->rank,
			 tt_control_text(comm->ctl, &(int){ 0 }));
	return text[0] ? text : tt_error_text();
}

/*
 * streams.c - public calls for host streams, their events and callbacks
 */
#include "api/api.h"

TUTTI_API tuttiResult_t tuttiStreamCreate(tuttiStream_t *stream)
{
	return tt_result(stream ? tt_stream_create(stream)
				: tt_fail(TT_ARG, "tuttiStreamCreate: stream is NULL"));
}

TUTTI_API tuttiResult_t tuttiStreamSynchronize(tuttiStream_t stream)
{
	return tt_result(tt_stream_wait(stream));
}

TUTTI_API tuttiResult_t tuttiStreamQuery(tuttiStream_t stream)
{
	return tt_result(tt_stream_query(stream));
}

TUTTI_API tuttiResult_t tuttiStreamDestroy(tuttiStream_t stream)
{
	return tt_result(tt_stream_destroy(stream));
}

TUTTI_API tuttiResult_t tuttiStreamAddCallback(tuttiStream_t stream, tuttiCallback_t callback,
					       void *ctx)
{
	return tt_result(callback ? tt_stream_add_callback(stream, callback, ctx)
				  : tt_fail(TT_ARG, "tuttiStreamAddCallback: callback is NULL"));
}

TUTTI_API tuttiResult_t tuttiEventCreate(tuttiEvent_t *event)
{
	return tt_result(event ? tt_event_create(event)
			       : tt_fail(TT_ARG, "tuttiEventCreate: event is NULL"));
}

TUTTI_API tuttiResult_t tuttiEventRecord(tuttiEvent_t event, tuttiStream_t stream)
{
	return tt_result(tt_event_record(event, stream));
}

TUTTI_API tuttiResult_t tuttiEventQuery(tuttiEvent_t event)
{
	return tt_result(tt_event_query(event));
}

TUTTI_API tuttiResult_t tuttiEventSynchronize(tuttiEvent_t event)
{
	return tt_result(tt_event_wait(event));
}

TUTTI_API tuttiResult_t tuttiEventDestroy(tuttiEvent_t event)
{
	return tt_result(tt_event_destroy(event));
}

/*
 * streams.c - public calls for host streams
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

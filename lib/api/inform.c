/*
 * inform.c - the public calls that tell: version, errors, counters, what a call would use; and memory, streams, ops
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "mem/memory.h"

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
	snprintf(text, sizeof(text), "%s", comm->error ? comm->error_text : "");
	pthread_mutex_unlock(&comm->lock);
	if (!text[0] && tt_control_broken(comm->ctl))
		snprintf(text, sizeof(text), "rank %d: %s", comm->rank, tt_control_text(comm->ctl, &(int){ 0 }));
	return text[0] ? text : tt_error_text();
}

TUTTI_API tuttiResult_t tuttiCommGetCounters(tuttiComm_t comm, tuttiCounters_t *counters)
{
	tuttiCounters_t n = { .size = sizeof(n) };
	int rc = tt_comm_check(comm);

	if (!rc && (!counters || counters->size < sizeof(counters->size)))
		rc = tt_fail(TT_ARG, "rank %d: tuttiCommGetCounters: counters is NULL or its size is not set", comm->rank);
	if (rc)
		return tt_result(rc);
	n.operations = atomic_load(&comm->operations);
	n.sleeps = atomic_load(&comm->sleeps);
	n.allocations = atomic_load(&comm->allocations);
	n.memory_bytes = comm->scratch_bytes;
	for (int i = 0; i < comm->nep; i++)
		n.memory_bytes += comm->ep[i]->t->memory(comm->ep[i]);
	for (int i = 0; i < TT_CHANNELS * comm->nranks; i++) {
		const struct tt_link *l = comm->links[i];

		if (!l)
			continue;
		n.sent_bytes += l->sent_bytes;
		n.messages += l->messages;
		n.sent_bytes_shm += l->t == &tt_shm ? l->sent_bytes : 0;
		n.sent_bytes_tcp += l->t == &tt_tcp ? l->sent_bytes : 0;
	}
	for (const struct tt_kept *k = comm->kept; k; k = k->next)
		n.memory_bytes += sizeof(*k) + sizeof(*k->plan) + k->plan->nsteps * sizeof(struct tt_step);
	n.size = counters->size < sizeof(n) ? counters->size : sizeof(n);
	memcpy(counters, &n, n.size);
	return tuttiSuccess;
}

static int find_collective(const char *name, enum tt_collective *ret_collective)
{
	for (int i = 0; name && i < TT_SENDRECV; i++)
		if (!strcmp(name, tt_collective_name((enum tt_collective)i))) {
			*ret_collective = (enum tt_collective)i;
			return 0;
		}
	return tt_fail(TT_ARG, "tuttiCommDescribe: collective \"%s\" is not known", name ? name : "(NULL)");
}

TUTTI_API tuttiResult_t tuttiCommDescribe(tuttiComm_t comm, const char *collective, size_t count,
					  tuttiDataType_t datatype, char *text, size_t bytes)
{
	enum tt_collective which;
	struct tt_kept *kept;
	bool shm = false, tcp = false;
	size_t size;
	int rc = tt_comm_check(comm);

	if (!rc && (!text || !bytes || (unsigned)datatype >= tuttiNumTypes))
		rc = tt_fail(TT_ARG, "rank %d: tuttiCommDescribe: text NULL or datatype %d unknown", comm->rank, datatype);
	if (!rc)
		rc = find_collective(collective, &which);
	if (rc)
		return tt_result(rc);
	size = count * tt_type_bytes(datatype);
	if (which != TT_ALLREDUCE && which != TT_REDUCE && which != TT_BROADCAST)
		size *= (size_t)comm->nranks;
	rc = tt_keep_plan(comm, which, size, 0, &kept);
	if (rc)
		return tt_result(rc);
	for (uint32_t i = 0; i < kept->plan->npeers; i++) {
		shm |= comm->via[kept->plan->peers[i]]->t == &tt_shm;
		tcp |= comm->via[kept->plan->peers[i]]->t == &tt_tcp;
	}
	snprintf(text, bytes, "algorithm %s transport %s tile_bytes %zu", kept->plan->algorithm,
		 shm && tcp ? "shm+tcp" : shm ? "shm" : tcp ? "tcp" : "self", comm->world.message_bytes);
	return tuttiSuccess;
}

TUTTI_API tuttiResult_t tuttiRedOpCreatePreMulSum(tuttiRedOp_t *op, void *scalar, tuttiDataType_t datatype,
						  tuttiScalarResidence_t residence, tuttiComm_t comm)
{
	struct tt_user_op *more;
	int rc = tt_comm_check(comm), i = 0;

	if (!rc && (!op || !scalar || (unsigned)datatype >= tuttiNumTypes ||
		    (residence != tuttiScalarDevice && residence != tuttiScalarHostImmediate)))
		rc = tt_fail(TT_ARG, "rank %d: tuttiRedOpCreatePreMulSum: op %p, scalar %p, datatype %d, residence %d",
			     comm->rank, (void *)op, scalar, (int)datatype, (int)residence);
	if (rc)
		return tt_result(rc);
	while (i < comm->nuser_ops && comm->user_ops[i].used)
		i++;
	if (i == comm->nuser_ops) {
		more = realloc(comm->user_ops, (size_t)(i + 1) * sizeof(*more));
		if (!more)
			return tt_result(tt_fail(TT_SYSTEM, "rank %d: no memory for an operation", comm->rank));
		comm->user_ops = more;
		comm->nuser_ops++;
	}
	comm->user_ops[i] = (struct tt_user_op){ .used = true, .type = datatype,
						 .device = residence == tuttiScalarDevice ? scalar : NULL };
	memcpy(&comm->user_ops[i].value, scalar, tt_type_bytes(datatype));
	*op = (tuttiRedOp_t)(tuttiNumOps + i);
	return tuttiSuccess;
}

TUTTI_API tuttiResult_t tuttiRedOpDestroy(tuttiRedOp_t op, tuttiComm_t comm)
{
	int rc = tt_comm_check(comm), i = (int)op - tuttiNumOps;

	if (!rc && (i < 0 || i >= comm->nuser_ops || !comm->user_ops[i].used))
		rc = tt_fail(TT_ARG, "rank %d: tuttiRedOpDestroy: %d was not created", comm->rank, (int)op);
	if (rc)
		return tt_result(rc);
	comm->user_ops[i].used = false;
	return tuttiSuccess;
}

TUTTI_API tuttiResult_t tuttiMemAlloc(void **ptr, size_t size)
{
	return tt_result(ptr ? tt_memory_alloc(size, ptr) : tt_fail(TT_ARG, "tuttiMemAlloc: ptr is NULL"));
}

TUTTI_API tuttiResult_t tuttiMemFree(void *ptr)
{
	return tt_result(ptr ? tt_memory_free(ptr) : 0);
}

/* A registration is a promise of reuse; no transport of this version gains from it, so it is checked and kept only. */
TUTTI_API tuttiResult_t tuttiCommRegister(const tuttiComm_t comm, void *buff, size_t size, void **handle)
{
	int rc = tt_comm_check(comm);

	if (!rc && (!handle || (!buff && size)))
		rc = tt_fail(TT_ARG, "rank %d: tuttiCommRegister: buff %p, handle %p", comm->rank, buff, (void *)handle);
	if (rc)
		return tt_result(rc);
	*handle = buff;
	return tuttiSuccess;
}

TUTTI_API tuttiResult_t tuttiCommDeregister(const tuttiComm_t comm, void *handle)
{
	(void)handle;
	return tt_result(tt_comm_check(comm));
}

TUTTI_API tuttiResult_t tuttiStreamCreate(tuttiStream_t *stream)
{
	return tt_result(stream ? tt_stream_create(stream) : tt_fail(TT_ARG, "tuttiStreamCreate: stream is NULL"));
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

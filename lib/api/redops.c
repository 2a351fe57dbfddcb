/*
 * redops.c - public calls for user-defined reductions: pre-multiplied sums
 */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"

TUTTI_API tuttiResult_t tuttiRedOpCreatePreMulSum(tuttiRedOp_t *op, void *scalar,
						  tuttiDataType_t datatype,
						  tuttiScalarResidence_t residence,
						  tuttiComm_t comm)
{
	struct tt_user_op *more;
	uint64_t value = 0;
	int rc = tt_comm_check(comm), i = 0;

	if (!rc && (!op || !scalar || (unsigned)datatype >= tuttiNumTypes ||
		    (residence != tuttiScalarDevice && residence != tuttiScalarHostImmediate)))
		rc = tt_fail(
			TT_ARG,
			"rank %d: tuttiRedOpCreatePreMulSum: op %p, scalar %p, datatype %d, residence %d; want two pointers, a datatype of tutti.h and a tuttiScalarResidence_t",
			comm->rank, (void *)op, scalar, (int)datatype, (int)residence);
	if (rc)
		return tt_result(rc);
	if (residence == tuttiScalarHostImmediate)
		memcpy(&value, scalar, tt_type_bytes(datatype));
	while (i < comm->memory.nuser_ops && comm->memory.user_ops[i].used)
		i++;
	if (i == comm->memory.nuser_ops) {
		more = realloc(comm->memory.user_ops, (size_t)(i + 1) * sizeof(*more));
		if (!more)
			return tt_result(tt_fail(TT_SYSTEM, "rank %d: no memory for an operation",
						 comm->rank));
		comm->memory.user_ops = more;
		comm->memory.nuser_ops++;
	}
	comm->memory.user_ops[i] = (struct tt_user_op){ .used = true,
							.type = datatype,
							.value = value,
							.device = residence == tuttiScalarDevice
									  ? scalar
									  : NULL };
	*op = (tuttiRedOp_t)(tuttiNumOps + i);
	return tuttiSuccess;
}

TUTTI_API tuttiResult_t tuttiRedOpDestroy(tuttiRedOp_t op, tuttiComm_t comm)
{
	unsigned i = (unsigned)op - tuttiNumOps;
	int rc = tt_comm_check(comm);

	if (!rc && (i >= (unsigned)comm->memory.nuser_ops || !comm->memory.user_ops[i].used))
		rc = tt_fail(TT_ARG, "rank %d: tuttiRedOpDestroy: %d was not created", comm->rank,
			     (int)op);
	if (rc)
		return tt_result(rc);
	comm->memory.user_ops[i].used = false;
	return tuttiSuccess;
}

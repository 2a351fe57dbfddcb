/*
 * redops.c - public calls for user-defined reductions: pre-multiplied sums and functions
 */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"

/* The number of an unused entry of the table of operations. >= 0 | TT_SYSTEM */
static int find_unused(tuttiComm_t comm)
{
	struct tt_comm_memory *m = &comm->memory;
	struct tt_user_op *more;
	int i = 0;

	while (i < m->nuser_ops && m->user_ops[i].used)
		i++;
	if (i < m->nuser_ops)
		return i;
	more = realloc(m->user_ops, (size_t)(i + 1) * sizeof(*more));
	if (!more)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for an operation", comm->rank);
	m->user_ops = more;
	m->nuser_ops++;
	return i;
}

static int add(tuttiComm_t comm, const struct tt_user_op *op, tuttiRedOp_t *ret_op)
{
	int i = find_unused(comm);

	if (i < 0)
		return i;
	comm->memory.user_ops[i] = *op;
	*ret_op = (tuttiRedOp_t)(tuttiNumOps + i);
	return 0;
}

static int create(tuttiComm_t comm, void *scalar, tuttiDataType_t datatype,
		  tuttiScalarResidence_t residence, tuttiRedOp_t *ret_op)
{
	struct tt_user_op made = { .used = true, .type = datatype };

	if (residence == tuttiScalarHostImmediate)
		memcpy(&made.value, scalar, tt_type_bytes(datatype));
	else
		made.device = scalar;
	return add(comm, &made, ret_op);
}

TUTTI_API tuttiResult_t tuttiRedOpCreate(tuttiRedOp_t *op, tuttiRedFunction_t function, void *arg,
					 size_t width, tuttiComm_t comm)
{
	int rc = tt_comm_enter(comm, "tuttiRedOpCreate", TT_ONE_CALL);

	if (rc)
		return tt_result(rc);
	if (!op || !function || !width)
		rc = tt_fail(
			TT_ARG,
			"rank %d: tuttiRedOpCreate: op %p, function %s, width %zu; want a pointer, a function and a width of 1 or more",
			comm->rank, (void *)op, function ? "given" : "NULL", width);
	else
		rc = add(comm,
			 &(struct tt_user_op){
				 .used = true, .function = function, .arg = arg, .width = width },
			 op);
	return tt_result(tt_comm_leave(comm, TT_ONE_CALL, rc));
}

TUTTI_API tuttiResult_t tuttiRedOpCreatePreMulSum(tuttiRedOp_t *op, void *scalar,
						  tuttiDataType_t datatype,
						  tuttiScalarResidence_t residence,
						  tuttiComm_t comm)
{
	int rc = tt_comm_enter(comm, "tuttiRedOpCreatePreMulSum", TT_ONE_CALL);

	if (rc)
		return tt_result(rc);
	if (!op || !scalar || (unsigned)datatype >= tuttiNumTypes ||
	    (residence != tuttiScalarDevice && residence != tuttiScalarHostImmediate))
		rc = tt_fail(
			TT_ARG,
			"rank %d: tuttiRedOpCreatePreMulSum: op %p, scalar %p, datatype %d, residence %d; want two pointers, a datatype of tutti.h and a tuttiScalarResidence_t",
			comm->rank, (void *)op, scalar, (int)datatype, (int)residence);
	else
		rc = create(comm, scalar, datatype, residence, op);
	return tt_result(tt_comm_leave(comm, TT_ONE_CALL, rc));
}

TUTTI_API tuttiResult_t tuttiRedOpDestroy(tuttiRedOp_t op, tuttiComm_t comm)
{
	unsigned i = (unsigned)op - tuttiNumOps;
	int rc = tt_comm_enter(comm, "tuttiRedOpDestroy", TT_ONE_CALL);

	if (rc)
		return tt_result(rc);
	if (i >= (unsigned)comm->memory.nuser_ops || !comm->memory.user_ops[i].used)
		rc = tt_fail(TT_ARG, "rank %d: tuttiRedOpDestroy: %d was not created", comm->rank,
			     (int)op);
	else
		comm->memory.user_ops[i].used = false;
	return tt_result(tt_comm_leave(comm, TT_ONE_CALL, rc));
}

/*
 * operators.c - reductions by a function of the user, on host memory
 *
 * Called by collectives.c and uneven.c. A reduction of n ranks is an exchange (each rank gets its
 * part of every rank's elements: tuttiAlltoAllv), a fold of the parts in rank order by the function,
 * and a copy or a collection of the results (tuttiAllGatherv, tuttiGatherv). A small allreduce or
 * reduce collects everything first, and folds where the result is wanted: one collective less. The
 * algorithms below move bytes only, so none of them can commute operands: each element is
 * ((x0 op x1) op x2) ... for every size, transport and algorithm. On a host stream the fold
 * runs as a mark of the stream.
 */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "gpu/gpu.h"
#include "run/host_stream.h"

#define SMALL_BYTES 16384 /* of all ranks' elements: folded after one collective */

struct fold {
	struct tt_stream_mark folds, frees; /* in a stream; folds is the first member */
	struct tt_user_op op;
	int n;
	bool whole;   /* this rank folds all elements, after one collective */
	size_t count; /* elements of a part here */
	size_t part_bytes;
	char *parts;  /* [n * part_bytes] in rank order; the last becomes the result */
	char *result; /* the place for a copy of the result; NULL: none */
};

const struct tt_user_op *tt_user_operator(tuttiComm_t c, tuttiRedOp_t op)
{
	unsigned i = (unsigned)op - tuttiNumOps;

	if (tt_comm_check(c) || i >= (unsigned)c->memory.nuser_ops || !c->memory.user_ops[i].used ||
	    !c->memory.user_ops[i].function)
		return NULL;
	return &c->memory.user_ops[i];
}

static char *folded(const struct fold *f)
{
	return f->parts + (size_t)(f->n - 1) * f->part_bytes;
}

/* function(in, inout): inout = in op inout, so the operand of the lower rank is `in` */
static void fold(const struct fold *f)
{
	for (int r = 1; r < f->n && f->count; r++)
		f->op.function(f->parts + (size_t)(r - 1) * f->part_bytes,
			       f->parts + (size_t)r * f->part_bytes, f->count / f->op.width,
			       f->op.arg);
	if (f->result && f->count)
		memcpy(f->result, folded(f), f->part_bytes);
}

static void fold_in_stream(struct tt_stream_mark *mark, int rc, const char *text)
{
	(void)text;
	if (!rc)
		fold((struct fold *)mark);
}

static void free_fold(struct fold *f)
{
	free(f->parts);
	free(f);
}

static void free_in_stream(struct tt_stream_mark *mark, int rc, const char *text)
{
	(void)rc, (void)text;
	free_fold((struct fold *)((char *)mark - offsetof(struct fold, frees)));
}

/* The first element, and the number of elements, of an allreduce or reduce that rank p folds: whole
 * operands */
static void share(const struct tt_request *r, const struct fold *f, int p, size_t *ret_begin,
		  size_t *ret_count)
{
	size_t operands = r->count / f->op.width, each = operands / (size_t)f->n,
	       rest = operands % (size_t)f->n, rank = (size_t)p;

	*ret_begin = (each * rank + (rank < rest ? rank : rest)) * f->op.width;
	*ret_count = (each + (rank < rest)) * f->op.width;
}

/* counts, displs: [n] the elements that each rank folds. given: the counts of a reduce-scatterv */
static void lay_out(const struct tt_request *r, struct fold *f, const size_t *given, size_t *counts,
		    size_t *displs)
{
	size_t at = 0;

	for (int p = 0; p < f->n; p++) {
		if (r->collective != TT_REDUCE_SCATTER) {
			share(r, f, p, &displs[p], &counts[p]);
			continue;
		}
		counts[p] = given ? given[p] : r->count;
		displs[p] = at;
		at += counts[p];
	}
}

static tuttiResult_t exchange(const struct tt_request *r, const struct fold *f,
			      const size_t *counts, const size_t *displs, size_t *same)
{
	if (f->whole && r->collective == TT_ALLREDUCE)
		return tuttiAllGather(r->in, f->parts, r->count, r->type, r->comm, r->stream);
	if (f->whole)
		return tuttiGather(r->in, f->parts, r->count, r->type, r->root, r->comm, r->stream);
	for (int p = 0; p < f->n; p++)
		same[p] = f->count;
	return tuttiAlltoAllv(r->in, counts, displs, f->parts, same, NULL, r->type, r->comm,
			      r->stream);
}

/* Collect the results that each rank folded. */
static tuttiResult_t collect(const struct tt_request *r, const struct fold *f, const size_t *counts,
			     const size_t *displs)
{
	if (f->whole || r->collective == TT_REDUCE_SCATTER)
		return tuttiSuccess;
	if (r->collective == TT_ALLREDUCE)
		return tuttiAllGatherv(folded(f), f->count, r->out, counts, displs, r->type,
				       r->comm, r->stream);
	return tuttiGatherv(folded(f), f->count, r->out, counts, displs, r->type, r->root, r->comm,
			    r->stream);
}

/* In a stream the operations keep parts until the last one is complete. */
static tuttiResult_t run_stream(const struct tt_request *r, struct fold *f, const size_t *counts,
				const size_t *displs, size_t *same)
{
	tuttiResult_t result = exchange(r, f, counts, displs, same);

	f->folds.inner = f->frees.inner = true;
	f->folds.reached = fold_in_stream;
	f->frees.reached = free_in_stream;
	if (!result) {
		tt_stream_push_mark(r->stream, &f->folds);
		result = collect(r, f, counts, displs);
	}
	tt_stream_push_mark(r->stream, &f->frees);
	return result;
}

static tuttiResult_t run_now(const struct tt_request *r, struct fold *f, const size_t *counts,
			     const size_t *displs, size_t *same)
{
	tuttiResult_t result = exchange(r, f, counts, displs, same);

	if (!result) {
		fold(f);
		result = collect(r, f, counts, displs);
	}
	free_fold(f);
	return result;
}

/* Check the call and the counts for a reduction by a function of the user. 0 | TT_ARG, TT_USAGE */
static int check(const struct tt_request *r, const char *call, const struct tt_user_op *op,
		 const size_t *counts)
{
	tuttiComm_t c = r->comm;
	int rc;

	if (tt_group_open())
		return tt_fail(
			TT_USAGE,
			"rank %d: %s: a reduction by a function of the user cannot be in a group; call it before tuttiGroupStart or after tuttiGroupEnd",
			c->rank, call);
	for (int p = 0; p < (counts ? c->nranks : 1); p++)
		if ((counts ? counts[p] : r->count) % op->width)
			return tt_fail(
				TT_ARG,
				"rank %d: %s: %zu elements are not a multiple of %zu, the width of the operator",
				c->rank, call, counts ? counts[p] : r->count, op->width);
	if (r->stream && (rc = tt_stream_check(r->stream)))
		return rc;
	rc = r->in ? tt_gpu_refuse(c, call, r->in) : 0;
	return !rc && r->out ? tt_gpu_refuse(c, call, r->out) : rc;
}

/* 0 | TT_ARG, TT_USAGE; counts: reduce-scatterv, whose buffers uneven.c has checked */
static int check_all(struct tt_request *r, const char *call, const struct tt_user_op *op,
		     const size_t *counts)
{
	int rc = tt_comm_enter(r->comm, call, TT_ONE_CALL);

	if (rc)
		return rc;
	if (!counts) {
		r->op = tuttiSum; /* all types have it: the rest of the arguments is checked */
		rc = tt_request_check(r, call);
	}
	if (!rc)
		rc = check(r, call, op, counts);
	return tt_comm_leave(r->comm, TT_ONE_CALL, rc);
}

/* 0 | TT_SYSTEM */
static int prepare(const struct tt_request *r, const struct tt_user_op *op, const size_t *given,
		   struct fold **ret_fold, size_t **ret_tables)
{
	int n = r->comm->nranks, rank = r->comm->rank;
	size_t size = tt_type_bytes(r->type);
	struct fold *f = calloc(1, sizeof(*f));
	size_t *tables = calloc(3 * (size_t)n, sizeof(*tables));
	bool scatters = r->collective == TT_REDUCE_SCATTER, here;

	if (f && tables) {
		*f = (struct fold){ .op = *op, .n = n };
		lay_out(r, f, given, tables, tables + n);
		f->whole = !scatters && r->count <= SMALL_BYTES / size / (size_t)n;
		here = r->collective == TT_ALLREDUCE || r->root == rank;
		f->count = f->whole ? (here ? r->count : 0) : tables[rank];
		f->part_bytes = f->count * size;
		f->result = scatters || (f->whole && here) ? r->out : NULL;
		f->parts = aligned_alloc(64, ((size_t)n * f->part_bytes + 64) & ~(size_t)63);
	}
	if (!f || !tables || !f->parts) {
		free(f);
		free(tables);
		return tt_fail(TT_SYSTEM, "rank %d: no memory to reduce %zu elements of %d ranks",
			       rank, r->count, n);
	}
	*ret_fold = f;
	*ret_tables = tables;
	return 0;
}

tuttiResult_t tt_user_reduction(struct tt_request *r, const char *call, const size_t *counts)
{
	const struct tt_user_op op = *tt_user_operator(r->comm, r->op);
	int rc = check_all(r, call, &op, counts), n = r->comm->nranks;
	tuttiResult_t result;
	struct fold *f = NULL;
	size_t *tables = NULL;

	if (!rc)
		rc = prepare(r, &op, counts, &f, &tables);
	if (rc)
		return tt_result(tt_group_fail(rc));
	result = (r->stream ? run_stream : run_now)(r, f, tables, tables + n, tables + 2 * n);
	free(tables);
	return result;
}

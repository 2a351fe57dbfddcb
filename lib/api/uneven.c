/*
 * uneven.c - collectives with a count per rank: tables of counts and displacements, zeros included
 *
 * Called by users. Each call is a group of calls of tutti.h, which work with streams, groups and CUDA
 * memory and detect mismatches. A message is sent for each ordered pair of ranks, also for a count of
 * 0, so both sides of a pair compare their counts. Reduce-scatterv is one reduce for each part that
 * is not empty, by the plans of any reduce.
 */
#include "api/api.h"

/* One side of a call: a buffer, and the parts of the ranks in it. */
struct parts {
	const char *name;
	const void *buffer;
	const size_t *counts, *displs; /* displs NULL: adjacent, in rank order */
	size_t size;                   /* bytes of an element */
};

/* The first element of part r */
static size_t start(const struct parts *p, int r)
{
	size_t at = 0;

	if (p->displs)
		return p->displs[r];
	for (int i = 0; i < r; i++)
		at += p->counts[i];
	return at;
}

static char *part(const struct parts *p, int r)
{
	return p->buffer ? (char *)(uintptr_t)p->buffer + start(p, r) * p->size : NULL;
}

/* Elements up to the end of the last part. false: more than memory can hold */
static bool extent(const struct parts *p, int n, size_t *ret_bytes)
{
	size_t end, next = 0, most = 0;

	for (int r = 0; r < n; r++) {
		if (__builtin_add_overflow(p->displs ? p->displs[r] : next, p->counts[r], &end))
			return false;
		next = end;
		if (p->counts[r] && end > most)
			most = end;
	}
	return !__builtin_mul_overflow(most, p->size, ret_bytes);
}

/* Checks a side that this rank must give. 0 | TT_ARG */
static int check_parts(tuttiComm_t c, const char *call, const struct parts *p, size_t *ret_bytes)
{
	if (!p->counts)
		return tt_fail(TT_ARG, "rank %d: %s: the counts of %s are NULL", c->rank, call,
			       p->name);
	if (!extent(p, c->nranks, ret_bytes))
		return tt_fail(TT_ARG, "rank %d: %s: the parts of %s are more than memory can hold",
			       c->rank, call, p->name);
	if (*ret_bytes && !p->buffer)
		return tt_fail(TT_ARG, "rank %d: %s: %s is NULL, with %zu bytes of parts", c->rank,
			       call, p->name, *ret_bytes);
	return 0;
}

/* root: checked if the call is rooted. 0 | TT_ARG, TT_USAGE */
static int begin(tuttiComm_t c, const char *call, tuttiDataType_t type, int root, bool rooted)
{
	int rc = tt_comm_check(c);

	if (rc)
		return rc;
	if ((unsigned)type >= tuttiNumTypes)
		return tt_fail(TT_ARG, "rank %d: %s: %d is not a datatype", c->rank, call,
			       (int)type);
	if (rooted && (root < 0 || root >= c->nranks))
		return tt_fail(TT_ARG, "rank %d: %s: root %d is not in 0..%d", c->rank, call, root,
			       c->nranks - 1);
	return 0;
}

/* Does one of the na parts of a overlap one of the nb parts of b, whose extents overlap? */
static bool overlap(const struct parts *a, int na, const struct parts *b, int nb)
{
	if (!a->displs && !b->displs)
		return true; /* the parts have no gaps */
	if (!b->displs)
		return overlap(b, nb, a, na);
	for (int i = 0; i < na; i++) {
		const char *p = part(a, i);

		for (int j = 0; j < nb; j++)
			if (a->counts[i] && b->counts[j] &&
			    !tt_apart(p, a->counts[i] * a->size, part(b, j),
				      b->counts[j] * b->size))
				return true;
	}
	return false;
}

/* Checks that no part of the send buffer overlaps one of the receive buffer. */
static int apart(tuttiComm_t c, const char *call, const struct parts *in, int nin,
		 const struct parts *out, int nout)
{
	size_t in_bytes = 0, out_bytes = 0;

	if (!extent(in, nin, &in_bytes) || !extent(out, nout, &out_bytes) || !in_bytes ||
	    !out_bytes || tt_apart(in->buffer, in_bytes, out->buffer, out_bytes) ||
	    !overlap(in, nin, out, nout))
		return 0;
	return tt_fail(
		TT_ARG,
		"rank %d: %s: sendbuff %p [%zu bytes] and recvbuff %p [%zu bytes] overlap; use separate buffers or the in-place form",
		c->rank, call, in->buffer, in_bytes, out->buffer, out_bytes);
}

static int same_count(tuttiComm_t c, const char *call, const char *name, size_t count,
		      const struct parts *p)
{
	if (count == p->counts[c->rank])
		return 0;
	return tt_fail(TT_ARG, "rank %d: %s: %s is %zu, but the table has %zu for this rank",
		       c->rank, call, name, count, p->counts[c->rank]);
}

static tuttiResult_t refuse(int rc)
{
	return tt_result(tt_group_fail(rc));
}

/* Ends the group of a call, whose result was rc so far. Returns the first error. */
static tuttiResult_t end(tuttiResult_t rc)
{
	tuttiResult_t of_group = tuttiGroupEnd();

	return rc ? rc : of_group;
}

TUTTI_API tuttiResult_t tuttiAlltoAllv(const void *sendbuff, const size_t *sendcounts,
				       const size_t *sdispls, void *recvbuff,
				       const size_t *recvcounts, const size_t *rdispls,
				       tuttiDataType_t datatype, tuttiComm_t comm,
				       tuttiStream_t stream)
{
	const size_t size = (unsigned)datatype < tuttiNumTypes ? tt_type_bytes(datatype) : 0;
	const struct parts in = { "sendbuff", sendbuff, sendcounts, sdispls, size },
			   out = { "recvbuff", recvbuff, recvcounts, rdispls, size };
	const char *call = "tuttiAlltoAllv";
	size_t in_bytes = 0, out_bytes = 0;
	tuttiResult_t result = tuttiSuccess;
	int rc = begin(comm, call, datatype, 0, false);

	if (!rc)
		rc = check_parts(comm, call, &in, &in_bytes);
	if (!rc)
		rc = check_parts(comm, call, &out, &out_bytes);
	if (!rc)
		rc = same_count(comm, call, "the part of sendbuff for this rank",
				sendcounts[comm->rank], &out);
	if (!rc)
		rc = apart(comm, call, &in, comm->nranks, &out, comm->nranks);
	if (rc)
		return refuse(rc);
	tuttiGroupStart();
	for (int i = 0; i < comm->nranks && !result; i++) {
		int to = (comm->rank + i) % comm->nranks,
		    from = (comm->rank + comm->nranks - i) % comm->nranks;

		result = tuttiSend(part(&in, to), sendcounts[to], datatype, to, comm, stream);
		if (!result)
			result = tuttiRecv(part(&out, from), recvcounts[from], datatype, from, comm,
					   stream);
	}
	return end(result);
}

TUTTI_API tuttiResult_t tuttiAllGatherv(const void *sendbuff, size_t sendcount, void *recvbuff,
					const size_t *recvcounts, const size_t *displs,
					tuttiDataType_t datatype, tuttiComm_t comm,
					tuttiStream_t stream)
{
	const size_t size = (unsigned)datatype < tuttiNumTypes ? tt_type_bytes(datatype) : 0;
	const struct parts in = { "sendbuff", sendbuff, &sendcount, NULL, size },
			   out = { "recvbuff", recvbuff, recvcounts, displs, size };
	const char *call = "tuttiAllGatherv", *mine;
	size_t out_bytes = 0;
	tuttiResult_t result = tuttiSuccess;
	int rc = begin(comm, call, datatype, 0, false);

	if (!rc)
		rc = check_parts(comm, call, &out, &out_bytes);
	if (!rc)
		rc = same_count(comm, call, "sendcount", sendcount, &out);
	if (!rc && sendcount && !sendbuff)
		rc = tt_fail(TT_ARG, "rank %d: %s: sendbuff is NULL, with %zu elements to send",
			     comm->rank, call, sendcount);
	mine = rc ? NULL : part(&out, comm->rank);
	if (!rc && sendbuff != mine)
		rc = apart(comm, call, &in, 1, &out, comm->nranks);
	if (rc)
		return refuse(rc);
	tuttiGroupStart();
	for (int i = sendbuff == mine; i < comm->nranks && !result; i++) {
		int to = (comm->rank + i) % comm->nranks,
		    from = (comm->rank + comm->nranks - i) % comm->nranks;

		result = tuttiSend(sendbuff, sendcount, datatype, to, comm, stream);
		if (!result)
			result = tuttiRecv(part(&out, from), recvcounts[from], datatype, from, comm,
					   stream);
	}
	return end(result);
}

/* Gatherv (toward root) and scatterv (from root): `one` is the buffer of this rank's part, `all` the
 * parts at root. */
static tuttiResult_t rooted(const char *call, void *one, size_t count, const struct parts *all,
			    bool toward, tuttiDataType_t datatype, int root, tuttiComm_t comm,
			    tuttiStream_t stream)
{
	const struct parts mine = { NULL, one, &count, NULL, all->size };
	size_t bytes = 0;
	tuttiResult_t result = tuttiSuccess;
	int rc = begin(comm, call, datatype, root, true);
	bool at_root = !rc && comm->rank == root, in_place = false;

	if (at_root && !(rc = check_parts(comm, call, all, &bytes)) &&
	    !(rc = same_count(comm, call, toward ? "sendcount" : "recvcount", count, all)))
		in_place = one == part(all, root);
	if (!rc && count && !one)
		rc = tt_fail(TT_ARG, "rank %d: %s: %s is NULL, with %zu elements", comm->rank, call,
			     toward ? "sendbuff" : "recvbuff", count);
	if (!rc && at_root && !in_place)
		rc = toward ? apart(comm, call, &mine, 1, all, comm->nranks)
			    : apart(comm, call, all, comm->nranks, &mine, 1);
	if (rc)
		return refuse(rc);
	tuttiGroupStart();
	if (!in_place)
		result = toward ? tuttiSend(one, count, datatype, root, comm, stream)
				: tuttiRecv(one, count, datatype, root, comm, stream);
	for (int i = in_place; at_root && i < comm->nranks && !result; i++) {
		int peer = (root + i) % comm->nranks;
		void *p = part(all, peer);

		result = toward ? tuttiRecv(p, all->counts[peer], datatype, peer, comm, stream)
				: tuttiSend(p, all->counts[peer], datatype, peer, comm, stream);
	}
	return end(result);
}

TUTTI_API tuttiResult_t tuttiGatherv(const void *sendbuff, size_t sendcount, void *recvbuff,
				     const size_t *recvcounts, const size_t *displs,
				     tuttiDataType_t datatype, int root, tuttiComm_t comm,
				     tuttiStream_t stream)
{
	const struct parts all = { "recvbuff", recvbuff, recvcounts, displs,
				   (unsigned)datatype < tuttiNumTypes ? tt_type_bytes(datatype)
								      : 0 };

	return rooted("tuttiGatherv", (void *)(uintptr_t)sendbuff, sendcount, &all, true, datatype,
		      root, comm, stream);
}

TUTTI_API tuttiResult_t tuttiScatterv(const void *sendbuff, const size_t *sendcounts,
				      const size_t *displs, void *recvbuff, size_t recvcount,
				      tuttiDataType_t datatype, int root, tuttiComm_t comm,
				      tuttiStream_t stream)
{
	const struct parts all = { "sendbuff", sendbuff, sendcounts, displs,
				   (unsigned)datatype < tuttiNumTypes ? tt_type_bytes(datatype)
								      : 0 };

	return rooted("tuttiScatterv", recvbuff, recvcount, &all, false, datatype, root, comm,
		      stream);
}

TUTTI_API tuttiResult_t tuttiReduceScatterv(const void *sendbuff, void *recvbuff,
					    const size_t *recvcounts, tuttiDataType_t datatype,
					    tuttiRedOp_t op, tuttiComm_t comm, tuttiStream_t stream)
{
	const size_t size = (unsigned)datatype < tuttiNumTypes ? tt_type_bytes(datatype) : 0;
	const struct parts in = { "sendbuff", sendbuff, recvcounts, NULL, size };
	const char *call = "tuttiReduceScatterv";
	size_t bytes = 0;
	tuttiResult_t result = tuttiSuccess;
	int rc = begin(comm, call, datatype, 0, false);

	if (!rc)
		rc = check_parts(comm, call, &in, &bytes);
	if (!rc && recvcounts[comm->rank] && !recvbuff)
		rc = tt_fail(TT_ARG, "rank %d: %s: recvbuff is NULL, with %zu elements to receive",
			     comm->rank, call, recvcounts[comm->rank]);
	if (!rc && recvbuff != part(&in, comm->rank))
		rc = apart(comm, call, &in, comm->nranks,
			   &(struct parts){ "recvbuff", recvbuff, &recvcounts[comm->rank], NULL,
					    size },
			   1);
	if (rc)
		return refuse(rc);
	if (tt_user_operator(comm, op))
		return tt_user_reduction(&(struct tt_request){ .collective = TT_REDUCE_SCATTER,
							       .in = sendbuff,
							       .out = recvbuff,
							       .type = datatype,
							       .op = op,
							       .root = -1,
							       .comm = comm,
							       .stream = stream },
					 call, recvcounts);
	tuttiGroupStart();
	for (int r = 0; r < comm->nranks && !result; r++)
		if (recvcounts[r] ||
		    (!bytes && !r)) /* also without bytes, one call, which checks the arguments */
			result = tuttiReduce(part(&in, r), r == comm->rank ? recvbuff : NULL,
					     recvcounts[r], datatype, op, r, comm, stream);
	return end(result);
}

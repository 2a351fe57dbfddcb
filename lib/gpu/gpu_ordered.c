/*
 * gpu_ordered.c - ranks that are processes: no kernel waits for another, streams do
 *
 * Called by gpu_call.c. Processes that share a GPU get it by turns of milliseconds; a kernel that spins
 * would burn its turn while the peer it waits for does not run. So a call is cut into chunks, and
 * for each
 *   1  a job copies this rank's bytes to its area, where peers read them, and tells them which call
 *      this is
 *   2  streams meet: write a word into each peer's desk, await one of each peer
 *   3  a job takes what this rank gets from the areas; a large allreduce sums one part first,
 *      meets, and collects the parts
 *   4  streams meet again, so that nobody overwrites what others still read
 */
#include "gpu/gpu_call.h"

#define ONE_STEP_BYTES (256u << 10)        /* up to which everybody sums everything */

struct ordered {
	const struct tt_gpu_call *call;
	tuttiComm_t comm;
	struct tt_gpu *d;
	tt_custream stream;
	struct tt_dev_job base;                /* the constant part */
	uint64_t bytes;                        /* of the call's count */
	uint64_t at, chunk;                    /* of each part: where, how much */
	uint64_t unit;                         /* allreduce in two steps: of a part of the chunk */
};

static void add(struct tt_dev_job *job, uint32_t from, uint64_t from_at, uint64_t to_at,
		uint64_t bytes)
{
	if (bytes)
		job->piece[job->npieces++] =
			(struct tt_dev_piece){ from, 1u << job->rank, from_at, to_at, bytes };
}

static int run(struct ordered *o, struct tt_dev_job *job)
{
	return tt_gpu_alone(o->call->request, job, o->stream);
}

/* All ranks' streams have come here. word: where in a desk the peers' words are */
static int meet(struct ordered *o, size_t word)
{
	return tt_gpu_meet_streams(o->comm, word, o->stream);
}

/* Has every rank's input a part for each rank? */
static bool has_parts(const struct tt_request *r)
{
	return r->collective == TT_REDUCE_SCATTER || r->collective == TT_ALLTOALL ||
	       r->collective == TT_SCATTER;
}

static int stage(struct ordered *o)
{
	const struct tt_request *r = o->call->request;
	struct tt_dev_job job = o->base;
	uint32_t me = job.rank;

	job.flags = (o->base.flags & TT_DEV_SCALES) | TT_DEV_POSTS | (o->at ? 0 : TT_DEV_BEGINS);
	job.out[me] = o->d->at[me] + TT_DEV_STAGED_AT;
	if (o->call->in_bytes)
		for (uint32_t q = 0; q < (has_parts(r) ? job.nranks : 1); q++)
			add(&job, 1u << me, q * o->bytes + o->at, q * o->chunk, o->chunk);
	return run(o, &job);
}

/* Everybody's staged bytes as inputs, this rank's buffer as output */
static struct tt_dev_job pulling(const struct ordered *o, uint64_t area_at)
{
	struct tt_dev_job job = o->base;

	job.flags = (o->base.flags & TT_DEV_DIVIDES) | TT_DEV_CHECKS;
	for (uint32_t p = 0; p < job.nranks; p++)
		job.in[p] = o->d->at[p] + area_at;
	return job;
}

static uint64_t part_bytes(const struct ordered *o, uint32_t p)
{
	uint64_t first = o->unit * p;

	return first >= o->chunk ? 0 : o->chunk - first < o->unit ? o->chunk - first : o->unit;
}

/* Sum this rank's part, meet, collect the others'. */
static int in_two_steps(struct ordered *o, uint32_t ends)
{
	struct tt_dev_job sum = pulling(o, TT_DEV_STAGED_AT),
			  collect = pulling(o, TT_DEV_RESULT_AT);
	uint32_t me = sum.rank;
	int rc;

	sum.out[me] = o->d->at[me] + TT_DEV_RESULT_AT;
	add(&sum, (1u << sum.nranks) - 1, o->unit * me, 0, part_bytes(o, me));
	rc = run(o, &sum);
	if (!rc)
		rc = meet(o, offsetof(struct tt_dev_signals, between));
	for (uint32_t p = 0; p < collect.nranks; p++)
		add(&collect, 1u << p, 0, o->at + o->unit * p, part_bytes(o, p));
	collect.flags = ends;
	return rc ? rc : run(o, &collect);
}

static int pull(struct ordered *o, uint32_t ends)
{
	const struct tt_request *r = o->call->request;
	struct tt_dev_job job = pulling(o, TT_DEV_STAGED_AT);
	uint32_t all = (1u << job.nranks) - 1;

	job.flags |= ends;
	if (r->collective == TT_ALLREDUCE ||
	    (r->collective == TT_REDUCE && r->root == o->comm->rank))
		add(&job, all, 0, o->at, o->chunk);
	else if (r->collective == TT_REDUCE_SCATTER)
		add(&job, all, o->chunk * job.rank, o->at, o->chunk);
	else if (r->collective == TT_BROADCAST)
		add(&job, 1u << r->root, 0, o->at, o->chunk);
	else if (r->collective == TT_SCATTER)
		add(&job, 1u << r->root, o->chunk * job.rank, o->at, o->chunk);
	else if (r->collective == TT_ALLGATHER || r->collective == TT_ALLTOALL ||
		 (r->collective == TT_GATHER && r->root == o->comm->rank))
		for (uint32_t p = 0; p < job.nranks; p++)
			add(&job, 1u << p, r->collective == TT_ALLTOALL ? o->chunk * job.rank : 0,
			    p * o->bytes + o->at, o->chunk);
	return run(o, &job);
}

static int do_chunk(struct ordered *o)
{
	const struct tt_request *r = o->call->request;
	uint32_t ends = o->at + o->chunk == o->bytes ? TT_DEV_ENDS : 0;
	bool two =
		r->collective == TT_ALLREDUCE && o->comm->nranks > 2 && o->chunk > ONE_STEP_BYTES;
	int rc = stage(o);

	o->unit = (o->chunk / (uint64_t)o->comm->nranks + 127) / 64 * 64;
	if (!rc)
		rc = meet(o, offsetof(struct tt_dev_signals, arrived));
	if (!rc)
		rc = two ? in_two_steps(o, ends) : pull(o, ends);
	return rc ? rc : meet(o, offsetof(struct tt_dev_signals, left));
}

int tt_gpu_ordered(const struct tt_gpu_call *call, const struct tt_dev_job *job, tt_custream stream)
{
	const struct tt_request *r = call->request;
	struct ordered o = { .call = call, .comm = r->comm, .d = r->comm->gpu, .stream = stream,
			     .base = *job, .bytes = r->count * tt_type_bytes(r->type) };
	uint64_t most =
		TT_DEV_STAGED_BYTES / (has_parts(r) ? (uint64_t)r->comm->nranks : 1) / 64 * 64;
	int rc = 0;

	for (o.at = 0; !rc && o.at < o.bytes; o.at += o.chunk) {
		o.chunk = o.bytes - o.at < most ? o.bytes - o.at : most;
		rc = do_chunk(&o);
	}
	return rc;
}

/*
 * gpu_ordered.c - ranks that are processes and share a GPU: streams wait for each other, kernels do not
 *
 * Called by gpu_call.c. Processes share a GPU in time slices of milliseconds; a kernel that spins
 * would burn its slice while the awaited peer does not run. So a call is cut into chunks, and for
 * each chunk
 *   1  a job copies this rank's input to its IPC buffer, where peers read, and posts the signature
 *      of the call to the peers
 *   2  stream barrier: the job sets a word of each peer, the stream waits for a word of each
 *   3  a job reads this rank's share from the IPC buffers into its output; a large allreduce
 *      instead sums one part, passes a stream barrier and gathers the parts
 *   4  stream barrier, so that no rank overwrites bytes that others still read
 */
#include "gpu/gpu_call.h"

#define ONE_STEP_BYTES (256u << 10) /* up to this size each rank sums all of the chunk */

struct ordered {
	const struct tt_gpu_call *call;
	tuttiComm_t comm;
	struct tt_gpu *d;
	tt_custream stream;
	struct tt_dev_job base; /* fields that are equal for all chunks */
	uint64_t bytes;         /* bytes of the call's count */
	uint64_t at, chunk;     /* offset and bytes of the chunk in each part */
	uint64_t unit;          /* bytes of a rank's part of the chunk, in two steps */
};

static void add(struct tt_dev_job *job, uint32_t from, uint64_t from_at, uint64_t to_at,
		uint64_t bytes)
{
	if (bytes)
		job->piece[job->npieces++] = (struct tt_dev_piece){ from, 1u << job->rank, from_at,
								    to_at, bytes };
}

static int run(struct ordered *o, struct tt_dev_job *job)
{
	return tt_gpu_launch_alone(o->call->request, job, o->stream);
}

/* Runs a job, then a barrier. word: TT_DEV_ARRIVED, BETWEEN or FINISHED */
static int run_and_meet(struct ordered *o, struct tt_dev_job *job, uint32_t word)
{
	int rc;

	tt_gpu_signal(job, word);
	rc = run(o, job);
	return rc ? rc : tt_gpu_await_signals(o->comm, word, o->stream);
}

static int post_input(struct ordered *o)
{
	const struct tt_request *r = o->call->request;
	struct tt_dev_job job = o->base;
	uint32_t me = job.rank;

	job.flags = (o->base.flags & TT_DEV_SCALES) | TT_DEV_POSTS | (o->at ? 0 : TT_DEV_BEGINS);
	job.out[me] = o->d->map[me].at + TT_DEV_STAGED_AT;
	if (o->call->in_bytes)
		for (uint32_t q = 0; q < (tt_gpu_has_parts(r) ? job.nranks : 1); q++)
			add(&job, 1u << me, q * o->bytes + o->at, q * o->chunk, o->chunk);
	return run_and_meet(o, &job, TT_DEV_ARRIVED);
}

/* A job with the IPC buffers of all ranks as inputs and this rank's output buffer as output */
static struct tt_dev_job pulling(const struct ordered *o, uint64_t buffer_at)
{
	struct tt_dev_job job = o->base;

	job.flags = (o->base.flags & TT_DEV_DIVIDES) | TT_DEV_CHECKS;
	for (uint32_t p = 0; p < job.nranks; p++)
		job.in[p] = o->d->map[p].at + buffer_at;
	return job;
}

static uint64_t part_bytes(const struct ordered *o, uint32_t p)
{
	uint64_t first = o->unit * p;

	return first >= o->chunk ? 0 : o->chunk - first < o->unit ? o->chunk - first : o->unit;
}

/* Reduce-scatter and allgather: sums this rank's part, passes a barrier, gathers the others'
 * parts. */
static int in_two_steps(struct ordered *o, uint32_t ends)
{
	struct tt_dev_job sum = pulling(o, TT_DEV_STAGED_AT),
			  collect = pulling(o, TT_DEV_RESULT_AT);
	uint32_t me = sum.rank;
	int rc;

	sum.out[me] = o->d->map[me].at + TT_DEV_RESULT_AT;
	add(&sum, (1u << sum.nranks) - 1, o->unit * me, 0, part_bytes(o, me));
	rc = run_and_meet(o, &sum, TT_DEV_BETWEEN);
	for (uint32_t p = 0; p < collect.nranks; p++)
		add(&collect, 1u << p, 0, o->at + o->unit * p, part_bytes(o, p));
	collect.flags = ends;
	return rc ? rc : run_and_meet(o, &collect, TT_DEV_FINISHED);
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
	return run_and_meet(o, &job, TT_DEV_FINISHED);
}

static int do_chunk(struct ordered *o)
{
	const struct tt_request *r = o->call->request;
	uint32_t ends = o->at + o->chunk == o->bytes ? TT_DEV_ENDS : 0;
	bool two = r->collective == TT_ALLREDUCE && o->comm->nranks > 2 &&
		   o->chunk > ONE_STEP_BYTES;
	int rc = post_input(o);

	o->unit = (o->chunk / (uint64_t)o->comm->nranks + 127) / 64 * 64;
	return rc ? rc : two ? in_two_steps(o, ends) : pull(o, ends);
}

int tt_gpu_run_ordered(const struct tt_gpu_call *call, const struct tt_dev_job *job,
		       tt_custream stream)
{
	const struct tt_request *r = call->request;
	struct ordered o = { .call = call,
			     .comm = r->comm,
			     .d = r->comm->gpu,
			     .stream = stream,
			     .base = *job,
			     .bytes = r->count * tt_type_bytes(r->type) };
	uint64_t most = TT_DEV_STAGED_BYTES /
			(tt_gpu_has_parts(r) ? (uint64_t)r->comm->nranks : 1) / 64 * 64;
	int rc = 0;

	for (o.at = 0; !rc && o.at < o.bytes; o.at += o.chunk) {
		o.chunk = o.bytes - o.at < most ? o.bytes - o.at : most;
		rc = do_chunk(&o);
	}
	return rc;
}

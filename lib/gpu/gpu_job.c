/*
 * gpu_job.c - translate a call on device memory into the job of a kernel that synchronizes with its
 * peers
 *
 * Called by gpu_call.c. In a reduction a rank combines its part of all inputs into all outputs, so
 * every byte is read once and written once by some rank. In a call that only copies, a rank either
 * writes its own bytes to their receivers or reads the bytes that it receives.
 */
#include <string.h>

#include "gpu/gpu_call.h"

#define PER_THREAD 64 /* least bytes for each thread of a kernel */
/* Least bytes of a call in two steps: these save bytes on the links, but wait for the peers once
 * more, a time in which a link carries this much. */
#define TWO_STEPS_BYTES (1u << 20)
#define FIFO_BLOCK_BYTES 8192 /* least bytes that a block sends */

static uint64_t bits_of(double x)
{
	uint64_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

/* The factors of an average or a pre-multiplied sum, in the form that kernels take. */
static void adjust(const struct tt_request *r, struct tt_dev_job *job)
{
	bool integer = tt_type_is_integer(r->type);
	double times, over;

	if (r->scaled) {
		job->flags |= TT_DEV_SCALES;
		job->scale = integer ? r->scalar : bits_of(tt_element_get(&r->scalar, 0, r->type));
	}
	if (r->op != tuttiAvg)
		return;
	tt_average_factors((uint32_t)r->comm->nranks, r->type, &times, &over);
	if (tt_average_scales(r->type)) {
		job->flags |= TT_DEV_SCALES;
		job->scale = bits_of(times);
	}
	if (over != 1 || !tt_average_scales(r->type)) {
		job->flags |= TT_DEV_DIVIDES;
		job->divisor = integer ? (uint64_t)over : bits_of(over);
	}
}

void tt_gpu_job(const struct tt_gpu_call *call, uint8_t algorithm, struct tt_dev_job *job)
{
	const struct tt_request *r = call->request;
	tuttiComm_t c = r->comm;
	struct tt_gpu *d = c->gpu;
	struct tt_call signature = { .collective = (uint8_t)r->collective,
				     .type = (uint8_t)r->type,
				     .op = r->scaled ? tuttiNumOps : (uint8_t)r->op,
				     .algorithm = algorithm,
				     .root = r->root,
				     .count = r->count };

	memset(job, 0, sizeof(*job));
	for (int p = 0; p < c->nranks; p++) {
		job->signals[p] = d->map[p].at;
		job->host_words[p] = d->map[p].words_at;
	}
	job->report = d->ipc->words_at;
	job->limit_ns = c->settings.timeout_ms * 1000000ull;
	job->rank = (uint32_t)c->rank;
	job->nranks = (uint32_t)c->nranks;
	job->op = r->op == tuttiAvg ? tuttiSum : r->op;
	memcpy(job->call, &signature, sizeof(signature));
	job->in[c->rank] = (uintptr_t)r->in;
	job->out[c->rank] = (uintptr_t)r->out;
	if (r->collective == TT_ALLREDUCE || r->collective == TT_REDUCE ||
	    r->collective == TT_REDUCE_SCATTER)
		adjust(r, job);
}

/* Bytes that a rank would copy onto themselves stay untouched: peers may be reading them, and
 * writing even equal bytes meanwhile is a data race. */
static void add(struct tt_dev_job *job, uint32_t from, uint32_t to, uint64_t from_at,
		uint64_t to_at, uint64_t bytes)
{
	uint32_t me = 1u << job->rank;

	if (from == me && !(job->flags & (TT_DEV_SCALES | TT_DEV_DIVIDES)) &&
	    job->in[job->rank] + from_at == job->out[job->rank] + to_at)
		to &= ~me;
	if (bytes && to)
		job->piece[job->npieces++] = (struct tt_dev_piece){ from, to, from_at, to_at,
								    bytes };
}

/* This rank's part of bytes, in whole cache lines */
static void add_part(struct tt_dev_job *job, uint32_t to, uint64_t bytes)
{
	uint64_t part = (bytes / job->nranks + 127) / 64 * 64, first = part * job->rank;

	if (first < bytes)
		add(job, (1u << job->nranks) - 1, to, first, first,
		    bytes - first < part ? bytes - first : part);
}

/* Returns the bytes that a rank reads, which determine the number of blocks: equal on all ranks. */
static uint64_t add_pieces(const struct tt_request *r, uint64_t bytes, struct tt_dev_job *job)
{
	uint32_t all = (1u << job->nranks) - 1, me = 1u << job->rank,
		 root = r->root >= 0 ? 1u << r->root : 0;

	switch (r->collective) {
	case TT_ALLREDUCE:
		add_part(job, all, bytes);
		return bytes;
	case TT_REDUCE:
		add_part(job, root, bytes);
		return bytes;
	case TT_REDUCE_SCATTER:
		add(job, all, me, bytes * job->rank, 0, bytes);
		return bytes * job->nranks;
	case TT_ALLGATHER:
		add(job, me, all, 0, bytes * job->rank, bytes);
		return bytes;
	case TT_BROADCAST:
		add(job, root, me, 0, 0, bytes);
		return bytes;
	case TT_GATHER:
		add(job, me, root, 0, bytes * job->rank, bytes);
		return bytes;
	case TT_SCATTER:
		add(job, root, me, bytes * job->rank, 0, bytes);
		return bytes;
	default: /* alltoall */
		for (uint32_t p = 0; p < job->nranks; p++)
			add(job, 1u << p, me, bytes * job->rank, bytes * p, bytes);
		return bytes * job->nranks;
	}
}

static uint64_t ll_blocks(uint64_t bytes)
{
	return (bytes + TT_LL_SLICE - 1) / TT_LL_SLICE;
}

bool tt_gpu_has_parts(const struct tt_request *r)
{
	return r->collective == TT_REDUCE_SCATTER || r->collective == TT_ALLTOALL ||
	       r->collective == TT_SCATTER;
}

bool tt_gpu_job_is_small(const struct tt_gpu_call *call, const struct tt_dev_job *job)
{
	const struct tt_request *r = call->request;
	uint64_t bytes = r->count * tt_type_bytes(r->type);

	return r->collective == TT_ALLREDUCE && job->nranks > 1 && bytes <= TT_LL_BYTES &&
	       ll_blocks(bytes) <= r->comm->gpu->blocks && !(job->flags & TT_DEV_SCALES);
}

/* In one step a rank sends its input to all, or receives all inputs. In two it sends and receives two parts
 * of all. In an allreduce two ranks send the same bytes in both, but in two steps a slot holds a chunk of twice
 * the size, so a call has half of the rounds. */
static bool in_two_steps(enum tt_collective collective, uint64_t bytes, uint64_t n)
{
	uint64_t less = bytes * (n - 1) * (n - 2) / n;

	if (n == 2 && collective == TT_ALLREDUCE)
		less = bytes / 2;
	return (collective == TT_ALLREDUCE || collective == TT_REDUCE ||
		collective == TT_BROADCAST) &&
	       less > TWO_STEPS_BYTES;
}

uint32_t tt_gpu_fifo_shape(enum tt_collective collective, uint64_t bytes, uint32_t nranks,
			   uint32_t limit, struct tt_dev_fifo *f)
{
	bool two = in_two_steps(collective, bytes, nranks);
	uint64_t unit = two ? nranks * 128 : 128, sent = two ? bytes : bytes * nranks,
		 most = TT_FIFO_SLOT_BYTES / nranks / 128 * 128 * (two ? nranks : 1), blocks;

	blocks = sent / FIFO_BLOCK_BYTES + 1;
	blocks = blocks < limit ? blocks : limit;
	f->bytes = bytes;
	f->steps = two ? 2 : 1;
	f->chunk = (bytes / blocks + unit) / unit * unit;
	f->chunk = f->chunk < most ? f->chunk : most;
	f->unit = f->chunk / nranks;
	return (uint32_t)blocks;
}

/* The sender, the receivers and the bytes of each message. A rank whose output is its input already
 * has its own part. */
static void describe_fifo(const struct tt_gpu_call *call, const struct tt_dev_job *job,
			  struct tt_dev_fifo *f)
{
	const struct tt_request *r = call->request;
	uint32_t all = (1u << job->nranks) - 1, me = 1u << job->rank,
		 root = r->root >= 0 ? 1u << r->root : 0;
	bool from_root = r->collective == TT_BROADCAST || r->collective == TT_SCATTER,
	     to_root = r->collective == TT_REDUCE || r->collective == TT_GATHER,
	     copies = r->collective == TT_ALLGATHER || r->collective == TT_ALLTOALL ||
		      r->collective == TT_GATHER,
	     has_it = (r->collective == TT_BROADCAST && call->in_bytes && r->in == r->out) ||
		      (copies && r->collective != TT_ALLTOALL &&
		       job->in[job->rank] == job->out[job->rank] + job->rank * f->bytes);
	uint32_t takers = to_root ? root : all;

	f->parts = tt_gpu_has_parts(r);
	f->gathers = copies;
	f->receivers = !call->in_bytes ? 0 : f->steps == 2 ? all : takers;
	f->combines = copies || (f->steps == 1 && !(takers & me)) ? 0 : from_root ? root : all;
	f->results = f->steps == 2 ? takers : 0;
	f->collects = (copies || f->steps == 2) && takers & me ? all : 0;
	if (has_it && f->steps == 1) {
		f->receivers &= ~me;
		f->combines = 0;
		f->collects &= ~me;
	} else if (has_it) {
		f->collects = 0;
	}
}

/* Returns the number of blocks. */
static uint32_t by_fifo(const struct tt_gpu_call *call, struct tt_dev_job *job)
{
	const struct tt_request *r = call->request;
	uint32_t blocks = tt_gpu_fifo_shape(r->collective, r->count * tt_type_bytes(r->type),
					    job->nranks, r->comm->gpu->blocks, &job->fifo);

	job->way = TT_DEV_FIFO;
	describe_fifo(call, job, &job->fifo);
	return blocks;
}

uint32_t tt_gpu_job_barrier(const struct tt_gpu_call *call, struct tt_dev_job *job)
{
	const struct tt_request *r = call->request;
	uint64_t bytes = r->count * tt_type_bytes(r->type), read, blocks = ll_blocks(bytes);
	uint32_t limit = r->comm->gpu->blocks;

	job->flags |= TT_DEV_BEGINS | TT_DEV_ENDS;
	if (tt_gpu_job_is_small(call, job)) {
		job->way = TT_DEV_LL;
		job->npieces = 1;
		job->piece[0].bytes = bytes;
		return (uint32_t)blocks;
	}
	if (!r->comm->gpu->kernel_barrier)
		return by_fifo(call, job);
	job->way = TT_DEV_BARRIER;
	read = add_pieces(r, bytes, job);
	blocks = read / ((uint64_t)TT_BARRIER_THREADS * PER_THREAD) + 1;
	return blocks < limit ? (uint32_t)blocks : limit;
}

/* Calls that only copy keep all bits, so the kernel of bytes runs them. */
tt_cufn tt_gpu_kernel(const struct tt_gpu *d, const struct tt_request *r,
		      const struct tt_dev_job *job)
{
	uint32_t from = job->way == TT_DEV_FIFO ? job->fifo.combines
			: job->npieces          ? job->piece[0].from
						: 0;
	bool sum = job->way == TT_DEV_LL || (from & (from - 1)) ||
		   job->flags & (TT_DEV_SCALES | TT_DEV_DIVIDES);

	return d->k->fn[sum ? r->type : tuttiUint8];
}

/*
 * gpu_plan.c - any plan on device memory: steps are kernels of one stream, between which it waits for words
 * that stand for messages
 *
 * Called by gpu_call.c where the user named an algorithm with another order of operations than the
 * kernels have. gpu_program.c has put the steps in order. Blocks are cut as on the host and every
 * step computes the host's expression, so the bits are those of the same plan on the host. For each
 * tile the IPC buffer of a rank holds, in slots of one tile's bytes: the messages that the rank
 * sends, a slot each; the plan's scratch; the output of a rank that returns none; inputs that are
 * scaled first. A tile runs in three phases:
 *   1  a job posts the signature of the call to the peers; stream barrier; a job scales inputs
 *   2  the steps: wait for and clear the words of the received messages, run the kernel, which
 *      sets the word of the message that it sends
 *   3  stream barrier, so that no rank overwrites bytes that others still read
 * Ranks may be threads or processes and may share a GPU: gpu_streams.c has the waits.
 */
#include <stdlib.h>

#include "gpu/gpu_call.h"

#define POOL_BYTES (TT_DEV_STAGED_BYTES + TT_DEV_RESULT_BYTES)

struct plan_walk {
	const struct tt_gpu_program *program;
	const struct tt_plan *plan;
	const struct tt_request *request;
	struct tt_gpu *d;
	tt_custream stream;
	struct tt_dev_job base; /* the result of tt_gpu_job */
	struct tt_binding b;
	uint32_t tile;
	bool own_out, own_in; /* out, in lie in the IPC buffer */
};

/* Kernels sum in the order of one-shot and two-shot already, so these need no plan. */
bool tt_gpu_plan_takes(const struct tt_request *r)
{
	const char *name = r->comm->settings.algo;
	const struct tt_algorithm *a = tt_plan_is_auto(name, r->collective)
					       ? NULL
					       : tt_algorithm_look(r->collective, name);

	return a && (r->collective != TT_ALLREDUCE ||
		     (strcmp(a->name, "one-shot") && strcmp(a->name, "two-shot")));
}

void tt_gpu_programs_free(struct tt_gpu *d)
{
	for (struct tt_gpu_program *p; (p = d->programs);) {
		d->programs = p->next;
		free(p);
	}
}

int tt_gpu_plan_program(const struct tt_request *r, const struct tt_gpu_program **ret_program)
{
	struct tt_gpu *d = r->comm->gpu;
	struct tt_gpu_program *p;
	struct tt_plan_row *row;
	int rc = tt_plan_cache_find(r, true, &row);

	if (rc)
		return rc;
	*ret_program = row->program;
	if (row->program)
		return 0;
	for (p = d->programs; p && p->cached != row->cached; p = p->next)
		;
	if (!p) {
		rc = tt_gpu_program_make(row->cached, &r->comm->hosts.topology, &p);
		if (rc)
			return rc;
		p->next = d->programs;
		d->programs = p;
	}
	*ret_program = row->program = p;
	return 0;
}

/* ---- addresses ------------------------------------------------------------------------------- */

static tt_cuptr slot(const struct plan_walk *w, int rank, uint32_t number)
{
	return w->d->map[rank].at + TT_DEV_STAGED_AT + number * w->b.tile_bytes;
}

/* Address of the tile of block `index` in one of this rank's buffers */
static tt_cuptr local(const struct plan_walk *w, enum tt_buf buf, uint32_t index)
{
	uint32_t scratch = w->program->sent,
		 out = scratch + w->plan->scratch_blocks - w->plan->scratch_first,
		 in = out + (w->own_out ? w->plan->out_blocks : 0);
	int me = w->request->comm->rank;

	if (buf == TT_SCRATCH)
		return slot(w, me, scratch + index - w->plan->scratch_first);
	if (buf == TT_OUT && w->own_out)
		return slot(w, me, out + index);
	if (buf == TT_IN && w->own_in)
		return slot(w, me, in + index);
	return (uintptr_t)(buf == TT_IN ? w->request->in : w->request->out) + index * w->b.unit +
	       w->tile * w->b.tile_bytes;
}

/* Address of block k of an operand. A message lies in its sender's IPC buffer. */
static tt_cuptr address(const struct plan_walk *w, const struct tt_gpu_operand *o, uint32_t k,
			bool sent)
{
	tt_ref ref = o->ref;

	if (tt_ref_buf(ref) == TT_WIRE)
		return slot(w, sent ? w->request->comm->rank : (int)tt_ref_index(ref), o->slot + k);
	return local(w, tt_ref_buf(ref), tt_ref_index(ref) + k);
}

/* Bytes of n blocks from block `first` on, in this tile */
static uint64_t length(const struct plan_walk *w, uint32_t first, uint32_t n)
{
	return tt_binding_length(&w->b, w->plan->rule, w->plan->nblocks, first, n, w->tile);
}

/* The number of blocks that one kernel can take: where a tile is the whole block, blocks are
 * adjacent. */
static uint32_t at_once(const struct plan_walk *w, uint32_t nblocks)
{
	return w->b.ntiles == 1 ? nblocks : 1;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Waits for the messages among the sources. */
static int await_messages(struct plan_walk *w, const struct tt_gpu_act *a)
{
	struct tt_dev_awaited words[TT_MAX_SOURCES];
	uint32_t n = 0;

	for (int i = 0; i < a->nsrc; i++)
		if (tt_ref_buf(a->src[i].ref) == TT_WIRE)
			words[n++] = (struct tt_dev_awaited){ TT_DEV_MESSAGE + a->src[i].word,
							      tt_ref_index(a->src[i].ref) };
	return tt_gpu_await(w->d, words, n, w->stream);
}

/* A job on operands instead of ranks: input i is source i; outputs 0 and 1 are dst and `to` */
static struct tt_dev_job job_of(const struct plan_walk *w)
{
	struct tt_dev_job job = w->base;

	job.nranks = TT_DEV_RANKS;
	job.flags = 0;
	return job;
}

/* signals: these are the last blocks of a message that is sent */
static int run_blocks(struct plan_walk *w, const struct tt_gpu_act *a, uint32_t k, uint64_t bytes,
		      bool signals)
{
	struct tt_dev_job job = job_of(w);
	struct tt_dev_piece *piece = &job.piece[0];

	*piece = (struct tt_dev_piece){ .from = (1u << a->nsrc) - 1, .bytes = bytes };
	for (int i = 0; i < a->nsrc; i++)
		job.in[i] = address(w, &a->src[i], k, false);
	if (tt_ref_buf(a->dst) != TT_NONE) {
		job.out[0] = local(w, tt_ref_buf(a->dst), tt_ref_index(a->dst) + k);
		piece->to |= a->combines || job.out[0] != job.in[0] ? 1 : 0;
	}
	if (tt_ref_buf(a->to.ref) == TT_WIRE) {
		job.out[1] = address(w, &a->to, k, true);
		piece->to |= 2;
	}
	job.npieces = piece->to != 0;
	if (signals) {
		job.signal_to = 1u << tt_ref_index(a->to.ref);
		job.signal_word = TT_DEV_MESSAGE + a->to.word;
	}
	return job.npieces ? tt_gpu_launch_alone(w->request, &job, w->stream) : 0;
}

static int run_act(struct plan_walk *w, const struct tt_gpu_act *a)
{
	uint32_t first = tt_ref_index(a->of), step = at_once(w, a->nblocks);
	uint32_t last = a->nblocks; /* of the blocks that have bytes */
	uint64_t bytes;
	int rc;

	for (uint32_t k = 0; k < a->nblocks; k += step)
		last = length(w, first + k, step) ? k : last;
	if (last == a->nblocks)
		/* an empty message does not exist on the other side either */
		return 0;
	rc = await_messages(w, a);
	for (uint32_t k = 0; k < a->nblocks && !rc; k += step)
		if ((bytes = length(w, first + k, step)))
			rc = run_blocks(w, a, k, bytes,
					k == last && tt_ref_buf(a->to.ref) == TT_WIRE);
	return rc;
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Multiplies the inputs by the scalar into the slots that the steps read. */
static int scale(struct plan_walk *w)
{
	uint32_t step = at_once(w, w->plan->in_blocks);
	uint64_t bytes;
	int rc = 0;

	for (uint32_t k = 0; k < w->plan->in_blocks && !rc; k += step) {
		struct tt_dev_job job = job_of(w);

		if (!(bytes = length(w, k, step)))
			continue;
		job.flags = TT_DEV_SCALES;
		job.in[0] = (uintptr_t)w->request->in + k * w->b.unit + w->tile * w->b.tile_bytes;
		job.out[0] = local(w, TT_IN, k);
		job.piece[0] = (struct tt_dev_piece){ .from = 1, .to = 1, .bytes = bytes };
		job.npieces = 1;
		rc = tt_gpu_launch_alone(w->request, &job, w->stream);
	}
	return rc;
}

/* A job that moves no bytes: posts or checks the signature, counts begun and ended calls, signals */
static int mark(struct plan_walk *w, uint32_t flags)
{
	struct tt_dev_job job = w->base;

	job.flags = flags;
	return tt_gpu_launch_alone(w->request, &job, w->stream);
}

/* The same, then a barrier. word: TT_DEV_ARRIVED or FINISHED */
static int mark_and_meet(struct plan_walk *w, uint32_t flags, uint32_t word)
{
	struct tt_dev_job job = w->base;
	int rc;

	job.flags = flags;
	tt_gpu_signal(&job, word);
	rc = tt_gpu_launch_alone(w->request, &job, w->stream);
	return rc ? rc : tt_gpu_await_signals(w->request->comm, word, w->stream);
}

/* Divides an average after the last tile. */
static int divide(struct plan_walk *w)
{
	const struct tt_request *r = w->request;
	struct tt_dev_job job = job_of(w);

	if (!(w->base.flags & TT_DEV_DIVIDES) || w->own_out)
		return 0;
	job.flags = TT_DEV_DIVIDES;
	job.in[0] = job.out[0] = (uintptr_t)r->out;
	job.piece[0] = (struct tt_dev_piece){ .from = 1,
					      .to = 1,
					      .bytes = r->count * tt_type_bytes(r->type) };
	job.npieces = 1;
	return tt_gpu_launch_alone(r, &job, w->stream);
}

static int run_tile(struct plan_walk *w)
{
	uint32_t begins = w->tile ? 0 : TT_DEV_POSTS | TT_DEV_BEGINS;
	bool last = w->tile + 1 == w->b.ntiles;
	int rc = mark_and_meet(w, begins, TT_DEV_ARRIVED);

	/* only now: peers in an earlier call by FIFO may have read this rank's IPC buffer until here */
	if (!rc && w->own_in)
		rc = scale(w);
	if (!rc && !w->tile)
		rc = mark(w, TT_DEV_CHECKS);
	for (uint32_t i = 0; i < w->program->nacts && !rc; i++)
		rc = run_act(w, &w->program->acts[i]);
	if (!rc && last)
		rc = divide(w);
	return rc ? rc : mark_and_meet(w, last ? TT_DEV_ENDS : 0, TT_DEV_FINISHED);
}

/* Slots of the rank that needs most: equal on all ranks, so all ranks cut equal tiles. */
static uint32_t slots(const struct plan_walk *w)
{
	bool out = w->request->collective == TT_REDUCE;

	return w->program->slots + (out ? w->plan->out_blocks : 0) +
	       (w->own_in ? w->plan->in_blocks : 0);
}

int tt_gpu_run_plan(const struct tt_gpu_call *call, const struct tt_gpu_program *program,
		    const struct tt_dev_job *job, tt_custream stream)
{
	const struct tt_request *r = call->request;
	const struct tt_connectivity paths = { .nranks = r->comm->nranks };
	struct plan_walk w = { .program = program,
			       .plan = program->cached->plan,
			       .request = r,
			       .d = r->comm->gpu,
			       .stream = stream,
			       .base = *job };
	uint64_t bytes = r->count * tt_type_bytes(r->type), limit;
	int rc = 0;

	w.own_in = job->flags & TT_DEV_SCALES;
	w.own_out = r->collective == TT_REDUCE && r->root != r->comm->rank;
	limit = slots(&w) ? POOL_BYTES / slots(&w) / 128 * 128 : POOL_BYTES;
	tt_plan_bind(w.plan, &paths, limit, bytes, &w.b);
	for (; w.tile < w.b.ntiles && bytes && !rc; w.tile++)
		rc = run_tile(&w);
	return rc;
}

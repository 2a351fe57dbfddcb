/*
 * gpu_pipeline.c - pipelined staging: device buffers are copied to and from the staging buffer
 * while the staged call runs
 *
 * gpu_staging.c puts all copies of a call on the user's stream when the call is made. Behind each group
 * of input copies the stream writes the number of groups to a pinned word, and before each group of
 * output copies it waits for one. Run (tt_pipeline_ops) only reads and writes these words: a cursor
 * starts a tile once its bytes are in place, and the outputs of a group are copied back once all
 * cursors have finished its tiles. So the network carries one tile while the next is copied.
 *
 * No thread but the caller's may need the driver while a call runs: a copy between device and pageable
 * memory waits for its stream with the context locked, so that every call to the driver by another
 * thread waits for the staged call. Nor may another stream be needed, since streams share connections
 * to the device, in which a waiting stream holds up others, whatever their priorities are.
 */
#include <time.h>

#include "gpu/gpu_call.h"
#include "run/way.h"

#define GROUP_BYTES (512u << 10) /* least bytes of a group: starting a copy is costly */
#define MAX_GROUPS 32            /* most groups of a buffer */
/* most copies of inputs, and most of outputs, of a batch (one each where the batch has more calls):
 * a waiting stream has room for a limited number, after which the driver blocks the thread (about
 * 1024 are reported; not measured) */
#define MAX_OPERATIONS 256
#define STEP_UNIT 4096
#define FAILURE_POLLS 256 /* polls for a missing tile before the device is asked for a failure */

static struct tt_pipeline *pipeline_of(const struct tt_op *op)
{
	return (struct tt_pipeline *)op->staging;
}

static size_t round_up(size_t bytes, size_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

/* ---- the copies ------------------------------------------------------------------------------ */

/* Parts are the blocks of most plans, whose tiles move side by side. The plan is chosen later; if its
 * blocks are others, tiles only start later. */
void tt_pipeline_cut(struct tt_pipeline *g, const struct tt_request *r, size_t calls)
{
	size_t bytes = g->in_bytes > g->out_bytes ? g->in_bytes : g->out_bytes, parts, most,
	       n = (size_t)r->comm->nranks;
	bool even = r->collective == TT_ALLREDUCE || r->collective == TT_REDUCE ||
		    r->collective == TT_BROADCAST;

	g->part = even ? round_up((bytes + n - 1) / n, TT_LINE) : r->count * tt_type_bytes(r->type);
	parts = (bytes + g->part - 1) / g->part;
	most = MAX_OPERATIONS / (calls * (parts + 1));
	most = most > MAX_GROUPS ? MAX_GROUPS : most ? most : 1;
	g->step = GROUP_BYTES / parts;
	if (g->step < (g->part + most - 1) / most)
		g->step = (g->part + most - 1) / most;
	g->step = round_up(g->step ? g->step : 1, STEP_UNIT);
	g->groups = (uint32_t)((g->part + g->step - 1) / g->step);
}

/* Copies the bytes of a group to the device (back) or from the device. */
static int copy_group(const struct tt_pipeline *g, uint32_t group, bool back, tt_custream stream)
{
	size_t bytes = back ? g->out_bytes : g->in_bytes, from = group * g->step,
	       to = from + g->step < g->part ? from + g->step : g->part;
	int rc = 0;

	for (size_t part = 0; part + from < bytes && !rc; part += g->part) {
		size_t start = part + from, n = (part + to < bytes ? part + to : bytes) - start;

		rc = back ? g->d->cu->htod_async(g->out + start, g->stage_out + start, n, stream)
			  : g->d->cu->dtoh_async(g->stage_in + start, g->in + start, n, stream);
	}
	return rc;
}

int tt_pipeline_enqueue_inputs(const struct tt_pipeline *g, tt_custream stream)
{
	int rc = 0;

	for (uint32_t k = 0; k < g->groups && g->in && !rc; k++) {
		struct tt_cumemop arrival;

		tt_gpu_op_write(&arrival, g->words_at + offsetof(struct tt_pipeline_words, in),
				k + 1);
		rc = copy_group(g, k, false, stream);
		if (!rc)
			rc = g->d->cu->stream_batch(stream, 1, &arrival, 0);
	}
	return rc;
}

int tt_pipeline_enqueue_outputs(const struct tt_pipeline *g, tt_custream stream)
{
	int rc = 0;

	for (uint32_t k = 0; k < g->groups && g->out && !rc; k++) {
		struct tt_cumemop wait = { .operation = TT_CU_WAIT_32,
					   .address = g->words_at +
						      offsetof(struct tt_pipeline_words, out),
					   .value = k + 1,
					   .flags = TT_CU_WAIT_GEQ };

		rc = g->d->cu->stream_batch(stream, 1, &wait, 0);
		if (!rc)
			rc = copy_group(g, k, true, stream);
	}
	return rc;
}

void tt_pipeline_reset(struct tt_pipeline *g)
{
	if (g->groups)
		*g->words = (struct tt_pipeline_words){ 0, 0 };
}

void tt_pipeline_release(struct tt_pipeline *g)
{
	if (g->groups)
		__atomic_store_n(&g->words->out, g->groups, __ATOMIC_RELEASE);
}

/* ---- while the call runs --------------------------------------------------------------------- */

/* A device that has failed copies nothing: break the communicator. */
static void look_for_failure(const struct tt_op *op)
{
	const struct tt_gpu *d = pipeline_of(op)->d;
	int mode = tt_cuda_enter(d->ctx), rc = d->cu->stream_query(d->own);

	tt_cuda_leave(d->ctx, mode);
	if (rc && rc != TT_CU_NOT_READY && rc != TT_CU_DEINITIALIZED)
		tt_gpu_failed(op->comm,
			      tt_cuda_fail(rc, "rank %d: copy %zu bytes of input from device %d",
					   op->comm->rank, pipeline_of(op)->in_bytes, d->device));
}

/* Waits for the whole input. Once the communicator is broken, the input may never come. */
static int await_input(const struct tt_op *op)
{
	const struct tt_pipeline *g = pipeline_of(op);
	struct timespec pause = { .tv_nsec = 20000 };
	int code = 0, culprit;

	while (__atomic_load_n(&g->words->in, __ATOMIC_ACQUIRE) < g->groups &&
	       !(code = tt_control_broken(op->comm->ctl))) {
		look_for_failure(op);
		nanosleep(&pause, NULL);
	}
	return code ? tt_fail(code, "rank %d: %s", op->comm->rank,
			      tt_control_text(op->comm->ctl, &culprit))
		    : 0;
}

static int begin(struct tt_op *op, bool whole)
{
	struct tt_pipeline *g = pipeline_of(op);
	int rc = whole && g->in ? await_input(op) : 0;

	g->staging.tiles_in = g->in && !whole ? 0 : op->bound.tiles.ntiles;
	g->late = op->call.request->op == tuttiAvg; /* the division comes after the last step */
	return rc;
}

/* The tiles whose bytes are in place in all blocks of the input */
static uint32_t tiles_in_place(const struct tt_op *op)
{
	const struct tt_pipeline *g = pipeline_of(op);
	uint32_t groups = __atomic_load_n(&g->words->in, __ATOMIC_ACQUIRE),
		 tiles = op->bound.tiles.ntiles;
	size_t unit = op->bound.tiles.unit, copied = groups * g->step;

	for (size_t block = 0; block < g->in_bytes && groups < g->groups; block += unit) {
		size_t end = block + unit < g->in_bytes ? block + unit : g->in_bytes,
		       before = block % g->part, n = copied > before ? copied - before : 0;

		if (n < end - block && n / op->bound.tiles.tile_bytes < tiles)
			tiles = (uint32_t)(n / op->bound.tiles.tile_bytes);
	}
	return tiles;
}

static bool arrived(struct tt_op *op, uint32_t tile)
{
	struct tt_pipeline *g = pipeline_of(op);

	g->staging.tiles_in = tiles_in_place(op);
	if (tile >= g->staging.tiles_in && ++g->polls % FAILURE_POLLS == 0)
		look_for_failure(op);
	if (tile < g->staging.tiles_in && g->staging.tiles_in < op->bound.tiles.ntiles)
		atomic_fetch_add(&g->d->overlaps, 1);
	return tile < g->staging.tiles_in;
}

/* Are bytes [from, to) of the output final, once all cursors have finished `tiles` tiles? */
static bool is_final(const struct tt_op *op, size_t from, size_t to, uint32_t tiles)
{
	size_t unit = op->bound.tiles.unit;

	for (size_t block = from - from % unit; block < to; block += unit)
		if ((to < block + unit ? to : block + unit) - block >
		    tiles * op->bound.tiles.tile_bytes)
			return false;
	return true;
}

static bool is_group_final(const struct tt_op *op, uint32_t group, uint32_t tiles)
{
	const struct tt_pipeline *g = pipeline_of(op);
	size_t from = group * g->step, to = from + g->step < g->part ? from + g->step : g->part;

	for (size_t part = 0; part + from < g->out_bytes; part += g->part)
		if (!is_final(op, part + from, part + to < g->out_bytes ? part + to : g->out_bytes,
			      tiles))
			return false;
	return true;
}

static int flow(struct tt_op *op)
{
	struct tt_pipeline *g = pipeline_of(op);
	uint32_t tiles = op->bound.tiles.ntiles, groups;

	if (!g->out || g->late || op->way != &tt_message_way)
		return 0;
	for (uint32_t i = 0; i < op->cursors.n; i++)
		if (!op->cursors.at[i].finished && op->cursors.at[i].tile < tiles)
			tiles = op->cursors.at[i].tile;
	if (tiles == op->bound.tiles.ntiles)
		return 0; /* end() follows */
	groups = __atomic_load_n(&g->words->out, __ATOMIC_RELAXED);
	while (groups < g->groups && is_group_final(op, groups, tiles))
		groups++;
	__atomic_store_n(&g->words->out, groups, __ATOMIC_RELEASE);
	return 0;
}

static void end(struct tt_op *op)
{
	tt_pipeline_release(pipeline_of(op));
}

const struct tt_staging_ops tt_pipeline_ops = {
	.name = "pipelined staging",
	.begin = begin,
	.arrived = arrived,
	.flow = flow,
	.end = end,
	.wakes_nobody = true,
};

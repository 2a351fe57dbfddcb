/*
 * gpu_pipeline.c - pipelined staging: device buffers are copied to and from the staging buffer
 * while the staged call runs
 *
 * Called by run (tt_pipeline_ops) for requests that gpu_staging.c gave a pipeline, on the thread
 * that runs the requests. When the operation starts, the copies of all inputs are put on
 * copies_in, some tiles of every block at a time; after each group the stream writes the number of
 * tiles copied so far to a signal word. A cursor starts a tile once it has been copied. Outputs are
 * copied back as soon as every cursor has finished their tile. So the network carries one tile
 * while the next is copied, whatever the plan is.
 */
#include "gpu/gpu_call.h"
#include "run/way.h"

#define COPY_BYTES (512u << 10) /* of a group of tiles, at least: starting a copy is costly */

static struct tt_pipeline *pipeline_of(const struct tt_op *op)
{
	return (struct tt_pipeline *)op->staging;
}

/* Copies tiles [from, to) of every block of a buffer to the device (back) or from the device. */
static int copy(const struct tt_op *op, char *host, tt_cuptr device, size_t bytes, uint32_t from,
		uint32_t to, bool back)
{
	const struct tt_pipeline *g = pipeline_of(op);
	int rc = 0;

	for (size_t block = 0; block < bytes && !rc; block += op->bound.tiles.unit) {
		size_t start = block + from * op->bound.tiles.tile_bytes,
		       end = block + to * op->bound.tiles.tile_bytes;

		if (end > block + op->bound.tiles.unit)
			end = block + op->bound.tiles.unit;
		if (end > bytes)
			end = bytes;
		if (start >= end)
			continue;
		rc = back ? g->d->cu->htod_async(device + start, host + start, end - start,
						 g->d->copies_out)
			  : g->d->cu->dtoh_async(host + start, device + start, end - start,
						 g->d->copies_in);
	}
	return rc;
}

static int enqueue_inputs(struct tt_op *op)
{
	struct tt_pipeline *g = pipeline_of(op);
	int rc = 0;

	for (uint32_t t = 0, end; t < op->bound.tiles.ntiles && !rc; t = end) {
		struct tt_cumemop signal;

		end = op->bound.tiles.ntiles - t < g->group ? op->bound.tiles.ntiles : t + g->group;
		rc = copy(op, g->stage_in, g->in, g->in_bytes, t, end, false);
		tt_gpu_op_write(&signal, g->word_at, end);
		if (!rc)
			rc = g->d->cu->stream_batch(g->d->copies_in, 1, &signal, 0);
	}
	return rc;
}

static int begin(struct tt_op *op, bool whole)
{
	struct tt_pipeline *g = pipeline_of(op);
	int mode, rc = 0;

	g->group = (uint32_t)(COPY_BYTES /
			      (op->bound.tiles.tile_bytes ? op->bound.tiles.tile_bytes : 1));
	g->group += g->group == 0;
	g->staging.tiles_in = g->in ? 0 : op->bound.tiles.ntiles;
	g->gone = 0;
	g->late = op->call.request->op == tuttiAvg; /* the division comes after the last step */
	__atomic_store_n(g->word, 0, __ATOMIC_RELEASE);
	mode = tt_cuda_enter(g->d->ctx);
	if (g->in)
		rc = enqueue_inputs(op);
	if (!rc && whole && g->in) {
		rc = g->d->cu->stream_synchronize(g->d->copies_in);
		g->staging.tiles_in = op->bound.tiles.ntiles;
	}
	tt_cuda_leave(g->d->ctx, mode);
	return rc ? tt_cuda_fail(rc, "rank %d: copy %zu bytes of input from device %d",
				 op->comm->rank, g->in_bytes, g->d->device)
		  : 0;
}

static bool arrived(struct tt_op *op, uint32_t tile)
{
	struct tt_pipeline *g = pipeline_of(op);

	g->staging.tiles_in = __atomic_load_n(g->word, __ATOMIC_ACQUIRE);
	if (tile < g->staging.tiles_in && g->staging.tiles_in < op->bound.tiles.ntiles)
		atomic_fetch_add(&g->d->overlaps, 1);
	return tile < g->staging.tiles_in;
}

static int return_outputs(struct tt_op *op, uint32_t until)
{
	struct tt_pipeline *g = pipeline_of(op);
	int mode = tt_cuda_enter(g->d->ctx), rc;

	rc = copy(op, g->stage_out, g->out, g->out_bytes, g->gone, until, true);
	tt_cuda_leave(g->d->ctx, mode);
	g->gone = until;
	return rc ? tt_cuda_fail(rc, "rank %d: copy output to device %d", op->comm->rank,
				 g->d->device)
		  : 0;
}

static int flow(struct tt_op *op)
{
	struct tt_pipeline *g = pipeline_of(op);
	uint32_t done = op->bound.tiles.ntiles;

	if (!g->out || g->late || op->way != &tt_message_way)
		return 0;
	for (uint32_t i = 0; i < op->cursors.n; i++)
		if (!op->cursors.at[i].finished && op->cursors.at[i].tile < done)
			done = op->cursors.at[i].tile;
	if (done - g->gone < g->group)
		return 0;
	return return_outputs(op, done);
}

static void end(struct tt_op *op)
{
	struct tt_pipeline *g = pipeline_of(op);

	if (g->out && g->gone < op->bound.tiles.ntiles &&
	    return_outputs(op, op->bound.tiles.ntiles))
		g->failed = true;
}

const struct tt_staging_ops tt_pipeline_ops = {
	.name = "pipelined staging",
	.begin = begin,
	.arrived = arrived,
	.flow = flow,
	.end = end,
	.wakes_nobody = true,
};

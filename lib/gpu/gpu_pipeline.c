/*
 * gpu_pipeline.c - pipelined staging: device buffers are copied to and from the staging buffer
 * while the staged call runs
 *
 * Called by operation.c, step.c and run.c for requests that gpu_staging.c gave a pipeline, on the
 * thread that runs the requests. When the operation starts, the copies of all inputs are put on
 * copies_in, some tiles of every block at a time; after each group the stream writes the number of
 * tiles copied so far to a signal word. A cursor starts a tile once it has been copied. Outputs are
 * copied back as soon as every cursor has finished their tile. So the network carries one tile
 * while the next is copied, whatever the plan is.
 */
#include "gpu/gpu_call.h"

#define COPY_BYTES (512u << 10)        /* of a group of tiles, at least: starting a copy is costly */

/* Copies tiles [from, to) of every block of a buffer to the device (back) or from the device. */
static int copy(const struct tt_op *op, char *host, tt_cuptr device, size_t bytes, uint32_t from,
		uint32_t to, bool back)
{
	const struct tt_pipeline *g = op->pipeline;
	int rc = 0;

	for (size_t block = 0; block < bytes && !rc; block += op->unit) {
		size_t start = block + from * op->tile_bytes, end = block + to * op->tile_bytes;

		if (end > block + op->unit)
			end = block + op->unit;
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
	struct tt_pipeline *g = op->pipeline;
	int rc = 0;

	for (uint32_t t = 0, end; t < op->ntiles && !rc; t = end) {
		struct tt_cumemop signal;

		end = op->ntiles - t < g->group ? op->ntiles : t + g->group;
		rc = copy(op, g->stage_in, g->in, g->in_bytes, t, end, false);
		tt_gpu_op_write(&signal, g->word_at, end);
		if (!rc)
			rc = g->d->cu->stream_batch(g->d->copies_in, 1, &signal, 0);
	}
	return rc;
}

int tt_pipeline_begin(struct tt_op *op, bool whole)
{
	struct tt_pipeline *g = op->pipeline;
	int mode, rc = 0;

	g->group = (uint32_t)(COPY_BYTES / (op->tile_bytes ? op->tile_bytes : 1));
	g->group += g->group == 0;
	g->come = g->in ? 0 : op->ntiles;
	g->gone = 0;
	g->late = op->request->op == tuttiAvg;         /* the division comes after the last step */
	__atomic_store_n(g->word, 0, __ATOMIC_RELEASE);
	mode = tt_cuda_enter(g->d->ctx);
	if (g->in)
		rc = enqueue_inputs(op);
	if (!rc && whole && g->in) {
		rc = g->d->cu->stream_synchronize(g->d->copies_in);
		g->come = op->ntiles;
	}
	tt_cuda_leave(g->d->ctx, mode);
	return rc ? tt_cuda_fail(rc, "rank %d: copy %zu bytes of input from device %d",
				 op->comm->rank, g->in_bytes, g->d->device)
		  : 0;
}

bool tt_pipeline_look(struct tt_op *op, uint32_t tile)
{
	struct tt_pipeline *g = op->pipeline;

	g->come = __atomic_load_n(g->word, __ATOMIC_ACQUIRE);
	if (tile < g->come && g->come < op->ntiles)
		atomic_fetch_add(&g->d->overlaps, 1);
	return tile < g->come;
}

static int return_outputs(struct tt_op *op, uint32_t until)
{
	struct tt_pipeline *g = op->pipeline;
	int mode = tt_cuda_enter(g->d->ctx), rc;

	rc = copy(op, g->stage_out, g->out, g->out_bytes, g->gone, until, true);
	tt_cuda_leave(g->d->ctx, mode);
	g->gone = until;
	return rc ? tt_cuda_fail(rc, "rank %d: copy output to device %d", op->comm->rank,
				 g->d->device)
		  : 0;
}

int tt_pipeline_flow(struct tt_op *op)
{
	struct tt_pipeline *g = op->pipeline;
	uint32_t done = op->ntiles;

	if (!g->out || g->late || op->express || op->direct)
		return 0;
	for (uint32_t i = 0; i < op->ncursors; i++)
		if (!op->cursor[i].finished && op->cursor[i].tile < done)
			done = op->cursor[i].tile;
	if (done - g->gone < g->group)
		return 0;
	return return_outputs(op, done);
}

void tt_pipeline_end(struct tt_op *op)
{
	struct tt_pipeline *g = op->pipeline;

	if (g->out && g->gone < op->ntiles && return_outputs(op, op->ntiles))
		g->failed = true;
}

/*
 * gpu_pipeline.c - a call of the host's way on device buffers: they are copied to the stage and back
 * while it runs
 *
 * Called by operation.c and run.c for requests that gpu_staging.c gave a pipeline, on the thread that runs
 * them. All inputs are put on a stream of copies when the operation starts, some tiles of every
 * block at a time, each time followed by a word that says how many tiles have come; a cursor starts
 * a tile when it is there. Outputs go back as soon as every cursor is through with their tile. So
 * the network carries one tile while the next is copied, whatever the plan is.
 */
#include "gpu/gpu_call.h"

#define COPY_BYTES (512u << 10)        /* that make a copy worth its start */

/* Tiles from..to of every block of a buffer, there or back */
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

static int fetch(struct tt_op *op)
{
	struct tt_pipeline *g = op->pipeline;
	int rc = 0;

	for (uint32_t t = 0, end; t < op->ntiles && !rc; t = end) {
		struct tt_cumemop say;

		end = op->ntiles - t < g->group ? op->ntiles : t + g->group;
		rc = copy(op, g->stage_in, g->in, g->in_bytes, t, end, false);
		tt_gpu_op_write(&say, g->word_at, end);
		if (!rc)
			rc = g->d->cu->stream_batch(g->d->copies_in, 1, &say, 0);
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
	g->late = op->request->op == tuttiAvg;         /* it is divided at the end */
	__atomic_store_n(g->word, 0, __ATOMIC_RELEASE);
	mode = tt_gpu_enter(g->d->ctx);
	if (g->in)
		rc = fetch(op);
	if (!rc && whole && g->in) {
		rc = g->d->cu->stream_synchronize(g->d->copies_in);
		g->come = op->ntiles;
	}
	tt_gpu_leave(g->d->ctx, mode);
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

static int give(struct tt_op *op, uint32_t until)
{
	struct tt_pipeline *g = op->pipeline;
	int mode = tt_gpu_enter(g->d->ctx), rc;

	rc = copy(op, g->stage_out, g->out, g->out_bytes, g->gone, until, true);
	tt_gpu_leave(g->d->ctx, mode);
	g->gone = until;
	return rc ? tt_cuda_fail(rc, "rank %d: copy output to device %d", op->comm->rank,
				 g->d->device)
		  : 0;
}

int tt_pipeline_flow(struct tt_op *op)
{
	struct tt_pipeline *g = op->pipeline;
	uint32_t through = op->ntiles;

	if (!g->out || g->late || op->express || op->direct)
		return 0;
	for (uint32_t i = 0; i < op->ncursors; i++)
		if (!op->cursor[i].finished && op->cursor[i].tile < through)
			through = op->cursor[i].tile;
	if (through - g->gone < g->group)
		return 0;
	return give(op, through);
}

void tt_pipeline_end(struct tt_op *op)
{
	struct tt_pipeline *g = op->pipeline;

	if (g->out && g->gone < op->ntiles && give(op, op->ntiles))
		g->failed = true;
}

/*
 * gpu_open.c - a rank's GPU side of a communicator:
 * made when it joins, tried with its peers, closed with it
 *
 * Called by comm. Whether there will be kernels is agreed in three exchanges: where areas are; who
 * could read the others' (a kernel copies a pattern, which is compared) and wrote into them; who
 * found there what the others wrote. One no is a no for all, and no error: calls on device memory
 * then go through pinned host memory (gpu/gpu_staging.c).
 */
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "gpu/gpu.h"

int tt_gpu_context(tt_cuctx *ret_ctx)
{
	const struct tt_cuda *cu = tt_cuda_here();
	int rc;

	*ret_ctx = NULL;
	rc = cu ? cu->ctx_current(ret_ctx) : 0;
	return rc ? tt_cuda_fail(rc, "which device is current") : 0;
}

/* What could not be done must not be undone: the context that is popped would be the program's. The
 * calls between will say what they lack. */
enum { NOT_PUSHED = 4, NOT_CHANGED = 8 };      /* beside the mode, which is smaller */

int tt_gpu_enter(tt_cuctx ctx)
{
	const struct tt_cuda *cu = ctx ? tt_cuda_here() : NULL;
	int mode = TT_CU_CAPTURE_RELAXED, rc;

	if (!cu)
		return 0;
	rc = cu->ctx_push(ctx);
	if (rc)
		tt_log(TT_LOG_WARN, "this thread cannot have a GPU's context: CUDA's error %d", rc);
	if (cu->capture_mode(&mode))
		mode = NOT_CHANGED;
	return rc ? mode | NOT_PUSHED : mode;
}

void tt_gpu_leave(tt_cuctx ctx, int entered)
{
	const struct tt_cuda *cu = ctx ? tt_cuda_here() : NULL;
	int mode = entered & ~NOT_PUSHED;

	if (cu && mode != NOT_CHANGED)
		cu->capture_mode(&mode);
	if (cu && !(entered & NOT_PUSHED))
		cu->ctx_pop(&ctx);
}

/* What streams are given goes through connections to the device, of which there are few
 * (CUDA_DEVICE_MAX_CONNECTIONS), and behind what waits there everything waits. Streams of different
 * priorities are not known to share them, so these have the highest, which programs seldom use. */
int tt_gpu_stream_before(const struct tt_cuda *cu, tt_custream *ret_stream)
{
	return cu->stream_create_before(ret_stream, TT_CU_STREAM_APART, TT_CU_BEFORE_ALL);
}

int tt_gpu_open(tuttiComm_t c, const struct tt_env *env)
{
	const struct tt_cuda *cu = tt_cuda_here();
	struct tt_gpu *d;
	tt_cuctx ctx;
	int rc;

	if (!strcmp(env->gpu, "off"))
		return 0;
	rc = tt_gpu_context(&ctx);
	if (rc || !ctx)
		return rc ? tt_fail(rc, "rank %d: %s", c->rank, tt_error_text()) : 0;
	d = calloc(1, sizeof(*d));
	if (!d)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for the device's record", c->rank);
	d->comm = c;
	d->cu = cu;
	d->ctx = ctx;
	d->staged_only = !strcmp(env->gpu, "staged");
	if (d->staged_only || !strcmp(env->gpudirect, "off"))
		d->gdr = TT_GDR_NO;
	if ((rc = cu->ctx_device(&d->device)) ||
	    (rc = cu->stream_create(&d->own, TT_CU_STREAM_APART)) ||
	    (rc = cu->event_create(&d->last, TT_CU_EVENT_UNTIMED))) {
		if (d->own)
			cu->stream_destroy(d->own);
		free(d);
		return tt_cuda_fail(rc, "rank %d: a stream of its own on the current device",
				    c->rank);
	}
	pthread_mutex_init(&d->lock, NULL);
	pthread_cond_init(&d->work, NULL);
	c->gpu = d;
	/* calls take turns, and the short ways, which read memory, are closed */
	atomic_store(&c->queued, true);
	return 0;
}

/* ---- can everybody reach everybody? ---------------------------------------------------------- */

struct card {
	struct tt_ipc_record area;
	struct tt_fd_address box;
	int32_t blocks;
	uint32_t ok;
	uint64_t proof;
};

static uint64_t proof_of(uint64_t proof, int reader)
{
	return tt_mix(proof, (uint64_t)reader + 1);
}

static tt_cuptr proof_at(tt_cuptr area, int slot)
{
	return area + offsetof(struct tt_dev_signals, proof) + (uint64_t)slot * sizeof(uint64_t);
}

static int copy_back(struct tt_gpu *d, void *to, tt_cuptr from, size_t bytes)
{
	int rc = d->cu->dtoh_async(to, from, bytes, d->own);

	return rc ? rc : d->cu->stream_synchronize(d->own);
}

/* An area and the kernels, each of them launched once,
 * so that the driver loads nothing while peers wait. */
static int prepare(struct tt_gpu *d, struct card *mine)
{
	tuttiComm_t c = d->comm;
	struct tt_dev_job job = { .nranks = 1, .way = TT_DEV_ALONE };
	void *params[] = { &job };
	int rc = tt_kernels_load(d->cu, d->ctx, &d->k);

	if (rc || (rc = tt_ipc_buffer_take(d->cu, d->ctx, d->device, d->by_fd, d->own, &d->area)))
		return rc;
	job.desk[0] = d->area->at;
	job.report = d->area->report_at;
	for (int t = 0; !rc && t < tuttiNumTypes; t++)
		rc = d->cu->launch(d->k->fn[t], 1, 1, 1, TT_DEV_THREADS, 1, 1, 0, d->own, params,
				   NULL);
	mine->proof = tt_mix(tt_now_ns(), (uint64_t)c->rank);
	if (!rc)
		rc = d->cu->htod_async(proof_at(d->area->at, c->rank), &mine->proof,
				       sizeof(mine->proof), d->own);
	if (rc || (rc = d->cu->stream_synchronize(d->own)))
		return tt_cuda_fail(rc, "rank %d: try the kernels on device %d", c->rank,
				    d->device);
	tt_ipc_buffer_describe(d->area, &mine->area);
	mine->blocks = tt_kernels_free(d->k);
	return 0;
}

/* A kernel copies peer's proof here, and the stream writes one there, as calls will do. */
static int exchange_proofs(struct tt_gpu *d, int peer, uint64_t left, uint64_t *ret_read)
{
	tt_cuptr to = d->area->at + TT_DEV_STAGED_AT, there = proof_at(d->at[peer], d->comm->rank);
	struct tt_dev_job job = { .nranks = 1, .way = TT_DEV_ALONE, .npieces = 1,
				  .desk[0] = d->area->at, .report = d->area->report_at,
				  .in[0] = proof_at(d->at[peer], peer), .out[0] = to,
				  .piece[0] = { .from = 1, .to = 1, .bytes = sizeof(left) } };
	struct tt_cumemop op[2] = {
		{ .operation = TT_CU_WRITE_32, .address = there, .value = (uint32_t)left },
		{ .operation = TT_CU_WRITE_32, .address = there + 4, .value = left >> 32 },
	};
	void *params[] = { &job };
	int rc = d->cu->launch(d->k->fn[tuttiUint8], 1, 1, 1, TT_DEV_THREADS, 1, 1, 0, d->own,
			       params, NULL);

	if (!rc)
		rc = copy_back(d, ret_read, to, sizeof(*ret_read));
	if (!rc)
		rc = d->cu->stream_batch(d->own, 2, op, 0);
	return rc ? rc : d->cu->stream_synchronize(d->own);
}

static int try_peer(struct tt_gpu *d, int peer, const struct card *card, int fd)
{
	tuttiComm_t c = d->comm;
	uint64_t read = 0;
	int rc = tt_ipc_buffer_reach(d->cu, d->device, &card->area, d->by_fd, fd, &d->at[peer],
			       &d->opened[peer]);

	if (rc)
		return tt_fail(rc, "rank %d's device memory: %s", peer, tt_error_text());
	rc = exchange_proofs(d, peer, proof_of(card->proof, c->rank), &read);
	if (rc)
		return tt_cuda_fail(rc, "rank %d: read and write rank %d's device memory",
				    c->rank, peer);
	if (read != card->proof)
		return tt_fail(TT_CUDA,
			"rank %d: what was read in rank %d's device memory is not what is there",
			c->rank, peer);
	return 0;
}

static int check_left(struct tt_gpu *d, uint64_t proof)
{
	uint64_t left[TT_DEV_RANKS];
	tuttiComm_t c = d->comm;
	int rc = copy_back(d, left, proof_at(d->area->at, 0), sizeof(left));

	if (rc)
		return tt_cuda_fail(rc, "rank %d: read its own device memory", c->rank);
	for (int p = 0; p < c->nranks; p++)
		if (p != c->rank && left[p] != proof_of(proof, p))
			return tt_fail(TT_CUDA,
				"rank %d: what rank %d wrote into its device memory did not come",
				c->rank, p);
	return 0;
}

/* All ranks say 1, or there are no kernels. */
static int all_agree(tuttiComm_t c, struct card *mine, struct card *all, int rc, bool *ret_yes)
{
	mine->ok = !rc;
	if (rc)
		tt_log(TT_LOG_INFO, "rank %d: no GPU kernels for this communicator: %s", c->rank,
		       tt_error_text());
	rc = tt_control_allgather(c->ctl, mine, sizeof(*mine), all, tt_deadline_ns(c->timeout_ms));
	*ret_yes = true;
	for (int r = 0; !rc && r < c->nranks; r++)
		*ret_yes &= all[r].ok;
	return rc;
}

/* Kernels that wait for each other must all be on the device at once, also those of other
 * communicators of this process, whose order may differ from rank to rank. So each takes half of
 * what those before it have left; where that is nothing, streams order the ranks instead. */
static void share_out(struct tt_gpu *d, const struct card *all)
{
	int n = d->comm->nranks;

	d->meets = true;
	d->blocks = TT_DEV_BLOCKS;
	for (int r = 0; r < n; r++) {
		uint32_t beside = 0, most;

		for (int p = 0; p < n; p++)
			beside += all[p].area.device == all[r].area.device;
		most = (uint32_t)all[r].blocks / 2 / beside;
		d->meets &= most && all[r].area.process == all[0].area.process;
		d->apart |= all[r].area.device != all[0].area.device;
		if (most < d->blocks)
			d->blocks = most;
	}
	d->holds = d->meets ? (int)d->blocks : 0;
	tt_kernels_hold(d->k, d->holds);
}

/* What lies behind a rank's stream in a connection of the driver's waits with it. */
static void count_connections(const struct tt_gpu *d)
{
	const char *text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
	int connections = text ? atoi(text) : 8, streams = 3 * d->comm->nranks;

	if (d->meets && d->comm->rank == 0 && streams > connections)
		tt_log(TT_LOG_WARN,
		       "%d ranks that are threads have %d streams and more, but CUDA %d connections to a device, in which they can hold each other up: set CUDA_DEVICE_MAX_CONNECTIONS=32 before CUDA starts",
		       d->comm->nranks, streams, connections);
}

static void shut_peers(struct tt_gpu *d)
{
	for (int p = 0; p < TT_DEV_RANKS; p++)
		if (d->opened[p]) {
			tt_ipc_buffer_shut(d->cu, d->at[p], d->opened[p], d->by_fd);
			d->opened[p] = 0;
		}
}

/* Hand this rank's descriptor to all others; after an exchange all have come. */
static int swap_descriptors(struct tt_gpu *d, struct tt_fd_exchange *box, struct card *mine,
			    struct card *all, bool *ret_yes)
{
	tuttiComm_t c = d->comm;
	int rc = 0;

	for (int p = 0; p < c->nranks && !rc; p++)
		if (all[p].area.process != tt_ipc_buffer_process())
			rc = tt_fd_exchange_send(box, c->rank, &all[p].box, d->area->fd);
	rc = all_agree(c, mine, all, rc, ret_yes);
	tt_fd_exchange_collect(box);
	return rc;
}

/* Areas, tried by copies. *ret_yes: everybody reaches everybody. */
static int reach_all(struct tt_gpu *d, struct tt_fd_exchange *box, struct card *all, bool *ret_yes)
{
	struct card mine = { .ok = 0 };
	tuttiComm_t c = d->comm;
	int rc = d->by_fd ? tt_fd_exchange_open(box) : 0;

	mine.box = box->card;
	rc = all_agree(c, &mine, all, rc ? rc : prepare(d, &mine), ret_yes);
	if (!rc && *ret_yes && d->by_fd)
		rc = swap_descriptors(d, box, &mine, all, ret_yes);
	if (rc || !*ret_yes)
		return rc;
	d->at[c->rank] = d->area->at;
	for (int p = 0; !rc && p < c->nranks; p++)
		rc = p == c->rank ? 0 : try_peer(d, p, &all[p], box->fd[p]);
	rc = all_agree(c, &mine, all, rc, ret_yes);
	if (rc || !*ret_yes)
		return rc;
	return all_agree(c, &mine, all, check_left(d, mine.proof), ret_yes);
}

/* Once more by descriptors, if ranks are processes and handles did not do. */
static int reach_by_fd(struct tt_gpu *d, struct card *all, bool *ret_yes)
{
	struct tt_fd_exchange box = { .socket = -1 };
	bool apart = false;
	int rc;

	for (int p = 0; p < d->comm->nranks; p++)
		apart |= all[p].area.ok && all[p].area.process != all[0].area.process;
	if (!apart)
		return 0;
	shut_peers(d);
	if (d->area)
		tt_ipc_buffer_give(d->area);
	d->area = NULL;
	d->by_fd = true;
	memset(box.fd, -1, sizeof(box.fd));
	rc = reach_all(d, &box, all, ret_yes);
	tt_fd_exchange_close(&box);
	return rc;
}

static int meet(tuttiComm_t c, struct card *all)
{
	struct tt_fd_exchange none = { .socket = -1 };
	struct tt_gpu *d = c->gpu;
	int rc = reach_all(d, &none, all, &d->kernels);

	if (!rc && !d->kernels)
		rc = reach_by_fd(d, all, &d->kernels);
	if (rc || !d->kernels)
		return rc;
	share_out(d, all);
	count_connections(d);
	tt_log(TT_LOG_INFO, "rank %d: GPU kernels on device %d, %s%s", c->rank, d->device,
	       d->meets ? "which meet" : "ordered by streams",
	       d->by_fd && !d->meets ? ", areas shared by descriptor" : "");
	return tt_gpu_watch(d);
}

int tt_gpu_meet(tuttiComm_t c)
{
	struct card *all;
	int rc;

	if (!c->one_host || c->nranks > TT_DEV_RANKS)
		return 0;
	all = calloc((size_t)c->nranks, sizeof(*all));
	if (!all)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for %d ranks", c->rank, c->nranks);
	rc = meet(c, all);
	free(all);
	return rc;
}

void tt_gpu_settle(tuttiComm_t c)
{
	struct tt_gpu *d = c->gpu;
	int mode, rc;

	if (!d)
		return;
	mode = tt_gpu_enter(d->ctx);
	rc = d->any ? d->cu->event_synchronize(d->last) : 0;
	if (!rc)
		rc = d->cu->stream_synchronize(d->own);
	if (rc && d->give_turns)
		d->give_turns(d, rc);
	tt_gpu_leave(d->ctx, mode);
}

void tt_gpu_close(tuttiComm_t c)
{
	struct tt_gpu *d = c->gpu;
	int mode;

	if (!d)
		return;
	tt_gpu_settle(c);
	mode = tt_gpu_enter(d->ctx);
	if (d->close_stages)
		d->close_stages(d);
	tt_gpu_unwatch(d);
	if (d->holds)
		tt_kernels_hold(d->k, -d->holds);
	shut_peers(d);
	if (d->area && tt_control_broken(c->ctl))
		tt_ipc_buffer_lose(d->area);
	else if (d->area)
		tt_ipc_buffer_give(d->area);
	d->cu->event_destroy(d->last);
	d->cu->stream_destroy(d->own);
	tt_gpu_leave(d->ctx, mode);
	if (d->free_programs)
		d->free_programs(d->programs);
	pthread_cond_destroy(&d->work);
	pthread_mutex_destroy(&d->lock);
	free(d);
	c->gpu = NULL;
}

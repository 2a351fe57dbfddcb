/*
 * gpu_open.c - the GPU side of a communicator: opened when a rank joins, tried with its peers,
 * closed with the communicator
 *
 * Called by comm through the table tt_accelerator (comm/accelerator.h). The ranks agree on kernels
 * in these exchanges:
 *   0  the ranks' processes; whether any rank's driver must compile the kernels, for which exchange 1
 *      waits longer
 *   1  the record of each rank's IPC buffer; then processes send each other descriptors, with an
 *      exchange as a barrier behind
 *   2  whether each rank could read the others' buffers (a kernel copies a probe value, which is
 *      compared) and write into them
 *   3  whether each rank found the values that the others wrote, and the words that their kernels set
 *      in its host words, and its stream waited for these words
 * A single failure means no kernels for all ranks, and is no error: calls on device memory then go
 * through pinned host memory (gpu_staging.c).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/accelerator.h"
#include "comm/comm.h"
#include "gpu/gpu_call.h"

/* Streams share a few connections to the device (CUDA_DEVICE_MAX_CONNECTIONS), whatever their
 * priorities. Work that waits in a connection holds up all work behind it. The highest priority only
 * lets this work run before kernels of other streams. */
int tt_gpu_priority_stream(const struct tt_cuda *cu, tt_custream *ret_stream)
{
	return cu->stream_create_priority(ret_stream, TT_CU_STREAM_NON_BLOCKING,
					  TT_CU_HIGHEST_PRIORITY);
}

int tt_gpu_connections(void)
{
	const char *text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");

	return !text ? 8 : atoi(text) < 1 ? 1 : atoi(text);
}

/* Whatever waits, a stream or a kernel with work of its stream behind it, holds up all that was put
 * into the same connection later, also the program's computing. */
static void warn_of_one_connection(tuttiComm_t c)
{
	if (c->rank == 0 && tt_gpu_connections() == 1)
		tt_log(TT_LOG_WARN,
		       "CUDA_DEVICE_MAX_CONNECTIONS=1: all streams of a process share one connection to its device, in which a call that waits for other ranks holds up computing on other streams, unless the ranks are processes with a GPU each and name no algorithm; unset the variable unless the program needs it");
}

/* Makes the state of a device: its stream, the event of the newest call, the lock of the watchdog. */
static int make_device(tuttiComm_t c, const struct tt_cuda *cu, tt_cuctx ctx, struct tt_gpu **ret_d)
{
	struct tt_gpu *d = calloc(1, sizeof(*d));
	pthread_condattr_t attr;
	int rc;

	if (!d)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for the state of its device",
			       c->rank);
	d->comm = c;
	d->cu = cu;
	d->ctx = ctx;
	if ((rc = cu->ctx_device(&d->device)) ||
	    (rc = cu->stream_create(&d->own, TT_CU_STREAM_NON_BLOCKING)) ||
	    (rc = cu->event_create(&d->last, TT_CU_EVENT_UNTIMED))) {
		if (d->own)
			cu->stream_destroy(d->own);
		free(d);
		return tt_cuda_fail(rc, "rank %d: a stream of its own on the current device",
				    c->rank);
	}
	pthread_mutex_init(&d->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&d->work, &attr);
	pthread_condattr_destroy(&attr);
	*ret_d = d;
	return 0;
}

static int open_device(tuttiComm_t c, const struct tt_env *env, bool *ret_shareable)
{
	const struct tt_cuda *cu = tt_cuda_here();
	struct tt_gpu *d = NULL;
	tt_cuctx ctx = NULL;
	int rc = strcmp(env->gpu, "off") ? tt_cuda_context(&ctx) : 0;

	if (rc)
		return tt_fail(rc, "rank %d: %s", c->rank, tt_error_text());
	*ret_shareable = false;
	if (!ctx)
		return 0;
	if ((rc = make_device(c, cu, ctx, &d)))
		return rc;
	d->staged_only = !strcmp(env->gpu, "staged");
	d->fifo_only = !strcmp(env->gpu, "fifo");
	if (d->staged_only || !strcmp(env->gpudirect, "off"))
		d->gdr = TT_GDR_NO;
	c->gpu = d;
	warn_of_one_connection(c);
	/* calls draw tickets, and the express paths, which read host memory, are off */
	atomic_store(&c->order.queued, true);
	*ret_shareable = !d->staged_only;
	return 0;
}

/* ---- can every rank map every peer's IPC buffer? --------------------------------------------- */

/* The record that ranks exchange. */
struct peer_record {
	struct tt_ipc_record ipc;
	struct tt_fd_address fd_address;
	/* A number means a device in one process only: CUDA_VISIBLE_DEVICES renumbers them. */
	struct tt_cuuuid device;
	int32_t blocks[TT_BLOCK_KINDS]; /* available on the device for kernels that wait */
	uint32_t ok;                    /* the rank's own verdict so far */
	uint32_t compiles;
	uint64_t probe; /* value that peers must read in its IPC buffer */
};

/* The value that a reader of `probe` writes back. */
static uint64_t probe_of(uint64_t probe, int reader)
{
	return tt_mix(probe, (uint64_t)reader + 1);
}

static tt_cuptr probe_at(tt_cuptr buffer, int slot)
{
	return buffer + offsetof(struct tt_dev_signals, probe) + (uint64_t)slot * sizeof(uint64_t);
}

static int copy_back(const struct tt_gpu *d, void *to, tt_cuptr from, size_t bytes)
{
	int rc = d->cu->dtoh_async(to, from, bytes, d->own);

	return rc ? rc : d->cu->stream_synchronize(d->own);
}

/* Takes an IPC buffer and loads the kernels. Each kernel is launched once, so that the driver loads
 * nothing while peers wait. */
static int prepare(struct tt_gpu *d, struct peer_record *mine)
{
	tuttiComm_t c = d->comm;
	struct tt_dev_job job = { .nranks = 1, .way = TT_DEV_ALONE };
	void *params[] = { &job };
	int rc = tt_kernels_load(d->cu, d->ctx, &d->k);

	if (!rc && (rc = d->cu->device_uuid(&mine->device, d->device)))
		rc = tt_cuda_fail(rc, "rank %d: the UUID of device %d", c->rank, d->device);
	if (rc || (rc = tt_ipc_buffer_take(d->cu, d->ctx, d->device, d->by_fd, d->own, &d->ipc)))
		return rc;
	job.signals[0] = d->ipc->at;
	job.report = d->ipc->words_at;
	for (int t = 0; !rc && t < tuttiNumTypes; t++)
		rc = d->cu->launch(d->k->fn[t], 1, 1, 1, TT_DEV_THREADS, 1, 1, 0, d->own, params,
				   NULL);
	mine->probe = tt_mix(tt_now_ns(), (uint64_t)c->rank);
	if (!rc)
		rc = d->cu->htod_async(probe_at(d->ipc->at, c->rank), &mine->probe,
				       sizeof(mine->probe), d->own);
	if (rc || (rc = d->cu->stream_synchronize(d->own)))
		return tt_cuda_fail(rc, "rank %d: try the kernels on device %d", c->rank,
				    d->device);
	tt_ipc_buffer_describe(d->ipc, &mine->ipc);
	for (int kind = 0; kind < TT_BLOCK_KINDS; kind++)
		mine->blocks[kind] = tt_kernels_available(d->k, (enum tt_block_kind)kind);
	return 0;
}

/* A kernel copies 8 bytes, then sets this rank's word of a peer if signal_to has the peer. */
static int copy_by_kernel(struct tt_gpu *d, int peer, tt_cuptr to, tt_cuptr from,
			  uint32_t signal_to)
{
	int me = d->comm->rank;
	struct tt_dev_job job = { .nranks = TT_DEV_RANKS,
				  .rank = (uint32_t)me,
				  .way = TT_DEV_ALONE,
				  .npieces = 1,
				  .report = d->ipc->words_at,
				  .in[0] = from,
				  .out[0] = to,
				  .piece[0] = { .from = 1, .to = 1, .bytes = 8 },
				  .signal_to = signal_to,
				  .signal_word = (uint32_t)(TT_DEV_ARRIVED + me) };
	void *params[] = { &job };

	job.signals[me] = d->ipc->at;
	job.signals[peer] = d->map[peer].at;
	job.host_words[peer] = d->map[peer].words_at;
	return d->cu->launch(d->k->fn[tuttiUint8], 1, 1, 1, TT_DEV_THREADS, 1, 1, 0, d->own, params,
			     NULL);
}

/* A kernel copies the peer's probe to this rank, another copies this rank's answer to the peer and
 * sets a word of the peer's stream, as calls will do. */
static int exchange_probes(struct tt_gpu *d, int peer, uint64_t answer, uint64_t *ret_read)
{
	tt_cuptr here = d->ipc->at + TT_DEV_STAGED_AT;
	int rc = copy_by_kernel(d, peer, here, probe_at(d->map[peer].at, peer), 0);

	if (!rc)
		rc = copy_back(d, ret_read, here, sizeof(*ret_read));
	if (!rc)
		rc = d->cu->htod_async(here, &answer, sizeof(answer), d->own);
	if (!rc)
		rc = copy_by_kernel(d, peer, probe_at(d->map[peer].at, d->comm->rank), here,
				    1u << peer);
	return rc ? rc : d->cu->stream_synchronize(d->own);
}

static int probe_peer(struct tt_gpu *d, int peer, const struct peer_record *record,
		      struct tt_ipc_fds fds)
{
	tuttiComm_t c = d->comm;
	uint64_t read = 0;
	int rc = tt_ipc_buffer_map(d->cu, d->device, &record->ipc, d->by_fd, fds, &d->map[peer]);

	if (rc)
		return tt_fail(rc, "rank %d's memory: %s", peer, tt_error_text());
	rc = exchange_probes(d, peer, probe_of(record->probe, c->rank), &read);
	if (rc)
		return tt_cuda_fail(rc, "rank %d: read and write rank %d's device memory", c->rank,
				    peer);
	if (read != record->probe)
		return tt_fail(
			TT_CUDA,
			"rank %d: the probe read from rank %d's device memory has a wrong value",
			c->rank, peer);
	return 0;
}

static bool is_set(const struct tt_gpu *d, int word)
{
	return __atomic_load_n(&d->ipc->words->stream[word].set, __ATOMIC_ACQUIRE);
}

/* Are all answers and signals of the peers here? The stream clears the signals, as in calls that streams order. */
static int check_probes(struct tt_gpu *d, uint64_t probe)
{
	uint64_t answer[TT_DEV_RANKS];
	tuttiComm_t c = d->comm;
	int rc = copy_back(d, answer, probe_at(d->ipc->at, 0), sizeof(answer));

	if (rc)
		return tt_cuda_fail(rc, "rank %d: read its own device memory", c->rank);
	for (int p = 0; p < c->nranks; p++)
		if (p != c->rank &&
		    (answer[p] != probe_of(probe, p) || !is_set(d, TT_DEV_ARRIVED + p)))
			return tt_fail(
				TT_CUDA,
				"rank %d: the probe that rank %d wrote into this rank's memory did not arrive",
				c->rank, p);
	rc = tt_gpu_await_signals(c, TT_DEV_ARRIVED, d->own);
	if (!rc && (rc = d->cu->stream_synchronize(d->own)))
		rc = tt_cuda_fail(rc, "rank %d: wait for its host words", c->rank);
	for (int p = 0; p < c->nranks && !rc; p++)
		if (is_set(d, TT_DEV_ARRIVED + p))
			rc = tt_fail(TT_CUDA, "rank %d: a stream does not reset host words",
				     c->rank);
	return rc;
}

/* The time in which a driver compiles the kernels, one device after the other, at most */
#define COMPILE_MS 300000u

/* One exchange: *ret_yes if every rank succeeded so far. rc: this rank's result. wait_ms: beyond the
 * time-out */
static int all_agree_within(tuttiComm_t c, struct peer_record *mine, struct peer_record *all,
			    int rc, uint32_t wait_ms, bool *ret_yes)
{
	mine->ok = !rc;
	if (rc)
		snprintf(c->gpu->refusal, sizeof(c->gpu->refusal), "%s", tt_error_text());
	rc = tt_control_allgather(c->ctl, mine, sizeof(*mine), all,
				  tt_deadline_ns(c->settings.timeout_ms + wait_ms));
	*ret_yes = true;
	for (int r = 0; !rc && r < c->nranks; r++)
		*ret_yes &= all[r].ok;
	return rc;
}

static int all_agree(tuttiComm_t c, struct peer_record *mine, struct peer_record *all, int rc,
		     bool *ret_yes)
{
	return all_agree_within(c, mine, all, rc, 0, ret_yes);
}

/* Are ranks in several processes, which share memory by descriptors? */
static bool are_processes(tuttiComm_t c, const struct peer_record *all)
{
	bool several = false;

	for (int p = 0; p < c->nranks; p++)
		several |= all[p].ipc.process != all[0].ipc.process;
	return several;
}

/* Exchanges 0 and 1. Ranks whose driver need not compile wait for the others; the deadline of the
 * join starts again behind that. */
static int load_all(struct tt_gpu *d, struct tt_fd_exchange *fds, struct peer_record *mine,
		    struct peer_record *all, bool *ret_yes)
{
	tuttiComm_t c = d->comm;
	uint32_t compiling = 0;
	int rc;

	mine->ipc.process = tt_ipc_buffer_process();
	mine->compiles = tt_kernels_must_compile(d->cu, d->ctx, d->device);
	rc = all_agree(c, mine, all, 0, ret_yes);
	if (rc || !*ret_yes)
		return rc;
	for (int r = 0; r < c->nranks; r++)
		compiling += all[r].compiles;
	if (mine->compiles)
		tt_log(TT_LOG_WARN,
		       "rank %d: the driver compiles the GPU kernels, which have no machine code for device %d, maybe for minutes; the driver keeps the result (CUDA_CACHE_PATH)",
		       c->rank, d->device);
	rc = are_processes(c, all) ? tt_fd_exchange_open(fds) : 0;
	mine->fd_address = fds->address;
	rc = rc ? rc : prepare(d, mine);
	rc = all_agree_within(c, mine, all, rc, compiling ? COMPILE_MS : 0, ret_yes);
	if (!rc && compiling)
		c->setup_deadline_ns = tt_deadline_ns(c->settings.timeout_ms);
	return rc;
}

/* Ranks before `end` that use the device of `rank` */
static uint32_t count_sharing(const struct peer_record *all, int rank, int end)
{
	uint32_t sharing = 0;

	for (int p = 0; p < end; p++)
		sharing += !memcmp(&all[p].device, &all[rank].device, sizeof(all[p].device));
	return sharing;
}

/* The ways of threads that share a GPU, and of ranks with a GPU each. A rank alone waits for nobody. With
 * TUTTI_GPU=fifo ranks that share a GPU take the way of ranks with a GPU each. */
static void choose_way(struct tt_gpu *d, const struct peer_record *all)
{
	uint32_t n = (uint32_t)d->comm->nranks;

	d->devices = 0;
	for (uint32_t r = 0; r < n; r++)
		d->devices += !count_sharing(all, (int)r, (int)r);
	d->kernel_barrier = !are_processes(d->comm, all) &&
			    ((d->devices < n && !d->fifo_only) || n == 1);
	d->kernels_wait = d->kernel_barrier || d->devices == n || d->fifo_only;
	d->block_kind = d->kernel_barrier ? TT_SMALL_BLOCKS : TT_LARGE_BLOCKS;
}

/* Kernels that wait for each other must all be on the device at once, also the kernels of other
 * communicators of this process, which ranks may call in different orders. So each communicator
 * reserves half of the blocks that earlier ones have left. The first one of small blocks has one on each
 * multiprocessor. Where no block is left, streams order the ranks instead. */
static void reserve_blocks(struct tt_gpu *d, const struct peer_record *all)
{
	int n = d->comm->nranks;

	choose_way(d, all);
	d->blocks = d->kernel_barrier ? TT_DEV_BLOCKS : TT_FIFO_BLOCKS;
	for (int r = 0; r < n && n > 1; r++) {
		uint32_t most = (uint32_t)all[r].blocks[d->block_kind] / 2 /
				count_sharing(all, r, n);

		d->blocks = most < d->blocks ? most : d->blocks;
	}
	d->kernels_wait &= d->blocks > 0;
	d->kernel_barrier &= d->kernels_wait;
	d->reserved_blocks = d->kernels_wait && n > 1 ? (int)d->blocks : 0;
	tt_kernels_reserve(d->k, d->block_kind, d->reserved_blocks);
}

/* A stream that shares a driver's connection with a waiting stream waits too. */
static void warn_of_connections(const struct tt_gpu *d, const struct peer_record *all)
{
	int connections = tt_gpu_connections(), n = d->comm->nranks, streams = 4 * n;
	bool share = d->kernels_wait && (int)d->devices < n && !are_processes(d->comm, all);

	if (share && d->comm->rank == 0 && streams > connections)
		tt_log(TT_LOG_WARN,
		       "%d ranks that are threads have %d streams and more, but CUDA %d connections to a device, in which they can hold each other up: set CUDA_DEVICE_MAX_CONNECTIONS=32 before CUDA starts",
		       n, streams, connections);
}

static void unmap_peers(struct tt_gpu *d)
{
	for (int p = 0; p < TT_DEV_RANKS; p++)
		tt_ipc_buffer_unmap(d->cu, &d->map[p], d->by_fd);
}

/* Sends this rank's descriptors to all peers; after the exchange all descriptors have arrived. */
static int swap_descriptors(struct tt_gpu *d, struct tt_fd_exchange *fds, struct peer_record *mine,
			    struct peer_record *all, bool *ret_yes)
{
	struct tt_ipc_fds own = { d->ipc->words_fd, d->ipc->fd };
	tuttiComm_t c = d->comm;
	int rc = 0;

	for (int p = 0; p < c->nranks && !rc; p++)
		if (all[p].ipc.process != tt_ipc_buffer_process())
			rc = tt_fd_exchange_send(c->rank, p, &all[p].fd_address, own);
	rc = all_agree(c, mine, all, rc, ret_yes);
	tt_fd_exchange_collect(fds);
	return rc;
}

static int map_and_probe(struct tt_gpu *d, struct tt_fd_exchange *fds, struct peer_record *all,
			 bool *ret_yes)
{
	struct peer_record mine = { .ok = 0 };
	tuttiComm_t c = d->comm;
	int rc = load_all(d, fds, &mine, all, ret_yes);

	if (!rc && *ret_yes && are_processes(c, all))
		rc = swap_descriptors(d, fds, &mine, all, ret_yes);
	if (rc || !*ret_yes)
		return rc;
	d->map[c->rank] = (struct tt_ipc_mapping){ d->ipc->at, d->ipc->words_at, 0, NULL };
	for (int p = 0; !rc && p < c->nranks; p++)
		rc = p == c->rank ? 0 : probe_peer(d, p, &all[p], fds->of[p]);
	rc = all_agree(c, &mine, all, rc, ret_yes);
	if (rc || !*ret_yes)
		return rc;
	return all_agree(c, &mine, all, check_probes(d, mine.probe), ret_yes);
}

/* Maps all IPC buffers and tries them by copies. *ret_yes: every rank reads and writes every
 * peer's. */
static int map_all(struct tt_gpu *d, struct peer_record *all, bool *ret_yes)
{
	struct tt_fd_exchange fds = { .socket = -1 };
	int rc;

	memset(fds.of, -1, sizeof(fds.of));
	rc = map_and_probe(d, &fds, all, ret_yes);
	tt_fd_exchange_close(&fds);
	return rc;
}

/* The second attempt, by descriptors: ranks are processes, and IPC handles failed. */
static int map_all_by_fd(struct tt_gpu *d, struct peer_record *all, bool *ret_yes)
{
	bool prepared = false;

	for (int p = 0; p < d->comm->nranks; p++)
		prepared |= all[p].ipc.ok;
	if (!prepared || !are_processes(d->comm, all))
		return 0;
	if (d->refusal[0])
		tt_log(TT_LOG_INFO, "rank %d: no IPC handles: %s", d->comm->rank, d->refusal);
	d->refusal[0] = '\0';
	unmap_peers(d);
	if (d->ipc)
		tt_ipc_buffer_give(d->ipc);
	d->ipc = NULL;
	d->by_fd = true;
	return map_all(d, all, ret_yes);
}

/* The first rank that cannot use kernels warns, once in a process; the others inform. */
static void log_refusal(const struct tt_gpu *d, const struct peer_record *all)
{
	static atomic_bool warned;
	int first = 0;

	if (!d->refusal[0])
		return;
	while (all[first].ok)
		first++;
	tt_log(first == d->comm->rank && !atomic_exchange(&warned, true) ? TT_LOG_WARN
									 : TT_LOG_INFO,
	       "rank %d: calls on memory of device %d go through host memory, without GPU kernels: %s",
	       d->comm->rank, d->device, d->refusal);
}

static int agree_on_kernels(tuttiComm_t c, struct peer_record *all)
{
	struct tt_gpu *d = c->gpu;
	int rc = map_all(d, all, &d->kernels);

	if (!rc && !d->kernels)
		rc = map_all_by_fd(d, all, &d->kernels);
	if (!rc && !d->kernels)
		log_refusal(d, all);
	if (rc || !d->kernels)
		return rc;
	reserve_blocks(d, all);
	warn_of_connections(d, all);
	tt_log(TT_LOG_INFO, "rank %d: GPU kernels on device %d, ranks on %u, %s%s", c->rank,
	       d->device, d->devices,
	       d->kernel_barrier ? "with barriers between kernels"
	       : d->kernels_wait ? "which wait for each other"
				 : "ordered by streams",
	       d->by_fd && !d->kernel_barrier ? ", IPC buffers shared by descriptor" : "");
	return tt_gpu_watch(d);
}

static int exchange(tuttiComm_t c)
{
	struct peer_record *all;
	int rc;

	if (!c->hosts.one_host || c->nranks > TT_DEV_RANKS)
		return 0;
	all = calloc((size_t)c->nranks, sizeof(*all));
	if (!all)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for %d ranks", c->rank, c->nranks);
	rc = agree_on_kernels(c, all);
	free(all);
	return rc;
}

void tt_gpu_settle(tuttiComm_t c)
{
	struct tt_gpu *d = c->gpu;
	int mode, rc;

	if (!d)
		return;
	mode = tt_cuda_enter(d->ctx);
	rc = d->has_last ? d->cu->event_synchronize(d->last) : 0;
	if (!rc)
		rc = d->cu->stream_synchronize(d->own);
	if (rc)
		tt_gpu_release_tickets(d, rc);
	tt_cuda_leave(d->ctx, mode);
}

_Static_assert(offsetof(struct tt_dev_signals, completed) ==
		       offsetof(struct tt_dev_signals, rounds) + TT_FIFO_BLOCKS * sizeof(uint32_t),
	       "one copy reads both");
#define LAST_WORDS_TRIES 100
#define LAST_WORDS_PAUSE_NS 100000

/* A kernel with a FIFO ends before its peers have announced their last rounds to it. In an IPC buffer that the
 * next communicator uses, a late word would announce a round of that one. false: some word is missing */
static bool have_last_words(const struct tt_gpu *d)
{
	struct {
		uint32_t rounds[TT_FIFO_BLOCKS], completed[TT_FIFO_BLOCKS][TT_DEV_RANKS];
	} words;
	struct timespec pause = { .tv_nsec = LAST_WORDS_PAUSE_NS };
	tt_cuptr at = d->ipc->at + offsetof(struct tt_dev_signals, rounds);
	int missing = d->kernels_wait && !d->kernel_barrier;

	for (int i = 0; missing && i < LAST_WORDS_TRIES; i++) {
		if (i)
			nanosleep(&pause, NULL);
		if (copy_back(d, &words, at, sizeof(words)))
			return false;
		missing = 0;
		for (int b = 0; b < TT_FIFO_BLOCKS; b++)
			for (int p = 0; p < d->comm->nranks; p++)
				missing += p != d->comm->rank &&
					   words.completed[b][p] != words.rounds[b];
	}
	return !missing;
}

static void close_device(tuttiComm_t c)
{
	struct tt_gpu *d = c->gpu;
	int mode;

	if (!d)
		return;
	tt_gpu_settle(c);
	mode = tt_cuda_enter(d->ctx);
	tt_gpu_staging_close(d);
	tt_gpu_unwatch(d);
	if (d->reserved_blocks)
		tt_kernels_reserve(d->k, d->block_kind, -d->reserved_blocks);
	unmap_peers(d);
	if (d->ipc && (tt_control_broken(c->ctl) || !have_last_words(d)))
		tt_ipc_buffer_retire(d->ipc);
	else if (d->ipc)
		tt_ipc_buffer_give(d->ipc);
	d->cu->event_destroy(d->last);
	d->cu->stream_destroy(d->own);
	tt_cuda_leave(d->ctx, mode);
	tt_gpu_programs_free(d);
	pthread_cond_destroy(&d->work);
	pthread_mutex_destroy(&d->lock);
	free(d);
	c->gpu = NULL;
}

const struct tt_accelerator_ops tt_accelerator = {
	.open = open_device,
	.exchange = exchange,
	.close = close_device,
	.fetch = tt_gpu_fetch,
	.context_of = tt_gpu_context_of,
};

/*
 * ipc_buffer.c - IPC buffers: device memory that all ranks of a host map, by pointer within a
 * process, by IPC handle between processes; where handles are refused, by descriptor (ipc_fd.c). Each
 * buffer has host words, which processes share by descriptor (ipc_words.c)
 *
 * Called by gpu_open.c when ranks join; calls the driver. IPC buffers are no transport: kernels and
 * streams move the bytes (gpu_job.c, gpu_ordered.c, gpu_plan.c), not messages. Peer access is
 * enabled between two GPUs of a process. gpu_open.c tries reads and writes of every peer's buffer
 * and never trusts the driver's answer alone.
 *
 * Buffers are kept for the next communicator instead of freed, since cuMemFree waits for all work
 * on the device, also for kernels that wait for a rank of this very thread.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "gpu/gpu.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct tt_ipc_buffer *buffers; /* all buffers of this process; under lock */
static atomic_uint_fast64_t process;

/* Random, since processes of different pid namespaces may have equal pids; mixed with the pid,
 * since a fork copies the random number. */
uint64_t tt_ipc_buffer_process(void)
{
	uint64_t none = 0, mine = 0;

	if (!atomic_load(&process)) {
		if (getrandom(&mine, sizeof(mine), 0) != sizeof(mine))
			mine = tt_now_ns();
		atomic_compare_exchange_strong(&process, &none, mine | 1);
	}
	return atomic_load(&process) ^ (uint64_t)getpid() << 32;
}

static struct tt_ipc_buffer *find_unused(tt_cuctx ctx, uint64_t ctx_id, bool by_fd)
{
	struct tt_ipc_buffer *a;

	pthread_mutex_lock(&lock);
	for (a = buffers; a; a = a->next)
		if (a->use == TT_IPC_BUFFER_UNUSED && a->ctx == ctx && a->ctx_id == ctx_id &&
		    (a->fd >= 0) == by_fd)
			break;
	if (a)
		a->use = TT_IPC_BUFFER_USED;
	pthread_mutex_unlock(&lock);
	return a;
}

static int allocate(const struct tt_cuda *cu, bool by_fd, struct tt_ipc_buffer *a)
{
	int rc;

	a->fd = -1;
	a->bytes = TT_DEV_IPC_BYTES;
	if (by_fd)
		return tt_vmm_make(cu, TT_DEV_IPC_BYTES, &a->bytes, &a->fd, &a->at);
	rc = cu->mem_alloc(&a->at, a->bytes);
	a->shareable = !rc && !cu->ipc_get(&a->handle, a->at);
	return rc;
}

static int make(const struct tt_cuda *cu, tt_cuctx ctx, int device, bool by_fd,
		struct tt_ipc_buffer **ret)
{
	struct tt_ipc_buffer *a = calloc(1, sizeof(*a));
	int rc;

	if (!a)
		return tt_fail(TT_SYSTEM, "no memory for the record of an IPC buffer");
	a->ctx = ctx;
	a->ctx_id = tt_cuda_context_id(cu, ctx);
	a->device = device;
	rc = allocate(cu, by_fd, a);
	if (rc) {
		rc = tt_cuda_fail(rc, "%zu bytes of device memory for a communicator",
				  (size_t)TT_DEV_IPC_BYTES);
		goto free_record;
	}
	rc = tt_ipc_words_make(cu, &a->words_fd, &a->words, &a->words_at);
	if (rc)
		goto free_memory;
	pthread_mutex_lock(&lock);
	a->next = buffers;
	buffers = a;
	pthread_mutex_unlock(&lock);
	*ret = a;
	return 0;
free_memory:
	if (by_fd) {
		tt_vmm_unmap(cu, a->at, a->bytes);
		close(a->fd);
	} else {
		cu->mem_free(a->at);
	}
free_record:
	free(a);
	return rc;
}

int tt_ipc_buffer_take(const struct tt_cuda *cu, tt_cuctx ctx, int device, bool by_fd,
		       tt_custream stream, struct tt_ipc_buffer **ret_buffer)
{
	struct tt_ipc_buffer *a = find_unused(ctx, tt_cuda_context_id(cu, ctx), by_fd);
	int rc = a ? 0 : make(cu, ctx, device, by_fd, &a);

	if (rc)
		return rc;
	memset(a->words, 0, sizeof(*a->words));
	rc = cu->memset8_async(a->at, 0, TT_DEV_STAGED_AT, stream);
	if (rc) {
		tt_ipc_buffer_give(a);
		return tt_cuda_fail(rc, "clear an IPC buffer");
	}
	*ret_buffer = a;
	return 0;
}

static void set_use(struct tt_ipc_buffer *a, int use)
{
	pthread_mutex_lock(&lock);
	a->use = use;
	pthread_mutex_unlock(&lock);
}

void tt_ipc_buffer_give(struct tt_ipc_buffer *a)
{
	set_use(a, TT_IPC_BUFFER_UNUSED);
}

void tt_ipc_buffer_retire(struct tt_ipc_buffer *a)
{
	set_use(a, TT_IPC_BUFFER_RETIRED);
}

void tt_ipc_buffer_describe(const struct tt_ipc_buffer *a, struct tt_ipc_record *ret_record)
{
	memset(ret_record, 0, sizeof(*ret_record));
	ret_record->process = tt_ipc_buffer_process();
	ret_record->at = a->at;
	ret_record->ctx = (uintptr_t)a->ctx;
	ret_record->words = (uintptr_t)a->words;
	ret_record->bytes = a->bytes;
	ret_record->device = a->device;
	ret_record->ok = 1;
	if (a->shareable)
		ret_record->handle = a->handle;
}

static bool is_of_this_process(const struct tt_ipc_record *record)
{
	struct tt_ipc_buffer *a;

	pthread_mutex_lock(&lock);
	for (a = buffers; a; a = a->next)
		if (a->use == TT_IPC_BUFFER_USED && a->at == record->at &&
		    a->bytes == record->bytes && (uintptr_t)a->ctx == record->ctx &&
		    (uintptr_t)a->words == record->words && a->device == record->device)
			break;
	pthread_mutex_unlock(&lock);
	return a != NULL;
}

/* Kernels would access any address that a record has, so its values are checked. The driver checks
 * the handles of other processes. */
static int check_record(const struct tt_ipc_record *record)
{
	if (record->bytes < TT_DEV_IPC_BYTES)
		return tt_fail(
			TT_CUDA,
			"an IPC buffer of %llu bytes, where %zu are needed; do all ranks run the same build?",
			(unsigned long long)record->bytes, (size_t)TT_DEV_IPC_BYTES);
	if (record->process == tt_ipc_buffer_process() && !is_of_this_process(record))
		return tt_fail(
			TT_CUDA,
			"an IPC buffer of %llu bytes at %#llx on device %d, where this process has none",
			(unsigned long long)record->bytes, (unsigned long long)record->at,
			record->device);
	return 0;
}

static int open_buffer(const struct tt_cuda *cu, int device, const struct tt_ipc_record *record,
		       bool by_fd, int fd, tt_cuptr *ret_at)
{
	int rc;

	if (by_fd && fd < 0)
		return tt_fail(TT_CUDA, "the descriptor of a peer's device memory did not arrive");
	rc = by_fd ? tt_vmm_open(cu, device, fd, record->bytes, ret_at)
		   : cu->ipc_open(ret_at, record->handle, TT_CU_IPC_LAZY_PEERS);
	return rc ? tt_cuda_fail(rc, "open a peer's device memory by %s",
				 by_fd ? "descriptor" : "IPC handle")
		  : 0;
}

static void close_buffer(const struct tt_cuda *cu, const struct tt_ipc_mapping *map, bool by_fd)
{
	if (by_fd)
		tt_vmm_unmap(cu, map->at, map->bytes);
	else
		cu->ipc_close(map->at);
}

/* Maps the buffer and the host words of a rank of another process. */
static int open_peers(const struct tt_cuda *cu, int device, const struct tt_ipc_record *record,
		      bool by_fd, struct tt_ipc_fds fds, struct tt_ipc_mapping *map)
{
	int rc = open_buffer(cu, device, record, by_fd, fds.buffer, &map->at);

	if (rc)
		return rc;
	map->bytes = record->bytes;
	rc = fds.words < 0
		     ? tt_fail(TT_CUDA, "the descriptor of a peer's host words did not arrive")
		     : tt_ipc_words_open(cu, fds.words, &map->words, &map->words_at);
	if (rc) {
		close_buffer(cu, map, by_fd);
		map->bytes = 0;
	}
	return rc;
}

/* Makes the buffer and the host words of a rank of this process reachable. */
static int reach(const struct tt_cuda *cu, int device, const struct tt_ipc_record *record,
		 bool by_fd, struct tt_ipc_mapping *map)
{
	int can = 1, rc = cu->host_device_ptr(&map->words_at, (void *)(uintptr_t)record->words, 0);

	if (rc)
		return tt_cuda_fail(rc, "device %d's address of host words", device);
	map->at = record->at;
	if (record->device == device)
		return 0;
	rc = cu->can_access_peer(&can, device, record->device);
	if (!rc && can)
		rc = by_fd ? tt_vmm_access(cu, device, record->at, record->bytes)
			   : cu->peer_enable((tt_cuctx)(uintptr_t)record->ctx, 0);
	if (rc && rc != TT_CU_PEER_ALREADY)
		return tt_cuda_fail(rc, "device %d: peer access to device %d", device,
				    record->device);
	return can ? 0
		   : tt_fail(TT_CUDA, "device %d has no peer access to device %d", device,
			     record->device);
}

int tt_ipc_buffer_map(const struct tt_cuda *cu, int device, const struct tt_ipc_record *record,
		      bool by_fd, struct tt_ipc_fds fds, struct tt_ipc_mapping *ret_map)
{
	int rc = check_record(record);

	*ret_map = (struct tt_ipc_mapping){ .bytes = 0 };
	if (rc)
		return rc;
	return record->process == tt_ipc_buffer_process()
		       ? reach(cu, device, record, by_fd, ret_map)
		       : open_peers(cu, device, record, by_fd, fds, ret_map);
}

void tt_ipc_buffer_unmap(const struct tt_cuda *cu, struct tt_ipc_mapping *map, bool by_fd)
{
	if (!map->bytes)
		return;
	tt_ipc_words_close(cu, map->words);
	close_buffer(cu, map, by_fd);
	map->bytes = 0;
}

/* The child drops the parent's buffers, since CUDA does not survive a fork. The records of used
 * buffers stay, since the child's copies of communicators point to them. */
static void forget(void)
{
	for (struct tt_ipc_buffer *a; (a = buffers);) {
		buffers = a->next;
		if (a->use == TT_IPC_BUFFER_USED)
			continue;
		if (a->fd >= 0)
			close(a->fd);
		close(a->words_fd);
		munmap(a->words, TT_DEV_HOST_BYTES);
		free(a);
	}
}

static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
	forget();
	after_fork();
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, in_child);
}

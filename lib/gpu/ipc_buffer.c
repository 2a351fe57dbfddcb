/*
 * ipc_buffer.c - device memory that ranks of a host reach: by pointer within a process, by IPC handle
 * between processes; where handles are refused, by descriptor (ipc_fd.c)
 *
 * Called by comm when ranks join. It is no row of transports.c: bytes are moved by kernels and
 * streams (run/gpu*.c), not by messages. Between two GPUs of a process peer access is switched on.
 * That a peer's memory can be read and written is believed after it was tried (gpu/gpu_open.c), never
 * because the driver says so.
 *
 * Areas are kept for the next communicator instead of freed, since cuMemFree waits for everything
 * that runs on the device, also for kernels that wait for a rank of this very thread.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "gpu/gpu.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct tt_ipc_buffer *areas;                          /* under lock; of this process, all */
static atomic_uint_fast64_t process;

/* Random, since pids are equal in different pid namespaces;
 * with the pid, since a fork would copy it. */
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

static struct tt_ipc_buffer *find_unused(tt_cuctx ctx, bool by_fd)
{
	struct tt_ipc_buffer *a;

	pthread_mutex_lock(&lock);
	for (a = areas; a; a = a->next)
		if (a->use == TT_IPC_BUFFER_UNUSED && a->ctx == ctx && (a->fd >= 0) == by_fd)
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
	a->bytes = TT_DEV_AREA_BYTES;
	if (by_fd)
		return tt_vmm_make(cu, TT_DEV_AREA_BYTES, &a->bytes, &a->fd, &a->at);
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
		return tt_fail(TT_SYSTEM, "no memory for the record of an area");
	a->ctx = ctx;
	a->device = device;
	rc = allocate(cu, by_fd, a);
	if (rc) {
		rc = tt_cuda_fail(rc, "%zu bytes of device memory for a communicator",
				  (size_t)TT_DEV_AREA_BYTES);
		goto free_record;
	}
	rc = cu->host_alloc((void **)&a->report, 4096, TT_CU_HOST_PORTABLE | TT_CU_HOST_MAPPED);
	if (!rc)
		rc = cu->host_device_ptr(&a->report_at, a->report, 0);
	if (rc) {
		rc = tt_cuda_fail(rc, "a page of pinned memory for a communicator");
		goto free_area;
	}
	pthread_mutex_lock(&lock);
	a->next = areas;
	areas = a;
	pthread_mutex_unlock(&lock);
	*ret = a;
	return 0;
free_area:
	if (a->report)
		cu->host_free(a->report);
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
		 tt_custream stream, struct tt_ipc_buffer **ret_area)
{
	struct tt_ipc_buffer *a = find_unused(ctx, by_fd);
	int rc = a ? 0 : make(cu, ctx, device, by_fd, &a);

	if (rc)
		return rc;
	memset(a->report, 0, sizeof(*a->report));
	rc = cu->memset8_async(a->at, 0, TT_DEV_STAGED_AT, stream);
	if (rc) {
		tt_ipc_buffer_give(a);
		return tt_cuda_fail(rc, "clear an area");
	}
	*ret_area = a;
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

void tt_ipc_buffer_lose(struct tt_ipc_buffer *a)
{
	set_use(a, TT_IPC_BUFFER_LOST);
}

void tt_ipc_buffer_describe(const struct tt_ipc_buffer *a, struct tt_ipc_record *ret_card)
{
	memset(ret_card, 0, sizeof(*ret_card));
	ret_card->process = tt_ipc_buffer_process();
	ret_card->at = a->at;
	ret_card->ctx = (uintptr_t)a->ctx;
	ret_card->bytes = a->bytes;
	ret_card->device = a->device;
	ret_card->ok = 1;
	if (a->shareable)
		ret_card->handle = a->handle;
}

static bool is_of_this_process(const struct tt_ipc_record *card)
{
	struct tt_ipc_buffer *a;

	pthread_mutex_lock(&lock);
	for (a = areas; a; a = a->next)
		if (a->use == TT_IPC_BUFFER_USED && a->at == card->at && a->bytes == card->bytes &&
		    (uintptr_t)a->ctx == card->ctx && a->device == card->device)
			break;
	pthread_mutex_unlock(&lock);
	return a != NULL;
}

/* Kernels would go wherever a card says. Of other processes, the driver knows the rest. */
static int check_card(const struct tt_ipc_record *card)
{
	if (card->bytes < TT_DEV_AREA_BYTES)
		return tt_fail(TT_CUDA,
			       "an area of %llu bytes, where %zu are needed; do all ranks run the same build?",
			       (unsigned long long)card->bytes, (size_t)TT_DEV_AREA_BYTES);
	if (card->process == tt_ipc_buffer_process() && !is_of_this_process(card))
		return tt_fail(TT_CUDA,
			       "an area of %llu bytes at %#llx on device %d, where this process has none",
			       (unsigned long long)card->bytes, (unsigned long long)card->at,
			       card->device);
	return 0;
}

static int open_peers(const struct tt_cuda *cu, int device, const struct tt_ipc_record *card,
		      bool by_fd, int fd, tt_cuptr *ret_at)
{
	int rc;

	if (by_fd && fd < 0)
		return tt_fail(TT_CUDA, "the descriptor of a peer's device memory did not come");
	rc = by_fd ? tt_vmm_open(cu, device, fd, card->bytes, ret_at) :
	     cu->ipc_open(ret_at, card->handle, TT_CU_IPC_LAZY_PEERS);
	return rc ? tt_cuda_fail(rc, "open a peer's device memory by %s",
				 by_fd ? "descriptor" : "IPC handle")
		  : 0;
}

int tt_ipc_buffer_reach(const struct tt_cuda *cu, int device, const struct tt_ipc_record *card, bool by_fd,
		  int fd, tt_cuptr *ret_at, size_t *ret_opened)
{
	int can = 1, rc = check_card(card);

	*ret_opened = 0;
	if (rc)
		return rc;
	if (card->process != tt_ipc_buffer_process()) {
		rc = open_peers(cu, device, card, by_fd, fd, ret_at);
		*ret_opened = rc ? 0 : card->bytes;
		return rc;
	}
	*ret_at = card->at;
	if (card->device == device)
		return 0;
	rc = cu->can_access_peer(&can, device, card->device);
	if (!rc && can)
		rc = by_fd ? tt_vmm_access(cu, device, card->at, card->bytes) :
		     cu->peer_enable((tt_cuctx)(uintptr_t)card->ctx, 0);
	if (rc && rc != TT_CU_PEER_ALREADY)
		return tt_cuda_fail(rc, "device %d: peer access to device %d", device,
				    card->device);
	return can ? 0 : tt_fail(TT_CUDA, "device %d cannot reach device %d", device, card->device);
}

void tt_ipc_buffer_shut(const struct tt_cuda *cu, tt_cuptr at, size_t opened, bool by_fd)
{
	if (by_fd)
		tt_vmm_unmap(cu, at, opened);
	else
		cu->ipc_close(at);
}

/* Areas of the parent are not the child's: CUDA does not survive a fork. Its communicators still
 * have the records of those that were used. */
static void forget(void)
{
	for (struct tt_ipc_buffer *a; (a = areas);) {
		areas = a->next;
		if (a->use == TT_IPC_BUFFER_USED)
			continue;
		if (a->fd >= 0)
			close(a->fd);
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

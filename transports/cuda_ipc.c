/*
 * cuda_ipc.c - device memory that ranks of a host reach: by pointer within a process, by IPC handle between processes
 *
 * Called by comm when ranks join. It is no row of transports.c: bytes are moved by kernels and streams (run/gpu*.c),
 * not by messages. Between two GPUs of a process peer access is switched on. That a peer's memory can be read and
 * written is believed after it was tried (comm/gpu.c), never because the driver says so.
 *
 * Areas are kept for the next communicator instead of freed, since cuMemFree waits for everything that runs on the device,
 * also for kernels that wait for a rank of this very thread.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "comm/gpu.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct tt_area *unused;                         /* under lock */
static atomic_uint_fast64_t process;

/* Random, since pids are equal in different pid namespaces; with the pid, since a fork would copy it. */
uint64_t tt_area_process(void)
{
	uint64_t none = 0, mine = 0;

	if (!atomic_load(&process)) {
		if (getrandom(&mine, sizeof(mine), 0) != sizeof(mine))
			mine = tt_now_ns();
		atomic_compare_exchange_strong(&process, &none, mine | 1);
	}
	return atomic_load(&process) ^ (uint64_t)getpid() << 32;
}

static struct tt_area *find_unused(tt_cuctx ctx)
{
	struct tt_area **at, *a;

	pthread_mutex_lock(&lock);
	for (at = &unused; (a = *at) && a->ctx != ctx; at = &a->next)
		;
	if (a)
		*at = a->next;
	pthread_mutex_unlock(&lock);
	return a;
}

static int make(const struct tt_cuda *cu, tt_cuctx ctx, struct tt_area **ret)
{
	struct tt_area *a = calloc(1, sizeof(*a));
	int rc;

	if (!a)
		return tt_fail(TT_SYSTEM, "no memory for the record of an area");
	a->ctx = ctx;
	rc = cu->mem_alloc(&a->at, TT_DEV_AREA_BYTES);
	if (rc) {
		rc = tt_cuda_fail(rc, "%zu bytes of device memory for a communicator", (size_t)TT_DEV_AREA_BYTES);
		goto free_record;
	}
	rc = cu->host_alloc((void **)&a->report, 4096, TT_CU_HOST_PORTABLE | TT_CU_HOST_MAPPED);
	if (!rc)
		rc = cu->host_device_ptr(&a->report_at, a->report, 0);
	if (rc) {
		rc = tt_cuda_fail(rc, "a page of pinned memory for a communicator");
		goto free_area;
	}
	a->shareable = !cu->ipc_get(&a->handle, a->at);
	*ret = a;
	return 0;
free_area:
	cu->mem_free(a->at);
free_record:
	free(a);
	return rc;
}

int tt_area_take(const struct tt_cuda *cu, tt_cuctx ctx, tt_custream stream, struct tt_area **ret_area)
{
	struct tt_area *a = find_unused(ctx);
	int rc = a ? 0 : make(cu, ctx, &a);

	if (rc)
		return rc;
	memset(a->report, 0, sizeof(*a->report));
	rc = cu->memset8_async(a->at, 0, TT_DEV_STAGED_AT, stream);
	if (rc) {
		tt_area_give(a);
		return tt_cuda_fail(rc, "clear an area");
	}
	*ret_area = a;
	return 0;
}

void tt_area_give(struct tt_area *a)
{
	pthread_mutex_lock(&lock);
	a->next = unused;
	unused = a;
	pthread_mutex_unlock(&lock);
}

void tt_area_describe(const struct tt_area *a, int device, struct tt_area_card *ret_card)
{
	memset(ret_card, 0, sizeof(*ret_card));
	ret_card->process = tt_area_process();
	ret_card->at = a->at;
	ret_card->ctx = (uintptr_t)a->ctx;
	ret_card->device = device;
	ret_card->ok = 1;
	if (a->shareable)
		ret_card->handle = a->handle;
}

int tt_area_reach(const struct tt_cuda *cu, int device, const struct tt_area_card *card, tt_cuptr *ret_at,
		  bool *ret_opened)
{
	int rc, can = 1;

	*ret_opened = card->process != tt_area_process();
	if (*ret_opened) {
		rc = cu->ipc_open(ret_at, card->handle, TT_CU_IPC_LAZY_PEERS);
		return rc ? tt_cuda_fail(rc, "open a peer's device memory") : 0;
	}
	*ret_at = card->at;
	if (card->device == device)
		return 0;
	rc = cu->can_access_peer(&can, device, card->device);
	if (!rc && can)
		rc = cu->peer_enable((tt_cuctx)(uintptr_t)card->ctx, 0);
	if (rc && rc != TT_CU_PEER_ALREADY)
		return tt_cuda_fail(rc, "device %d: peer access to device %d", device, card->device);
	return can ? 0 : tt_fail(TT_CUDA, "device %d cannot reach device %d", device, card->device);
}

void tt_area_shut(const struct tt_cuda *cu, tt_cuptr at)
{
	cu->ipc_close(at);
}

/* Areas of the parent are not the child's: CUDA does not survive a fork. */
static void in_child(void)
{
	pthread_mutex_init(&lock, NULL);
	unused = NULL;
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

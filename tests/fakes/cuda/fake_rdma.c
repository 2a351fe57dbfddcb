/*
 * fake_rdma.c - memory for HCAs in the fake CUDA driver: dma-bufs, and the flush of RDMA writes
 *
 * As strict as CUDA: a dma-buf covers whole pages of the host in one allocation of device memory.
 * Where the device does not order writes, tests/fakes/verbs defers them until the flush.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fakes/cuda/fake_dmabuf.h"
#include "tests/fakes/cuda/fake_cuda.h"

EXPORT int cuMemGetHandleForAddressRange(void *ret_handle, tt_cuptr at, size_t bytes, int type,
					 unsigned long long flags)
{
	struct fake_dmabuf d = { .magic = FAKE_DMABUF,
				 .bytes = bytes,
				 .unordered = fake_lacks("ordering") };
	int fd;

	ENTER_CONTEXT();
	if (type != TT_CU_RANGE_DMA_BUF || flags || at % 4096 || bytes % 4096 || !bytes ||
	    fake_lacks("dmabuf") || !fake_find_device(at, bytes, &d.fd, &d.offset))
		return TT_CU_BAD_VALUE;
	fd = memfd_create("fake dma-buf", MFD_CLOEXEC);
	if (fd < 0 || write(fd, &d, sizeof(d)) != sizeof(d))
		return TT_CU_NO_MEMORY;
	*(int *)ret_handle = fd;
	return 0;
}

EXPORT int cuFlushGPUDirectRDMAWrites(int target, int scope)
{
	void *verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
	void (*flush)(void) = NULL;

	ENTER_CONTEXT();
	if (target != TT_CU_FLUSH_CONTEXT || scope != TT_CU_ORDERED_FOR_OWNER ||
	    fake_lacks("flush"))
		return TT_CU_BAD_VALUE;
	if (verbs)
		*(void **)&flush = dlsym(verbs, "fake_flush");
	if (flush)
		flush();
	if (verbs)
		dlclose(verbs);
	return 0;
}

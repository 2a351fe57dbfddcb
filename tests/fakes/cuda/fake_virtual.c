/*
 * fake_virtual.c - virtual memory management of the fake CUDA driver: a handle is a memfd, which is
 * mapped at a reserved address
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fakes/cuda/fake_cuda.h"

#define GRANULARITY 65536

static int fd_of(uint64_t handle)
{
	return (int)handle - 1;
}

EXPORT int cuMemGetAllocationGranularity(size_t *ret_bytes, const struct tt_cuprop *prop, int which)
{
	ENTER();
	(void)which;
	*ret_bytes = GRANULARITY;
	return prop->location.id < fake_devices() ? 0 : TT_CU_BAD_VALUE;
}

EXPORT int cuMemCreate(uint64_t *ret_handle, size_t bytes, const struct tt_cuprop *prop,
		       unsigned long long flags)
{
	int fd;

	ENTER_FREELY();
	if (bytes % GRANULARITY || flags || prop->type != TT_CU_PINNED ||
	    prop->handles != TT_CU_BY_FD)
		return TT_CU_BAD_VALUE;
	fd = memfd_create("fake", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)bytes))
		return TT_CU_NO_MEMORY;
	*ret_handle = (uint64_t)fd + 1;
	fake_count(A_HANDLE, 1);
	return 0;
}

EXPORT int cuMemRelease(uint64_t handle)
{
	ENTER();
	fake_count(A_HANDLE, -1);
	return close(fd_of(handle)) ? TT_CU_BAD_VALUE : 0;
}

EXPORT int cuMemAddressReserve(tt_cuptr *ret_at, size_t bytes, size_t align, tt_cuptr at,
			       unsigned long long flags)
{
	void *p;

	ENTER();
	(void)align, (void)at, (void)flags;
	p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return TT_CU_NO_MEMORY;
	*ret_at = (uintptr_t)p;
	fake_count(A_RESERVED, 1);
	return 0;
}

EXPORT int cuMemAddressFree(tt_cuptr at, size_t bytes)
{
	ENTER();
	fake_count(A_RESERVED, -1);
	return munmap((void *)(uintptr_t)at, bytes) ? TT_CU_BAD_VALUE : 0;
}

/* Access is forbidden before cuMemSetAccess. */
EXPORT int cuMemMap(tt_cuptr at, size_t bytes, size_t offset, uint64_t handle,
		    unsigned long long flags)
{
	struct stat st;

	ENTER_FREELY();
	if (flags || fstat(fd_of(handle), &st) || offset + bytes > (size_t)st.st_size)
		return TT_CU_BAD_VALUE;
	if (mmap((void *)(uintptr_t)at, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, fd_of(handle),
		 (off_t)offset) == MAP_FAILED)
		return TT_CU_NO_MEMORY;
	fake_add_virtual((char *)(uintptr_t)at, bytes, fd_of(handle), offset);
	return 0;
}

EXPORT int cuMemSetAccess(tt_cuptr at, size_t bytes, const struct tt_cuaccess *access, size_t n)
{
	ENTER_FREELY();
	(void)n;
	if (access->flags != TT_CU_READ_WRITE)
		return TT_CU_BAD_VALUE;
	return mprotect((void *)(uintptr_t)at, bytes, PROT_READ | PROT_WRITE) ? TT_CU_BAD_VALUE : 0;
}

EXPORT int cuMemUnmap(tt_cuptr at, size_t bytes)
{
	ENTER_FREELY();
	if (!fake_take_virtual((char *)(uintptr_t)at))
		return TT_CU_BAD_VALUE;
	return mmap((void *)(uintptr_t)at, bytes, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED
		       ? TT_CU_NO_MEMORY
		       : 0;
}

EXPORT int cuMemExportToShareableHandle(void *ret_fd, uint64_t handle, int type,
					unsigned long long flags)
{
	int fd;

	ENTER();
	fd = type == TT_CU_BY_FD && !flags ? dup(fd_of(handle)) : -1;
	if (fd < 0)
		return TT_CU_BAD_VALUE;
	*(int *)ret_fd = fd;
	return 0;
}

EXPORT int cuMemImportFromShareableHandle(uint64_t *ret_handle, void *fd, int type)
{
	int own;

	ENTER();
	own = type == TT_CU_BY_FD ? dup((int)(intptr_t)fd) : -1;
	if (own < 0)
		return TT_CU_BAD_VALUE;
	*ret_handle = (uint64_t)own + 1;
	fake_count(A_HANDLE, 1);
	return 0;
}

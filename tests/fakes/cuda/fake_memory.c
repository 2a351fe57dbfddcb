/*
 * fake_memory.c - memory of the fake CUDA driver: an allocation of device memory is a memfd, so
 * that another process can open it
 *
 * An IPC handle consists of the exporting process, its descriptor and the allocation's size. As
 * with CUDA, the exporting process cannot open its own handle.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fakes/cuda/fake_cuda.h"

static struct fake_allocation {
	struct fake_allocation *next;
	/* shadow: the streams' mapping; NULL: the same as at */
	char *at, *shadow;
	size_t bytes, offset; /* offset: in fd */
	int fd, device;
	unsigned type, managed;
	uint64_t id;
	bool registered, opened, virtual; /* virtual: has no IPC handle */
} * allocations;
static uint64_t ids;

struct fake_handle {
	pid_t pid;
	int fd, device;
	size_t bytes;
};
_Static_assert(sizeof(struct fake_handle) <= sizeof(struct tt_cuipc), "it fits");

static struct fake_allocation *find(const void *p)
{
	for (struct fake_allocation *x = allocations; x; x = x->next)
		if ((const char *)p >= x->at && (const char *)p < x->at + x->bytes)
			return x;
	return NULL;
}

bool fake_is_pageable(const void *p)
{
	bool is;

	pthread_mutex_lock(&fake_lock);
	is = !find(p);
	pthread_mutex_unlock(&fake_lock);
	return is;
}

static enum fake_object object_of(const struct fake_allocation *x)
{
	return x->virtual                   ? A_MAPPED
	       : x->opened                  ? AN_OPENED
	       : x->registered              ? A_REGISTERED
	       : x->type == TT_CU_TYPE_HOST ? A_PINNED
					    : AN_ALLOCATION;
}

static void add(struct fake_allocation piece)
{
	struct fake_allocation *p = malloc(sizeof(*p));

	*p = piece;
	fake_count(object_of(p), 1);
	pthread_mutex_lock(&fake_lock);
	p->id = ++ids;
	p->next = allocations;
	allocations = p;
	pthread_mutex_unlock(&fake_lock);
}

/* Removes the allocation that begins at p from the list; NULL: no such allocation. */
static struct fake_allocation *take(const void *p, bool host, bool registered)
{
	struct fake_allocation **at, *x;

	pthread_mutex_lock(&fake_lock);
	for (at = &allocations; (x = *at); at = &x->next)
		if (x->at == p && (x->type == TT_CU_TYPE_HOST) == host &&
		    x->registered == registered)
			break;
	if (x)
		*at = x->next;
	pthread_mutex_unlock(&fake_lock);
	return x;
}

static int release(struct fake_allocation *x)
{
	if (!x)
		return TT_CU_BAD_VALUE;
	fake_count(object_of(x), -1);
	if (!x->registered && !x->virtual)
		munmap(x->at, x->bytes);
	if (x->shadow)
		munmap(x->shadow, x->bytes);
	if (x->fd >= 0)
		close(x->fd);
	free(x);
	return 0;
}

void fake_add_virtual(char *at, size_t bytes, int fd, size_t offset)
{
	add((struct fake_allocation){ .at = at,
				      .bytes = bytes,
				      .fd = dup(fd),
				      .offset = offset,
				      .device = fake_device(),
				      .type = TT_CU_TYPE_DEVICE,
				      .virtual = true });
}

bool fake_take_virtual(char *at)
{
	return !release(take(at, false, false));
}

static int make(size_t bytes, unsigned type, unsigned managed, void **ret)
{
	struct fake_allocation p = { .bytes = (bytes + 4095) / 4096 * 4096,
				     .type = type,
				     .managed = managed,
				     .device = fake_device() };

	if (p.device < 0)
		return TT_CU_BAD_CONTEXT;
	if (!bytes || bytes > (size_t)1 << 33)
		return bytes ? TT_CU_NO_MEMORY : TT_CU_BAD_VALUE;
	p.fd = memfd_create("fake", MFD_CLOEXEC);
	if (p.fd < 0 || ftruncate(p.fd, (off_t)p.bytes))
		return TT_CU_NO_MEMORY;
	p.at = mmap(NULL, p.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, p.fd, 0);
	if (p.at == MAP_FAILED)
		return TT_CU_NO_MEMORY;
	if (type == TT_CU_TYPE_DEVICE && !managed && fake_lacks("host") &&
	    !mprotect(p.at, p.bytes, PROT_NONE))
		p.shadow = mmap(NULL, p.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, p.fd, 0);
	*ret = p.at;
	add(p);
	return 0;
}

bool fake_find_range(const void *at, uintptr_t *ret_from, uintptr_t *ret_to)
{
	const struct fake_allocation *x;

	pthread_mutex_lock(&fake_lock);
	x = find(at);
	if (x) {
		*ret_from = (uintptr_t)x->at;
		*ret_to = *ret_from + x->bytes;
	}
	pthread_mutex_unlock(&fake_lock);
	return x;
}

void *fake_shadow(const void *at)
{
	struct fake_allocation *x;
	void *p = (void *)(uintptr_t)at;

	pthread_mutex_lock(&fake_lock);
	x = find(at);
	if (x && x->shadow)
		p = x->shadow + ((const char *)at - x->at);
	pthread_mutex_unlock(&fake_lock);
	return p;
}

bool fake_is_remote(const void *at)
{
	const struct fake_allocation *x;
	bool remote;

	pthread_mutex_lock(&fake_lock);
	x = find(at);
	remote = x && x->type == TT_CU_TYPE_DEVICE && (x->opened || x->device != fake_device());
	pthread_mutex_unlock(&fake_lock);
	return remote;
}

EXPORT int cuMemAlloc_v2(tt_cuptr *ret_ptr, size_t bytes)
{
	void *p;
	int rc;

	ENTER_FREELY();
	rc = make(bytes, TT_CU_TYPE_DEVICE, 0, &p);
	if (!rc)
		*ret_ptr = (tt_cuptr)(uintptr_t)p;
	return rc;
}

EXPORT int cuMemAllocManaged(tt_cuptr *ret_ptr, size_t bytes, unsigned flags)
{
	void *p;
	int rc;

	ENTER_FREELY();
	(void)flags;
	rc = make(bytes, TT_CU_TYPE_DEVICE, 1, &p);
	if (!rc)
		*ret_ptr = (tt_cuptr)(uintptr_t)p;
	return rc;
}

EXPORT int cuMemFree_v2(tt_cuptr ptr)
{
	ENTER_FREELY();
	fake_idle();
	return release(take((void *)(uintptr_t)ptr, false, false));
}

EXPORT int cuMemHostAlloc(void **ret_ptr, size_t bytes, unsigned flags)
{
	ENTER_FREELY();
	(void)flags;
	return make(bytes, TT_CU_TYPE_HOST, 0, ret_ptr);
}

EXPORT int cuMemFreeHost(void *ptr)
{
	ENTER_FREELY();
	fake_idle();
	return release(take(ptr, true, false));
}

static bool overlaps(const char *ptr, size_t bytes)
{
	const struct fake_allocation *x;

	pthread_mutex_lock(&fake_lock);
	for (x = allocations; x && (ptr + bytes <= x->at || x->at + x->bytes <= ptr); x = x->next)
		;
	pthread_mutex_unlock(&fake_lock);
	return x;
}

static bool is_mapped(void *ptr, size_t bytes)
{
	uintptr_t in_page = (uintptr_t)ptr % (uintptr_t)sysconf(_SC_PAGESIZE);

	return !msync((char *)ptr - in_page, bytes + in_page, MS_ASYNC);
}

EXPORT int cuMemHostRegister_v2(void *ptr, size_t bytes, unsigned flags)
{
	ENTER_FREELY();
	(void)flags;
	if (!bytes || !is_mapped(ptr, bytes))
		return TT_CU_BAD_VALUE;
	if (overlaps(ptr, bytes))
		return 712; /* CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED */
	add((struct fake_allocation){
		.at = ptr, .bytes = bytes, .fd = -1, .type = TT_CU_TYPE_HOST, .registered = true });
	return 0;
}

EXPORT int cuMemHostUnregister(void *ptr)
{
	struct fake_allocation *x;

	ENTER_FREELY();
	fake_idle();
	x = take(ptr, true, true);
	if (!x)
		return 713; /* CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED */
	if (!is_mapped(ptr, x->bytes)) {
		fprintf(stderr, "fake: %p was unmapped while it was registered\n", ptr);
		abort();
	}
	return release(x);
}

EXPORT int cuMemHostGetDevicePointer_v2(tt_cuptr *ret_ptr, void *ptr, unsigned flags)
{
	ENTER_CONTEXT();
	(void)flags;
	if (fake_is_pageable(ptr))
		return TT_CU_BAD_VALUE;
	*ret_ptr = (tt_cuptr)(uintptr_t)ptr;
	return 0;
}

EXPORT int cuPointerGetAttributes(unsigned n, int *attributes, void **data, tt_cuptr ptr)
{
	struct fake_allocation *found, x = { .device = -1 };

	ENTER_CONTEXT();
	pthread_mutex_lock(&fake_lock);
	found = find((void *)(uintptr_t)ptr);
	if (found)
		x = *found;
	pthread_mutex_unlock(&fake_lock);
	for (unsigned i = 0; i < n; i++) {
		if (attributes[i] == TT_CU_PTR_TYPE)
			*(unsigned *)data[i] = x.type;
		else if (attributes[i] == TT_CU_PTR_ID)
			*(unsigned long long *)data[i] = x.id;
		else if (attributes[i] == TT_CU_PTR_MANAGED)
			*(unsigned *)data[i] = x.managed;
		else if (attributes[i] == TT_CU_PTR_DEVICE)
			*(int *)data[i] = x.device;
		else if (attributes[i] == TT_CU_PTR_IPC)
			*(int *)data[i] = x.type == TT_CU_TYPE_DEVICE && !x.managed && !x.virtual;
		else
			return TT_CU_BAD_VALUE;
	}
	return 0;
}

EXPORT int cuMemGetAddressRange_v2(tt_cuptr *ret_base, size_t *ret_bytes, tt_cuptr ptr)
{
	struct fake_allocation *x;

	ENTER_CONTEXT();
	pthread_mutex_lock(&fake_lock);
	x = find((void *)(uintptr_t)ptr);
	if (x) {
		*ret_base = (tt_cuptr)(uintptr_t)x->at;
		*ret_bytes = x->bytes;
	}
	pthread_mutex_unlock(&fake_lock);
	return x ? 0 : TT_CU_BAD_VALUE;
}

bool fake_find_device(tt_cuptr at, size_t bytes, int *ret_fd, uint64_t *ret_offset)
{
	char *p = (char *)(uintptr_t)at;
	struct fake_allocation *x;
	bool good;

	pthread_mutex_lock(&fake_lock);
	x = find(p);
	good = x && x->type == TT_CU_TYPE_DEVICE && !x->managed && !x->opened &&
	       p + bytes <= x->at + x->bytes;
	if (good) {
		*ret_fd = x->fd;
		*ret_offset = x->offset + (size_t)(p - x->at);
	}
	pthread_mutex_unlock(&fake_lock);
	return good;
}

EXPORT int cuIpcGetMemHandle(struct tt_cuipc *ret_handle, tt_cuptr ptr)
{
	struct fake_handle h = { .pid = getpid() };
	struct fake_allocation *x;
	bool shareable;

	ENTER_FREELY();
	pthread_mutex_lock(&fake_lock);
	x = find((void *)(uintptr_t)ptr);
	if (x) {
		h.fd = x->fd;
		h.bytes = x->bytes;
		h.device = x->device;
	}
	shareable = x && x->type == TT_CU_TYPE_DEVICE && !x->managed && !x->virtual;
	pthread_mutex_unlock(&fake_lock);
	if (!shareable)
		return TT_CU_BAD_VALUE;
	memset(ret_handle, 0, sizeof(*ret_handle));
	memcpy(ret_handle, &h, sizeof(h));
	return 0;
}

EXPORT int cuIpcOpenMemHandle_v2(tt_cuptr *ret_ptr, struct tt_cuipc handle, unsigned flags)
{
	struct fake_allocation p = { .type = TT_CU_TYPE_DEVICE, .opened = true };
	struct fake_handle h;
	char path[64];

	ENTER_FREELY();
	(void)flags;
	memcpy(&h, &handle, sizeof(h));
	if (h.pid == getpid())
		return TT_CU_BAD_CONTEXT;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)h.pid, h.fd);
	p.fd = open(path, O_RDWR | O_CLOEXEC);
	if (p.fd < 0)
		return TT_CU_BAD_HANDLE;
	p.bytes = h.bytes;
	p.device = h.device;
	p.at = mmap(NULL, p.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, p.fd, 0);
	if (p.at == MAP_FAILED)
		return TT_CU_NO_MEMORY;
	*ret_ptr = (tt_cuptr)(uintptr_t)p.at;
	add(p);
	return 0;
}

EXPORT int cuIpcCloseMemHandle(tt_cuptr ptr)
{
	ENTER_FREELY();
	fake_idle();
	return release(take((void *)(uintptr_t)ptr, false, false));
}

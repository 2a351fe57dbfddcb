/*
 * memory.c - memory of tuttiMemAlloc: buffers that other processes of the host can map
 *
 * Called by api, and by transports that let peers read buffers. Each allocation is a memfd, so
 * ranks of the same host can map it, and the kernel frees the memory when the last process with the
 * memfd exits. A list of allocations lets tuttiMemFree refuse foreign pointers instead of unmapping
 * other memory. If no memfd can be made, an allocation is private memory. Allocations are
 * registered memory until freed, so NICs may keep them registered (registered.h).
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mem/registered.h"
#include "mem/memory.h"

#define HUGE_PAGE (2u << 20)

struct allocation {
	struct allocation *next;
	void *ptr;
	unsigned forks;          /* tt_forks of the process that allocated it */
	struct tt_window window; /* fd -1: private */
	struct tt_registered registered;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards allocations and numbers */
static struct allocation *allocations;
static uint64_t numbers;

/* Bytes that can be allocated without the out-of-memory killer; unknown: nearly SIZE_MAX. */
static size_t available(void)
{
	FILE *f = fopen("/proc/meminfo", "re");
	size_t kbytes = SIZE_MAX >> 10;
	char line[128];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "MemAvailable: %zu kB", &kbytes) == 1)
			break;
	if (f)
		fclose(f);
	return kbytes << 10;
}

/* A memfd of that size with all its memory allocated, or -1. */
static int make_file(size_t bytes)
{
	int fd = memfd_create("tutti-buffer", MFD_CLOEXEC);

	if (fd >= 0 && (ftruncate(fd, (off_t)bytes) || fallocate(fd, 0, 0, (off_t)bytes))) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static bool map(struct allocation *p)
{
	struct stat st;

	p->window.fd = make_file(p->window.bytes);
	p->window.inode = p->window.fd >= 0 && !fstat(p->window.fd, &st) ? st.st_ino : 0;
	p->ptr = mmap(NULL, p->window.bytes, PROT_READ | PROT_WRITE,
		      p->window.fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, p->window.fd,
		      0);
	if (p->ptr == MAP_FAILED && p->window.fd >= 0)
		close(p->window.fd);
	else if (p->window.bytes >= HUGE_PAGE)
		madvise(p->ptr, p->window.bytes, MADV_HUGEPAGE);
	return p->ptr != MAP_FAILED;
}

int tt_memory_alloc(size_t bytes, void **ret_ptr)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), mapped = (bytes + page - 1) / page * page;
	struct allocation *p = malloc(sizeof(*p));

	if (!p || mapped < bytes)
		goto free_allocation;
	p->forks = tt_forks;
	p->window.bytes = mapped ? mapped : page;
	p->registered.ctx = NULL;
	/* above that, the kernel would kill processes to find the memory */
	if (mapped > available() || !map(p))
		goto free_allocation;
	*ret_ptr = p->ptr;
	pthread_mutex_lock(&lock);
	p->window.number = ++numbers;
	p->next = allocations;
	allocations = p;
	pthread_mutex_unlock(&lock);
	tt_registered_add(&p->registered, p->ptr, p->window.bytes);
	return 0;
free_allocation:
	free(p);
	return tt_fail(TT_SYSTEM, "no memory for %zu bytes", bytes);
}

/* A peer may still have the memory mapped, and even be reading: punching a hole frees the memory
 * and keeps the peer's mapping readable (zeros). A forked child shares the memory of its parent, and
 * only unmaps it. */
static void release(struct allocation *p)
{
	tt_registered_remove(&p->registered);
	if (p->window.fd >= 0) {
		if (p->forks == tt_forks)
			fallocate(p->window.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				  (off_t)p->window.bytes);
		close(p->window.fd);
	}
	munmap(p->ptr, p->window.bytes);
	free(p);
}

size_t tt_memory_bytes(const void *ptr)
{
	size_t bytes = 0;

	pthread_mutex_lock(&lock);
	for (const struct allocation *p = allocations; p && !bytes; p = p->next)
		bytes = p->ptr == ptr ? p->window.bytes : 0;
	pthread_mutex_unlock(&lock);
	return bytes;
}

int tt_memory_free(void *ptr)
{
	struct allocation **at, *p;

	pthread_mutex_lock(&lock);
	for (at = &allocations; *at && (*at)->ptr != ptr; at = &(*at)->next)
		;
	p = *at;
	if (p)
		*at = p->next;
	pthread_mutex_unlock(&lock);
	if (!p)
		return tt_fail(TT_ARG, "%p was not allocated by tuttiMemAlloc, or is free already",
			       ptr);
	release(p);
	return 0;
}

bool tt_memory_window(const void *start, size_t bytes, struct tt_window *ret_window,
		      uint64_t *ret_offset)
{
	uintptr_t at = (uintptr_t)start;
	bool found = false;

	pthread_mutex_lock(&lock);
	for (struct allocation *p = allocations; p && !found; p = p->next) {
		uintptr_t first = (uintptr_t)p->ptr;

		found = p->window.fd >= 0 && at >= first && bytes <= p->window.bytes &&
			at - first <= p->window.bytes - bytes;
		if (found) {
			*ret_window = p->window;
			*ret_offset = at - first;
		}
	}
	pthread_mutex_unlock(&lock);
	return found;
}

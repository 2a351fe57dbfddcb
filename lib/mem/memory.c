/*
 * memory.c - page-aligned memory for users' buffers
 *
 * Called by api. Pages come from mmap, large ones as huge pages where the kernel gives them; a list remembers the
 * sizes, so that a pointer that is not ours is refused instead of unmapping something else.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mem/memory.h"

#define HUGE_PAGE (2u << 20)

struct piece {
	struct piece *next;
	void *ptr;
	size_t bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;     /* guards pieces */
static struct piece *pieces;

int tt_memory_alloc(size_t bytes, void **ret_ptr)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), mapped = (bytes + page - 1) / page * page;
	struct piece *p = malloc(sizeof(*p));

	if (!p || mapped < bytes)
		goto free_piece;
	if (!mapped)
		mapped = page;
	p->bytes = mapped;
	p->ptr = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p->ptr == MAP_FAILED)
		goto free_piece;
	if (mapped >= HUGE_PAGE)
		madvise(p->ptr, mapped, MADV_HUGEPAGE);
	*ret_ptr = p->ptr;
	pthread_mutex_lock(&lock);
	p->next = pieces;
	pieces = p;
	pthread_mutex_unlock(&lock);
	return 0;
free_piece:
	free(p);
	return tt_fail(TT_SYSTEM, "no memory for %zu bytes", bytes);
}

int tt_memory_free(void *ptr)
{
	struct piece **at, *p;

	pthread_mutex_lock(&lock);
	for (at = &pieces; *at && (*at)->ptr != ptr; at = &(*at)->next)
		;
	p = *at;
	if (p)
		*at = p->next;
	pthread_mutex_unlock(&lock);
	if (!p)
		return tt_fail(TT_ARG, "%p was not allocated by tuttiMemAlloc, or is free already", ptr);
	munmap(p->ptr, p->bytes);
	free(p);
	return 0;
}

/*
 * handle.c - memory for handles, at addresses that are never reused
 *
 * Called by comm and host_stream.c for objects to which users hold pointers. A freed handle is
 * recognized by its zeros, at any later time: its pages go back to the system, its address range
 * stays mapped and is not reused.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"

/* bytes of a mapping: many handles, since the number of mappings of a process is limited */
#define CHUNK (1u << 20)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *next;
static size_t left;
static struct chunk {
	struct chunk *next;
	char *start, *end;
} * _Atomic chunks;

static size_t pages(size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (bytes + page - 1) / page * page;
}

/* Chunks are never removed, so that the list can be read without the lock. */
static bool add_chunk(char *start, size_t bytes)
{
	struct chunk *c = malloc(sizeof(*c));

	if (!c)
		return false;
	*c = (struct chunk){ .next = chunks, .start = start, .end = start + bytes };
	atomic_store(&chunks, c);
	return true;
}

bool tt_handle_is(const void *handle)
{
	const char *p = handle;

	for (const struct chunk *c = chunks; c; c = c->next)
		if (p >= c->start && p < c->end)
			return true;
	return false;
}

void *tt_handle_new(size_t bytes)
{
	size_t need = pages(bytes), room = need > CHUNK ? need : CHUNK;
	char *p = NULL;

	pthread_mutex_lock(&lock);
	if (left < need) {
		void *chunk = mmap(NULL, room, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (chunk != MAP_FAILED && !add_chunk(chunk, room)) {
			munmap(chunk, room);
			chunk = MAP_FAILED;
		}
		next = chunk == MAP_FAILED ? NULL : chunk;
		left = next ? room : 0;
	}
	if (left >= need) {
		p = next;
		next += need;
		left -= need;
	}
	pthread_mutex_unlock(&lock);
	return p;
}

void tt_handle_free(void *handle, size_t bytes)
{
	if (handle)
		madvise(handle, pages(bytes), MADV_DONTNEED);
}

/* Another thread may have held the lock when this one forked. */
static void in_child(void)
{
	pthread_mutex_init(&lock, NULL);
	left = 0;
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

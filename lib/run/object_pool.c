/*
 * object_pool.c - memory for the time of a group or a queued call, reused by later ones
 *
 * Called by run.c, order.c, api and gpu. Blocks are powers of two; a free block stays in the list
 * of its size. So the second call of a shape allocates nothing. The pool belongs to the process, so
 * a thread that ends leaves no memory behind.
 */
#include <pthread.h>
#include <stdlib.h>

#include "run/run.h"

#define SIZES 48
#define LEAST 8 /* 256 bytes */

struct pool_block {
	union {
		struct pool_block *next;
		unsigned size; /* in use: log2 of its bytes */
	};
	_Alignas(16) char memory[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pool_block *pool[SIZES];

void *tt_pool_take(tuttiComm_t c, size_t bytes)
{
	unsigned size = LEAST;
	struct pool_block *s;

	while (size < SIZES && ((size_t)1 << size) - sizeof(*s) < bytes)
		size++;
	if (size == SIZES)
		return NULL;
	pthread_mutex_lock(&lock);
	s = pool[size];
	if (s)
		pool[size] = s->next;
	pthread_mutex_unlock(&lock);
	if (!s) {
		s = malloc((size_t)1 << size);
		if (s)
			atomic_fetch_add(&c->memory.allocations, 1);
	}
	if (!s)
		return NULL;
	s->size = size;
	return s->memory;
}

void tt_pool_give(void *memory)
{
	struct pool_block *s;
	unsigned size;

	if (!memory)
		return;
	s = (struct pool_block *)((char *)memory - offsetof(struct pool_block, memory));
	size = s->size;
	pthread_mutex_lock(&lock);
	s->next = pool[size];
	pool[size] = s;
	pthread_mutex_unlock(&lock);
}

/* Another thread may hold the lock when this one forks. */
static void in_child(void)
{
	pthread_mutex_init(&lock, NULL);
	for (int i = 0; i < SIZES; i++)
		pool[i] = NULL;
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

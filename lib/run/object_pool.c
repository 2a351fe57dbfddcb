/*
 * object_pool.c - memory that a group or a queued call needs while it lasts, kept for the next one
 *
 * Called by run.c, order.c and api. Blocks are powers of two; one that is given back waits in the
 * list of its size. So the second call of a shape allocates nothing, and no thread that ends leaves
 * memory behind.
 */
#include <pthread.h>
#include <stdlib.h>

#include "run/run.h"

#define SIZES 48
#define LEAST 8                  /* 256 bytes */

struct spare {
	union {
		struct spare *next;
		unsigned size;           /* while it is used */
	};
	_Alignas(16) char memory[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct spare *kept[SIZES];

void *tt_pool_take(tuttiComm_t c, size_t bytes)
{
	unsigned size = LEAST;
	struct spare *s;

	while (size < SIZES && ((size_t)1 << size) - sizeof(*s) < bytes)
		size++;
	if (size == SIZES)
		return NULL;
	pthread_mutex_lock(&lock);
	s = kept[size];
	if (s)
		kept[size] = s->next;
	pthread_mutex_unlock(&lock);
	if (!s) {
		s = malloc((size_t)1 << size);
		if (s)
			atomic_fetch_add(&c->allocations, 1);
	}
	if (!s)
		return NULL;
	s->size = size;
	return s->memory;
}

void tt_pool_give(void *memory)
{
	struct spare *s;
	unsigned size;

	if (!memory)
		return;
	s = (struct spare *)((char *)memory - offsetof(struct spare, memory));
	size = s->size;
	pthread_mutex_lock(&lock);
	s->next = kept[size];
	kept[size] = s;
	pthread_mutex_unlock(&lock);
}

/* Another thread may have held the lock when this one forked. */
static void in_child(void)
{
	pthread_mutex_init(&lock, NULL);
	for (int i = 0; i < SIZES; i++)
		kept[i] = NULL;
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

/* registered.c - ranges of registered memory and their watchers, under one lock (registered.h) */
#include <pthread.h>

#include "mem/registered.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the variables below */
static struct tt_interval *ranges;
static struct tt_registered_watcher *watchers;
static uint64_t numbers;

void tt_registered_add(struct tt_registered *l, const void *start, size_t bytes)
{
	pthread_mutex_lock(&lock);
	l->range.start = (uintptr_t)start;
	l->range.end = (uintptr_t)start + bytes;
	l->number = ++numbers;
	tt_intervals_add(&ranges, &l->range);
	pthread_mutex_unlock(&lock);
}

void tt_registered_remove(struct tt_registered *l)
{
	pthread_mutex_lock(&lock);
	tt_intervals_remove(&ranges, &l->range);
	for (struct tt_registered_watcher *w = watchers; w; w = w->next)
		if (w->forks == tt_forks)
			w->going(w, l);
	pthread_mutex_unlock(&lock);
}

bool tt_registered_find(const void *start, size_t bytes,
			void (*found)(void *arg, const struct tt_registered *l), void *arg)
{
	struct tt_interval *i;

	pthread_mutex_lock(&lock);
	i = tt_intervals_holding(ranges, (uintptr_t)start, (uintptr_t)start + bytes);
	if (i && found)
		found(arg, (const struct tt_registered *)i);
	pthread_mutex_unlock(&lock);
	return i != NULL;
}

void tt_registered_watch(struct tt_registered_watcher *w)
{
	pthread_mutex_lock(&lock);
	w->forks = tt_forks;
	w->next = watchers;
	watchers = w;
	pthread_mutex_unlock(&lock);
}

void tt_registered_watch_end(struct tt_registered_watcher *w)
{
	struct tt_registered_watcher **at;

	pthread_mutex_lock(&lock);
	for (at = &watchers; *at != w; at = &(*at)->next)
		;
	*at = w->next;
	pthread_mutex_unlock(&lock);
}

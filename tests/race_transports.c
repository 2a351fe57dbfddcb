/*
 * race_transports.c - ranks as threads of one process over every transport, to be run under ThreadSanitizer
 *
 * Each rank maps a shared segment for itself, so that ThreadSanitizer would see as many memories as ranks and no race
 * between them. Here mmap gives every rank the same address for the same file.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "harness_traffic.h"

#define MAPS 64

static struct map { dev_t dev; ino_t ino; void *p; int users; } maps[MAPS];
static pthread_mutex_t maps_lock = PTHREAD_MUTEX_INITIALIZER;
static bool started;           /* before main the sanitizer itself calls mmap, and nothing works yet */

__attribute__((no_sanitize("thread"))) void *mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	struct stat st;
	struct map *free_map = NULL;
	void *p;

	if (!started || fd < 0 || !(flags & MAP_SHARED) || fstat(fd, &st))
		return (void *)syscall(SYS_mmap, at, bytes, prot, flags, fd, offset);
	pthread_mutex_lock(&maps_lock);
	for (int i = 0; i < MAPS; i++) {
		if (maps[i].users > 0 && maps[i].dev == st.st_dev && maps[i].ino == st.st_ino) {
			maps[i].users++;
			p = maps[i].p;
			pthread_mutex_unlock(&maps_lock);
			return p;
		}
		if (maps[i].users == 0)
			free_map = &maps[i];
	}
	p = (void *)syscall(SYS_mmap, at, bytes, prot, flags, fd, offset);
	if (p != MAP_FAILED && free_map)
		*free_map = (struct map){ st.st_dev, st.st_ino, p, 1 };
	pthread_mutex_unlock(&maps_lock);
	return p;
}

__attribute__((no_sanitize("thread"))) int munmap(void *p, size_t bytes)
{
	int users = 0;

	if (!started)
		return (int)syscall(SYS_munmap, p, bytes);

	pthread_mutex_lock(&maps_lock);
	for (int i = 0; i < MAPS; i++)
		if (maps[i].users > 0 && maps[i].p == p)
			users = --maps[i].users;
	pthread_mutex_unlock(&maps_lock);
	return users ? 0 : (int)syscall(SYS_munmap, p, bytes);
}

static void *wake_now_and_then(void *arg)
{
	struct tt_endpoint *ep = arg;

	for (int i = 0; i < 50; i++) {
		usleep(200);
		ep->t->wake(ep);
		if (ep->t->memory(ep) == SIZE_MAX)
			abort();
	}
	return NULL;
}

static int body(const struct tt_world *world, void *arg)
{
	const struct traffic *tr = arg;
	pthread_t waker;
	struct rig rig;

	EXPECT(rig_open(&rig, tr->t, world, tr->nchannels) == 0);
	EXPECT(pthread_create(&waker, NULL, wake_now_and_then, rig.ep) == 0);
	EXPECT(traffic_run(&rig, world, tr) == 0);
	pthread_join(waker, NULL);
	rig_close(&rig);
	return 0;
}

int main(void)
{
	int failed = 0;

	started = true;
	for (const struct tt_transport *const *t = tt_transports; *t; t++)
		for (int sleepy = 0; sleepy < 2; sleepy++) {
			struct harness h = { .nranks = *t == &tt_self ? 1 : 3, .nchannels = 2, .message_bytes = 8192,
					     .threads = true };
			struct traffic tr = { .t = *t, .nchannels = 2, .messages = 400, .sleepy = sleepy, .seed = 7 };
			int bad = harness_run(&h, body, &tr) != 0;

			printf("%s - %s, ranks that are threads%s\n", bad ? "not ok" : "ok", (*t)->name,
			       sleepy ? " and sleep" : "");
			failed += bad;
		}
	return failed != 0;
}

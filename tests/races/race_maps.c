/*
 * race_maps.c - see race_maps.h. A mapping is shared while any rank has the file mapped.
 */
#include "tests/races/race_maps.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAPS 64

static struct map { dev_t dev; ino_t ino; void *p; int users; } maps[MAPS];
static pthread_mutex_t maps_lock = PTHREAD_MUTEX_INITIALIZER;
/* false before main, when the sanitizer itself calls mmap and locks do not work yet */
static bool started;

void race_maps_share(void)
{
	started = true;
}

__attribute__((no_sanitize("thread"))) void *mmap(void *at, size_t bytes, int prot, int flags,
						  int fd, off_t offset)
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

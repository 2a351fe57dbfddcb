/* descriptors.h - open descriptors, listeners, threads and memory of this process; for tests of leaks */
#ifndef TESTS_DESCRIPTORS_H
#define TESTS_DESCRIPTORS_H

#include <dirent.h>
#include <stdio.h>
#include <sys/socket.h>

static inline int count_entries(const char *folder)
{
	DIR *dir = opendir(folder);
	int n = 0;

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

static inline int count_descriptors(void)
{
	return count_entries("/proc/self/fd");
}

static inline int count_listeners(void)
{
	int n = 0;

	for (int fd = 0; fd < 4096; fd++) {
		int listens = 0;

		n += !getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens,
				 &(socklen_t){ sizeof(int) }) &&
		     listens;
	}
	return n;
}

static inline int count_threads(void)
{
	return count_entries("/proc/self/task");
}

/* kB of pages that only this process has written; 0: an old kernel */
static inline long own_kilobytes(void)
{
	FILE *f = fopen("/proc/self/smaps_rollup", "re");
	char line[256];
	long kilobytes = 0;

	while (f && fgets(line, sizeof(line), f) &&
	       sscanf(line, "Private_Dirty: %ld", &kilobytes) != 1)
		;
	if (f)
		fclose(f);
	return kilobytes;
}

#endif

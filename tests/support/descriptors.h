/* descriptors.h - numbers of open descriptors and threads of this process; for tests of leaks */
#ifndef TESTS_DESCRIPTORS_H
#define TESTS_DESCRIPTORS_H

#include <dirent.h>

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

static inline int count_threads(void)
{
	return count_entries("/proc/self/task");
}

#endif

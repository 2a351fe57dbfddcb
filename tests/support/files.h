/* files.h - writes a file and creates its folders; for suites with a /sys or /proc of their own */
#ifndef TESTS_FILES_H
#define TESTS_FILES_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static inline void write_file_in(const char *root, const char *name, const char *text)
{
	char path[512], *slash;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	for (slash = strchr(path + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(path, 0777);
		*slash = '/';
	}
	f = fopen(path, "w");
	cr_assert_not_null(f, "%s", path);
	fprintf(f, "%s", text);
	cr_assert_eq(fclose(f), 0);
}

#endif

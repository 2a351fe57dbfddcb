/* fresh_file.c - output files that are written whole (fresh_file.h) */
#include "tools/fresh_file.h"

#include "tools/options.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

FILE *tool_fresh_file(const char *path, char *ret_name, size_t room)
{
	uint64_t random;
	FILE *f;
	int fd;

	*ret_name = '\0';
	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return NULL;
	snprintf(ret_name, room, "%s.%016jx", path, (uintmax_t)random);
	fd = open(ret_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
	if (fd < 0) {
		*ret_name = '\0';
		return NULL;
	}
	f = fdopen(fd, "w");
	if (!f)
		close(fd);
	return f;
}

static bool write_to(FILE *f, const char *content, size_t bytes)
{
	bool good = f && fwrite(content, 1, bytes, f) == bytes;

	return f && fclose(f) == 0 && good;
}

int tool_file_check(const char *tool, const char *option, const char *path)
{
	const char *slash = strrchr(path, '/');
	char folder[4096];
	struct stat st;

	snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - path) + 1 : 1,
		 slash ? path : ".");
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return tool_refuse(tool, "%s %s: %s", option, path, strerror(EISDIR));
	if (access(folder, W_OK))
		return tool_refuse(tool, "%s %s: %s: %s", option, path, folder, strerror(errno));
	return 0;
}

int tool_file_write(const char *path, const char *content, size_t bytes)
{
	size_t length = strlen(path) + 32;
	char *temporary;
	struct stat st;
	bool good;

	/* a pipe, a terminal or a device is written in place, not replaced */
	if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
		return write_to(fopen(path, "we"), content, bytes) ? 0 : -1;
	temporary = malloc(length);
	if (!temporary)
		return -1;
	good = write_to(tool_fresh_file(path, temporary, length), content, bytes) &&
	       rename(temporary, path) == 0;
	if (!good) {
		int saved = errno;

		unlink(temporary);
		errno = saved;
	}
	free(temporary);
	return good ? 0 : -1;
}

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

enum { TAIL_MAX = 16 };

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

static bool write_at(int fd, const char *text, size_t bytes, off_t at)
{
	while (bytes) {
		ssize_t n = pwrite(fd, text, bytes, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		text += n;
		bytes -= (size_t)n;
		at += n;
	}
	return true;
}

static bool has_tail(int fd, const char *tail, size_t bytes, off_t at)
{
	char last[TAIL_MAX];

	return at >= 0 && bytes <= sizeof(last) && pread(fd, last, bytes, at) == (ssize_t)bytes &&
	       !memcmp(last, tail, bytes);
}

int tool_file_insert(const char *path, const char *text, size_t bytes, const char *tail)
{
	size_t end = strlen(tail);
	int fd = open(path, O_RDWR | O_CLOEXEC), error = 0;
	off_t size = fd < 0 ? -1 : lseek(fd, 0, SEEK_END), at = size - (off_t)end;

	if (fd < 0)
		return -1;
	if (size <= 0) {
		error = size < 0 ? errno : ENOENT;
	} else if (!has_tail(fd, tail, end, at)) {
		error = EINVAL; /* the file of another program, or of a rank that died in this call */
	} else if (!write_at(fd, text, bytes, at) || !write_at(fd, tail, end, at + (off_t)bytes)) {
		error = errno;
		/* these bytes have their place on the disk */
		if (!write_at(fd, tail, end, at) || ftruncate(fd, size))
			error = errno;
	}
	if (close(fd) && !error)
		error = errno;
	errno = error;
	return error ? -1 : 0;
}

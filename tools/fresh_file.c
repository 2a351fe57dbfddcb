/* fresh_file.c - make the temporary file of a file that a rename replaces (fresh_file.h) */
#include "tools/fresh_file.h"

#include <fcntl.h>
#include <stdint.h>
#include <sys/random.h>
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

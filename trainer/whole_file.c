/* whole_file.c - replace a file as a whole (whole_file.h) */
#include "trainer/whole_file.h"

#include "tools/fresh_file.h"
#include "trainer/base/fail.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_ROOM = 4096 };

/* Opens the temporary file. */
static int open_temporary(const char *option, const char *path, char temporary[PATH_ROOM],
			  FILE **ret_file)
{
	struct stat st;

	if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
		return train_fail(TRAIN_USAGE,
				  "--%s %s: that is no file, and would be replaced by one; give a "
				  "file",
				  option, path);
	*ret_file = tool_fresh_file(path, temporary, PATH_ROOM);
	return TRAIN_OK;
}

int train_whole_file_check(const char *option, const char *path)
{
	char temporary[PATH_ROOM];
	FILE *f;
	int rc = open_temporary(option, path, temporary, &f);

	if (rc)
		return rc;
	if (!f)
		return train_fail(TRAIN_USAGE, "--%s %s: %m; give a file that can be written",
				  option, path);
	fclose(f);
	unlink(temporary);
	return TRAIN_OK;
}

/* Closes f. Returns 0, or -1 with errno. */
static int finish(FILE *f, bool written)
{
	bool bad = !written || fflush(f) || fsync(fileno(f));
	int error = bad ? errno : 0;

	if (fclose(f) && !error)
		error = errno;
	errno = error;
	return error ? -1 : 0;
}

/* Makes the rename durable, so that a crash does not lose the file's name. */
static void sync_directory(const char *path)
{
	char copy[PATH_ROOM];
	int fd;

	snprintf(copy, sizeof(copy), "%s", path);
	fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return;
	fsync(fd);
	close(fd);
}

int train_whole_file_replace(const char *option, const char *path,
			     bool (*write)(FILE *f, void *arg), void *arg)
{
	char temporary[PATH_ROOM];
	FILE *f;
	int rc = open_temporary(option, path, temporary, &f);

	if (rc)
		return rc;
	if (!f || finish(f, write(f, arg)) || rename(temporary, path)) {
		int error = errno;

		unlink(temporary);
		errno = error;
		return train_fail(TRAIN_FAILED,
				  "--%s %s: cannot be written: %m; the previous file is intact",
				  option, path);
	}
	sync_directory(path);
	return TRAIN_OK;
}

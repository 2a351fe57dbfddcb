/*
 * results_file.c - a file of results that is whole after every row
 *
 * Called by report.c. A file is extended in place by the new row and a foot, in one write; the next
 * row replaces the foot. So a job that is killed leaves its rows, unless the kill comes within that write, and a
 * full disk is noticed at once. A pipe gets the rows, and the last foot at the end.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "perf/bench/bench.h"

static void fail(struct bench_results_file *f)
{
	fprintf(stderr, "%s: %s %s: %s\n", f->tool, f->option, f->path, strerror(errno));
	f->failed = true;
}

void bench_results_file_open(struct bench_results_file *f)
{
	struct stat st;

	f->fd = open(f->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (f->fd < 0)
		fail(f);
	else
		f->regular = fstat(f->fd, &st) == 0 && S_ISREG(st.st_mode);
}

/* Writes everything. Returns false with errno. */
static bool write_all(int fd, const char *text, size_t bytes)
{
	while (bytes) {
		ssize_t n = write(fd, text, bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		text += n;
		bytes -= (size_t)n;
	}
	return true;
}

void bench_results_file_write(struct bench_results_file *f, const char *text, const char *foot)
{
	size_t bytes = strlen(text), length = strlen(foot);
	char *both;

	if (f->failed)
		return;
	both = malloc(bytes + length + 1);
	if (!both) {
		errno = ENOMEM;
		fail(f);
		return;
	}
	memcpy(both, text, bytes);
	memcpy(both + bytes, foot, length);
	if (!write_all(f->fd, both, f->regular ? bytes + length : bytes) ||
	    (f->regular && (ftruncate(f->fd, (off_t)(f->bytes + bytes + length)) ||
			    lseek(f->fd, (off_t)(f->bytes + bytes), SEEK_SET) < 0)))
		fail(f);
	f->bytes += bytes;
	free(both);
}

int bench_results_file_close(struct bench_results_file *f, const char *foot)
{
	if (f->regular)
		bench_results_file_write(f, "", foot);
	else if (!f->failed && !write_all(f->fd, foot, strlen(foot)))
		fail(f);
	if (f->fd >= 0 && close(f->fd) && !f->failed)
		fail(f);
	return f->failed;
}

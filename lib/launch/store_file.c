/*
 * store_file.c - the store TUTTI_ROOT=file:/path: a file in a folder that all hosts share
 *
 * Called by rendezvous.c. Rank 0 writes the file under another name, locks it and renames it, so
 * that readers see a complete file or none; the lock shows that rank 0 is alive. An unlocked file is
 * the remains of a dead job: readers ignore the file, and the next rank 0 replaces it. Only the
 * owner can read the file, since an id contains the secret.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "launch/launch.h"

#define PAUSE_NS 10000000l

struct file_store {
	int fd; /* rank 0's, locked; -1: none */
	char path[4096];
};

/* The name of the file is the path and a key: for a path that is a folder the file would lie outside
 * the folder, where the hosts may share nothing. */
static int check_path(const struct tt_job *job)
{
	struct stat st;

	if (stat(job->path, &st) || S_ISREG(st.st_mode))
		return 0;
	return tt_fail(
		TT_ARG,
		"rank %d: TUTTI_ROOT=file:%s: this is %s; name a file, as file:%s/job, in a folder that "
		"all hosts share (rank 0 makes the file)",
		job->rank, job->path, S_ISDIR(st.st_mode) ? "a folder" : "no plain file",
		S_ISDIR(st.st_mode) ? job->path : "/shared");
}

static int open_file(struct tt_store *s)
{
	int rc = check_path(s->job);
	struct file_store *own = rc ? NULL : malloc(sizeof(*own));

	if (rc)
		return rc;
	if (!own)
		return tt_fail(TT_SYSTEM, "rank %d: no memory to join by TUTTI_ROOT=file",
			       s->job->rank);
	own->fd = -1;
	s->own = own;
	return 0;
}

static void close_file(struct tt_store *s)
{
	struct file_store *own = s->own;
	struct stat ours, there;

	if (own->fd >= 0 && !fstat(own->fd, &ours) && !stat(own->path, &there) &&
	    ours.st_ino == there.st_ino)
		unlink(own->path);
	tt_sock_close(own->fd);
	free(own);
}

static int put_file(struct tt_store *s, const char *key, const char *value)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	struct file_store *own = s->own;
	size_t bytes = strlen(value);
	char fresh[4200];
	int rc = 0;

	snprintf(own->path, sizeof(own->path), "%s.%s", s->job->path, key);
	snprintf(fresh, sizeof(fresh), "%s.%ld", own->path, (long)getpid());
	unlink(fresh);
	own->fd = tt_sock_own(open(fresh, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
	if (own->fd < 0)
		return tt_fail(TT_SYSTEM, "rank 0: TUTTI_ROOT=file:%s: cannot write %s: %m",
			       s->job->path, fresh);
	if (fcntl(own->fd, F_OFD_SETLK, &lock))
		rc = tt_fail(TT_SYSTEM,
			     "rank 0: TUTTI_ROOT=file:%s: this file system cannot lock files: %m",
			     s->job->path);
	else if (write(own->fd, value, bytes) != (ssize_t)bytes || fsync(own->fd) ||
		 rename(fresh, own->path))
		rc = tt_fail(TT_SYSTEM, "rank 0: TUTTI_ROOT=file:%s: %m", s->job->path);
	if (rc)
		unlink(fresh);
	return rc;
}

/* Read the value. 1: the file exists, and rank 0 is alive | 0: not yet | < 0 */
static int read_value(struct tt_store *s, int fd, char value[TT_STORE_VALUE])
{
	struct flock lock = { .l_type = F_RDLCK, .l_whence = SEEK_SET };
	struct file_store *own = s->own;
	struct stat st;
	ssize_t n;

	if (fd < 0 && errno != ENOENT && errno != ESTALE)
		return tt_fail(TT_SYSTEM, "rank %d: TUTTI_ROOT: cannot read %s: %m", s->job->rank,
			       own->path);
	if (fd < 0)
		return 0;
	if (!fstat(fd, &st) && !S_ISREG(st.st_mode))
		return tt_fail(TT_USAGE, "rank %d: TUTTI_ROOT: %s is no plain file: remove it",
			       s->job->rank, own->path);
	if (fstat(fd, &st) || st.st_uid != geteuid() || st.st_mode & 077)
		return tt_fail(
			TT_USAGE,
			"rank %d: TUTTI_ROOT: %s belongs to another user, or its mode lets other users use it",
			s->job->rank, own->path);
	if (fcntl(fd, F_OFD_GETLK, &lock))
		return tt_fail(TT_SYSTEM,
			       "rank %d: TUTTI_ROOT: %s: this file system cannot lock files: %m",
			       s->job->rank, own->path);
	n = lock.l_type == F_UNLCK ? 0 : read(fd, value, TT_STORE_VALUE - 1);
	value[n > 0 ? n : 0] = '\0';
	return n > 0;
}

/* A folder may appear late, so a missing folder is reported only at the deadline. */
static int give_up(const struct tt_store *s, char *path)
{
	int rc = tt_fail(TT_TIMEOUT,
			 "rank %d: rank 0 did not join: no rank 0 that is alive wrote %s",
			 s->job->rank, path);

	*strrchr(path, '/') = '\0';
	if (*path && access(path, F_OK))
		rc = tt_fail(TT_TIMEOUT, "rank %d: TUTTI_ROOT: there is no folder %s on this host",
			     s->job->rank, path);
	return rc;
}

static int get_file(struct tt_store *s, const char *key, char value[TT_STORE_VALUE],
		    uint64_t deadline_ns)
{
	struct file_store *own = s->own;
	uint64_t log_ns = 0;
	int rc;

	snprintf(own->path, sizeof(own->path), "%s.%s", s->job->path, key);
	for (;;) {
		int fd = open(own->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

		rc = read_value(s, fd, value);
		if (fd >= 0)
			close(fd);
		if (rc)
			return rc > 0 ? 0 : rc;
		if (tt_now_ns() > deadline_ns)
			return give_up(s, own->path);
		if (tt_log_due(&log_ns))
			tt_log(TT_LOG_WARN,
			       "rank %d: waiting for rank 0: no rank 0 that is alive has written %s",
			       s->job->rank, own->path);
		nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
	}
}

const struct tt_store_ops tt_store_file = {
	.name = "the file of TUTTI_ROOT",
	.open = open_file,
	.put = put_file,
	.get = get_file,
	.close = close_file,
};

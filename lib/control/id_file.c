/*
 * id_file.c - a unique id in a file, so that a monitor finds the job
 *
 * Called by bootstrap (write), the endpoint (remove) and `tutti top` (read). The id holds the job's
 * secret, so the file is its user's alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "control/unique_id.h"

#define HEX (2 * TUTTI_UNIQUE_ID_BYTES)

/* Communicators of one TUTTI_ROOT have one job, one address and so one file, which the last one removes. */
static struct {
	pthread_mutex_t lock;
	struct user {
		struct user *next;
		char *path; /* of its endpoint */
	} * users;
} files = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* The files are the parent's. */
static void in_child(void)
{
	pthread_mutex_init(&files.lock, NULL);
	files.users = NULL;
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put_text(const tuttiUniqueId *id, char text[HEX + 2])
{
	for (size_t i = 0; i < sizeof(id->internal); i++)
		snprintf(text + 2 * i, 3, "%02x", (uint8_t)id->internal[i]);
	text[HEX] = '\n';
}

/* false: errno, and no file is left */
static bool write_new(const char *path, const tuttiUniqueId *id)
{
	char text[HEX + 2] = "";
	bool wrote;
	int fd, error;

	unlink(path); /* of an earlier process with this number */
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return false;
	put_text(id, text);
	errno = ENOSPC; /* of a write that is short */
	wrote = write(fd, text, HEX + 1) == HEX + 1;
	error = errno;
	OPENSSL_cleanse(text, sizeof(text));
	if (close(fd) && wrote) {
		wrote = false;
		error = errno;
	}
	if (!wrote)
		unlink(path);
	errno = error;
	return wrote;
}

/* A reader finds the whole file, or none. */
static bool write_whole(const char *path, const tuttiUniqueId *id)
{
	char *fresh = NULL;
	bool wrote;
	int error;

	if (asprintf(&fresh, "%s.new", path) < 0) {
		errno = ENOMEM;
		return false;
	}
	wrote = write_new(fresh, id);
	if (wrote && rename(fresh, path)) {
		error = errno;
		unlink(fresh);
		errno = error;
		wrote = false;
	}
	free(fresh);
	return wrote;
}

int tt_id_file_write(const char *folder, const tuttiUniqueId *id, char **ret_path)
{
	struct user *user = calloc(1, sizeof(*user));
	struct tt_id fields;
	uint64_t job;
	int rc = tt_id_unpack(id, &fields);

	OPENSSL_cleanse(fields.secret, TT_SECRET);
	memcpy(&job, fields.nonce, sizeof(job));
	if (!rc && (!user || asprintf(&user->path, "%s/tutti-%016" PRIx64 "-%d%s", folder, job,
				      (int)getpid(), TT_ID_FILE) < 0))
		rc = tt_fail(TT_SYSTEM, "rank 0: no memory for TUTTI_TOP");
	if (rc) {
		free(user);
		return rc;
	}
	pthread_mutex_lock(&files.lock);
	if (write_whole(user->path, id)) {
		user->next = files.users;
		files.users = user;
		*ret_path = user->path;
	} else {
		rc = tt_fail_folder(0, "TUTTI_TOP", folder);
	}
	pthread_mutex_unlock(&files.lock);
	if (rc) {
		free(user->path);
		free(user);
	}
	return rc;
}

/* ---- reading --------------------------------------------------------------------------------- */

int tt_id_file_read(const char *path, tuttiUniqueId *ret_id)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st = { 0 };
	char text[HEX + 1];
	bool holds;

	if (fd < 0)
		return tt_fail(TT_ARG, "%s: %m", path);
	holds = !fstat(fd, &st) && S_ISREG(st.st_mode) && read(fd, text, HEX) == HEX;
	close(fd);
	for (size_t i = 0; i < sizeof(ret_id->internal) && holds; i++) {
		unsigned value;
		char two[3] = { text[2 * i], text[2 * i + 1], '\0' };

		holds = strspn(two, "0123456789abcdef") == 2 && sscanf(two, "%x", &value) == 1;
		ret_id->internal[i] = holds ? (char)value : 0;
	}
	OPENSSL_cleanse(text, sizeof(text));
	if (!holds)
		return tt_fail(TT_ARG, "%s: not a file of TUTTI_TOP", path);
	if (st.st_mode & 077)
		return tt_fail(
			TT_ARG,
			"%s: mode %03o lets other users %s the secret of the job: chmod 600 it",
			path, st.st_mode & 0777, st.st_mode & 044 ? "read" : "replace");
	return 0;
}

/* ---- the end --------------------------------------------------------------------------------- */

void tt_id_file_remove(char *path)
{
	struct user **at, *own = NULL;
	bool others = false;

	pthread_mutex_lock(&files.lock);
	for (at = &files.users; path && *at;) {
		struct user *u = *at;

		if (u->path == path) {
			own = u;
			*at = u->next;
			continue;
		}
		others |= !strcmp(u->path, path);
		at = &u->next;
	}
	if (own && !others)
		unlink(path);
	pthread_mutex_unlock(&files.lock);
	free(own);
	free(path);
}

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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "control/unique_id.h"

#define HEX (2 * TUTTI_UNIQUE_ID_BYTES)

static int fail_to_write(char *path)
{
	int rc = tt_fail(TT_SYSTEM,
			 "rank 0: TUTTI_TOP: %s: %m; name a folder that this user may write", path);

	free(path);
	return rc;
}

int tt_id_file_write(const char *folder, const tuttiUniqueId *id, char **ret_path)
{
	char text[HEX + 2] = "", *path = NULL;
	struct tt_id fields;
	uint64_t job;
	bool wrote;
	int fd;

	if (tt_id_unpack(id, &fields))
		return TT_ARG;
	OPENSSL_cleanse(fields.secret, TT_SECRET);
	memcpy(&job, fields.nonce, sizeof(job));
	if (asprintf(&path, "%s/tutti-%016" PRIx64 "-%d%s", folder, job, (int)getpid(),
		     TT_ID_FILE) < 0)
		return tt_fail(TT_SYSTEM, "rank 0: no memory for TUTTI_TOP");
	unlink(path); /* of an earlier process with this number */
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return fail_to_write(path);
	for (size_t i = 0; i < sizeof(id->internal); i++)
		snprintf(text + 2 * i, 3, "%02x", (uint8_t)id->internal[i]);
	text[HEX] = '\n';
	wrote = write(fd, text, HEX + 1) == HEX + 1;
	OPENSSL_cleanse(text, sizeof(text));
	close(fd);
	if (!wrote)
		return fail_to_write(path);
	*ret_path = path;
	return 0;
}

int tt_id_file_read(const char *path, tuttiUniqueId *ret_id)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n;
	char text[HEX + 1];
	bool holds;

	if (fd < 0)
		return tt_fail(TT_ARG, "%s: %m", path);
	n = read(fd, text, HEX);
	close(fd);
	holds = n == HEX;
	for (size_t i = 0; i < sizeof(ret_id->internal) && holds; i++) {
		unsigned value;
		char two[3] = { text[2 * i], text[2 * i + 1], '\0' };

		holds = strspn(two, "0123456789abcdef") == 2 && sscanf(two, "%x", &value) == 1;
		ret_id->internal[i] = holds ? (char)value : 0;
	}
	OPENSSL_cleanse(text, sizeof(text));
	return holds ? 0 : tt_fail(TT_ARG, "%s: not a file of TUTTI_TOP", path);
}

void tt_id_file_remove(char *path)
{
	if (path)
		unlink(path);
	free(path);
}

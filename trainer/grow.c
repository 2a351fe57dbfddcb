/* grow.c - ranks that join a running training at a checkpoint (grow.h) */
#include "trainer/grow.h"

#include "trainer/strategy/strategy.h"
#include "trainer/train.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { LOOK_MS = 50, WAITING_MAX = 4096 };

int train_grow_check(const struct train_rank *t)
{
	const struct train_config *c = t->config;
	const char *option = c->grow ? "grow" : "join";

	if (!c->grow && !c->join)
		return TRAIN_OK;
	if (c->grow && c->join)
		return train_fail(TRAIN_USAGE,
				  "--join: is for further ranks, and --grow for those of a "
				  "training; give one of them");
	if (t->strategy->serve || t->strategy->ask)
		return train_fail(
			TRAIN_USAGE,
			"--%s: %s hands out work, or has servers; use a strategy whose ranks take each step together, "
			"such as mirrored",
			option, t->strategy->name);
	if (!c->save || !c->save_every)
		return train_fail(
			TRAIN_USAGE,
			"--%s: ranks join at a checkpoint; add --save FILE --save-every N", option);
	return TRAIN_OK;
}

/* ---- the training ---------------------------------------------------------------------------- */

struct waiting {
	char name[WAITING_MAX][64]; /* without .waits */
	int n;
};

static void path_of(const char *directory, const char *name, const char *kind,
		    char ret_path[PATH_MAX])
{
	snprintf(ret_path, PATH_MAX, "%s/%s.%s", directory, name, kind);
}

/* Its process is alive; the file of another one is removed. */
static bool is_locked(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	bool locked = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;

	if (fd >= 0 && !locked)
		unlink(path);
	if (fd >= 0)
		close(fd);
	return locked;
}

static void find_waiting(const char *directory, struct waiting *w)
{
	DIR *d = opendir(directory);
	struct dirent *entry;

	w->n = 0;
	while (d && (entry = readdir(d)) && w->n < WAITING_MAX) {
		char *end = strrchr(entry->d_name, '.'), path[PATH_MAX];
		size_t length = end ? (size_t)(end - entry->d_name) : 0;

		if (!end || strcmp(end, ".waits") || length >= sizeof(w->name[0]))
			continue;
		snprintf(w->name[w->n], sizeof(w->name[0]), "%.*s", (int)length, entry->d_name);
		path_of(directory, w->name[w->n], "waits", path);
		if (!is_locked(path))
			continue;
		path_of(directory, w->name[w->n], "joins", path);
		w->n += access(path, F_OK) != 0; /* a rank is invited once */
	}
	if (d)
		closedir(d);
}

/* The id has a secret: no other user may read it. A rank without an invitation does not join in time. */
static void invite(const char *directory, const char *name,
		   const struct train_invitation *invitation)
{
	char path[PATH_MAX], fresh[PATH_MAX];
	int fd;
	bool written;

	path_of(directory, name, "fresh", fresh);
	path_of(directory, name, "joins", path);
	fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	written = write(fd, invitation, sizeof(*invitation)) == sizeof(*invitation);
	if (close(fd) || !written || rename(fresh, path))
		unlink(fresh);
}

/* Rank 0: invites those that the mesh can use. *ret_invitation: that of the last one. */
static int invite_all(const struct train_rank *t, int ranks,
		      struct train_invitation *ret_invitation)
{
	const struct train_mesh *m = &t->mesh;
	int each = m->tensor * m->stages, all, rc = TRAIN_OK;
	struct waiting *w = malloc(sizeof(*w));

	if (!w)
		return train_fail(TRAIN_FAILED, "no memory for the ranks that wait");
	find_waiting(t->config->grow, w);
	all = (ranks + w->n) / each * each;
	if (all > ranks)
		rc = train_check(tuttiGetUniqueId(&ret_invitation->id), NULL);
	ret_invitation->ranks = rc ? ranks : all;
	if (t->config->mesh)
		snprintf(ret_invitation->mesh, sizeof(ret_invitation->mesh),
			 "data=%d,tensor=%d,pipeline=%d", all / each, m->tensor, m->stages);
	for (int i = 0; i < all - ranks && !rc; i++) {
		ret_invitation->rank = ranks + i;
		invite(t->config->grow, w->name[i], ret_invitation);
	}
	free(w);
	return rc;
}

int train_grow(struct train_rank *t)
{
	struct train_invitation in = { 0 };
	int ranks, rc = train_check(tuttiCommCount(t->world, &ranks), t->world), invited = TRAIN_OK;
	int32_t joined;

	if (rc)
		return rc;
	if (t->world_rank == 0)
		invited = invite_all(t, ranks, &in);
	rc = train_check(tuttiBcast(&in, sizeof(in), tuttiUint8, 0, t->world, NULL), t->world);
	if (rc || invited || in.ranks == ranks)
		return rc ? rc : invited;
	in.rank = t->world_rank;
	snprintf(t->grown_mesh, sizeof(t->grown_mesh), "%s", in.mesh);
	joined = train_grow_join(t->config, &in, &t->grown);
	rc = train_check(tuttiAllReduce(&joined, &joined, 1, tuttiInt32, tuttiMin, t->world, NULL),
			 t->world);
	if (!rc && !joined)
		return TRAIN_OK;
	if (t->world_rank == 0)
		fprintf(stderr,
			"tutti-train: --grow: %d ranks did not join: %s; the training goes on without them\n",
			in.ranks - ranks, train_error());
	if (t->grown)
		tuttiCommAbort(t->grown);
	t->grown = NULL;
	return rc;
}

void train_grow_dismiss(const struct train_rank *t)
{
	struct waiting *w = malloc(sizeof(*w));

	if (!w)
		return;
	find_waiting(t->config->grow, w);
	for (int i = 0; i < w->n; i++)
		invite(t->config->grow, w->name[i], &(struct train_invitation){ .ranks = 0 });
	free(w);
}

/* ---- a further rank -------------------------------------------------------------------------- */

/* A file is locked before it has its name, since others remove one that is not. Returns its descriptor, or -1. */
static int lock_file(const char *fresh, const char *path)
{
	int fd = open(fresh, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	if (fd >= 0 && (flock(fd, LOCK_EX) || rename(fresh, path))) {
		close(fd);
		return -1;
	}
	return fd;
}

static bool read_invitation(const char *path, struct train_invitation *ret_invitation)
{
	FILE *f = fopen(path, "re");
	bool whole = f && fread(ret_invitation, sizeof(*ret_invitation), 1, f) == 1;

	if (f)
		fclose(f);
	return whole;
}

int train_grow_wait(const char *directory, struct train_invitation *ret_invitation)
{
	char host[40] = "", name[64], waits[PATH_MAX], joins[PATH_MAX], fresh[PATH_MAX];
	bool invited = false;
	int fd;

	gethostname(host, sizeof(host) - 1);
	snprintf(name, sizeof(name), "%s-%d", host, (int)getpid());
	path_of(directory, name, "waits", waits);
	path_of(directory, name, "joins", joins);
	path_of(directory, name, "fresh", fresh);
	fd = lock_file(fresh, waits);
	if (fd < 0)
		return train_fail(TRAIN_USAGE,
				  "--join %s: %m; give the directory of the training's --grow",
				  directory);
	while (!train_stop_signal && !(invited = read_invitation(joins, ret_invitation)))
		usleep(LOOK_MS * 1000);
	unlink(joins);
	unlink(waits);
	close(fd);
	if (invited && ret_invitation->ranks)
		return TRAIN_OK;
	return train_fail(TRAIN_FAILED,
			  invited ? "--join %s: the training has ended"
				  : "--join %s: a signal ended the wait",
			  directory);
}

int train_grow_join(const struct train_config *config, const struct train_invitation *invitation,
		    tuttiComm_t *ret_comm)
{
	tuttiConfig_t c = TUTTI_CONFIG_INITIALIZER;

	c.transport = config->transport;
	c.algo = config->algo;
	c.name = "tutti-train";
	return train_check(tuttiCommInitRankConfig(ret_comm, invitation->ranks, invitation->id,
						   invitation->rank, &c),
			   NULL);
}

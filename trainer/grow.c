/* grow.c - ranks that join a running training at a checkpoint (grow.h) */
#include "trainer/grow.h"

#include "tools/plural.h"
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
#include <sys/stat.h>
#include <unistd.h>

enum { LOOK_MS = 50, WAITING_MAX = 4096 };

/* ---- the folder ------------------------------------------------------------------------------ */

/* Invitations have secrets, and a file of another user may be a trap. */
static int check_folder(const char *option, const char *directory)
{
	struct stat st;

	if (stat(directory, &st))
		return train_fail(TRAIN_USAGE, "--%s %s: %m; %s", option, directory,
				  *option == 'g' ? "make a directory of your own first"
						 : "give the directory of the training's --grow");
	if (S_ISDIR(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & (S_IWGRP | S_IWOTH)))
		return TRAIN_OK;
	return train_fail(TRAIN_USAGE,
			  "--%s %s: give a directory of your own that no other user can write",
			  option, directory);
}

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
	/* on other hosts than rank 0's the folder is not needed */
	return c->np || c->join ? check_folder(option, c->grow ? c->grow : c->join) : TRAIN_OK;
}

/* A lock of the open file: others can ask for it without taking it. */
static struct flock whole_file(void)
{
	return (struct flock){ .l_type = F_WRLCK, .l_whence = SEEK_SET };
}

static int training_lock = -1; /* rank 0's, over all trainings that grow from one */

int train_grow_begin(const struct train_rank *t)
{
	const char *directory = t->config->grow;
	struct flock lock = whole_file();
	char path[PATH_MAX];
	int rc = check_folder("grow", directory);

	if (rc || training_lock >= 0)
		return rc;
	snprintf(path, sizeof(path), "%s/training", directory);
	training_lock = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (training_lock >= 0 && !fcntl(training_lock, F_OFD_SETLK, &lock) &&
	    dprintf(training_lock, "%d\n", (int)getpid()) > 0)
		return TRAIN_OK;
	rc = train_fail(TRAIN_USAGE,
			"--grow %s: %s cannot be locked: %m; is another training here?", directory,
			path);
	if (training_lock >= 0)
		close(training_lock);
	training_lock = -1;
	return rc;
}

static void end_training(const char *directory)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/training", directory);
	unlink(path);
	close(training_lock);
	training_lock = -1;
}

/* The training of a folder, as a further rank sees it. */
struct watch {
	struct timespec first; /* time of the file at first; 0: there was none */
	bool began;            /* a training began or was seen since then */
};

/* True if a training that was here is no longer. */
static bool has_ended(const char *directory, struct watch *w, bool first)
{
	struct flock lock = whole_file();
	struct stat st = { 0 };
	char path[PATH_MAX];
	bool runs;
	int fd;

	snprintf(path, sizeof(path), "%s/training", directory);
	fd = open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
	runs = fd >= 0 && !fcntl(fd, F_OFD_GETLK, &lock) && lock.l_type != F_UNLCK;
	if (fd >= 0 && !fstat(fd, &st) && !first)
		w->began |= st.st_mtim.tv_sec != w->first.tv_sec ||
			    st.st_mtim.tv_nsec != w->first.tv_nsec;
	if (fd >= 0)
		close(fd);
	if (first)
		w->first = st.st_mtim;
	w->began |= runs;
	return w->began && !runs;
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
	int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
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
	fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
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
			"tutti-train: --grow: %d rank%s did not join: %s; the training goes on without them\n",
			in.ranks - ranks, tool_s(in.ranks - ranks), train_error());
	if (t->grown)
		tuttiCommAbort(t->grown);
	t->grown = NULL;
	return rc;
}

void train_grow_dismiss(const struct train_rank *t)
{
	struct waiting *w = malloc(sizeof(*w));

	if (w)
		find_waiting(t->config->grow, w);
	for (int i = 0; w && i < w->n; i++)
		invite(t->config->grow, w->name[i], &(struct train_invitation){ .ranks = 0 });
	free(w);
	end_training(t->config->grow);
}

/* ---- a further rank -------------------------------------------------------------------------- */

/* A file is locked before it has its name, since others remove one that is not. Returns its descriptor, or -1. */
static int lock_file(const char *fresh, const char *path)
{
	int fd = open(fresh, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd >= 0 && (flock(fd, LOCK_EX) || rename(fresh, path))) {
		close(fd);
		return -1;
	}
	return fd;
}

static bool read_invitation(const char *path, struct train_invitation *ret_invitation)
{
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	bool whole = fd >= 0 && read(fd, ret_invitation, sizeof(*ret_invitation)) ==
					(ssize_t)sizeof(*ret_invitation);

	if (fd >= 0)
		close(fd);
	return whole;
}

int train_grow_wait(const char *directory, struct train_invitation *ret_invitation)
{
	char host[40] = "", name[64], waits[PATH_MAX], joins[PATH_MAX], fresh[PATH_MAX];
	struct watch watch = { 0 };
	bool invited = false, ended;
	int fd;

	if (check_folder("join", directory))
		return TRAIN_USAGE;
	gethostname(host, sizeof(host) - 1);
	snprintf(name, sizeof(name), "%s-%d", host, (int)getpid());
	path_of(directory, name, "waits", waits);
	path_of(directory, name, "joins", joins);
	path_of(directory, name, "fresh", fresh);
	ended = has_ended(directory, &watch, true);
	fd = lock_file(fresh, waits);
	if (fd < 0)
		return train_fail(TRAIN_USAGE,
				  "--join %s: %m; give the directory of the training's --grow",
				  directory);
	while (!train_stop_signal && !(invited = read_invitation(joins, ret_invitation)) &&
	       !ended) {
		usleep(LOOK_MS * 1000);
		ended = has_ended(directory, &watch, false);
	}
	unlink(joins);
	unlink(waits);
	close(fd);
	if (invited && ret_invitation->ranks)
		return TRAIN_OK;
	return train_fail(TRAIN_FAILED,
			  invited || ended ? "--join %s: the training has ended"
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

/*
 * shm_segment.c - how the ranks of one host open a shared segment
 *
 * Called by shm.c, in three steps. In between, all ranks exchange the results of the step before:
 *   announce  a rank listens on an abstract socket; its announcement has the socket's name, a secret token, and the
 *             place where the rank can share memory
 *   open      the leader (first listening rank) of each group makes a memfd, and sends it to the socket of each member,
 *             with the member's token, without waiting for any member; a member waits for the memfd and maps it
 *   settle    ranks that have not mapped the memfd are not reached
 * Ranks that seem to share a host but cannot share memory (another container, another user) are no group, or drop out
 * in open, and another transport serves them. A stranger that finds a socket has no token: it gets nothing, and what it
 * sends is dropped.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/sock.h"
#include "mem/peer_lines.h"
#include "transports/shm/shm_segment.h"

#define MAGIC 0x54554d53u
#define VERSION 5
#define WAIT_MS 20 /* until a waiting rank looks for a failure of the others */
#define RETRY_US 1000
#define STRANGERS 64 /* most connections of this user that a member reads at a time */

/* The announcement of a rank */
struct segment_record {
	uint8_t name[8], token[16]; /* name: of the listening socket, 0: none */
	struct segment_place {
		uint32_t network, users, user; /* namespaces; the user among users */
	} place;
};
_Static_assert(sizeof(struct segment_record) == TT_ANNOUNCED, "announcement");

/* Message of the leader to a member */
struct segment_offer {
	uint8_t token[16]; /* the member's */
	bool made;         /* a memfd comes with it; else the group shares no memory */
};

static struct segment_record record_of(const struct tt_world *w, int rank)
{
	struct segment_record record;

	w->announced(w->ctx, rank, (uint8_t *)&record);
	return record;
}

static bool listens(const struct segment_record *record)
{
	static const uint8_t none[sizeof(record->name)];

	return memcmp(record->name, none, sizeof(none)) != 0;
}

static struct sockaddr_un address(const struct segment_record *record)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };

	memcpy(sa.sun_path + 1, "tutti-", 6);
	for (int i = 0; i < 8; i++)
		sprintf(sa.sun_path + 7 + 2 * i, "%02x", record->name[i]);
	return sa;
}

static const socklen_t address_bytes = offsetof(struct sockaddr_un, sun_path) + 7 + 16;

/* Same user, or root. The token authenticates; this check only excludes mistakes of other users. */
static bool trusted(int fd)
{
	struct ucred cred;
	socklen_t bytes = sizeof(cred);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes) &&
	       (cred.uid == geteuid() || cred.uid == 0);
}

/* Asked while a rank waits for a peer. 0: it goes on waiting | < 0 */
static int wait_is_over(const struct tt_world *w, int peer)
{
	int rc = w->broken ? w->broken(w->ctx) : 0;

	if (!rc && tt_now_ns() >= w->deadline_ns)
		rc = tt_fail(
			TT_TIMEOUT,
			"rank %d: rank %d does not answer: the ranks of this host cannot open their shared memory",
			w->rank, peer);
	return rc;
}

static int map(struct tt_shm_segment *s)
{
	void *p = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, s->fd,
		       0);

	if (p == MAP_FAILED)
		return errno;
	madvise(p, s->bytes, MADV_DONTDUMP);
	s->header = p;
	return 0;
}

static void release(struct tt_shm_segment *s)
{
	if (s->header)
		munmap(s->header, s->bytes);
	if (s->fd >= 0)
		close(s->fd);
	s->header = NULL;
	s->fd = -1;
}

/* ---- leader ---------------------------------------------------------------------------------- */

static int make_file(struct tt_shm_segment *s)
{
	struct rlimit limit;

	/* beyond this limit ftruncate raises SIGXFSZ, which kills the process */
	if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur != RLIM_INFINITY &&
	    limit.rlim_cur < s->bytes)
		return EFBIG;
	s->fd = memfd_create("tutti", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (s->fd < 0 || ftruncate(s->fd, (off_t)s->bytes))
		return errno;
	if (fcntl(s->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return errno;
	return 0;
}

static int make_segment(struct tt_shm_segment *s)
{
	int rc = make_file(s);

	if (!rc)
		rc = map(s);
	if (!rc)
		rc = tt_shm_segment_claim(s, s->header, s->rings_at);
	if (rc)
		return rc;
	s->header->magic = MAGIC;
	s->header->version = VERSION;
	s->header->bytes = s->bytes;
	return 0;
}

static bool send_offer(int via, const struct segment_offer *offer, int segment_fd)
{
	if (offer->made)
		return tt_sock_give_fd(via, NULL, 0, offer, sizeof(*offer), segment_fd);
	return send(via, offer, sizeof(*offer), MSG_NOSIGNAL) == sizeof(*offer);
}

/* Send the memfd, or -1, to the socket of a member. 0 | an errno */
static int offer_to(const struct segment_record *member, int segment_fd)
{
	struct sockaddr_un sa = address(member);
	struct segment_offer offer = { .made = segment_fd >= 0 };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), rc = 0;

	if (fd < 0)
		return errno;
	memcpy(offer.token, member->token, sizeof(offer.token));
	if (connect(fd, (struct sockaddr *)&sa, address_bytes))
		rc = errno;
	else if (!trusted(fd))
		rc = EACCES;
	else if (!send_offer(fd, &offer, segment_fd))
		rc = errno;
	close(fd);
	return rc;
}

/* As offer_to, until the member has the offer, or does not listen any more: then it reports its failure itself. 0 | an
 * errno | < 0 */
static int serve_member(const struct tt_world *w, int rank, const struct segment_record *member,
			int segment_fd)
{
	int rc, over;

	/* the queue of the socket is full of strangers, or other members have yet to take their descriptors */
	while ((rc = offer_to(member, segment_fd)) == EAGAIN || rc == ETOOMANYREFS) {
		if ((over = wait_is_over(w, rank)))
			return over;
		usleep(RETRY_US);
	}
	return rc == ECONNREFUSED || rc == ECONNRESET || rc == EPIPE ? 0 : rc;
}

/* Make the segment, and send it to the members. A leader that lacks a descriptor for a member keeps none for the
 * segment; the members before share it. 0 | an errno | < 0: a member would wait in vain */
static int lead(const struct tt_world *w, struct tt_shm_segment *s)
{
	int why = make_segment(s);

	for (int r = 0; r < w->nranks; r++) {
		struct segment_record member = record_of(w, r);
		int rc;

		if (r == w->rank || s->local_of[r] < 0 || !listens(&member))
			continue;
		if (why)
			release(s);
		rc = serve_member(w, r, &member, s->fd);
		if (rc > 0 && !why) {
			why = rc;
			release(s);
			rc = serve_member(w, r, &member, -1);
		}
		if (rc)
			return rc < 0 ? rc
				      : tt_fail(TT_SYSTEM,
						"rank %d: connecting to the socket for shared memory of rank %d of this host: %s",
						w->rank, r, strerror(rc));
	}
	return why;
}

/* ---- members --------------------------------------------------------------------------------- */

enum visitor { SILENT, STRANGER, LEADER };

/* Whose connection is this? Its offer stays unread, and so no descriptor of a stranger comes. 0 | an errno: the
 * connection may be the leader's, but cannot be read */
static int look(int fd, const uint8_t token[16], enum visitor *ret_visitor)
{
	struct segment_offer offer;
	ssize_t n = recv(fd, &offer, sizeof(offer), MSG_PEEK | MSG_DONTWAIT);

	*ret_visitor = n < 0 && (errno == EAGAIN || errno == EINTR) ? SILENT : STRANGER;
	if (n == sizeof(offer) && !memcmp(offer.token, token, sizeof(offer.token)))
		*ret_visitor = LEADER;
	return n >= 0 || *ret_visitor == SILENT || errno == ECONNRESET ? 0 : errno;
}

/* Connections to a member, of which one is the leader's. The oldest ones are dropped where there is no room. */
struct strangers {
	struct pollfd p[1 + STRANGERS]; /* the listener first */
	int n;                          /* with the listener */
};

static void drop_stranger(struct strangers *g, int i)
{
	close(g->p[i].fd);
	memmove(&g->p[i], &g->p[i + 1], (size_t)(--g->n - i) * sizeof(g->p[0]));
}

/* 0 | an errno */
static int accept_stranger(struct strangers *g)
{
	int fd = accept4(g->p[0].fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0 && errno == EMFILE && g->n > 1) {
		drop_stranger(g, 1);
		return 0;
	}
	if (fd < 0)
		return errno == EAGAIN || errno == EINTR || errno == ECONNABORTED ? 0 : errno;
	if (!trusted(fd)) {
		close(fd);
		return 0;
	}
	if (g->n > STRANGERS)
		drop_stranger(g, 1);
	g->p[g->n++] = (struct pollfd){ .fd = fd, .events = POLLIN, .revents = POLLIN };
	return 0;
}

/* *ret_found: the leader's connection alone stays, behind the listener. 0 | an errno */
static int find_leader(struct strangers *g, const uint8_t token[16], bool *ret_found)
{
	*ret_found = false;
	for (int i = g->n - 1; i > 0; i--) {
		enum visitor visitor = SILENT;
		int rc = g->p[i].revents ? look(g->p[i].fd, token, &visitor) : 0;

		if (rc)
			return rc;
		if (visitor == STRANGER)
			drop_stranger(g, i);
		if (visitor != LEADER)
			continue;
		while (i < g->n - 1)
			drop_stranger(g, g->n - 1);
		while (g->n > 2)
			drop_stranger(g, 1);
		*ret_found = true;
		break;
	}
	return 0;
}

/* Wait for the leader's offer. 0 | an errno, ECANCELED: there is no segment | < 0 */
static int await_offer(const struct tt_world *w, int leader, const uint8_t token[16],
		       struct tt_shm_segment *s)
{
	struct strangers g = { .p = { { .fd = w->announcement->fd, .events = POLLIN } }, .n = 1 };
	struct segment_offer offer;
	bool found;
	int rc;

	while (!(rc = find_leader(&g, token, &found)) && !found && !(rc = wait_is_over(w, leader)))
		if (poll(g.p, (nfds_t)g.n, WAIT_MS) > 0 && g.p[0].revents &&
		    (rc = accept_stranger(&g)))
			break;
	if (!rc && tt_sock_take_fd(g.p[1].fd, &offer, sizeof(offer), &s->fd) < 0)
		rc = errno;
	else if (!rc && s->fd < 0)
		rc = offer.made ? EMFILE : ECANCELED;
	while (g.n > 1)
		drop_stranger(&g, 1);
	return rc;
}

/* Receive and map the memfd. A sealed file of the right size cannot shrink under the mapping. Returns as await_offer */
static int join_segment(const struct tt_world *w, int leader, const uint8_t token[16],
			struct tt_shm_segment *s)
{
	struct stat st;
	int rc = await_offer(w, leader, token, s);

	if (rc)
		return rc;
	if (fstat(s->fd, &st) || (size_t)st.st_size != s->bytes ||
	    !(fcntl(s->fd, F_GET_SEALS) & F_SEAL_SHRINK))
		return EPROTO;
	rc = map(s);
	if (rc)
		return rc;
	return s->header->magic == MAGIC && s->header->version == VERSION &&
			       s->header->bytes == s->bytes
		       ? 0
		       : EPROTO;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static int listen_as(const struct segment_record *record)
{
	struct sockaddr_un sa = address(record);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd >= 0 && (bind(fd, (struct sockaddr *)&sa, address_bytes) || listen(fd, SOMAXCONN))) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static uint32_t inode(const char *path)
{
	struct stat st;

	return stat(path, &st) ? 0 : (uint32_t)st.st_ino;
}

int tt_shm_segment_announce(struct tt_announcement *ret)
{
	struct segment_record mine;
	const size_t random = offsetof(struct segment_record, place);

	if (getrandom(&mine, random, 0) != (ssize_t)random)
		return tt_fail(TT_SYSTEM, "no random bytes for shared memory: %m");
	mine.place = (struct segment_place){ inode("/proc/thread-self/ns/net"),
					     inode("/proc/thread-self/ns/user"), geteuid() };
	ret->fd = listen_as(&mine);
	if (ret->fd < 0)
		memset(mine.name, 0, sizeof(mine.name));
	memcpy(ret->bytes, &mine, sizeof(mine));
	return 0;
}

/* Number the ranks of this rank's group. Returns the leader, -1: none */
static int find_group(const struct tt_world *w, const struct segment_record *mine,
		      struct tt_shm_segment *s)
{
	int leader = -1;

	for (int r = 0; r < w->nranks; r++) {
		struct segment_record record;

		s->local_of[r] = -1;
		if (tt_world_host(w, r) != tt_world_host(w, w->rank))
			continue;
		record = record_of(w, r);
		if (memcmp(&record.place, &mine->place, sizeof(mine->place)))
			continue;
		s->local_of[r] = s->nlocal++;
		if (leader < 0 && listens(&record))
			leader = r;
	}
	s->me = s->local_of[w->rank];
	return leader;
}

static int form_group(const struct tt_world *w, struct tt_shm_segment *s)
{
	struct segment_record mine = record_of(w, w->rank);
	int leader = find_group(w, &mine, s), *listener = &w->announcement->fd, rc = ECANCELED;

	if (s->nlocal < 2 || leader < 0)
		return 0;
	tt_shm_segment_lay_out(s, w);
	if (leader == w->rank) {
		close(*listener); /* nobody connects to the leader, which may need a descriptor */
		*listener = -1;
		rc = lead(w, s);
	} else if (*listener >= 0) {
		rc = join_segment(w, leader, mine.token, s);
	}
	if (!rc) {
		s->demotes = tt_has_demote && !w->crowded;
		tt_shm_single_copy_publish(s, w->crowded);
		return 0;
	}
	release(s);
	if (rc > 0 && rc != ECANCELED)
		tt_log(TT_LOG_WARN, "rank %d: no shared memory with ranks of this host: %s: %s",
		       w->rank, leader == w->rank ? "making a segment" : "joining the segment",
		       strerror(rc));
	return rc < 0 ? rc : 0;
}

int tt_shm_segment_open(const struct tt_world *w, struct tt_shm_segment *ret)
{
	struct tt_shm_segment s = { .fd = -1 };
	int rc = 0;

	s.local_of = malloc((size_t)w->nranks * sizeof(*s.local_of));
	if (!s.local_of)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for %d ranks of shared memory",
			       w->rank, w->nranks);
	rc = form_group(w, &s);
	if (w->announcement->fd >= 0)
		close(w->announcement->fd);
	w->announcement->fd = -1;
	for (int r = 0; !s.header && r < w->nranks; r++)
		s.local_of[r] = -1;
	if (rc)
		tt_shm_segment_close(&s);
	else
		*ret = s;
	return rc;
}

bool tt_shm_segment_settle(struct tt_shm_segment *s, int nranks,
			   bool (*has_joined)(const void *ctx, int rank), const void *ctx)
{
	bool changed = false;

	for (int r = 0; r < nranks; r++)
		if (s->local_of[r] >= 0 && !has_joined(ctx, r)) {
			s->local_of[r] = -1;
			changed = true;
		}
	return changed;
}

void tt_shm_segment_close(struct tt_shm_segment *s)
{
	release(s);
	free(s->local_of);
}

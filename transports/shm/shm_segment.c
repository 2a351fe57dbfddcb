/*
 * shm_segment.c - how the ranks of one host open a shared segment
 *
 * Called by shm.c when a communicator opens; calls world->allgather three times, as all ranks of
 * the world do:
 *   1  records: the name of a listening socket, a secret token, the network namespace
 *   2  ready: the leader (first listening rank) of each group made a memfd; the members connected
 *      to its socket and sent the token
 *   3  mapped: the leader sent the memfd to exactly those members; a rank is reached if it mapped
 *      the memfd and found the token there
 * Ranks that seem to share a host but cannot share memory (another container, another user) drop
 * out in 2 or 3, on all ranks alike, and another transport serves them. A stranger that finds the
 * socket has no token and gets nothing.
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
#include "transports/shm/shm_segment.h"

#define MAGIC 0x54554d53u
#define VERSION 2

struct segment_record {
	uint8_t name[16], token[16];
	/* inode of the network namespace; abstract sockets are visible only within it */
	uint64_t netns;
	uint64_t listens;
};

struct segment_hello {
	uint8_t token[16];
	int32_t rank;
};

/* State of the exchange, until the group is agreed. */
struct segment_exchange {
	const struct tt_world *world;
	struct segment_record *records; /* [nranks] */
	uint8_t *answers;               /* [nranks] results of the last exchange */
	int leader;                     /* leader of this rank's group, -1 none */
	int listener, link;             /* sockets or -1; link: to the leader */
};

static struct sockaddr_un address(const struct segment_record *record)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };

	memcpy(sa.sun_path + 1, "tutti-", 6);
	for (int i = 0; i < 16; i++)
		sprintf(sa.sun_path + 7 + 2 * i, "%02x", record->name[i]);
	return sa;
}

static const socklen_t address_bytes = offsetof(struct sockaddr_un, sun_path) + 7 + 32;

static bool same_group(const struct segment_exchange *x, int a, int b)
{
	return tt_world_host(x->world, a) == tt_world_host(x->world, b) &&
	       x->records[a].netns == x->records[b].netns;
}

/* Same user, or root. The token authenticates; this check only excludes mistakes of other users. */
static bool trusted(int fd)
{
	struct ucred cred;
	socklen_t bytes = sizeof(cred);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes) &&
	       (cred.uid == geteuid() || cred.uid == 0);
}

static bool readable_by(int fd, uint64_t deadline_ns)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	uint64_t now;
	int rc;

	do {
		now = tt_now_ns();
		rc = now < deadline_ns
			     ? poll(&p, 1, (int)((deadline_ns - now) / 1000000 % 1000) + 1)
			     : -2;
	} while (rc == 0 || (rc == -1 && errno == EINTR));
	return rc > 0;
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

static int make_segment(struct tt_shm_segment *s, const struct segment_record *record)
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
	memcpy(s->header->token, record->token, sizeof(record->token));
	return 0;
}

/* Members sent their hello before the second exchange, so a connection without one is a
 * stranger's. */
static bool serve_member(struct segment_exchange *x, int fd, int segment_fd)
{
	struct segment_hello hello;
	int rank = x->world->rank;

	if (!trusted(fd) || recv(fd, &hello, sizeof(hello), MSG_DONTWAIT) != sizeof(hello) ||
	    memcmp(hello.token, x->records[rank].token, sizeof(hello.token)))
		return false;
	if (hello.rank < 0 || hello.rank >= x->world->nranks || !x->answers[hello.rank] ||
	    hello.rank == rank)
		return false;
	x->answers[hello.rank] = 0;
	tt_sock_give_fd(fd, NULL, 0, "", 1, segment_fd);
	return true;
}

/* Send the memfd to the members, whose connections wait in the listener's queue since before the second
 * exchange. The close of the socket at the end answers members that could not be served, and
 * strangers. */
static void serve_members(struct segment_exchange *x, int segment_fd)
{
	int waiting = 0, rank = x->world->rank;

	for (int r = 0; r < x->world->nranks; r++)
		waiting += r != rank && same_group(x, r, rank) && x->answers[r];
	while (waiting > 0) {
		int fd = accept4(x->listener, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0 && errno != EINTR)
			break;
		if (fd < 0)
			continue;
		waiting -= serve_member(x, fd, segment_fd);
		close(fd);
	}
	close(x->listener);
	x->listener = -1;
}

/* ---- members --------------------------------------------------------------------------------- */

static int connect_leader(struct segment_exchange *x)
{
	const struct segment_record *record = &x->records[x->leader];
	struct sockaddr_un sa = address(record);
	struct segment_hello hello = { .rank = x->world->rank };

	memcpy(hello.token, record->token, sizeof(hello.token));
	x->link = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (x->link < 0 || connect(x->link, (struct sockaddr *)&sa, address_bytes))
		return errno;
	if (!trusted(x->link))
		return EACCES;
	return send(x->link, &hello, sizeof(hello), MSG_NOSIGNAL) == sizeof(hello) ? 0 : errno;
}

/* Receive and map the memfd. A sealed file of the right size cannot shrink under the mapping. */
static int receive_segment(struct segment_exchange *x, struct tt_shm_segment *s)
{
	const struct segment_record *record = &x->records[x->leader];
	struct stat st;
	char byte;
	int rc;

	if (!readable_by(x->link, x->world->deadline_ns))
		return ETIMEDOUT;
	if (tt_sock_take_fd(x->link, &byte, 1, &s->fd) < 0)
		return errno;
	if (s->fd < 0)
		return EMFILE; /* or the leader could not serve this rank */
	if (fstat(s->fd, &st) || (size_t)st.st_size != s->bytes ||
	    !(fcntl(s->fd, F_GET_SEALS) & F_SEAL_SHRINK))
		return EPROTO;
	rc = map(s);
	if (rc)
		return rc;
	if (s->header->magic != MAGIC || s->header->version != VERSION ||
	    s->header->bytes != s->bytes ||
	    memcmp(s->header->token, record->token, sizeof(record->token)))
		return EPROTO;
	return 0;
}

/* ---- exchange -------------------------------------------------------------------------------- */

static bool any_shared_host(const struct tt_world *w)
{
	for (int a = 0; a < w->nranks; a++)
		for (int b = a + 1; b < w->nranks; b++)
			if (tt_world_host(w, a) == tt_world_host(w, b))
				return true;
	return false;
}

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

static int exchange_records(struct segment_exchange *x, struct tt_shm_segment *s)
{
	const struct tt_world *w = x->world;
	struct segment_record mine = { 0 };
	struct stat ns;
	int rc;

	if (getrandom(&mine, offsetof(struct segment_record, netns), 0) !=
	    offsetof(struct segment_record, netns))
		return tt_fail(TT_SYSTEM, "rank %d: no random bytes: %m", w->rank);
	mine.netns = stat("/proc/thread-self/ns/net", &ns) ? 0 : ns.st_ino;
	x->listener = listen_as(&mine);
	mine.listens = x->listener >= 0;
	rc = w->allgather(w->ctx, &mine, sizeof(mine), x->records);
	if (rc)
		return rc;
	for (int r = 0; r < w->nranks; r++) {
		if (!same_group(x, r, w->rank))
			continue;
		s->local_of[r] = s->nlocal++;
		if (x->leader < 0 && x->records[r].listens)
			x->leader = r;
	}
	s->me = s->local_of[w->rank];
	tt_shm_segment_lay_out(s, w);
	return 0;
}

/* Exchange whether each rank succeeded. */
static int exchange_answers(struct segment_exchange *x, bool mine)
{
	const struct tt_world *w = x->world;
	uint8_t byte = mine;

	return w->allgather(w->ctx, &byte, sizeof(byte), x->answers);
}

static bool succeeded(const struct segment_exchange *x, int why, const char *what)
{
	if (why)
		tt_log(TT_LOG_WARN, "rank %d: no shared memory with ranks of this host: %s: %s",
		       x->world->rank, what, strerror(why));
	return !why;
}

static int form_group(struct segment_exchange *x, struct tt_shm_segment *s)
{
	int rank = x->world->rank, rc = exchange_records(x, s);
	bool leads = x->leader == rank, ok = false;

	if (rc)
		return rc;
	if (s->nlocal > 1 && x->leader >= 0)
		ok = leads ? succeeded(x, make_segment(s, &x->records[rank]), "making a segment")
			   : succeeded(x, connect_leader(x),
				       "connecting to the rank that made the segment");
	rc = exchange_answers(x, ok);
	if (rc)
		return rc;
	ok = ok && x->answers[x->leader];
	if (ok && leads)
		serve_members(x, s->fd);
	else if (ok)
		ok = succeeded(x, receive_segment(x, s), "joining the segment");
	if (ok)
		tt_shm_single_copy_publish(s, x->world->crowded);
	return exchange_answers(x, ok);
}

int tt_shm_segment_open(const struct tt_world *w, struct tt_shm_segment *ret)
{
	struct segment_exchange x = { .world = w, .leader = -1, .listener = -1, .link = -1 };
	struct tt_shm_segment s = { .fd = -1 };
	size_t n = (size_t)w->nranks;
	int rc = 0;

	x.records = calloc(n, sizeof(*x.records));
	x.answers = calloc(n, sizeof(*x.answers));
	s.local_of = malloc(n * sizeof(*s.local_of));
	if (!x.records || !x.answers || !s.local_of)
		rc = tt_fail(TT_SYSTEM, "rank %d: no memory to exchange records with %d ranks",
			     w->rank, w->nranks);
	for (size_t r = 0; !rc && r < n; r++)
		s.local_of[r] = -1;
	if (!rc && any_shared_host(w)) {
		rc = form_group(&x, &s);
		for (size_t r = 0; r < n; r++)
			if (!x.answers[r] || !x.answers[w->rank])
				s.local_of[r] = -1;
	}
	if (x.listener >= 0)
		close(x.listener);
	if (x.link >= 0)
		close(x.link);
	free(x.answers);
	free(x.records);
	if (rc)
		tt_shm_segment_close(&s);
	else
		*ret = s;
	return rc;
}

void tt_shm_segment_close(struct tt_shm_segment *s)
{
	if (s->header)
		munmap(s->header, s->bytes);
	if (s->fd >= 0)
		close(s->fd);
	free(s->local_of);
}

/*
 * test_segment.c - which ranks share memory: hosts, containers, limits, unauthenticated
 * connections, and shortage of memory
 *
 * test_transports.c tests the contract of all transports.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/sock.h"
#include "tests/support/harness_traffic.h"

/* successful calls of fallocate before one fails; -1: none fails */
static int claims_left = -1;

__attribute__((weak)) int fallocate(int fd, int mode, off_t at, off_t bytes)
{
	if (claims_left == 0) {
		errno = ENOSPC;
		return -1;
	}
	if (claims_left > 0)
		claims_left--;
	return (int)syscall(SYS_fallocate, fd, mode, at, bytes);
}

/* calls of recvmsg and sendmsg until one fails; -1: none fails */
static int receives_left = -1, sends_left = -1;

__attribute__((weak)) ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	if (receives_left >= 0 && receives_left-- == 0) {
		errno = ENOMEM;
		return -1;
	}
	return (ssize_t)syscall(SYS_recvmsg, fd, msg, flags);
}

__attribute__((weak)) ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	if (sends_left >= 0 && sends_left-- == 0) {
		errno = ENOMEM;
		return -1;
	}
	return (ssize_t)syscall(SYS_sendmsg, fd, msg, flags);
}

typedef int body_fn(const struct tt_world *world, void *arg);

/* reaches() is symmetric and gives true within a group only. */
static int reach_body(const struct tt_world *world, void *arg)
{
	const int *group = arg;
	struct traffic tr = { .t = &tt_shm, .nchannels = 1, .messages = 50, .seed = 10 };
	struct rig rig;

	EXPECT(rig_open(&rig, &tt_shm, world, 1) == 0);
	for (int peer = 0; peer < world->nranks; peer++)
		EXPECT(tt_shm.reaches(rig.ep, peer) ==
		       (peer != world->rank && group[peer] == group[world->rank]));
	EXPECT(traffic_run(&rig, world, &tr) == 0);
	harness_barrier(world, 0);
	rig_close(&rig);
	return 0;
}

static void reach_in_groups(const int *host_of, const int *group, int nranks, body_fn *body)
{
	struct harness h = {
		.nranks = nranks, .nchannels = 1, .message_bytes = 4096, .host_of = host_of
	};

	cr_assert(harness_run(&h, body, (void *)group) == 0);
}

Test(segment, reaches_only_ranks_of_the_same_host, .timeout = 60)
{
	static const int two[] = { 0, 1, 0, 1, 1 }, all_apart[] = { 0, 1, 2 },
			 same[] = { 0, 0, 0, 0, 0, 0 };

	reach_in_groups(two, two, 5, reach_body);
	reach_in_groups(all_apart, all_apart, 3, reach_body);
	reach_in_groups(same, same, 6, reach_body);
}

/* Ranks with one host identity, some in network namespaces of their own. */
static int container_body(const struct tt_world *world, void *arg)
{
	const int *group = arg;

	if (group[world->rank] == 1)
		EXPECT(unshare(CLONE_NEWNET) == 0);
	return reach_body(world, arg);
}

Test(segment, excludes_ranks_in_other_containers, .timeout = 60)
{
	static const int same[] = { 0, 0, 0, 0 }, lone_leader[] = { 1, 0, 0, 0 },
			 lone_member[] = { 0, 0, 1, 0 };

	if (geteuid() != 0)
		cr_skip_test("skipped: a network namespace needs root");
	reach_in_groups(same, lone_leader, 4, container_body);
	reach_in_groups(same, lone_member, 4, container_body);
}

/* A limit on file sizes does not kill the rank that creates the segment; it excludes shared memory
 * only. */
static int limit_body(const struct tt_world *world, void *arg)
{
	struct rlimit small = { 1 << 16, 1 << 16 };

	EXPECT(setrlimit(RLIMIT_FSIZE, &small) == 0);
	return reach_body(world, arg);
}

static struct tt_world patient_world(const struct tt_world *world)
{
	struct tt_world patient = *world;

	patient.deadline_ns = tt_deadline_ns(3600000); /* more than the exchanges of the harness */
	return patient;
}

static int lost_receive_body(const struct tt_world *world, void *arg)
{
	struct tt_world patient = patient_world(world);

	receives_left = world->rank == 1 ? 0 : -1;
	if (reach_body(&patient, arg))
		return 1;
	EXPECT(receives_left == -1);
	return 0;
}

Test(segment, a_member_that_cannot_read_is_excluded_at_once, .timeout = 60)
{
	static const int without_rank_1[] = { 0, 1, 0 };

#ifdef TT_ASAN
	cr_skip_test("skipped: AddressSanitizer has a recvmsg of its own");
#endif
	reach_in_groups((int[]){ 0, 0, 0 }, without_rank_1, 3, lost_receive_body);
}

/* Rank 0 cannot send the memfd to all: it says so, and those that have the memfd share it. */
static int lost_send_body(const struct tt_world *world, void *arg)
{
	const int *group = arg; /* group[0]: messages that rank 0 sends before one fails */
	struct tt_world patient = patient_world(world);

	sends_left = world->rank ? -1 : group[0];
	if (reach_body(&patient, arg))
		return 1;
	EXPECT(sends_left == -1);
	return 0;
}

Test(segment, a_leader_that_cannot_send_says_so_at_once, .timeout = 60)
{
	static const int none[] = { 0, 1, 2, 3 }, one[] = { 1, 2, 3, 4 }, two[] = { 2, 1, 1, 3 };

#ifdef TT_ASAN
	cr_skip_test("skipped: AddressSanitizer has a sendmsg of its own");
#endif
	reach_in_groups((int[]){ 0, 0, 0, 0 }, none, 4, lost_send_body);
	reach_in_groups((int[]){ 0, 0, 0, 0 }, one, 4, lost_send_body);
	reach_in_groups((int[]){ 0, 0, 0, 0 }, two, 4, lost_send_body);
}

/* Rank 0 fails before it opens, and the others learn of it. */
static int waits_left = 3;

static int fails_soon(void *ctx)
{
	(void)ctx;
	return waits_left-- == 0 ? TT_REMOTE : 0;
}

static int absent_leader_body(const struct tt_world *world, void *arg)
{
	struct tt_world patient = patient_world(world);

	(void)arg;
	patient.broken = fails_soon;
	EXPECT(harness_announce(&patient, &tt_shm) == 0);
	if (world->rank) {
		struct tt_endpoint *ep;

		EXPECT(tt_shm.open(&patient, &ep) == TT_REMOTE);
	}
	harness_barrier(world, 0);
	return 0;
}

Test(segment, a_member_does_not_wait_for_a_leader_that_has_failed, .timeout = 60)
{
	reach_in_groups((int[]){ 0, 0, 0 }, NULL, 3, absent_leader_body);
}

/* One rank has too little address space. */
static int address_space_body(const struct tt_world *world, void *arg)
{
	const int *group = arg;
	struct rlimit small = { 1 << 20, 1 << 20 };

	if (group[world->rank] == 1)
		EXPECT(setrlimit(RLIMIT_AS, &small) == 0);
	return reach_body(world, arg);
}

Test(segment, excludes_ranks_whose_limits_forbid_shared_memory, .timeout = 60)
{
	static const int same[] = { 0, 0, 0 }, apart[] = { 0, 1, 2 }, limited[] = { 0, 0, 1 };

	reach_in_groups(same, apart, 3, limit_body);
#ifndef TT_ASAN
	reach_in_groups(same, limited, 3, address_space_body);
#else
	(void)limited, (void)address_space_body;
#endif
}

/* One rank has few descriptors left: all ranks agree on the ranks that share memory, long before
 * the deadline. */
static int descriptor_body(const struct tt_world *world, void *arg)
{
	const int *limited = arg; /* { rank, descriptors left } */
	struct rlimit limit = { 0, 0 };
	struct tt_endpoint *ep;
	uint64_t mine = 0, all[8];

	for (int left = limited[1]; left > 0; limit.rlim_cur++)
		left -= fcntl((int)limit.rlim_cur, F_GETFD) < 0;
	limit.rlim_max = limit.rlim_cur;
	if (world->rank == limited[0])
		EXPECT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	EXPECT(harness_open(world, &tt_shm, &ep) == 0);
	for (int peer = 0; peer < world->nranks; peer++)
		mine |= (uint64_t)tt_shm.reaches(ep, peer) << peer;
	EXPECT(world->allgather(world->ctx, &mine, sizeof(mine), all) == 0);
	for (int peer = 0; peer < world->nranks; peer++)
		EXPECT((mine >> peer & 1) == (all[peer] >> world->rank & 1));
	EXPECT(world->rank == limited[0] || limited[0] == 0 || mine != 0);
	EXPECT(limited[1] < 4 || mine == (7u & ~(1u << world->rank)));
	tt_shm.close(ep);
	return 0;
}

Test(segment, ranks_agree_on_which_ranks_lack_descriptors, .timeout = 60)
{
	for (int rank = 0; rank < 3; rank += 2)
		for (int left = 0; left < 5; left++) {
			int limited[2] = { rank, left };
			struct harness h = { .nranks = 3, .nchannels = 1, .message_bytes = 4096 };
			uint64_t start = tt_now_ns();

			cr_assert(harness_run(&h, descriptor_body, limited) == 0);
			cr_assert(tt_now_ns() - start < 15000000000ull,
				  "a rank waited for its deadline");
		}
}

/* A foreign process finds the names of the sockets in /proc/net/unix and connects before the ranks; data: it also
 * offers a segment, with a wrong token. */
static void connect_foreign(const char *name, bool data)
{
	uint8_t offer[17] = { [16] = 1 };
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	size_t bytes = strcspn(name, "\n");
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	memcpy(sa.sun_path + 1, name + 1, bytes - 1);
	connect(fd, (struct sockaddr *)&sa,
		(socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes));
	if (data)
		tt_sock_give_fd(fd, NULL, 0, offer, sizeof(offer), 0);
}

static int (*real_allgather)(void *ctx, const void *mine, size_t bytes, void *all);

static int allgather_then_connect_foreign(void *ctx, const void *mine, size_t bytes, void *all)
{
	int rc = real_allgather(ctx, mine, bytes, all);
	FILE *f = fopen("/proc/net/unix", "r");
	char line[512], *name;

	while (fgets(line, sizeof(line), f)) {
		name = strstr(line, "@tutti-");
		/* 00010000: a listening socket */
		for (int i = 0; name && strstr(line, " 00010000 ") && i < 30; i++)
			connect_foreign(name, i % 3 != 1);
	}
	fclose(f);
	return rc;
}

static int foreign_connections_body(const struct tt_world *world, void *arg)
{
	struct tt_world disturbed = *world;

	real_allgather = world->allgather;
	disturbed.allgather = allgather_then_connect_foreign;
	return reach_body(&disturbed, arg);
}

Test(segment, refuses_unauthenticated_connections_and_works_on, .timeout = 60)
{
	static const int same[] = { 0, 0, 0 };

	reach_in_groups(same, same, 3, foreign_connections_body);
}

/* ---- shortage of memory ---------------------------------------------------------------------- */

static int shortage_body(const struct tt_world *world, void *arg)
{
	int left = *(int *)arg, peer = 1 - world->rank;
	struct traffic tr = { .t = &tt_shm, .nchannels = 1, .messages = 200, .seed = 11 };
	struct tt_endpoint *ep;
	struct tt_link *l;
	struct rig rig;

	if (left == 0) {
		EXPECT(harness_open(world, &tt_shm, &ep) == 0);
		claims_left = 0;
		EXPECT(tt_shm.connect(ep, peer, 0, &l) == TT_SYSTEM);
		EXPECT(strstr(tt_error_text(), "bytes of shared memory") != NULL);
		claims_left = -1;
		EXPECT(tt_shm.connect(ep, peer, 0, &l) == 0);
		harness_barrier(world, 0);
		tt_shm.close(ep);
		return 0;
	}
	EXPECT(rig_open(&rig, &tt_shm, world, 1) == 0);
	claims_left = left - 1; /* no slot after the first left - 1 */
	EXPECT(traffic_run(&rig, world, &tr) == 0);
	harness_barrier(world, 0);
	rig_close(&rig);
	return 0;
}

Test(segment, reports_a_shortage_of_memory_and_works_with_fewer_slots, .timeout = 60)
{
	for (int left = 0; left < 4; left++) {
		struct harness h = { .nranks = 2, .nchannels = 1, .message_bytes = 30000 };

		cr_assert(harness_run(&h, shortage_body, &left) == 0);
	}
}

/* ---- cells that change hands ------------------------------------------------------------------ */

#define LARGE 8192u

static int send_large(const struct tt_world *world, struct tt_link *l, void **ret_room)
{
	void *room = l->t->reserve(l, LARGE);

	EXPECT(room != NULL);
	memset(room, world->rank + 1, LARGE);
	EXPECT(l->t->commit(l, LARGE, 7) == 0);
	*ret_room = room;
	return 0;
}

static int receive_large(const struct tt_world *world, struct tt_link *l, bool keeps,
			 const void **ret_data)
{
	static char to[LARGE];
	int rc;

	while ((rc = l->t->peek(l, LARGE, 7, ret_data)) == 0)
		sched_yield();
	EXPECT(rc == 1 && *(const char *)*ret_data == l->peer + 1);
	EXPECT(l->t->get(l, to, LARGE, 7, keeps) == 1);
	EXPECT(to[0] == l->peer + 1 && !memcmp(to, to + 1, LARGE - 1));
	return 0;
}

/* Rank 1 answers each message; arg: it keeps the cells that it has read. */
static int answer_body(const struct tt_world *world, void *arg)
{
	bool keeps = *(const bool *)arg;
	const void *data = NULL;
	void *room = NULL, *first = NULL;
	struct rig rig;

	EXPECT(rig_open(&rig, &tt_shm, world, 1) == 0);
	for (int i = 0; i < 100; i++) {
		struct tt_link *l = rig.links[!world->rank];

		if (world->rank == 0) {
			EXPECT(send_large(world, l, &room) == 0 &&
			       receive_large(world, l, false, &data) == 0);
			first = i ? first : room;
			/* its cell has come home with the answer, and is the next one again */
			EXPECT(keeps ? data == room && room == first : data != room);
		} else {
			EXPECT(receive_large(world, l, keeps, &data) == 0 &&
			       send_large(world, l, &room) == 0);
			EXPECT((data == room) == keeps);
		}
	}
	harness_barrier(world, 0);
	rig_close(&rig);
	return 0;
}

Test(segment, a_reader_that_keeps_a_cell_answers_in_it, .timeout = 60)
{
	static bool keeps[] = { true, false };

	for (int i = 0; i < 2; i++) {
		struct harness h = { .nranks = 2, .nchannels = 1, .message_bytes = 65536 };

		cr_expect(harness_run(&h, answer_body, &keeps[i]) == 0, "keeps: %d", keeps[i]);
	}
}

/* Rank 1 never answers: it keeps cells, and the sender has enough of the others. */
static int one_way_body(const struct tt_world *world, void *arg)
{
	const void *data;
	void *room;
	struct rig rig;

	(void)arg;
	EXPECT(rig_open(&rig, &tt_shm, world, 1) == 0);
	for (int i = 0; i < 1000; i++) {
		struct tt_link *l = rig.links[!world->rank];

		if (world->rank == 1) {
			EXPECT(receive_large(world, l, true, &data) == 0);
			continue;
		}
		while (!l->t->reserve(l, LARGE))
			sched_yield();
		EXPECT(send_large(world, l, &room) == 0);
	}
	harness_barrier(world, 0);
	rig_close(&rig);
	return 0;
}

Test(segment, a_reader_that_never_answers_leaves_cells_to_the_writer, .timeout = 60)
{
	struct harness h = { .nranks = 2, .nchannels = 1, .message_bytes = 65536 };

	cr_expect(harness_run(&h, one_way_body, NULL) == 0);
}

/*
 * test_segment.c - who comes to share memory: hosts, containers, limits, strangers, and memory that
 * is not there
 *
 * What all transports promise is tested in test_transports.c.
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

#include "tests/support/harness_traffic.h"

static int claims_left = -1;           /* fallocate fails after so many; -1 never */

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

typedef int body_fn(const struct tt_world *world, void *arg);

/* Everybody's view of who reaches whom must be symmetric and equal to what is expected. */
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
	harness_meet(world, 0);
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

Test(segment, reaches_the_ranks_of_a_host_only, .timeout = 60)
{
	static const int two[] = { 0, 1, 0, 1, 1 }, all_apart[] = { 0, 1, 2 },
			 same[] = { 0, 0, 0, 0, 0, 0 };

	reach_in_groups(two, two, 5, reach_body);
	reach_in_groups(all_apart, all_apart, 3, reach_body);
	reach_in_groups(same, same, 6, reach_body);
}

/* Ranks that believe to share a host, but live in network namespaces of their own. */
static int container_body(const struct tt_world *world, void *arg)
{
	const int *group = arg;

	if (group[world->rank] == 1)
		EXPECT(unshare(CLONE_NEWNET) == 0);
	return reach_body(world, arg);
}

Test(segment, leaves_out_who_lives_in_another_container, .timeout = 60)
{
	static const int same[] = { 0, 0, 0, 0 }, lone_leader[] = { 1, 0, 0, 0 },
			 lone_member[] = { 0, 0, 1, 0 };

	if (geteuid() != 0)
		cr_skip_test("skipped: a network namespace needs root");
	reach_in_groups(same, lone_leader, 4, container_body);
	reach_in_groups(same, lone_member, 4, container_body);
}

/* A limit on file sizes would kill whoever makes the segment;
 * it must only keep shared memory away. */
static int limit_body(const struct tt_world *world, void *arg)
{
	struct rlimit small = { 1 << 16, 1 << 16 };

	EXPECT(setrlimit(RLIMIT_FSIZE, &small) == 0);
	return reach_body(world, arg);
}

/* Too little address space at one rank. */
static int address_space_body(const struct tt_world *world, void *arg)
{
	const int *group = arg;
	struct rlimit small = { 1 << 20, 1 << 20 };

	if (group[world->rank] == 1)
		EXPECT(setrlimit(RLIMIT_AS, &small) == 0);
	return reach_body(world, arg);
}

Test(segment, does_without_ranks_whose_limits_forbid_it, .timeout = 60)
{
	static const int same[] = { 0, 0, 0 }, apart[] = { 0, 1, 2 }, poor[] = { 0, 0, 1 };

	reach_in_groups(same, apart, 3, limit_body);
#ifndef TT_ASAN
	reach_in_groups(same, poor, 3, address_space_body);
#else
	(void)poor, (void)address_space_body;
#endif
}

/* One rank has few descriptors left. Whatever then works, all must agree on it, and soon. */
static int descriptor_body(const struct tt_world *world, void *arg)
{
	const int *poor = arg;              /* { rank, descriptors left } */
	struct rlimit limit = { 0, 0 };
	struct tt_endpoint *ep;
	uint64_t mine = 0, all[8];

	for (int left = poor[1]; left > 0; limit.rlim_cur++)
		left -= fcntl((int)limit.rlim_cur, F_GETFD) < 0;
	limit.rlim_max = limit.rlim_cur;
	if (world->rank == poor[0])
		EXPECT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	EXPECT(tt_shm.open(world, &ep) == 0);
	for (int peer = 0; peer < world->nranks; peer++)
		mine |= (uint64_t)tt_shm.reaches(ep, peer) << peer;
	EXPECT(world->allgather(world->ctx, &mine, sizeof(mine), all) == 0);
	for (int peer = 0; peer < world->nranks; peer++)
		EXPECT((mine >> peer & 1) == (all[peer] >> world->rank & 1));
	EXPECT(world->rank == poor[0] || poor[0] == 0 || mine != 0);
	EXPECT(poor[1] < 4 || mine == (7u & ~(1u << world->rank)));
	tt_shm.close(ep);
	return 0;
}

Test(segment, agrees_on_who_lacks_descriptors, .timeout = 60)
{
	for (int rank = 0; rank < 3; rank += 2)
		for (int left = 0; left < 5; left++) {
			int poor[2] = { rank, left };
			struct harness h = { .nranks = 3, .nchannels = 1, .message_bytes = 4096 };
			uint64_t start = tt_now_ns();

			cr_assert(harness_run(&h, descriptor_body, poor) == 0);
			cr_assert(tt_now_ns() - start < 15000000000ull,
				  "somebody waited for its deadline");
		}
}

/* A stranger finds the sockets' names where the kernel lists them, connects first, says nothing, or
 * says hello as rank 1 with a token that it cannot know. */
static void disturb(const char *name, bool speak)
{
	struct { uint8_t token[16]; int32_t rank; } hello = { .rank = 1 };
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	size_t bytes = strcspn(name, "\n");
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	memcpy(sa.sun_path + 1, name + 1, bytes - 1);
	connect(fd, (struct sockaddr *)&sa,
		(socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes));
	if (speak)
		send(fd, &hello, sizeof(hello), MSG_NOSIGNAL);
}

static int (*real_allgather)(void *ctx, const void *mine, size_t bytes, void *all);

static int allgather_with_strangers(void *ctx, const void *mine, size_t bytes, void *all)
{
	int rc = real_allgather(ctx, mine, bytes, all);
	FILE *f = fopen("/proc/net/unix", "r");
	char line[512], *name;

	while (fgets(line, sizeof(line), f)) {
		name = strstr(line, "@tutti-");
		/* it listens */
		for (int i = 0; name && strstr(line, " 00010000 ") && i < 30; i++)
			disturb(name, i % 3 != 1);
	}
	fclose(f);
	return rc;
}

static int stranger_body(const struct tt_world *world, void *arg)
{
	struct tt_world disturbed = *world;

	real_allgather = world->allgather;
	disturbed.allgather = allgather_with_strangers;
	return reach_body(&disturbed, arg);
}

Test(segment, gives_strangers_nothing_and_goes_on, .timeout = 60)
{
	static const int same[] = { 0, 0, 0 };

	reach_in_groups(same, same, 3, stranger_body);
}

/* ---- shm: memory that is not there ----------------------------------------------------------- */

static int shortage_body(const struct tt_world *world, void *arg)
{
	int left = *(int *)arg, peer = 1 - world->rank;
	struct traffic tr = { .t = &tt_shm, .nchannels = 1, .messages = 200, .seed = 11 };
	struct tt_endpoint *ep;
	struct tt_link *l;
	struct rig rig;

	if (left == 0) {
		EXPECT(tt_shm.open(world, &ep) == 0);
		claims_left = 0;
		EXPECT(tt_shm.connect(ep, peer, 0, &l) == TT_SYSTEM);
		EXPECT(strstr(tt_error_text(), "bytes of shared memory") != NULL);
		claims_left = -1;
		EXPECT(tt_shm.connect(ep, peer, 0, &l) == 0);
		harness_meet(world, 0);
		tt_shm.close(ep);
		return 0;
	}
	EXPECT(rig_open(&rig, &tt_shm, world, 1) == 0);
	claims_left = left - 1;                    /* no slot beyond so many */
	EXPECT(traffic_run(&rig, world, &tr) == 0);
	harness_meet(world, 0);
	rig_close(&rig);
	return 0;
}

Test(segment, says_when_memory_is_short_and_works_with_what_it_has, .timeout = 60)
{
	for (int left = 0; left < 4; left++) {
		struct harness h = { .nranks = 2, .nchannels = 1, .message_bytes = 30000 };

		cr_assert(harness_run(&h, shortage_body, &left) == 0);
	}
}

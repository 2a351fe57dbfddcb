/* harness_world.c - see harness_world.h */
#include "tests/support/harness_world.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sock.h"

#define MAX_RANKS 64
#define MAX_BYTES 4096 /* bytes of a rank in an allgather */
#define OPEN_MS 20000

/* Shared by all ranks: buffers of two consecutive allgathers, so that a fast rank does not
 * overwrite the data that a slow rank reads. */
struct world_shared {
	_Atomic uint64_t arrived[MAX_RANKS];
	uint8_t part[2][MAX_RANKS][MAX_BYTES];
};

struct world_rank {
	struct tt_world world;
	const struct harness *h;
	struct world_shared *shared;
	uint64_t round;
	int *fds; /* [nranks * nchannels] this rank's ends */
	int takes;
	struct tt_announcement announcement;
	uint8_t announced[MAX_RANKS][TT_ANNOUNCED];
	int (*body)(const struct tt_world *world, void *arg);
	void *arg;
	int result;
};

static int allgather(void *ctx, const void *mine, size_t bytes, void *all)
{
	struct world_rank *r = ctx;
	int n = r->h->nranks;
	uint64_t round = ++r->round, deadline = tt_deadline_ns(OPEN_MS);

	if (bytes > MAX_BYTES)
		return tt_fail(TT_INTERNAL, "allgather of %zu bytes", bytes);
	memcpy(r->shared->part[round % 2][r->world.rank], mine, bytes);
	atomic_store(&r->shared->arrived[r->world.rank], round);
	for (int i = 0; i < n; i++) {
		while (atomic_load(&r->shared->arrived[i]) < round) {
			if (tt_now_ns() > deadline)
				return tt_fail(TT_TIMEOUT, "rank %d is missing in an allgather", i);
			sched_yield();
		}
		memcpy((char *)all + (size_t)i * bytes, r->shared->part[round % 2][i], bytes);
	}
	return 0;
}

static void announced(void *ctx, int rank, uint8_t ret_bytes[TT_ANNOUNCED])
{
	struct world_rank *r = ctx;

	memcpy(ret_bytes, r->announced[rank], TT_ANNOUNCED);
}

static bool has_joined(const void *ctx, int rank)
{
	return ((const bool *)ctx)[rank];
}

int harness_announce(const struct tt_world *world, const struct tt_transport *t)
{
	struct world_rank *r = world->ctx;
	int rc;

	r->announcement = (struct tt_announcement){ .fd = -1 };
	if (!t->announce)
		return 0;
	rc = t->announce(&r->announcement);
	return rc ? rc : world->allgather(r, r->announcement.bytes, TT_ANNOUNCED, r->announced);
}

int harness_open(const struct tt_world *world, const struct tt_transport *t,
		 struct tt_endpoint **ret_ep)
{
	struct world_rank *r = world->ctx;
	bool mine, joined[MAX_RANKS];
	int rc = harness_announce(world, t);

	rc = rc ? rc : t->open(world, ret_ep);
	if (rc || !t->announce)
		return rc;
	mine = t->joined(*ret_ep);
	rc = world->allgather(r, &mine, sizeof(mine), joined);
	if (!rc)
		t->settle(*ret_ep, has_joined, joined);
	return rc;
}

uint64_t harness_barrier(const struct tt_world *world, uint64_t value)
{
	uint64_t all[MAX_RANKS], most = 0;

	if (world->allgather(world->ctx, &value, sizeof(value), all))
		abort();
	for (int r = 0; r < world->nranks; r++)
		most = all[r] > most ? all[r] : most;
	return most;
}

static int dial(void *ctx, int peer, int channel)
{
	struct world_rank *r = ctx;

	if (r->fds[peer * r->h->nchannels + channel] < 0)
		return tt_fail(TT_REMOTE, "rank %d was dialed twice", peer);
	return 0;
}

/* Differs between pairs, directions and channels */
static void make_key(int from, int to, int channel, uint8_t ret_key[32])
{
	memset(ret_key, 0, 32);
	snprintf((char *)ret_key, 32, "%d to %d on %d", from, to, channel);
}

static int take(void *ctx, int peer, int channel, int *ret_fd, struct tt_data_keys *ret_keys)
{
	struct world_rank *r = ctx;
	int me = r->world.rank;

	if (r->takes++ < r->h->takes_before_socket)
		return 0;
	if (dial(ctx, peer, channel))
		return TT_REMOTE;
	*ret_fd = r->fds[peer * r->h->nchannels + channel];
	r->fds[peer * r->h->nchannels + channel] = -1;
	make_key(me, peer, channel, ret_keys->send);
	make_key(peer, me, channel, ret_keys->recv);
	return 1;
}

static void connect_pair(int listener, struct sockaddr_in *at, int *ret_a, int *ret_b)
{
	*ret_a = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (*ret_a < 0 || connect(*ret_a, (struct sockaddr *)at, sizeof(*at)))
		abort();
	*ret_b = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (*ret_b < 0)
		abort();
}

static void connect_all(struct world_rank *ranks, const struct harness *h)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t bytes = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), c = h->nchannels;

	if (listener < 0 || bind(listener, (struct sockaddr *)&at, sizeof(at)) ||
	    listen(listener, 1) || getsockname(listener, (struct sockaddr *)&at, &bytes))
		abort();
	for (int a = 0; a < h->nranks; a++)
		for (int b = a + 1; b < h->nranks; b++)
			for (int i = 0; i < c; i++)
				connect_pair(listener, &at, &ranks[a].fds[b * c + i],
					     &ranks[b].fds[a * c + i]);
	close(listener);
}

static void close_unused(struct world_rank *r)
{
	for (int i = 0; i < r->h->nranks * r->h->nchannels; i++)
		if (r->fds[i] >= 0)
			close(r->fds[i]);
}

static void *run_thread(void *arg)
{
	struct world_rank *r = arg;

	r->result = r->body(&r->world, r->arg);
	return NULL;
}

static uint64_t run_threads(struct world_rank *ranks, int n)
{
	pthread_t threads[MAX_RANKS];
	uint64_t failed = 0;

	for (int i = 0; i < n; i++)
		if (pthread_create(&threads[i], NULL, run_thread, &ranks[i]))
			abort();
	for (int i = 0; i < n; i++) {
		pthread_join(threads[i], NULL);
		failed |= (uint64_t)(ranks[i].result != 0) << i;
		close_unused(&ranks[i]);
	}
	return failed;
}

static uint64_t run_forks(struct world_rank *ranks, int n)
{
	pid_t pids[MAX_RANKS];
	uint64_t failed = 0;

	fflush(NULL);
	for (int i = 0; i < n; i++) {
		pids[i] = fork();
		if (pids[i] < 0)
			abort();
		if (pids[i] > 0)
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (int other = 0; other < n; other++)
			if (other != i)
				close_unused(&ranks[other]);
		run_thread(&ranks[i]);
		fflush(NULL);
		_exit(ranks[i].result != 0);
	}
	for (int i = 0; i < n; i++)
		/* the exit of a rank then ends its connections */
		close_unused(&ranks[i]);
	for (int i = 0; i < n; i++) {
		int status;

		if (waitpid(pids[i], &status, 0) != pids[i] || status)
			failed |= 1ull << i;
	}
	return failed;
}

uint64_t harness_run(const struct harness *h, int (*body)(const struct tt_world *world, void *arg),
		     void *arg)
{
	size_t nfds = (size_t)h->nranks * (size_t)h->nchannels;
	struct world_rank *ranks = calloc((size_t)h->nranks, sizeof(*ranks));
	int *hosts = calloc((size_t)h->nranks, sizeof(*hosts));
	struct world_shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
					   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t failed;

	if (!ranks || !hosts || shared == MAP_FAILED || h->nranks > MAX_RANKS)
		abort();
	for (int i = 0; i < h->nranks; i++) {
		ranks[i] = (struct world_rank){ .h = h,
						.shared = shared,
						.body = body,
						.arg = arg,
						.fds = malloc(nfds * sizeof(int)) };
		if (!ranks[i].fds)
			abort();
		memset(ranks[i].fds, 0xff, nfds * sizeof(int));
		ranks[i].world = (struct tt_world){
			.rank = i,
			.nranks = h->nranks,
			.host_of = h->host_of ? h->host_of : hosts,
			.message_bytes = h->message_bytes,
			.nchannels = h->nchannels,
			.deadline_ns = tt_deadline_ns(OPEN_MS),
			.encrypt = h->encrypt ? TT_ENCRYPT_ON : TT_ENCRYPT_AUTO,
			.insist = true,
			.dial = dial,
			.take = take,
			.announced = announced,
			.announcement = &ranks[i].announcement,
			.allgather = allgather,
			.ctx = &ranks[i],
		};
	}
	connect_all(ranks, h);
	failed = h->threads ? run_threads(ranks, h->nranks) : run_forks(ranks, h->nranks);
	for (int i = 0; i < h->nranks; i++)
		free(ranks[i].fds);
	free(ranks);
	free(hosts);
	munmap(shared, sizeof(*shared));
	return failed;
}

/*
 * test_one_process.c - ranks that are threads of one process, or of a few: joins without sockets,
 * late ranks, another secret, deaths, forks, two copies of the library
 */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/openssl.h"
#include "control/control_internal.h"
#include "tests/support/descriptors.h"
#include "tests/support/harness_control.h"

TestSuite(one_process, .timeout = 60);

#define LIMIT_MS 20000

/* The linker gives the library's calls of socket and accept4 to these functions. */
static atomic_int streams;

int __real_socket(int domain, int type, int protocol);
int __wrap_socket(int domain, int type, int protocol);
int __wrap_socket(int domain, int type, int protocol)
{
	streams += (domain == AF_INET || domain == AF_INET6) && (type & 0xf) == SOCK_STREAM;
	return __real_socket(domain, type, protocol);
}

int __real_accept4(int fd, struct sockaddr *from, socklen_t *bytes, int flags);
int __wrap_accept4(int fd, struct sockaddr *from, socklen_t *bytes, int flags);
int __wrap_accept4(int fd, struct sockaddr *from, socklen_t *bytes, int flags)
{
	int accepted = __real_accept4(fd, from, bytes, flags);

	streams += accepted >= 0;
	return accepted;
}

static void assert_right(const struct control_job *m)
{
	for (int r = 0; r < m->n; r++)
		cr_assert(!m->report[r].joined && !m->report[r].rc, "rank %d: %d %d %s", r,
			  m->report[r].joined, m->report[r].rc, m->report[r].text);
}

static uint64_t deadline(void)
{
	return tt_deadline_ns(LIMIT_MS);
}

/* An allgather, and one of a split into two halves by turns */
static int work(struct control_job *m, int rank, struct tt_control *ctl)
{
	int all[CONTROL_JOB_MOST], wrong = 0, n = 0;
	struct tt_members members;
	struct tt_control *half = NULL;

	wrong += tt_control_allgather(ctl, &rank, sizeof(rank), all, deadline()) != 0;
	for (int r = 0; r < m->n && !wrong; r++)
		wrong += all[r] != r;
	wrong += tt_control_split(ctl, rank % 2, rank, 0, LIMIT_MS, NULL, 0, &half, &members) != 0;
	n = members.map.n;
	tt_rank_map_free(&members.map);
	wrong += tt_control_agree(ctl, wrong ? TT_REMOTE : 0, "the split", NULL, deadline()) != 0;
	tt_control_formed(ctl);
	if (half)
		wrong += tt_control_allgather(half, &rank, sizeof(rank), all, deadline()) != 0;
	for (int r = 0; r < n && !wrong; r++)
		wrong += all[r] != 2 * r + rank % 2;
	tt_control_leave(half);
	if (wrong)
		snprintf(m->report[rank].text, sizeof(m->report[rank].text), "%s", tt_error_text());
	return wrong;
}

/* ---- sockets --------------------------------------------------------------------------------- */

/* Does a socket of this network namespace listen at the port? Without a socket of this process's */
static bool listens(int port)
{
	static const char *const tables[] = { "/proc/net/tcp", "/proc/net/tcp6" };
	char line[512], tail[16];
	bool found = false;

	snprintf(tail, sizeof(tail), ":%04X", (unsigned)port);
	for (int i = 0; i < 2; i++) {
		FILE *f = fopen(tables[i], "r");
		char local_address[80];
		unsigned state;

		while (f && fgets(line, sizeof(line), f))
			found |= sscanf(line, "%*s %79s %*s %x", local_address, &state) == 2 &&
				 state == 0x0a && strstr(local_address, tail);
		if (f)
			fclose(f);
	}
	return found;
}

static void wait_for_rank_0(struct control_job *m, int rank, struct tt_join *join)
{
	struct tt_id id;

	(void)m;
	cr_assert_eq(tt_id_unpack(join->id, &id), 0);
	while (rank && !listens(id.port))
		sleep_ms(10);
}

/* The listeners of the id and of the process are the only sockets. Rank 0 is first: a rank that comes
 * before may have to look for rank 0 in other processes. */
Test(one_process, ranks_join_exchange_and_split_without_a_socket)
{
	struct control_job m = {
		.n = 16, .threads = true, .before = wait_for_rank_0, .body = work, .has_id = true
	};

	cr_assert_eq(tt_id_make("", "", &m.id), 0);
	streams = 0;
	control_job_run(&m);
	assert_right(&m);
	cr_assert_eq(streams, 2, "%d sockets of %d ranks", streams, m.n);
}

/* ---- threads and descriptors ------------------------------------------------------------------ */

#define IDS 3
#define RANKS 16

struct holder { /* of one rank of each id */
	tuttiUniqueId *ids;
	pthread_barrier_t *barrier;
	int rank;
	bool failed;
};

static void *hold(void *arg)
{
	struct holder *h = arg;
	struct tt_control *ctl[IDS] = { NULL };

	for (int i = 0; i < IDS; i++) {
		struct tt_join join = { .id = &h->ids[i],
					.rank = h->rank,
					.nranks = RANKS,
					.settings = "",
					.timeout_ms = LIMIT_MS,
					.ifname = "",
					.host_id = "",
					.port_range = "" };

		wait_for_rank_0(NULL, h->rank, &join);
		h->failed |= tt_control_join(&join, &ctl[i]) != 0;
	}
	pthread_barrier_wait(h->barrier);
	pthread_barrier_wait(h->barrier); /* threads and descriptors are counted */
	for (int i = 0; i < IDS; i++)
		tt_control_leave(ctl[i]);
	return NULL;
}

static int await_threads(int n)
{
	for (int ms = 0; ms < LIMIT_MS && count_threads() != n; ms++)
		sleep_ms(1); /* until the kernel has reaped those that were joined */
	return count_threads();
}

/* The process has a listener, an epoll, an eventfd, a reserve descriptor and a thread for all; each id
 * has a listener for rank 0. With the last rank all end, and begin again. */
Test(one_process, all_ranks_of_all_ids_share_a_thread_and_a_listener)
{
	int threads = count_threads(), descriptors = 0;

	for (int round = 0; round < 3; round++) {
		struct holder h[RANKS];
		tuttiUniqueId ids[IDS];
		pthread_t thread[RANKS];
		pthread_barrier_t barrier;

		pthread_barrier_init(&barrier, NULL, RANKS + 1);
		for (int i = 0; i < IDS; i++)
			cr_assert_eq(tt_id_make("", "", &ids[i]), 0);
		for (int r = 0; r < RANKS; r++) {
			h[r] = (struct holder){ .ids = ids, .barrier = &barrier, .rank = r };
			cr_assert_eq(pthread_create(&thread[r], NULL, hold, &h[r]), 0);
		}
		pthread_barrier_wait(&barrier);
		cr_expect_eq(await_threads(threads + RANKS + 1), threads + RANKS + 1);
		cr_expect(!round || count_descriptors() == descriptors + IDS + 4,
			  "%d descriptors, %d without ranks", count_descriptors(), descriptors);
		pthread_barrier_wait(&barrier);
		for (int r = 0; r < RANKS; r++) {
			pthread_join(thread[r], NULL);
			cr_assert_not(h[r].failed);
		}
		cr_expect_eq(await_threads(threads), threads);
		cr_expect(!round || count_descriptors() == descriptors, "%d descriptors, %d before",
			  count_descriptors(), descriptors);
		descriptors = count_descriptors(); /* the first round opens what stays */
		pthread_barrier_destroy(&barrier);
	}
}

/* ---- joins ----------------------------------------------------------------------------------- */

static int late;

static void one_is_late(struct control_job *m, int rank, struct tt_join *join)
{
	(void)m, (void)join;
	if (rank == late)
		sleep_ms(1500);
}

/* Rank 1 is an inner rank of the tree, rank 9 its child. */
Test(one_process, each_rank_may_join_last)
{
	static const int ranks[] = { 0, 1, 9 };

	for (int i = 0; i < 3; i++) {
		struct control_job m = {
			.n = 11, .threads = true, .before = one_is_late, .body = work
		};

		late = ranks[i];
		control_job_run(&m);
		assert_right(&m);
	}
}

static void another_secret(struct control_job *m, int rank, struct tt_join *join)
{
	static tuttiUniqueId forged;
	struct tt_id id;

	if (rank != 2)
		return;
	cr_assert_eq(tt_id_unpack(&m->id, &id), 0);
	id.secret[15] ^= 1;
	tt_id_pack(&id, &forged);
	join->id = &forged;
}

Test(one_process, a_rank_with_another_secret_is_refused)
{
	struct control_job m = {
		.n = 4, .threads = true, .before = another_secret, .timeout_ms = 1500
	};

	control_job_run(&m);
	for (int r = 0; r < 4; r++) {
		cr_assert_eq(m.report[r].joined, TT_TIMEOUT);
		cr_assert(strstr(m.report[r].text, "a different secret"), "rank %d: %s", r,
			  m.report[r].text);
	}
}

static void rank_3_joins_as_2(struct control_job *m, int rank, struct tt_join *join)
{
	(void)m;
	if (rank == 3)
		join->rank = 2;
}

Test(one_process, a_rank_that_joins_twice_is_reported_to_every_rank)
{
	struct control_job m = { .n = 4, .threads = true, .before = rank_3_joins_as_2 };

	control_job_run(&m);
	for (int r = 0; r < 4; r++)
		cr_assert(m.report[r].joined == TT_USAGE &&
				  strstr(m.report[r].text, "two processes join as rank 2"),
			  "rank %d: %s", r, m.report[r].text);
}

/* ---- several processes ----------------------------------------------------------------------- */

static bool is_odd(int rank)
{
	return rank % 2;
}

static bool is_even(int rank)
{
	return rank % 2 == 0;
}

/* Even ranks are threads of this process, odd ranks of another. */
Test(one_process, ranks_of_two_processes_work_together)
{
	struct control_job m = { .n = 20, .threads = true, .body = work, .has_id = true };
	int status;
	pid_t pid;

	cr_assert_eq(tt_id_make("", "", &m.id), 0);
	pid = fork();
	m.absent = pid ? is_odd : is_even;
	control_job_run(&m);
	assert_right(&m);
	if (!pid)
		_exit(0);
	waitpid(pid, &status, 0);
	cr_assert(WIFEXITED(status) && !WEXITSTATUS(status));
}

/* ---- deaths ---------------------------------------------------------------------------------- */

static int die_or_notice(struct control_job *m, int rank, struct tt_control *ctl)
{
	int culprit;

	atomic_store(&m->report[rank].progress, 1);
	control_job_all_reached(m, 1, LIMIT_MS); /* all have joined */
	if (rank != 5)
		return control_job_await_broken(m, rank, ctl, LIMIT_MS, &culprit) != TT_REMOTE ||
		       culprit != 5;
	tt_control_lock(ctl);
	for (struct tt_conn *c = ctl->ep->conns; c; c = c->next)
		if (!c->dead)
			tt_duplex_shutdown(&c->duplex, SHUT_RDWR);
	tt_control_unlock(ctl);
	return 0;
}

Test(one_process, a_connection_that_ends_without_a_goodbye_is_a_death)
{
	struct control_job m = { .n = 12, .threads = true, .body = die_or_notice };

	control_job_run(&m);
	assert_right(&m);
	cr_assert(strstr(m.report[0].text, "rank 5 died: its connection to rank"), "%s",
		  m.report[0].text);
}

/* ---- forks ----------------------------------------------------------------------------------- */

/* In the child of a process whose other threads join: an endpoint of a new job. The child does not use
 * OpenSSL, since another thread of the parent may hold the lock of its list of threads. */
static pid_t fork_and_open(void)
{
	struct tt_control_endpoint *ep;
	pid_t pid = fork();
	int rc;

	if (pid)
		return pid;
	alarm(50);
	rc = tt_endpoint_make(0, 2, &ep) || tt_endpoint_listen(ep, &(struct tt_ports){ 0 }) ||
	     tt_endpoint_start(ep);
	tt_endpoint_free(ep);
	_exit(rc);
}

void __asan_init(void) __attribute__((weak)); /* in a build with AddressSanitizer */

Test(one_process, a_fork_beside_joins_disturbs_neither_parent_nor_child)
{
	if (__asan_init)
		cr_skip_test(
			"a forked child waits for locks of AddressSanitizer that another thread had");
	for (int round = 0; round < 10; round++) {
		struct control_job m = { .n = 16, .threads = true, .body = work };
		pid_t child[5];
		int status;

		control_job_start(&m);
		for (int i = 0; i < 5; i++)
			child[i] = fork_and_open();
		control_job_wait(&m);
		assert_right(&m);
		for (int i = 0; i < 5; i++) {
			waitpid(child[i], &status, 0);
			cr_assert(WIFEXITED(status) && !WEXITSTATUS(status), "status %x", status);
		}
	}
}

/* The parent's library context may have locks that nobody opens in the child. */
Test(one_process, the_child_of_a_fork_has_a_library_context_of_openssl_of_its_own)
{
	OSSL_LIB_CTX *parents = tt_openssl();
	int status;
	pid_t pid;

	cr_assert(parents && parents == tt_openssl());
	pid = fork();
	if (!pid)
		_exit(tt_openssl() == parents || !tt_openssl());
	waitpid(pid, &status, 0);
	cr_assert(WIFEXITED(status) && !WEXITSTATUS(status), "status %x", status);
}

/* ---- two copies of the library --------------------------------------------------------------- */

struct copy_rank {
	tuttiResult_t (*join)(tuttiComm_t *, int, tuttiUniqueId, int);
	tuttiResult_t (*all_reduce)(const void *, void *, size_t, tuttiDataType_t, tuttiRedOp_t,
				    tuttiComm_t, tuttiStream_t);
	tuttiResult_t (*destroy)(tuttiComm_t);
	tuttiUniqueId id;
	int rank;
	float sum;
};

static void *run_copy(void *arg)
{
	struct copy_rank *c = arg;
	tuttiComm_t comm;

	c->sum = 1;
	if (c->join(&comm, 4, c->id, c->rank))
		return arg;
	if (c->all_reduce(&c->sum, &c->sum, 1, tuttiFloat32, tuttiSum, comm, NULL) ||
	    c->destroy(comm))
		return arg;
	return NULL;
}

/* This program has one copy inside, libtutti.so is another. Ranks of both join one job. */
Test(one_process, two_copies_of_the_library_work_together)
{
	void *other = dlopen(".libs/libtutti.so", RTLD_NOW | RTLD_LOCAL), *failed;
	struct copy_rank ranks[4];
	tuttiUniqueId id;
	pthread_t thread[4];

	if (!other)
		cr_skip_test("no shared library: %s", dlerror());
	cr_assert_eq(tuttiGetUniqueId(&id), tuttiSuccess);
	for (int r = 0; r < 4; r++) {
		ranks[r] = (struct copy_rank){ .join = tuttiCommInitRank,
					       .all_reduce = tuttiAllReduce,
					       .destroy = tuttiCommDestroy,
					       .id = id,
					       .rank = r };
		if (r % 2) {
			*(void **)&ranks[r].join = dlsym(other, "tuttiCommInitRank");
			*(void **)&ranks[r].all_reduce = dlsym(other, "tuttiAllReduce");
			*(void **)&ranks[r].destroy = dlsym(other, "tuttiCommDestroy");
			cr_assert_neq(ranks[r].join, tuttiCommInitRank);
		}
		cr_assert_eq(pthread_create(&thread[r], NULL, run_copy, &ranks[r]), 0);
	}
	for (int r = 0; r < 4; r++) {
		pthread_join(thread[r], &failed);
		cr_assert(!failed && ranks[r].sum == 4, "rank %d", r);
	}
	dlclose(other);
}

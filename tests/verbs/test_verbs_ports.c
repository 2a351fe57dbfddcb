/*
 * test_verbs_ports.c - ports go down and come up again under communicators that have opened HCAs
 *
 * Two ranks with different host identifiers and two paths between them, on the fake library
 * (tests/scripts/verbs.sh). Claims: the port of an unused HCA may fail; a port that comes up in time
 * loses no message; an error names a port that stays down, and the ranks shrink to a communicator
 * that uses tcp.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "comm/comm.h"
#include "tests/support/files.h"
#include "tests/support/must.h"
#include "transports/verbs/verbs.h"

#define SMALL 2
#define LARGE (64u << 10)
#define LATE_MS 900 /* after this wait a rank checks its own ports */

static char folder[] = "/tmp/tutti-verbs-ports-XXXXXX";

/* Tuning tables: verbs for small calls and tcp for large calls, or tcp for all calls */
static const char verbs_small[] = "verbs.latency_ns 1000\nverbs.send_ns 500\nverbs.recv_ns 500\n"
				  "verbs.link_gbps 0.1\nverbs.host_gbps 0.1\n";
static const char tcp_only[] = "verbs.latency_ns 1e6\n";

static int init(tuttiComm_t *comm, int rank, const tuttiUniqueId *id)
{
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	char tuning[64];

	snprintf(tuning, sizeof(tuning), "%s/tuning", folder);
	setenv("TUTTI_TUNING", tuning, 1);
	setenv("TUTTI_HOST_ID", rank ? "b" : "a", 1);
	config.timeout_ms = 20000;
	MUST(tuttiCommInitRankConfig(comm, 2, *id, rank, &config));
	WANT((*comm)->paths.npaths == 2);
	return 0;
}

static tuttiResult_t sum(tuttiComm_t comm, size_t count)
{
	static float x[LARGE], y[LARGE];
	tuttiResult_t rc;

	for (size_t i = 0; i < count; i++)
		x[i] = (float)i;
	rc = tuttiAllReduce(x, y, count, tuttiFloat32, tuttiSum, comm, NULL);
	for (size_t i = 0; i < count && !rc; i++)
		if (y[i] != 2 * x[i])
			return tuttiInternalError;
	return rc;
}

/* Rank 1 is late, so rank 0 checks its ports while it waits. */
static tuttiResult_t late_sum(tuttiComm_t comm, int rank, size_t count)
{
	if (rank == 1)
		nanosleep(&(struct timespec){ .tv_nsec = LATE_MS * 1000000l }, NULL);
	return sum(comm, count);
}

static uint64_t sent_over_verbs(tuttiComm_t comm)
{
	tuttiCounters_t n = { .size = sizeof(n) };

	return tuttiCommGetCounters(comm, &n) ? ~0ull : n.sent_bytes_verbs;
}

/* Sets the state of this process's ports, and raises the HCA's event. */
static int set_ports(tuttiComm_t comm, bool down)
{
	uint64_t event = (down ? TT_VERBS_EVENT_PORT_ERR : TT_VERBS_EVENT_PORT_ACTIVE) | 1ull << 32;
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)tt_path_via(&comm->paths.path[1],
								   !comm->rank);
	struct sockaddr_un at;
	socklen_t bytes = sizeof(at);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	setenv("TUTTI_TEST_VERBS_DOWN", down ? "1" : "0", 1);
	WANT(!getsockname(ep->rail[0].context->async_fd, (struct sockaddr *)&at, &bytes));
	WANT(sendto(fd, &event, sizeof(event), 0, (struct sockaddr *)&at, bytes) == sizeof(event));
	close(fd);
	return 0;
}

static int hca_unused(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	WANT(nranks == 2 && !init(comm, rank, arg));
	MUST(sum(*comm, SMALL));
	WANT(!sent_over_verbs(*comm) && (rank || !set_ports(*comm, true)));
	MUST(late_sum(*comm, rank, SMALL));
	MUST(late_sum(*comm, rank, LARGE));
	return 0;
}

static int two_paths(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	tuttiResult_t rc;

	WANT(nranks == 2 && !init(comm, rank, arg));
	MUST(sum(*comm, SMALL));
	MUST(sum(*comm, LARGE));
	WANT(sent_over_verbs(*comm) && (rank || !set_ports(*comm, true)));
	rc = late_sum(*comm, rank, LARGE);
	WANT(!rc || rank); /* rank 0's next call may fail before rank 1 ends this call */
	if (!rc)
		rc = sum(*comm, SMALL);
	if (!rc) /* rank 0's message is lost, and rank 1 has ended its call */
		rc = sum(*comm, SMALL);
	WANT(rc && strstr(tuttiGetLastError(*comm), "rank 0: fake0 port 1 is down"));
	return 0;
}

static int port_recovers(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	WANT(nranks == 2 && !init(comm, rank, arg));
	MUST(sum(*comm, SMALL));
	WANT(sent_over_verbs(*comm) && (rank || !set_ports(*comm, true)));
	if (rank == 1) /* its HCA retries writes that rank 0 does not acknowledge */
		nanosleep(&(struct timespec){ .tv_nsec = LATE_MS * 1000000l }, NULL);
	else
		nanosleep(&(struct timespec){ .tv_nsec = LATE_MS * 500000l }, NULL);
	WANT(rank || !set_ports(*comm, false));
	for (int i = 0; i < 50; i++)
		MUST(sum(*comm, SMALL));
	return 0;
}

/* No work request fails, since rank 0 posts none: only the port's state shows that no message can
 * arrive. */
static int port_stays_down(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	setenv("TUTTI_IB_TIMEOUT", "12", 1); /* retries end after 0.13 s */
	WANT(nranks == 2 && !init(comm, rank, arg));
	MUST(sum(*comm, SMALL));
	WANT(sent_over_verbs(*comm) && (rank || !set_ports(*comm, true)));
	if (rank == 1)
		while (!tt_control_broken((*comm)->ctl))
			nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	else
		setenv("TUTTI_TEST_VERBS_DOWN", "2", 1); /* down, but its messages arrive */
	WANT(sum(*comm, SMALL) && strstr(tuttiGetLastError(*comm), "fake0 port 1 is down"));
	return 0;
}

static int shrink(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	tuttiComm_t next;

	WANT(nranks == 2 && !init(comm, rank, arg));
	MUST(sum(*comm, SMALL));
	WANT(sent_over_verbs(*comm) && (rank || !set_ports(*comm, true)));
	while (!sum(*comm, SMALL))
		;
	MUST(tuttiCommShrink(*comm, NULL, 0, &next, NULL, TUTTI_SHRINK_DEFAULT));
	WANT(next->nranks == 2 && next->paths.npaths == 1);
	MUST(sum(next, SMALL));
	MUST(sum(next, LARGE));
	WANT(!sent_over_verbs(next));
	MUST(tuttiCommDestroy(next));
	return 0;
}

static void run(rank_fn *fn, const char *tuning)
{
	struct ranks r = { .n = 2, .no_join = true, .limit_s = 40 };
	char command[80];
	int failed;

	if (strcmp(ranks_network(), "verbs"))
		cr_skip_test("no TUTTI_TEST_TRANSPORT=verbs (tests/scripts/verbs.sh sets it)");
	unsetenv("TUTTI_TEST_TRANSPORT");
	cr_assert_not_null(mkdtemp(folder));
	write_file_in(folder, "tuning", tuning);
	r.arg = &r.id;
	failed = ranks_run(&r, fn);
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	cr_assert(system(command) == 0);
	cr_assert_eq(failed, 0);
}

Test(verbs_ports, an_unused_port_may_go_down, .timeout = 60)
{
	run(hca_unused, tcp_only);
}

Test(verbs_ports, with_a_port_down_calls_over_tcp_succeed_and_calls_over_verbs_name_it,
     .timeout = 60)
{
	run(two_paths, verbs_small);
}

Test(verbs_ports, a_port_that_recovers_within_the_hcas_retries_loses_nothing, .timeout = 60)
{
	run(port_recovers, verbs_small);
}

Test(verbs_ports, a_wait_longer_than_the_hcas_retries_names_the_port, .timeout = 60)
{
	run(port_stays_down, verbs_small);
}

Test(verbs_ports, a_communicator_shrunk_after_a_port_went_down_uses_tcp, .timeout = 60)
{
	run(shrink, verbs_small);
}

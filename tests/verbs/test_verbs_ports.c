/*
 * test_verbs_ports.c - ports that go down, and come back, under communicators that have opened cards
 *
 * Two ranks on two hosts as far as they know, with two roads between them, on the fake library
 * (tests/scripts/verbs.sh). What must hold: a card of which nothing depends may fail; one that comes back
 * in time has lost nothing; one that stays away is named, and those who are left with it go on by
 * tcp in a communicator that they shrink to.
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
#define LATE_MS 900            /* whoever waits so long looks for a fault of its own */

static char folder[] = "/tmp/tutti-cards-XXXXXX";

/* Cards for small calls, tcp for large ones; or tcp for all. */
static const char few[] = "verbs.latency_ns 1000\nverbs.send_ns 500\nverbs.recv_ns 500\n"
			  "verbs.link_gbps 0.1\nverbs.host_gbps 0.1\n";
static const char none[] = "verbs.latency_ns 1e6\n";

static int join(tuttiComm_t *comm, int rank, const tuttiUniqueId *id)
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

/* Rank 1 comes late, so rank 0 looks around meanwhile. */
static tuttiResult_t late_sum(tuttiComm_t comm, int rank, size_t count)
{
	if (rank == 1)
		nanosleep(&(struct timespec){ .tv_nsec = LATE_MS * 1000000l }, NULL);
	return sum(comm, count);
}

static uint64_t by_cards(tuttiComm_t comm)
{
	tuttiCounters_t n = { .size = sizeof(n) };

	return tuttiCommGetCounters(comm, &n) ? ~0ull : n.sent_bytes_verbs;
}

/* From now on this process's ports are down, or up, and its card has said so. */
static int ports(tuttiComm_t comm, bool down)
{
	uint64_t event = (down ? TT_VERBS_EVENT_PORT_ERR : TT_VERBS_EVENT_PORT_ACTIVE) | 1ull << 32;
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)comm->paths.path[1].via[!comm->rank];
	struct sockaddr_un at;
	socklen_t bytes = sizeof(at);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	setenv("TUTTI_TEST_VERBS_DOWN", down ? "1" : "0", 1);
	WANT(!getsockname(ep->rail[0].context->async_fd, (struct sockaddr *)&at, &bytes));
	WANT(sendto(fd, &event, sizeof(event), 0, (struct sockaddr *)&at, bytes) == sizeof(event));
	close(fd);
	return 0;
}

static int card_unused(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	WANT(nranks == 2 && !join(comm, rank, arg));
	MUST(sum(*comm, SMALL));
	WANT(!by_cards(*comm) && (rank || !ports(*comm, true)));
	MUST(late_sum(*comm, rank, SMALL));
	MUST(late_sum(*comm, rank, LARGE));
	return 0;
}

static int other_road(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	tuttiResult_t rc;

	WANT(nranks == 2 && !join(comm, rank, arg));
	MUST(sum(*comm, SMALL));
	MUST(sum(*comm, LARGE));
	WANT(by_cards(*comm) && (rank || !ports(*comm, true)));
	rc = late_sum(*comm, rank, LARGE);
	WANT(!rc || rank);              /* rank 0's next call may overtake rank 1 in this */
	if (!rc)
		rc = sum(*comm, SMALL);
	if (!rc)                        /* what rank 0 sent is lost, and rank 1 has ended */
		rc = sum(*comm, SMALL);
	WANT(rc && strstr(tuttiGetLastError(*comm), "rank 0: fake0 port 1 is down"));
	return 0;
}

static int comes_back(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	WANT(nranks == 2 && !join(comm, rank, arg));
	MUST(sum(*comm, SMALL));
	WANT(by_cards(*comm) && (rank || !ports(*comm, true)));
	if (rank == 1)                           /* it repeats what rank 0 does not answer */
		nanosleep(&(struct timespec){ .tv_nsec = LATE_MS * 1000000l }, NULL);
	else
		nanosleep(&(struct timespec){ .tv_nsec = LATE_MS * 500000l }, NULL);
	WANT(rank || !ports(*comm, false));
	for (int i = 0; i < 50; i++)
		MUST(sum(*comm, SMALL));
	return 0;
}

/* Nothing fails, as nothing is written: the port alone says that nothing can come. */
static int stays_away(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	setenv("TUTTI_IB_TIMEOUT", "12", 1);     /* for 0.13 s */
	WANT(nranks == 2 && !join(comm, rank, arg));
	MUST(sum(*comm, SMALL));
	WANT(by_cards(*comm) && (rank || !ports(*comm, true)));
	if (rank == 1)
		while (!tt_control_broken((*comm)->ctl))
			nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	else
		setenv("TUTTI_TEST_VERBS_DOWN", "2", 1);         /* but what it sends arrives */
	WANT(sum(*comm, SMALL) &&
	     strstr(tuttiGetLastError(*comm), "fake0 port 1 is down"));
	return 0;
}

static int shrinks(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	tuttiComm_t next;

	WANT(nranks == 2 && !join(comm, rank, arg));
	MUST(sum(*comm, SMALL));
	WANT(by_cards(*comm) && (rank || !ports(*comm, true)));
	while (!sum(*comm, SMALL))
		;
	MUST(tuttiCommShrink(*comm, NULL, 0, &next, NULL, TUTTI_SHRINK_DEFAULT));
	WANT(next->nranks == 2 && next->paths.npaths == 1);
	MUST(sum(next, SMALL));
	MUST(sum(next, LARGE));
	WANT(!by_cards(next));
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

Test(cards, a_port_over_which_nothing_goes_may_go_down, .timeout = 60)
{
	run(card_unused, none);
}

Test(cards, calls_by_tcp_do_not_mind_a_port_that_is_down_and_those_by_cards_name_it, .timeout = 60)
{
	run(other_road, few);
}

Test(cards, a_port_that_comes_back_while_cards_repeat_has_lost_nothing, .timeout = 60)
{
	run(comes_back, few);
}

Test(cards, who_waits_for_longer_than_cards_repeat_names_the_port, .timeout = 60)
{
	run(stays_away, few);
}

Test(cards, after_a_port_went_down_a_shrunk_communicator_goes_by_tcp, .timeout = 60)
{
	run(shrinks, few);
}

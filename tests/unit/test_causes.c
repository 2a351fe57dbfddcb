/*
 * test_causes.c - the cause that an error names, whichever report of the failure arrives first
 *
 * Two ranks, or four, or six. Each test injects faults into one rank's transport before or after a report of
 * another rank arrives: no test depends on timing. With TUTTI_TEST_TRANSPORT=verbs on the fake library,
 * events of the fake HCA are the faults.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "comm/comm.h"
#include "tests/support/must.h"
#include "tests/support/ranks.h"
#include "transports/verbs/verbs.h"

#define COUNT 1000

static struct tt_transport broken;    /* transport of rank 0, in its process */
static struct tt_transport connected; /* the same without faults */
static int queries, silent;           /* fault queries so far; first ones without a fault */
static _Atomic int *arrivals;         /* arrivals of all ranks at barriers, shared memory */
static _Atomic int *stopped; /* behind it: the process of a rank that may be stopped, 0: not yet */

static void pause_1ms(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

static int nic_fault(struct tt_endpoint *ep, bool failed)
{
	(void)failed;
	if (queries++ < silent)
		return 0;
	return tt_fail(TT_SYSTEM, "rank %d: nic0 port 1 is down", ep->world->rank);
}

static int lost_peek(struct tt_link *l, size_t bytes, uint32_t stamp, const void **ret_data)
{
	(void)bytes, (void)stamp, (void)ret_data;
	return tt_fail(TT_REMOTE, "rank %d: rank %d does not answer", l->ep->world->rank, l->peer);
}

static int lost_recv(struct tt_link *l, void *dst, size_t bytes, uint32_t stamp)
{
	const void *data;

	(void)dst;
	return lost_peek(l, bytes, stamp, &data);
}

/* Inject a fault into the network of comm: queries after the first silent_queries report the fault;
 * with loses, receives fail. */
static void inject_fault(tuttiComm_t comm, int silent_queries, bool loses)
{
	static const struct tt_fault_ops faults = { .local = nic_fault };
	struct tt_endpoint *ep = tt_path_via(&comm->paths.path[0], !comm->rank);

	broken = *ep->t;
	broken.fault_ops = &faults;
	if (loses) {
		broken.peek = lost_peek;
		broken.recv = lost_recv;
	}
	silent = silent_queries;
	queries = 0;
	ep->t = &broken;
	for (int ch = 0; ch < TT_CHANNELS; ch++)
		for (int r = 0; r < comm->nranks; r++)
			if (tt_path_link(&comm->paths.path[0], ch, r))
				tt_path_link(&comm->paths.path[0], ch, r)->t = &broken;
}

static int refused_ready(struct tt_link *l)
{
	++*arrivals;
	return tt_fail(TT_REMOTE, "rank %d: rank %d does not answer", l->ep->world->rank, l->peer);
}

static int connect_refused(struct tt_endpoint *ep, int peer, int channel, struct tt_link **ret_link)
{
	int rc = connected.connect(ep, peer, channel, ret_link);

	if (!rc)
		(*ret_link)->t = &broken;
	return rc;
}

/* Inject a fault into comm, which has made no call yet: no link becomes ready. */
static void refuse_links(tuttiComm_t comm)
{
	struct tt_endpoint *ep = tt_path_via(&comm->paths.path[0], 1);

	connected = *ep->t;
	broken = connected;
	broken.connect = connect_refused;
	broken.ready = refused_ready;
	ep->t = &broken;
}

static void await_report(tuttiComm_t comm)
{
	while (!tt_control_broken(comm->ctl))
		pause_1ms();
}

static tuttiResult_t sum(tuttiComm_t comm)
{
	float x[COUNT] = { 1 };

	return tuttiAllReduce(x, x, COUNT, tuttiFloat32, tuttiSum, comm, NULL);
}

/* Make the links by an allreduce, and wait until the other rank's call has ended as well, so that
 * no failure overtakes the call. */
static tuttiResult_t barrier(tuttiComm_t comm)
{
	static int times;
	tuttiResult_t rc = sum(comm);

	if (rc)
		return rc;
	++*arrivals;
	for (times++; *arrivals < 2 * times;)
		pause_1ms();
	return rc;
}

/* Did the call fail with this result, and does its error text contain `with` and `and`, but not
 * `without` (NULL: not checked)? 0 | 1 with the text on stderr */
static int check_error(tuttiComm_t comm, tuttiResult_t rc, tuttiResult_t wanted, const char *with,
		       const char *and, const char *without)
{
	const char *text = tuttiGetLastError(comm);

	if (rc == wanted && strstr(text, with) && (!and || strstr(text, and)) &&
	    (!without || !strstr(text, without)))
		return 0;
	fprintf(stderr, "%d instead of %d: %s\n", rc, wanted, text);
	return 1;
}

static int report_first(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	(void)nranks, (void)arg;
	MUST(barrier(*comm));
	if (rank == 1) {
		tt_control_raise((*comm)->ctl, TT_REMOTE, 1, "rank 1 has an injected fault");
		return check_error(*comm, sum(*comm), tuttiRemoteError, "injected fault", NULL,
				   NULL);
	}
	inject_fault(*comm, 0, false);
	await_report(*comm);
	return check_error(*comm, sum(*comm), tuttiSystemError, "nic0 port 1 is down",
			   "other ranks reported: rank 1 has an injected fault", NULL);
}

static int report_during_call(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	(void)nranks, (void)arg;
	MUST(barrier(*comm));
	if (rank == 0) {
		inject_fault(*comm, 0, false);
		return check_error(*comm, sum(*comm), tuttiSystemError, "nic0 port 1 is down", NULL,
				   NULL);
	}
	nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
	tt_control_raise((*comm)->ctl, TT_REMOTE, 1, "rank 1 has an injected fault");
	return check_error(*comm, sum(*comm), tuttiRemoteError, "injected fault", NULL, NULL);
}

static int symptom_first(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	tuttiResult_t rc;

	(void)nranks, (void)arg;
	MUST(barrier(*comm));
	if (rank == 0)
		inject_fault(*comm, 20, true);
	/* rank 1 still receives messages sent before the fault */
	while (!(rc = sum(*comm)))
		;
	return check_error(*comm, rc, rank ? tuttiRemoteError : tuttiSystemError,
			   "nic0 port 1 is down", NULL, "does not answer");
}

static int symptom_replaced(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	(void)nranks, (void)arg;
	MUST(barrier(*comm));
	if (rank == 0) {
		inject_fault(*comm, 1 << 30, true);
		return check_error(*comm, sum(*comm), tuttiRemoteError, "rank 1 caused the failure",
				   NULL, "does not answer");
	}
	tt_control_raise((*comm)->ctl, TT_REMOTE, 1, "rank 1 caused the failure");
	return 0;
}

/* Nobody reports the failure, and rank 1 is stopped. */
static int symptom_beside_silence(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	int failed;

	(void)nranks, (void)arg;
	MUST(barrier(*comm));
	if (rank == 1) {
		*arrivals = getpid();
		await_report(*comm);
		return 0;
	}
	while (*arrivals == 2)
		pause_1ms();
	kill(*arrivals, SIGSTOP);
	inject_fault(*comm, 1 << 30, true);
	failed = check_error(*comm, sum(*comm), tuttiRemoteError,
			     "rank 1 does not answer; rank 1 is not answering (stopped?)", NULL,
			     NULL);
	kill(*arrivals, SIGCONT);
	return failed;
}

static void await_departure(tuttiComm_t comm, int rank)
{
	tuttiRankState_t state;

	while (tuttiCommRankState(comm, rank, &state) || state != tuttiRankLeft)
		pause_1ms();
}

/* Ranks 0 and 2 of four leave, and with them all connections of control between ranks 1 and 3. Rank 3
 * lives, but cannot be asked. */
static int symptom_beside_departures(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	tuttiResult_t rc;
	float x = 1;

	(void)arg;
	MUST(sum(*comm));
	if (rank % 2)
		MUST(rank == 1 ? tuttiRecv(&x, 1, tuttiFloat32, 3, *comm, NULL)
			       : tuttiSend(&x, 1, tuttiFloat32, 1, *comm, NULL));
	++*arrivals;
	while (*arrivals < nranks)
		pause_1ms();
	if (rank % 2 == 0) {
		rc = tuttiCommDestroy(*comm);
		*comm = NULL;
		return rc;
	}
	await_departure(*comm, 0);
	await_departure(*comm, 2);
	if (rank == 3) {
		while (*arrivals == nranks)
			pause_1ms();
		return 0;
	}
	inject_fault(*comm, 1 << 30, true);
	rc = tuttiRecv(&x, 1, tuttiFloat32, 3, *comm, NULL);
	++*arrivals;
	return check_error(*comm, rc, tuttiRemoteError,
			   "rank 3 does not answer; rank 3 is not answering: the ranks that "
			   "connect it to rank 1 have left or died",
			   NULL, "stopped");
}

/* Ranks 0 and 3 of six leave, rank 2 is stopped. Of control, rank 1 has the connection to rank 2 only: ranks 4
 * and 5 live, but cannot be asked. */
static int symptom_beside_both(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	tuttiResult_t rc;
	float x = 1;

	(void)arg;
	MUST(sum(*comm));
	if (rank == 1 || rank == 4)
		MUST(rank == 1 ? tuttiRecv(&x, 1, tuttiFloat32, 4, *comm, NULL)
			       : tuttiSend(&x, 1, tuttiFloat32, 1, *comm, NULL));
	++*arrivals;
	while (*arrivals < nranks)
		pause_1ms();
	if (rank % 3 == 0) {
		rc = tuttiCommDestroy(*comm);
		*comm = NULL;
		return rc;
	}
	await_departure(*comm, 0);
	await_departure(*comm, 3);
	if (rank == 2)
		*stopped = getpid();
	while (rank != 1 && *arrivals == nranks)
		pause_1ms();
	if (rank != 1)
		return 0;
	while (!*stopped)
		pause_1ms();
	kill(*stopped, SIGSTOP);
	inject_fault(*comm, 1 << 30, true);
	rc = tuttiRecv(&x, 1, tuttiFloat32, 4, *comm, NULL);
	++*arrivals;
	kill(*stopped, SIGCONT);
	return check_error(
		*comm, rc, tuttiRemoteError,
		"rank 4 does not answer; rank 2 is not answering (stopped?); ranks 4, 5 are not "
		"answering; rank 4: the ranks that connect it to rank 1 have left or died",
		NULL, NULL);
}

/* The report of the failure comes after rank 0 has seen that a connection was refused. */
static int refusal_replaced(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	(void)nranks, (void)arg;
	if (rank == 0) {
		refuse_links(*comm);
		return check_error(*comm, sum(*comm), tuttiRemoteError, "rank 1 caused the failure",
				   NULL, "does not answer");
	}
	while (!*arrivals)
		pause_1ms();
	tt_control_raise((*comm)->ctl, TT_REMOTE, 1, "rank 1 caused the failure");
	return 0;
}

/* No report arrives: the rank whose network has the fault finds the fault by itself. */
static int no_report(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	(void)nranks, (void)arg;
	MUST(barrier(*comm));
	if (rank == 1)
		await_report(*comm);
	else
		inject_fault(*comm, 3, false);
	return check_error(*comm, sum(*comm), rank ? tuttiRemoteError : tuttiSystemError,
			   "nic0 port 1 is down", NULL, "timed out");
}

static int other_communicator(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	tuttiComm_t second;
	tuttiResult_t rc;

	(void)nranks, (void)arg;
	MUST(tuttiCommSplit(*comm, 0, rank, &second, NULL));
	MUST(barrier(*comm));
	MUST(barrier(second));
	if (rank == 1) {
		rc = sum(*comm); /* rank 0 never makes this call */
		tuttiCommAbort(second);
		return check_error(*comm, rc, tuttiRemoteError, "rank 0 aborted the communicator",
				   NULL, "nic0 port 1 is down");
	}
	inject_fault(second, 0, true);
	rc = sum(second);
	if (check_error(second, rc, tuttiSystemError, "nic0 port 1 is down", NULL, NULL))
		return 1;
	tuttiCommAbort(second);
	tuttiCommAbort(*comm);
	*comm = NULL;
	return 0;
}

static int failed_before_abort(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	(void)nranks, (void)arg;
	MUST(barrier(*comm));
	if (rank == 1)
		return check_error(*comm, sum(*comm), tuttiRemoteError,
				   "rank 0 aborted the communicator",
				   "had failed there: rank 0 ran out of memory", NULL);
	tt_comm_failed(*comm, tt_fail(TT_SYSTEM, "rank 0 ran out of memory"));
	tuttiCommAbort(*comm);
	*comm = NULL;
	return 0;
}

static int run_on(const char *transport, int n, rank_fn *fn)
{
	struct ranks r = { .n = n, .transport = transport, .timeout_ms = 30000, .limit_s = 40 };

	arrivals = mmap(NULL, 2 * sizeof(*arrivals), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	stopped = arrivals + 1;
	return ranks_run(&r, fn);
}

static int run(rank_fn *fn)
{
	return run_on("tcp", 2, fn);
}

#define RUN_TEST(name, fn)                \
	Test(causes, name, .timeout = 60) \
	{                                 \
		cr_assert_eq(run(fn), 0); \
	}

RUN_TEST(a_local_fault_is_the_cause_though_a_peers_report_came_first, report_first)
RUN_TEST(a_local_fault_is_the_cause_though_a_peers_report_ends_the_wait, report_during_call)
RUN_TEST(a_symptom_waits_for_its_cause_and_peers_receive_the_cause, symptom_first)
RUN_TEST(a_symptom_gives_way_to_the_report_of_the_failed_rank, symptom_replaced)
RUN_TEST(a_symptom_without_a_cause_names_the_ranks_that_do_not_answer, symptom_beside_silence)
RUN_TEST(a_refused_connection_gives_way_to_the_report_of_the_failed_rank, refusal_replaced)
RUN_TEST(a_rank_that_waits_long_checks_its_own_network, no_report)
RUN_TEST(an_abort_does_not_report_a_failure_of_another_communicator, other_communicator)
RUN_TEST(an_abort_reports_an_earlier_failure_of_its_communicator, failed_before_abort)

Test(causes, a_symptom_tells_ranks_that_cannot_be_asked_from_stopped_ones, .timeout = 60)
{
	cr_assert_eq(run_on("tcp", 4, symptom_beside_departures), 0);
}

Test(causes, a_symptom_names_the_stopped_rank_beside_ranks_that_cannot_be_asked, .timeout = 60)
{
	cr_assert_eq(run_on("tcp", 6, symptom_beside_both), 0);
}

/* ---- events of the fake HCA ------------------------------------------------------------------ */

/* Queue an asynchronous event of the HCA, still unread. 0 | 1: the HCA is not the fake's */
static int queue_event(struct tt_verbs_ep *ep, int type)
{
	uint64_t event = (uint64_t)type | 1ull << 32;
	struct sockaddr_un at;
	socklen_t bytes = sizeof(at);
	int fd;

	if (getsockname(ep->rail[0].context->async_fd, (struct sockaddr *)&at, &bytes) ||
	    at.sun_family != AF_UNIX)
		return 1;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	WANT(sendto(fd, &event, sizeof(event), 0, (struct sockaddr *)&at, bytes) == sizeof(event));
	close(fd);
	return 0;
}

static int unread_event(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)tt_path_via(&(*comm)->paths.path[0], !rank);

	(void)nranks, (void)arg;
	MUST(barrier(*comm));
	if (rank == 1) {
		tt_control_raise((*comm)->ctl, TT_REMOTE, 1, "rank 1 has an injected fault");
		return check_error(*comm, sum(*comm), tuttiRemoteError, "injected fault", NULL,
				   NULL);
	}
	await_report(*comm);
	if (queue_event(ep, TT_VERBS_EVENT_PORT_ERR))
		return 0;
	return check_error(*comm, sum(*comm), tuttiSystemError, "fake0 port 1 is down",
			   "rank 1 has an injected fault", NULL);
}

static int event_after_symptom(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)tt_path_via(&(*comm)->paths.path[0], !rank);

	(void)nranks, (void)arg;
	MUST(barrier(*comm));
	if (rank == 1)
		return 0;
	tt_verbs_fail(ep, TT_REMOTE, "rank 0: rank 1's HCA did not answer");
	if (queue_event(ep, TT_VERBS_EVENT_DEVICE_FATAL))
		return 0;
	return check_error(*comm, sum(*comm), tuttiSystemError, "fake0 failed or was removed", NULL,
			   "did not answer");
}

static void on_the_fake(rank_fn *fn)
{
	if (strcmp(ranks_network(), "verbs"))
		cr_skip_test("no TUTTI_TEST_TRANSPORT=verbs (tests/scripts/verbs.sh sets it)");
	cr_assert_eq(run_on("verbs", 2, fn), 0);
}

Test(causes, an_hca_event_is_read_before_a_peers_report_is_returned, .timeout = 60)
{
	on_the_fake(unread_event);
}

Test(causes, an_hca_event_is_the_cause_rather_than_a_peer_that_did_not_answer, .timeout = 60)
{
	on_the_fake(event_after_symptom);
}

/*
 * test_causes.c - which cause a failure is told with, whatever word of it comes first
 *
 * Two ranks; rank 0's transport is given faults of its own, and words of other ranks come before or
 * after them as each test wants it: nothing here depends on times. With TUTTI_TEST_TRANSPORT=verbs
 * on the fake library, its card tells.
 */
#include <criterion/criterion.h>
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

static struct tt_transport broken;     /* rank 0's, in its process */
static int asked, silent;              /* times that its card was asked, and says nothing */
static _Atomic int *met;               /* how often ranks have met; all of them see it */

static int card_fault(struct tt_endpoint *ep, bool failed)
{
	(void)failed;
	if (asked++ < silent)
		return 0;
	return tt_fail(TT_SYSTEM, "rank %d: card0 port 1 is down", ep->world->rank);
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

/* From now on the network of comm has a fault that is told after so many questions, and its
 * messages are lost. */
static void spoil(tuttiComm_t comm, int silences, bool loses)
{
	static const struct tt_fault_ops faults = { .local = card_fault };
	struct tt_endpoint *ep = comm->paths.path[0].via[1];

	broken = *ep->t;
	broken.fault_ops = &faults;
	if (loses) {
		broken.peek = lost_peek;
		broken.recv = lost_recv;
	}
	silent = silences;
	asked = 0;
	ep->t = &broken;
	for (int i = 0; i < TT_CHANNELS * comm->nranks; i++)
		if (comm->paths.path[0].links[i])
			comm->paths.path[0].links[i]->t = &broken;
}

static void await_word(tuttiComm_t comm)
{
	while (!tt_control_broken(comm->ctl))
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

static tuttiResult_t sum(tuttiComm_t comm)
{
	float x[COUNT] = { 1 };

	return tuttiAllReduce(x, x, COUNT, tuttiFloat32, tuttiSum, comm, NULL);
}

/* Links are made, and the other rank's call has ended as well: no failure overtakes it. */
static tuttiResult_t meet(tuttiComm_t comm)
{
	static int times;
	tuttiResult_t rc = sum(comm);

	if (rc)
		return rc;
	++*met;
	for (times++; *met < 2 * times;)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	return rc;
}

/* Did the call fail with this result, with these words and without those? NULL: none. 0 | 1 and it
 * is printed */
static int told(tuttiComm_t comm, tuttiResult_t rc, tuttiResult_t wanted, const char *with,
		const char *and, const char *without)
{
	const char *text = tuttiGetLastError(comm);

	if (rc == wanted && strstr(text, with) && (!and || strstr(text, and)) &&
	    (!without || !strstr(text, without)))
		return 0;
	fprintf(stderr, "%d instead of %d: %s\n", rc, wanted, text);
	return 1;
}

static int word_first(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	(void)nranks, (void)arg;
	MUST(meet(*comm));
	if (rank == 1) {
		tt_control_raise((*comm)->ctl, TT_REMOTE, 1, "rank 1 suffers from something");
		return told(*comm, sum(*comm), tuttiRemoteError, "suffers", NULL, NULL);
	}
	spoil(*comm, 0, false);
	await_word(*comm);
	return told(*comm, sum(*comm), tuttiSystemError, "card0 port 1 is down",
		    "other ranks reported: rank 1 suffers", NULL);
}

static int word_amid(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	(void)nranks, (void)arg;
	MUST(meet(*comm));
	if (rank == 0) {
		spoil(*comm, 0, false);
		return told(*comm, sum(*comm), tuttiSystemError, "card0 port 1 is down", NULL,
			    NULL);
	}
	nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
	tt_control_raise((*comm)->ctl, TT_REMOTE, 1, "rank 1 suffers from something");
	return told(*comm, sum(*comm), tuttiRemoteError, "suffers", NULL, NULL);
}

static int symptom_first(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	tuttiResult_t rc;

	(void)nranks, (void)arg;
	MUST(meet(*comm));
	if (rank == 0)
		spoil(*comm, 20, true);
	while (!(rc = sum(*comm)))               /* rank 1 has what was sent before */
		;
	return told(*comm, rc, rank ? tuttiRemoteError : tuttiSystemError, "card0 port 1 is down",
		    NULL, "does not answer");
}

static int symptom_yields(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	(void)nranks, (void)arg;
	MUST(meet(*comm));
	if (rank == 0) {
		spoil(*comm, 1 << 30, true);
		return told(*comm, sum(*comm), tuttiRemoteError, "rank 1 is to blame", NULL,
			    "does not answer");
	}
	tt_control_raise((*comm)->ctl, TT_REMOTE, 1, "rank 1 is to blame");
	return 0;
}

/* No word comes from anywhere: whose network has the fault finds it itself. */
static int silence(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	(void)nranks, (void)arg;
	MUST(meet(*comm));
	if (rank == 1)
		await_word(*comm);
	else
		spoil(*comm, 3, false);
	return told(*comm, sum(*comm), rank ? tuttiRemoteError : tuttiSystemError,
		    "card0 port 1 is down", NULL, "timed out");
}

static int other_communicator(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	tuttiComm_t second;
	tuttiResult_t rc;

	(void)nranks, (void)arg;
	MUST(tuttiCommSplit(*comm, 0, rank, &second, NULL));
	MUST(meet(*comm));
	MUST(meet(second));
	if (rank == 1) {
		rc = sum(*comm);                 /* rank 0 never comes */
		tuttiCommAbort(second);
		return told(*comm, rc, tuttiRemoteError, "rank 0 aborted the communicator",
			    NULL, "card0 port 1 is down");
	}
	spoil(second, 0, true);
	rc = sum(second);
	if (told(second, rc, tuttiSystemError, "card0 port 1 is down", NULL, NULL))
		return 1;
	tuttiCommAbort(second);
	tuttiCommAbort(*comm);
	*comm = NULL;
	return 0;
}

static int failed_alone(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	(void)nranks, (void)arg;
	MUST(meet(*comm));
	if (rank == 1)
		return told(*comm, sum(*comm), tuttiRemoteError, "rank 0 aborted the communicator",
			    "had failed there: rank 0 ran out of something", NULL);
	tt_comm_failed(*comm, tt_fail(TT_SYSTEM, "rank 0 ran out of something"));
	tuttiCommAbort(*comm);
	*comm = NULL;
	return 0;
}

static int run_on(const char *transport, rank_fn *fn)
{
	struct ranks r = { .n = 2, .transport = transport, .timeout_ms = 30000, .limit_s = 40 };

	met = mmap(NULL, sizeof(*met), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return ranks_run(&r, fn);
}

static int run(rank_fn *fn)
{
	return run_on("tcp", fn);
}

Test(causes, a_fault_of_ones_own_is_told_though_anothers_word_came_first, .timeout = 60)
{
	cr_assert_eq(run(word_first), 0);
}

Test(causes, a_fault_of_ones_own_is_told_when_anothers_word_ends_the_wait, .timeout = 60)
{
	cr_assert_eq(run(word_amid), 0);
}

Test(causes, a_symptom_waits_for_its_cause_and_the_cause_is_what_others_hear, .timeout = 60)
{
	cr_assert_eq(run(symptom_first), 0);
}

Test(causes, a_symptom_gives_way_to_the_word_of_who_is_to_blame, .timeout = 60)
{
	cr_assert_eq(run(symptom_yields), 0);
}

Test(causes, who_waits_long_looks_for_a_fault_of_its_own, .timeout = 60)
{
	cr_assert_eq(run(silence), 0);
}

Test(causes, an_abort_after_a_failure_in_another_communicator_does_not_tell_it, .timeout = 60)
{
	cr_assert_eq(run(other_communicator), 0);
}

Test(causes, an_abort_tells_what_had_failed_in_its_communicator, .timeout = 60)
{
	cr_assert_eq(run(failed_alone), 0);
}

/* ---- cards of the fake ------------------------------------------------------------------- */

/* The card reports, and nobody has read it yet. 1: it is not the fake's */
static int card_says(struct tt_verbs_ep *ep, int type)
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
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)(*comm)->paths.path[0].via[!rank];

	(void)nranks, (void)arg;
	MUST(meet(*comm));
	if (rank == 1) {
		tt_control_raise((*comm)->ctl, TT_REMOTE, 1, "rank 1 suffers from something");
		return told(*comm, sum(*comm), tuttiRemoteError, "suffers", NULL, NULL);
	}
	await_word(*comm);
	if (card_says(ep, TT_VERBS_EVENT_PORT_ERR))
		return 0;
	return told(*comm, sum(*comm), tuttiSystemError, "fake0 port 1 is down",
		    "rank 1 suffers", NULL);
}

static int event_after_symptom(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	struct tt_verbs_ep *ep = (struct tt_verbs_ep *)(*comm)->paths.path[0].via[!rank];

	(void)nranks, (void)arg;
	MUST(meet(*comm));
	if (rank == 1)
		return 0;
	tt_verbs_fail(ep, TT_REMOTE, "rank 0: rank 1's card did not answer");
	if (card_says(ep, TT_VERBS_EVENT_DEVICE_FATAL))
		return 0;
	return told(*comm, sum(*comm), tuttiSystemError, "fake0 failed or was removed", NULL,
		    "did not answer");
}

static void on_the_fake(rank_fn *fn)
{
	if (strcmp(ranks_network(), "verbs"))
		cr_skip_test("no TUTTI_TEST_TRANSPORT=verbs (tests/scripts/verbs.sh sets it)");
	cr_assert_eq(run_on("verbs", fn), 0);
}

Test(causes, an_hca_event_is_read_before_a_peers_report_is_returned, .timeout = 60)
{
	on_the_fake(unread_event);
}

Test(causes, an_hca_event_is_the_cause_rather_than_a_peer_that_did_not_answer, .timeout = 60)
{
	on_the_fake(event_after_symptom);
}

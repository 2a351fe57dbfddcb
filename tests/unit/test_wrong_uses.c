/*
 * test_wrong_uses.c - wrong calls end with an error text on every rank concerned, never in a hang
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/ranks.h"

#define TIMEOUT_MS 15000 /* no call waits so long */

static float in[70000], out[70000 * 4];

/* A wrong program: call, made by every rank, fails on every rank with a text that contains all
 * words. */
struct wrong {
	const char *name;
	tuttiResult_t (*call)(tuttiComm_t comm, int rank, int n);
	const char *words[3];
	bool at_next; /* rooted calls: the error may come with the next call */
};

static tuttiResult_t counts(tuttiComm_t c, int rank, int n)
{
	return tuttiAllReduce(in, out, rank == n - 1 ? 512 : 1024, tuttiFloat32, tuttiSum, c, NULL);
}

static tuttiResult_t big_counts(tuttiComm_t c, int rank, int n)
{
	return tuttiAllReduce(in, out, rank == n - 1 ? 70000 : 65000, tuttiFloat32, tuttiSum, c,
			      NULL);
}

static tuttiResult_t types(tuttiComm_t c, int rank, int n)
{
	(void)n;
	return tuttiAllReduce(in, out, 1000, rank ? tuttiFloat32 : tuttiInt32, tuttiSum, c, NULL);
}

static tuttiResult_t ops(tuttiComm_t c, int rank, int n)
{
	return tuttiAllReduce(in, out, 1000, tuttiFloat32, rank == n / 2 ? tuttiMax : tuttiSum, c,
			      NULL);
}

static tuttiResult_t roots(tuttiComm_t c, int rank, int n)
{
	return tuttiBroadcast(in, out, 1000, tuttiFloat32, rank == n - 1 ? 0 : 1, c, NULL);
}

/* Every rank is a root: no rank waits, and ranks run several operations before the first error. */
static tuttiResult_t own_roots(tuttiComm_t c, int rank, int n)
{
	tuttiResult_t rc = tuttiBroadcast(in, out, 10, tuttiFloat32, rank, c, NULL);

	(void)n;
	for (int i = 0; !rc && i < 3; i++)
		rc = tuttiBroadcast(in, out, 20 + (size_t)i, tuttiFloat32, rank, c, NULL);
	return rc;
}

static tuttiResult_t own_reduce_roots(tuttiComm_t c, int rank, int n)
{
	(void)n;
	return tuttiReduce(in, out, 10, tuttiFloat32, tuttiSum, rank, c, NULL);
}

static tuttiResult_t own_gather_roots(tuttiComm_t c, int rank, int n)
{
	(void)n;
	return tuttiGather(in, out, 10, tuttiFloat32, rank, c, NULL);
}

static tuttiResult_t own_scatter_roots(tuttiComm_t c, int rank, int n)
{
	(void)n;
	return tuttiScatter(in, out, 10, tuttiFloat32, rank, c, NULL);
}

static tuttiResult_t order(tuttiComm_t c, int rank, int n)
{
	(void)n;
	return rank ? tuttiAllGather(in, out, 1000, tuttiFloat32, c, NULL)
		    : tuttiAllReduce(in, out, 1000, tuttiFloat32, tuttiSum, c, NULL);
}

static tuttiResult_t barrier(tuttiComm_t c, int rank, int n)
{
	(void)n;
	return rank ? tuttiAllReduce(in, out, 1, tuttiUint8, tuttiBor, c, NULL)
		    : tuttiBarrier(c, NULL);
}

/* Only some ranks call a collective; the others wait for messages that no rank sends: deadlock. */
static tuttiResult_t receive_and_collective(tuttiComm_t c, int rank, int n)
{
	return rank ? tuttiAllReduce(in, out, 1000, tuttiFloat32, tuttiSum, c, NULL)
		    : tuttiRecv(out, 10, tuttiFloat32, n - 1, c, NULL);
}

static tuttiResult_t receive_and_root(tuttiComm_t c, int rank, int n)
{
	return rank ? tuttiBroadcast(in, out, 1000, tuttiFloat32, 0, c, NULL)
		    : tuttiRecv(out, 10, tuttiFloat32, n - 1, c, NULL);
}

static tuttiResult_t split_and_collective(tuttiComm_t c, int rank, int n)
{
	tuttiComm_t part;

	return rank == n - 1 ? tuttiAllReduce(in, out, 1000, tuttiFloat32, tuttiSum, c, NULL)
			     : tuttiCommSplit(c, 0, 0, &part, NULL);
}

static tuttiResult_t split_and_receive(tuttiComm_t c, int rank, int n)
{
	tuttiComm_t part;

	return rank == 0 ? tuttiRecv(out, 10, tuttiFloat32, n - 1, c, NULL)
			 : tuttiCommSplit(c, 0, 0, &part, NULL);
}

static tuttiResult_t receives_in_a_cycle(tuttiComm_t c, int rank, int n)
{
	return tuttiRecv(out, 10, tuttiFloat32, (rank + 1) % n, c, NULL);
}

/* The second message from rank 0 to rank 1 differs between send and receive. */
static tuttiResult_t messages(tuttiComm_t c, int rank, size_t sent, size_t received,
			      tuttiDataType_t type)
{
	tuttiResult_t rc = tuttiSuccess;

	if (rank == 0 && !(rc = tuttiSend(in, 3, tuttiInt8, 1, c, NULL)))
		rc = tuttiSend(in, sent, tuttiFloat32, 1, c, NULL);
	if (rank == 1 && !(rc = tuttiRecv(out, 3, tuttiInt8, 0, c, NULL)))
		rc = tuttiRecv(out, received, type, 0, c, NULL);
	return rc;
}

static tuttiResult_t message_counts(tuttiComm_t c, int rank, int n)
{
	(void)n;
	return messages(c, rank, 70000, 60, tuttiFloat32);
}

static tuttiResult_t message_types(tuttiComm_t c, int rank, int n)
{
	(void)n;
	return messages(c, rank, 60, 60, tuttiInt32);
}

static tuttiResult_t nothing_received(tuttiComm_t c, int rank, int n)
{
	(void)n;
	return messages(c, rank, 60, 0, tuttiFloat32);
}

static tuttiResult_t nothing_sent(tuttiComm_t c, int rank, int n)
{
	(void)n;
	return messages(c, rank, 0, 60, tuttiFloat32);
}

#define DEADLOCK "wait for each other, and none can go on"
static const struct wrong wrongs[] = {
	{ "counts", counts, { "512", "1024" }, false },
	{ "big counts", big_counts, { "70000", "65000" }, false },
	{ "types", types, { "int32", "float" }, false },
	{ "ops", ops, { "sum", "max" }, false },
	{ "roots", roots, { "broadcast", "root 0", "root 1" }, true },
	{ "own roots",
	  own_roots,
	  { "called broadcast of 10 float32 (root ", "as operation 1, rank ",
	    " called broadcast of 10 float32 (root " },
	  true },
	{ "own reduce roots",
	  own_reduce_roots,
	  { "called reduce of 10 float32 (sum, root ", "as operation 1, rank " },
	  true },
	{ "own gather roots",
	  own_gather_roots,
	  { "called gather of 10 float32 (root ", "as operation 1, rank " },
	  true },
	{ "own scatter roots",
	  own_scatter_roots,
	  { "called scatter of 10 float32 (root ", "as operation 1, rank " },
	  true },
	{ "order", order, { "allgather", "allreduce" }, false },
	{ "barrier", barrier, { "barrier", "allreduce" }, false },
	{ "receive, collective",
	  receive_and_collective,
	  { DEADLOCK, "receive of 10 float32 from rank ", "allreduce of 1000" },
	  false },
	{ "receive, root",
	  receive_and_root,
	  { DEADLOCK, "receive of 10 float32 from rank ", "broadcast of 1000" },
	  true },
	{ "split, collective",
	  split_and_collective,
	  { DEADLOCK, "tuttiCommSplit", "allreduce of 1000" },
	  false },
	{ "split, receive",
	  split_and_receive,
	  { DEADLOCK, "tuttiCommSplit", "receive of 10 float32 from rank " },
	  false },
	{ "cycle",
	  receives_in_a_cycle,
	  { DEADLOCK, " is in receive of 10 float32 from rank " },
	  false },
	{ "message counts",
	  message_counts,
	  { "rank 0 called send of 70000 float32 to rank 1 (number 2), rank 1 called "
	    "receive of 60 float32 from rank 0 (number 2)" },
	  true },
	{ "message types",
	  message_types,
	  { "rank 0 called send of 60 float32 to rank 1 (number 2), rank 1 called "
	    "receive of 60 int32 from rank 0 (number 2)" },
	  true },
	{ "nothing received",
	  nothing_received,
	  { "rank 0 called send of 60 float32 to rank 1 (number 2), rank 1 called "
	    "receive of 0 float32 from rank 0 (number 2)" },
	  true },
	{ "nothing sent",
	  nothing_sent,
	  { "rank 0 called send of 0 float32 to rank 1 (number 2), rank 1 called "
	    "receive of 60 float32 from rank 0 (number 2)" },
	  true },
};

static int make_wrong(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct wrong *w = arg;
	tuttiResult_t rc = w->call(*comm, rank, n);
	const char *text;

	if (!rc && w->at_next)
		rc = tuttiAllReduce(in, out, 10, tuttiFloat32, tuttiSum, *comm, NULL);
	text = tuttiGetLastError(*comm);
	for (int i = 0; rc == tuttiInvalidUsage && i < 3 && w->words[i]; i++)
		if (!strstr(text, w->words[i]))
			rc = tuttiSuccess;
	if (rc != tuttiInvalidUsage)
		fprintf(stderr, "rank %d of %d, %s: result %d, text: %s\n", rank, n, w->name, rc,
			text);
	return rc != tuttiInvalidUsage;
}

Test(wrong_uses, mismatched_calls_are_named_on_every_rank, .timeout = 240)
{
	static const char *const transports[] = { "shm", "tcp" };

	for (size_t i = 0; i < sizeof(wrongs) / sizeof(wrongs[0]); i++)
		for (int n = 2; n <= 4; n += 2)
			for (int t = 0; t < 2; t++) {
				struct ranks r = { .n = n,
						   .transport = transports[t],
						   .arg = (void *)(uintptr_t)&wrongs[i],
						   .timeout_ms = TIMEOUT_MS,
						   .limit_s = 30 };

				cr_expect_eq(ranks_run(&r, make_wrong), 0, "%s, n %d, %s",
					     wrongs[i].name, n, transports[t]);
			}
}

/* A right program: ranks wait long for each other, in chains and groups, and get no error. */
static int wait_in_chains(tuttiComm_t *comm, int rank, int n, void *arg)
{
	tuttiComm_t c = *comm, part = NULL;
	int next = (rank + 1) % n, before = (rank + n - 1) % n;
	tuttiResult_t rc = tuttiSuccess;

	(void)arg;
	if (rank == n - 1)
		usleep(1700000);
	else
		rc = tuttiRecv(out, 10, tuttiFloat32, next, c, NULL);
	if (!rc && rank)
		rc = tuttiSend(in, 10, tuttiFloat32, before, c, NULL);
	if (!rc && rank == n - 1)
		usleep(1700000);
	tuttiGroupStart();
	for (size_t i = 0; i < 3; i++) {
		tuttiRecv(out + 10 * i, i, tuttiFloat32, before, c, NULL);
		tuttiSend(in, i, tuttiFloat32, next, c, NULL);
	}
	tuttiAllReduce(in, out + 100, 50, tuttiFloat32, tuttiSum, c, NULL);
	if (!rc)
		rc = tuttiGroupEnd();
	if (!rc && rank == 1)
		usleep(1700000);
	if (!rc)
		rc = tuttiCommSplit(c, 0, 0, &part, NULL);
	if (!rc && rank == 0)
		usleep(1700000);
	if (!rc)
		rc = tuttiBarrier(c, NULL);
	tuttiCommDestroy(part);
	if (rc)
		fprintf(stderr, "rank %d: %d %s\n", rank, rc, tuttiGetLastError(c));
	return rc;
}

Test(wrong_uses, ranks_that_wait_long_without_a_deadlock_get_no_error, .timeout = 120)
{
	static const char *const transports[] = { "shm", "tcp" };

	for (int t = 0; t < 2; t++) {
		struct ranks r = {
			.n = 4, .transport = transports[t], .timeout_ms = 20000, .limit_s = 50
		};

		cr_expect_eq(ranks_run(&r, wait_in_chains), 0, "%s", transports[t]);
	}
}

/* Make no call until the communicator is broken by the failed call of another rank. */
static tuttiResult_t stay_away(tuttiComm_t c)
{
	tuttiResult_t state = tuttiSuccess, rc = tuttiSuccess;

	while (!rc && !state) {
		usleep(1000);
		rc = tuttiCommGetAsyncError(c, &state);
	}
	return rc;
}

static int receive_from_nobody(tuttiComm_t *comm, int rank, int n, void *arg)
{
	tuttiResult_t rc;

	(void)n, (void)arg;
	if (rank == 1)
		return stay_away(*comm); /* until then rank 1 might still send */
	rc = tuttiRecv(out, 10, tuttiFloat32, 1, *comm, NULL);
	if (rc == tuttiTimeout &&
	    strstr(tuttiGetLastError(*comm),
		   "rank 1 has not made the matching call, send of 10 float32 "
		   "to rank 0 (number 1)"))
		return 0;
	fprintf(stderr, "rank %d: result %d: %s\n", rank, rc, tuttiGetLastError(*comm));
	return 1;
}

Test(wrong_uses, a_message_that_no_rank_sends_is_named_at_the_deadline, .timeout = 60)
{
	struct ranks r = { .n = 2, .timeout_ms = 2500, .limit_s = 20 };

	cr_expect_eq(ranks_run(&r, receive_from_nobody), 0);
}

/* The message differs from its receive; the sender has left, or leaves, before the receiver can ask
 * for its call. */
static int send_other_and_leave(tuttiComm_t *comm, int rank, int n, void *arg)
{
	tuttiResult_t rc;
	bool wrong;

	(void)n, (void)arg;
	if (rank == 0) {
		rc = tuttiSend(in, 60, tuttiFloat32, 1, *comm, NULL);
		wrong = rc && (rc != tuttiInvalidUsage || /* the receiver was faster */
			       !strstr(tuttiGetLastError(*comm), "rank 0 called send of 60"));
		tuttiCommDestroy(*comm);
		*comm = NULL;
		return wrong;
	}
	rc = tuttiRecv(out, 50, tuttiFloat32, 0, *comm, NULL);
	if (rc == tuttiInvalidUsage &&
	    (strstr(tuttiGetLastError(*comm), "another rank made a different call") ||
	     strstr(tuttiGetLastError(*comm), "rank 0 called send of 60 float32")))
		return 0;
	fprintf(stderr, "rank %d: result %d: %s\n", rank, rc, tuttiGetLastError(*comm));
	return 1;
}

Test(wrong_uses, a_mismatched_message_is_reported_after_its_sender_has_left, .timeout = 60)
{
	static const char *const transports[] = { "shm", "tcp" };

	for (int t = 0; t < 2; t++) {
		struct ranks r = {
			.n = 2, .transport = transports[t], .timeout_ms = TIMEOUT_MS, .limit_s = 20
		};

		cr_expect_eq(ranks_run(&r, send_other_and_leave), 0, "%s", transports[t]);
	}
}

/* A send may return before its receive, so a deadlock is not certain: the deadline ends the
 * wait. */
static int split_and_send(tuttiComm_t *comm, int rank, int n, void *arg)
{
	tuttiComm_t part;
	tuttiResult_t rc = rank ? tuttiSend(out, 280000, tuttiFloat32, 0, *comm, NULL)
				: tuttiCommSplit(*comm, 0, 0, &part, NULL);

	(void)n, (void)arg;
	if (rc == tuttiTimeout && strstr(tuttiGetLastError(*comm), "of 280000 float"))
		return 0;
	fprintf(stderr, "rank %d: result %d: %s\n", rank, rc, tuttiGetLastError(*comm));
	return 1;
}

Test(wrong_uses, a_split_that_waits_for_a_sender_names_the_send, .timeout = 60)
{
	struct ranks r = { .n = 2, .transport = "shm", .timeout_ms = 3000, .limit_s = 20 };

	cr_expect_eq(ranks_run(&r, split_and_send), 0);
}

/* The timeout counts from the last progress: six messages of a group arrive 0.5 s apart, the
 * seventh never. */
static int slow_messages(tuttiComm_t *comm, int rank, int n, void *arg)
{
	tuttiComm_t c = *comm;
	tuttiResult_t rc = tuttiSuccess;

	(void)n, (void)arg;
	for (int i = 0; i < 6 && rank && !rc; i++) {
		usleep(500000);
		rc = tuttiSend(in, 4, tuttiFloat32, 0, c, NULL);
	}
	if (rank)
		return rc ? rc : stay_away(c);
	tuttiGroupStart();
	for (int i = 0; i < 6; i++)
		tuttiRecv(out, 4, tuttiFloat32, 1, c, NULL);
	rc = tuttiGroupEnd();
	if (!rc && tuttiRecv(out, 4, tuttiFloat32, 1, c, NULL) == tuttiTimeout &&
	    strstr(tuttiGetLastError(c), "without progress") &&
	    strstr(tuttiGetLastError(c), "(number 7)"))
		return 0;
	fprintf(stderr, "result %d: %s\n", rc, tuttiGetLastError(c));
	return 1;
}

Test(wrong_uses, a_call_with_progress_may_take_longer_than_the_timeout, .timeout = 60)
{
	static const char *const transports[] = { "shm", "tcp" };

	for (int t = 0; t < 2; t++) {
		struct ranks r = {
			.n = 2, .transport = transports[t], .timeout_ms = 2500, .limit_s = 20
		};

		cr_expect_eq(ranks_run(&r, slow_messages), 0, "%s", transports[t]);
	}
}

/* Invalid arguments are refused at once; the communicator still works. */
static int use_invalid_arguments(tuttiComm_t *comm, int rank, int n, void *arg)
{
	static const char *const because = "a refused call must not break the communicator";
	tuttiComm_t c = *comm;
	void *handle = NULL;
	int bad = 0;

	(void)arg, (void)rank;
#define REFUSED(call, word)                                                                 \
	do {                                                                                \
		tuttiResult_t rc = (call);                                                  \
		if (rc != tuttiInvalidArgument || !strstr(tuttiGetLastError(NULL), word)) { \
			fprintf(stderr, "%s: result %d: %s\n", #call, rc,                   \
				tuttiGetLastError(NULL));                                   \
			bad = 1;                                                            \
		}                                                                           \
	} while (0)
	REFUSED(tuttiAllReduce(NULL, out, 10, tuttiFloat32, tuttiSum, c, NULL), "sendbuff");
	REFUSED(tuttiAllReduce(in, NULL, 10, tuttiFloat32, tuttiSum, c, NULL), "recvbuff");
	REFUSED(tuttiAllReduce(in, out, 10, (tuttiDataType_t)99, tuttiSum, c, NULL), "99");
	REFUSED(tuttiAllReduce(in, out, 10, tuttiFloat32, (tuttiRedOp_t)77, c, NULL), "77");
	REFUSED(tuttiAllReduce(in, out, 10, tuttiFloat32, tuttiBxor, c, NULL), "bxor");
	REFUSED(tuttiAllReduce(in, in + 3, 10, tuttiFloat32, tuttiSum, c, NULL), "overlap");
	REFUSED(tuttiAllReduce(in, out, (size_t)-1 / 2, tuttiFloat32, tuttiSum, c, NULL), "memory");
	REFUSED(tuttiBroadcast(in, out, 10, tuttiFloat32, n, c, NULL), "root");
	REFUSED(tuttiReduce(in, out, 10, tuttiFloat32, tuttiSum, -1, c, NULL), "root");
	REFUSED(tuttiSend(in, 10, tuttiFloat32, n, c, NULL), "peer");
	REFUSED(tuttiCommRegister(c, NULL, sizeof(in), &handle), "buff is NULL");
	REFUSED(tuttiAllReduceQuorum(in, out, 10, tuttiFloat32, tuttiSum, n + 1, 0, c, NULL, NULL),
		"want a k from 1");
	REFUSED(tuttiAllReduce(in, out, 10, tuttiFloat32, tuttiSum, NULL, NULL), "comm");
	REFUSED(tuttiAllReduce(in, out, 10, tuttiFloat32, tuttiSum, c, &bad), "stream");
	REFUSED(tuttiMemFree(in), "tuttiMemAlloc");
	REFUSED(tuttiCommRegister(c, in, sizeof(in), NULL), "handle");
	REFUSED(tuttiCommRegister(c, in, SIZE_MAX, &handle), "beyond the last address");
	REFUSED(tuttiCommDeregister(c, in), "no handle");
	if (tuttiCommRegister(c, in, sizeof(in), &handle) || tuttiCommDeregister(c, handle))
		bad = 1;
	REFUSED(tuttiCommDeregister(c, handle), "was deregistered");
	if (tuttiAllReduce(NULL, NULL, 0, tuttiFloat32, tuttiSum, c, NULL) ||
	    tuttiAllReduce(in, out, 10, tuttiFloat32, tuttiSum, c, NULL)) {
		fprintf(stderr, "%s: %s\n", because, tuttiGetLastError(NULL));
		bad = 1;
	}
	return bad;
}

Test(wrong_uses, invalid_arguments_are_refused_at_once, .timeout = 60)
{
	struct ranks r = { .n = 2 };

	cr_expect_eq(ranks_run(&r, use_invalid_arguments), 0);
}

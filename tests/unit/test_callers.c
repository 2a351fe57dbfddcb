/*
 * test_callers.c - one caller at a time: a second thread in a call of a communicator gets an error
 * that names both calls, the other ranks learn of it, and nothing hangs or crashes
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "comm/comm.h"
#include "tests/support/must.h"

static float x[4];

/* ---- a thread that waits in an allreduce ----------------------------------------------------- */

struct first_caller {
	tuttiComm_t comm;
	pthread_t thread;
	tuttiResult_t result;
	char text[1024];
};

static void *allreduce(void *arg)
{
	struct first_caller *f = arg;

	f->result = tuttiAllReduce(x, x, 4, tuttiFloat32, tuttiSum, f->comm, NULL);
	strncpy(f->text, tuttiGetLastError(NULL), sizeof(f->text) - 1);
	return NULL;
}

/* Returns once the thread is in operation 1, which the other rank never begins. */
static int start(struct first_caller *f, tuttiComm_t comm)
{
	char running[160] = "";

	*f = (struct first_caller){ .comm = comm };
	WANT(!pthread_create(&f->thread, NULL, allreduce, f));
	while (!running[0]) {
		sched_yield();
		tt_control_running(comm->ctl, running, sizeof(running));
	}
	WANT(strstr(running, "operation 1 (allreduce of 4 float32"));
	return 0;
}

/* ---- the second caller ----------------------------------------------------------------------- */

static tuttiResult_t broadcast(tuttiComm_t c)
{
	return tuttiBroadcast(x, x, 4, tuttiFloat32, 0, c, NULL);
}

static tuttiResult_t send(tuttiComm_t c)
{
	return tuttiSend(x, 4, tuttiFloat32, 1, c, NULL);
}

static tuttiResult_t split(tuttiComm_t c)
{
	tuttiComm_t made;

	return tuttiCommSplit(c, 0, 0, &made, NULL);
}

static tuttiResult_t shrink(tuttiComm_t c)
{
	tuttiComm_t made;

	return tuttiCommShrink(c, NULL, 0, &made, NULL, TUTTI_SHRINK_DEFAULT);
}

static tuttiResult_t quorum(tuttiComm_t c)
{
	return tuttiAllReduceQuorum(x, x, 1, tuttiFloat32, tuttiSum, 1, 0, c, NULL, NULL);
}

static tuttiResult_t create_op(tuttiComm_t c)
{
	tuttiRedOp_t op;

	return tuttiRedOpCreatePreMulSum(&op, x, tuttiFloat32, tuttiScalarHostImmediate, c);
}

static tuttiResult_t describe(tuttiComm_t c)
{
	char text[200];

	return tuttiCommDescribe(c, "allreduce", 1, tuttiFloat32, text, sizeof(text));
}

static const struct second_call {
	const char *name;
	tuttiResult_t (*call)(tuttiComm_t comm);
	bool frees;
} second_calls[] = {
	{ "tuttiBroadcast", broadcast, false },
	{ "tuttiSend", send, false },
	{ "tuttiCommSplit", split, false },
	{ "tuttiCommShrink", shrink, false },
	{ "tuttiAllReduceQuorum", quorum, false },
	{ "tuttiRedOpCreatePreMulSum", create_op, false },
	{ "tuttiCommDescribe", describe, false },
	{ "tuttiCommFinalize", tuttiCommFinalize, false },
	{ "tuttiCommDestroy", tuttiCommDestroy, true },
};

/* Does text name the rank, the call, the running call, the communicator and the remedy? */
static bool explains(const char *text, const char *call)
{
	return strstr(text, "rank 0 called ") && strstr(text, call) &&
	       strstr(text, "in operation 1 (allreduce of 4 float32") &&
	       strstr(text, "communicator \"pair\"") && strstr(text, "tuttiCommSplit");
}

/* Rank 1 never begins operation 1 while rank 0's threads meet in it, and gets their error. */
static int get_error(tuttiComm_t c, const char *call)
{
	tuttiResult_t state = tuttiSuccess;

	while (!state)
		MUST((sched_yield(), tuttiCommGetAsyncError(c, &state)));
	WANT(state == tuttiInvalidUsage);
	WANT(tuttiAllReduce(x, x, 4, tuttiFloat32, tuttiSum, c, NULL) == tuttiInvalidUsage);
	WANT(explains(tuttiGetLastError(NULL), call));
	return 0;
}

static int meet(tuttiComm_t *c, const struct second_call *second)
{
	struct first_caller first;
	tuttiResult_t rc;

	if (start(&first, *c))
		return 1;
	rc = second->call(*c);
	WANT(rc == tuttiInvalidUsage);
	WANT(explains(tuttiGetLastError(NULL), second->name));
	pthread_join(first.thread, NULL);
	WANT(first.result == tuttiInvalidUsage);
	WANT(explains(first.text, second->name));
	if (second->frees)
		*c = NULL;
	else
		WANT(broadcast(*c) == tuttiInvalidUsage);
	return 0;
}

static int two_threads(tuttiComm_t *comm, int rank, int n, void *arg)
{
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;

	(void)n, (void)arg;
	config.name = "pair";
	for (size_t i = 0; i < sizeof(second_calls) / sizeof(*second_calls); i++) {
		tuttiComm_t c;

		MUST(tuttiCommSplit(*comm, 0, rank, &c, &config));
		if (rank ? get_error(c, second_calls[i].name) : meet(&c, &second_calls[i])) {
			printf("# rank %d: %s\n", rank, second_calls[i].name);
			return 1;
		}
		tuttiCommDestroy(c);
	}
	return 0;
}

Test(callers, a_second_thread_gets_an_error_that_names_both_calls_on_all_ranks, .timeout = 60)
{
	for (int tcp = 0; tcp < 2; tcp++) {
		struct ranks r = { .n = 2, .transport = tcp ? "tcp" : "shm" };

		cr_assert_eq(ranks_run(&r, two_threads), 0);
	}
}

/* ---- calls that begin at the same time ------------------------------------------------------- */

Test(callers, a_call_that_another_one_overlapped_fails_at_its_end, .timeout = 60)
{
	tuttiComm_t c;

	cr_assert_eq(tuttiCommInitAll(&c, 1, NULL), tuttiSuccess);
	cr_assert(tt_comm_begin(c, TT_ONE_CALL));
	cr_assert(!tt_comm_begin(c, TT_ONE_CALL));
	atomic_store(&c->order.caller, 0); /* as the second call found it */
	cr_assert(tt_comm_begin(c, TT_ONE_CALL));
	cr_assert_eq(tt_comm_leave(c, TT_ONE_CALL, 0), 0);
	cr_assert_eq(tt_comm_leave(c, TT_ONE_CALL, 0), TT_USAGE);
	cr_assert(strstr(tuttiGetLastError(NULL),
			 "two threads began calls of communicator (without a name) at"));
	cr_assert_eq(broadcast(c), tuttiInvalidUsage);
	tuttiCommDestroy(c);
}

static void *call_until_error(void *arg)
{
	tuttiResult_t rc = tuttiSuccess;
	float y = 1;

	while (!rc)
		rc = tuttiAllReduce(&y, &y, 1, tuttiFloat32, tuttiSum, arg, NULL);
	return rc == tuttiInvalidUsage ? NULL : "another error";
}

Test(callers, threads_that_call_without_order_end_with_the_error, .timeout = 60)
{
	pthread_t thread;
	tuttiComm_t c;
	void *wrong;

	cr_assert_eq(tuttiCommInitAll(&c, 1, NULL), tuttiSuccess);
	cr_assert(!pthread_create(&thread, NULL, call_until_error, c));
	cr_assert_null(call_until_error(c));
	pthread_join(thread, &wrong);
	cr_assert_null(wrong);
	tuttiCommDestroy(c);
}

/* ---- what stays allowed ---------------------------------------------------------------------- */

static void *one_call(void *arg)
{
	return broadcast(arg) ? arg : NULL;
}

Test(callers, threads_may_take_turns_and_groups_may_repeat_a_communicator, .timeout = 60)
{
	pthread_t thread;
	tuttiComm_t c;
	void *failed;

	cr_assert_eq(tuttiCommInitAll(&c, 1, NULL), tuttiSuccess);
	for (int i = 0; i < 10; i++) {
		cr_assert(!pthread_create(&thread, NULL, one_call, c));
		pthread_join(thread, &failed);
		cr_assert_null(failed);
		tuttiGroupStart();
		broadcast(c);
		broadcast(c);
		cr_assert_eq(tuttiGroupEnd(), tuttiSuccess, "%s", tuttiGetLastError(NULL));
		cr_assert_eq(broadcast(c), tuttiSuccess);
	}
	cr_assert_eq(tuttiCommDestroy(c), tuttiSuccess);
}

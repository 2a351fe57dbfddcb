/*
 * test_events.c - events and callbacks of host streams
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/must.h"
#include "tests/support/ranks.h"

static void run(rank_fn *fn, int n)
{
	struct ranks r = { .n = n, .threads = true };

	cr_assert_eq(ranks_run(&r, fn), 0);
}

/* Rank 1 makes its first call when rank 0 has looked at the event. */
static int pending(tuttiComm_t *comm, int rank, int n, void *arg)
{
	tuttiEvent_t first, second;
	tuttiStream_t s;
	float x = 1, y = 1;

	(void)arg;
	MUST(tuttiStreamCreate(&s));
	MUST(tuttiEventCreate(&first));
	MUST(tuttiEventCreate(&second));
	MUST(tuttiEventQuery(first));
	if (rank == 1)
		MUST(tuttiMsgRecv(NULL, 0, 0, 0, -1, *comm, NULL));
	MUST(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, *comm, s));
	MUST(tuttiEventRecord(first, s));
	if (rank == 1)
		MUST(tuttiMsgRecv(NULL, 0, 0, 1, -1, *comm, NULL));
	MUST(tuttiAllReduce(&y, &y, 1, tuttiFloat32, tuttiSum, *comm, s));
	MUST(tuttiEventRecord(second, s));
	if (rank == 0) {
		WANT(tuttiEventQuery(first) == tuttiInProgress);
		MUST(tuttiMsgSend(NULL, 0, 1, 0, 0, *comm));
	}
	MUST(tuttiEventSynchronize(first));
	WANT(x == (float)n && tuttiEventQuery(first) == tuttiSuccess);
	if (rank == 0) {
		WANT(tuttiEventQuery(second) == tuttiInProgress);
		MUST(tuttiMsgSend(NULL, 0, 1, 1, 0, *comm));
	}
	MUST(tuttiEventDestroy(second)); /* waits for the mark */
	WANT(y == (float)n && tuttiEventQuery(second) == tuttiInvalidArgument);
	MUST(tuttiEventDestroy(first));
	MUST(tuttiStreamDestroy(s));
	return 0;
}

Test(events, an_event_is_reached_with_its_operation_and_not_before, .timeout = 60)
{
	run(pending, 2);
}

/* Recorded again behind a second operation, an event is complete with the second one. */
static int again(tuttiComm_t *comm, int rank, int n, void *arg)
{
	tuttiEvent_t e;
	tuttiStream_t s;
	float x = 1;

	(void)arg, (void)n;
	MUST(tuttiStreamCreate(&s));
	MUST(tuttiEventCreate(&e));
	MUST(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, *comm, s));
	MUST(tuttiEventRecord(e, s));
	if (rank == 1) {
		MUST(tuttiStreamSynchronize(s));
		MUST(tuttiMsgRecv(NULL, 0, 0, 0, -1, *comm, NULL));
	}
	MUST(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, *comm, s));
	MUST(tuttiEventRecord(e, s));
	if (rank == 0) {
		WANT(tuttiEventQuery(e) == tuttiInProgress);
		MUST(tuttiMsgSend(NULL, 0, 1, 0, 0, *comm));
	}
	MUST(tuttiEventSynchronize(e));
	WANT(x == 4);
	MUST(tuttiEventDestroy(e));
	MUST(tuttiStreamDestroy(s));
	return 0;
}

Test(events, a_recorded_again_event_means_its_latest_mark, .timeout = 60)
{
	run(again, 2);
}

struct seen {
	tuttiStream_t stream;
	float *value, then;
	int calls;
	tuttiResult_t result, of_wait;
	char text[256];
};

static void look(void *ctx, tuttiResult_t result, const char *text)
{
	struct seen *seen = ctx;

	seen->calls++;
	seen->then = *seen->value;
	seen->result = result;
	seen->of_wait = tuttiStreamSynchronize(seen->stream);
	snprintf(seen->text, sizeof(seen->text), "%s", text);
}

/* The value of the callback is that between two operations. */
static int between(tuttiComm_t *comm, int rank, int n, void *arg)
{
	struct seen seen[20] = { 0 };
	tuttiStream_t s;
	float x = 1, want = 1;

	(void)rank, (void)arg;
	MUST(tuttiStreamCreate(&s));
	for (int i = 0; i < 20; i++) {
		seen[i].stream = s;
		seen[i].value = &x;
		MUST(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, *comm, s));
		MUST(tuttiStreamAddCallback(s, look, &seen[i]));
	}
	MUST(tuttiStreamSynchronize(s));
	for (int i = 0; i < 20; i++) {
		want *= (float)n;
		WANT(seen[i].calls == 1 && seen[i].then == want && !seen[i].result &&
		     !seen[i].text[0] && seen[i].of_wait == tuttiInvalidUsage);
	}
	MUST(tuttiStreamDestroy(s));
	return 0;
}

Test(events, a_callback_runs_between_its_operation_and_the_next, .timeout = 60)
{
	run(between, 2);
}

/* An operation that its communicator's abort ended, between two that succeed. */
static int errors(tuttiComm_t *comm, int rank, int n, void *arg)
{
	struct seen seen[3] = { 0 };
	tuttiComm_t other, *of[3] = { comm, &other, comm };
	tuttiEvent_t e;
	tuttiStream_t s;
	float x = 1;

	(void)arg, (void)n;
	MUST(tuttiCommSplit(*comm, 0, rank, &other, NULL));
	MUST(tuttiStreamCreate(&s));
	MUST(tuttiEventCreate(&e));
	if (rank == 1)
		MUST(tuttiMsgRecv(NULL, 0, 0, 0, -1, *comm, NULL));
	for (int i = 0; i < 3; i++) {
		seen[i].stream = s;
		seen[i].value = &x;
		if (rank == 0 || i != 1)
			MUST(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, *of[i], s));
		if (rank == 0 && i == 1)
			MUST(tuttiEventRecord(e, s));
		else
			MUST(tuttiStreamAddCallback(s, look, &seen[i]));
	}
	MUST(tuttiCommAbort(other));
	if (rank == 0) {
		MUST(tuttiMsgSend(NULL, 0, 1, 0, 0, *comm));
		for (int i = 0; i < 2; i++) /* each time */
			WANT(tuttiEventSynchronize(e) == tuttiRemoteError &&
			     strstr(tuttiGetLastError(NULL), "abort"));
		WANT(tuttiEventQuery(e) == tuttiRemoteError);
		WANT(tuttiStreamSynchronize(s) == tuttiRemoteError);
	} else {
		MUST(tuttiStreamSynchronize(s));
	}
	WANT(seen[0].calls == 1 && !seen[0].result && seen[2].calls == 1 && !seen[2].result);
	WANT(x == 4);
	MUST(tuttiEventDestroy(e));
	MUST(tuttiStreamDestroy(s));
	return 0;
}

Test(events, a_mark_has_the_result_of_the_operations_since_the_mark_before, .timeout = 60)
{
	run(errors, 2);
}

Test(events, wrong_handles_are_refused, .timeout = 30)
{
	tuttiEvent_t e;
	tuttiStream_t s;

	cr_assert(!tuttiEventCreate(&e) && !tuttiStreamCreate(&s));
	cr_expect_eq(tuttiEventCreate(NULL), tuttiInvalidArgument);
	cr_expect_eq(tuttiEventRecord(e, NULL), tuttiInvalidArgument);
	cr_expect_eq(tuttiEventRecord((tuttiEvent_t)s, s), tuttiInvalidArgument);
	cr_expect_eq(tuttiStreamAddCallback(s, NULL, NULL), tuttiInvalidArgument);
	cr_expect_eq(tuttiStreamAddCallback((tuttiStream_t)e, look, NULL), tuttiInvalidArgument);
	cr_expect_eq(tuttiEventQuery(e), tuttiSuccess);
	cr_expect(!tuttiEventDestroy(e) && !tuttiStreamDestroy(s));
	cr_expect_eq(tuttiEventSynchronize(e), tuttiInvalidArgument);
	cr_expect_eq(tuttiEventDestroy(e), tuttiInvalidArgument);
}

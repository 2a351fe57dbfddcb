/*
 * survival_phases.c - the calls of each phase, repeated until one fails; the table of phases
 */
#include <string.h>

#include "tests/survival/survival.h"

#define SMALL 300

static tuttiResult_t thread_failed(struct scene_rank *w, tuttiResult_t rc)
{
	return rc ? scene_failed(w, rc, tuttiGetLastError(NULL)) : rc;
}

static tuttiResult_t collective(struct scene_rank *w, enum scene_collective what, size_t count,
				uint64_t i)
{
	return thread_failed(w, scene_collective(w, w->comm, w->s->n, w->rank, what, count, i));
}

/* ---- collectives ----------------------------------------------------------------------------- */

static tuttiResult_t round_collective(struct scene_rank *w, uint64_t i)
{
	return collective(w, w->s->collective, w->s->count, i);
}

/* After the join, in which the fault strikes or a little later */
static tuttiResult_t round_init(struct scene_rank *w, uint64_t i)
{
	return collective(w, SCENE_BARRIER, 0, i);
}

/* Two parts by turns; the numbers of the ranks in the new communicators differ from those in the
 * parent. */
static tuttiResult_t round_split(struct scene_rank *w, uint64_t i)
{
	tuttiComm_t part = NULL;
	tuttiResult_t rc;

	scene_call(w, "split");
	rc = thread_failed(w,
			   tuttiCommSplit(w->comm, (w->rank >> i % 3) % 2, -w->rank, &part, NULL));
	tuttiCommDestroy(part);
	return rc;
}

/* ---- groups, streams, messages of two ranks -------------------------------------------------- */

static int values[5][SMALL];

/* Long messages may be read in the sender's buffer. */
static size_t length(const struct scene *s)
{
	return s->seed % 2 && s->n <= 8 ? SCENE_ELEMENTS : SMALL;
}

/* With the ranks at a distance that changes with the round: send to the one, receive from the
 * other. */
static void exchange(struct scene_rank *w, uint64_t i, size_t count)
{
	int n = w->s->n, step = 1 + (int)(i % (unsigned)(n - 1));
	int to = (w->rank + step) % n, from = (w->rank + n - step) % n;

	for (size_t k = 0; k < count; k++)
		w->in[k] = w->rank * 1000 + (int)(i % 997) + (int)k;
	tuttiSend(w->in, count, tuttiInt32, to, w->comm, NULL);
	tuttiRecv(w->out, count, tuttiInt32, from, w->comm, NULL);
}

static void check_exchange(struct scene_rank *w, uint64_t i, size_t count)
{
	int n = w->s->n, from = (w->rank + n - 1 - (int)(i % (unsigned)(n - 1))) % n;

	for (size_t k = 0; k < count; k++)
		if (w->out[k] != from * 1000 + (int)(i % 997) + (int)k) {
			scene_problem(w, "round %llu: a wrong message from rank %d",
				      (unsigned long long)i, from);
			return;
		}
}

static tuttiResult_t round_send_receive(struct scene_rank *w, uint64_t i)
{
	size_t count = length(w->s);
	tuttiResult_t rc;

	tuttiGroupStart();
	exchange(w, i, count);
	scene_call(w, "send and receive");
	rc = thread_failed(w, tuttiGroupEnd());
	if (!rc)
		check_exchange(w, i, count);
	else
		memset(w->in, 0xff,
		       count * sizeof(*w->in)); /* no rank may take this for the message */
	return rc;
}

static void check_sums(struct scene_rank *w, uint64_t i, const int *sums)
{
	int n = w->s->n;

	for (int k = 0; k < SMALL; k++)
		if (sums[k] != n * (int)(i % 997) + n * (n - 1) / 2) {
			scene_problem(w, "round %llu: element %d of a sum is %d",
				      (unsigned long long)i, k, sums[k]);
			return;
		}
}

static tuttiResult_t round_group(struct scene_rank *w, uint64_t i)
{
	tuttiResult_t rc;

	for (int k = 0; k < SMALL; k++)
		values[2][k] = w->rank + (int)(i % 997);
	tuttiGroupStart();
	if (w->rank % 2)
		exchange(w, i, SMALL);
	tuttiAllReduce(values[2], values[3], SMALL, tuttiInt32, tuttiSum, w->comm, NULL);
	tuttiBroadcast(values[2], values[4], SMALL, tuttiInt32, (int)(i % (unsigned)w->s->n),
		       w->comm, NULL);
	if (w->rank % 2 == 0)
		exchange(w, i, SMALL);
	scene_call(w, "group");
	rc = thread_failed(w, tuttiGroupEnd());
	if (rc)
		return rc;
	check_exchange(w, i, SMALL);
	check_sums(w, i, values[3]);
	return rc;
}

/* Some allreduces on a stream; the caller synchronizes. */
static tuttiResult_t enqueue(struct scene_rank *w, tuttiComm_t comm, uint64_t i)
{
	tuttiResult_t rc = tuttiSuccess;

	for (int k = 0; k < SMALL; k++)
		values[0][k] = w->rank + (int)(i % 997);
	if (!w->stream && tuttiStreamCreate(&w->stream)) {
		scene_problem(w, "no stream: %s", tuttiGetLastError(NULL));
		return tuttiSystemError;
	}
	for (int k = 1; k <= 3 && !rc; k++)
		rc = tuttiAllReduce(values[0], values[k], SMALL, tuttiInt32, tuttiSum, comm,
				    w->stream);
	return rc;
}

static tuttiResult_t round_stream(struct scene_rank *w, uint64_t i)
{
	tuttiResult_t rc, rc2;

	scene_call(w, "stream");
	rc = enqueue(w, w->comm, i);
	rc2 = tuttiStreamSynchronize(w->stream);
	rc = rc ? rc : rc2;
	if (rc)
		return scene_failed(w, rc, tuttiGetLastError(w->comm));
	for (int k = 1; k <= 3; k++)
		check_sums(w, i, values[k]);
	return rc;
}

/* ---- the end of a communicator --------------------------------------------------------------- */

/* A copy of the communicator is made, used, finalized and destroyed. */
static tuttiResult_t round_finalize(struct scene_rank *w, uint64_t i)
{
	tuttiComm_t copy = NULL;
	tuttiResult_t rc, rc2;

	scene_call(w, "split");
	rc = thread_failed(w, tuttiCommSplit(w->comm, 0, w->rank, &copy, NULL));
	if (rc)
		return rc;
	scene_call(w, "finalize");
	rc = enqueue(w, copy, i);
	rc2 = tuttiCommFinalize(copy);
	rc = rc ? rc : rc2;
	if (rc)
		scene_failed(w, rc, tuttiGetLastError(copy));
	rc2 = tuttiStreamSynchronize(w->stream);
	if (!rc && rc2)
		scene_problem(w, "finalize succeeds, and its stream fails: %s",
			      tuttiGetLastError(NULL));
	for (int k = 1; k <= 3 && !rc; k++)
		check_sums(w, i, values[k]);
	tuttiCommDestroy(copy);
	return rc;
}

static tuttiResult_t round_destroy(struct scene_rank *w, uint64_t i)
{
	tuttiComm_t copy = NULL;
	tuttiResult_t rc;

	scene_call(w, "split");
	rc = thread_failed(w, tuttiCommSplit(w->comm, 0, w->rank, &copy, NULL));
	if (rc)
		return rc;
	rc = thread_failed(w, scene_collective(w, copy, w->s->n, w->rank, SCENE_ALLREDUCE, 100, i));
	scene_call(w, "destroy");
	if (rc)
		tuttiCommDestroy(copy);
	else
		rc = thread_failed(w, tuttiCommDestroy(copy));
	return rc;
}

const struct scene_phase scene_phases[] = {
	{ .name = "init", .round = round_init, .joining = true },
	{ .name = "split", .round = round_split },
	{ .name = "small", .round = round_collective },
	{ .name = "large", .round = round_collective, .large = true },
	{ .name = "groups", .round = round_group },
	{ .name = "streams", .round = round_stream },
	{ .name = "send-receive", .round = round_send_receive },
	{ .name = "messages", .round = scene_round_messages, .survives = true },
	{ .name = "quorum", .round = scene_round_quorum, .survives = true },
	{ .name = "shrink", .round = scene_round_shrink, .survives = true },
	{ .name = "finalize", .round = round_finalize },
	{ .name = "destroy", .round = round_destroy },
	{ .name = "abort", .round = scene_round_abort },
};
const int scene_nphases = sizeof(scene_phases) / sizeof(scene_phases[0]);

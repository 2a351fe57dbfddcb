/*
 * test_calls.c - groups, streams, point to point, tiles, reduction operations, repeated calls
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/must.h"

/* Every rank sends several messages, large and empty, to every rank and to itself, all in one
 * group. */
static int exchange(tuttiComm_t *comm, int rank, int n, void *arg)
{
	static const size_t counts[] = { 1, 0, 300000, 7 };
	int *out[16][4], *in[16][4];

	(void)arg;
	MUST(tuttiGroupStart());
	for (int k = 0; k < 4; k++)
		for (int p = 0; p < n; p++) {
			out[p][k] = malloc(counts[k] * sizeof(int) + 1);
			in[p][k] = calloc(counts[k] + 1, sizeof(int));
			for (size_t i = 0; i < counts[k]; i++)
				out[p][k][i] = (int)i + 1000 * rank + 100 * p + k;
			MUST(tuttiSend(out[p][k], counts[k], tuttiInt32, p, *comm, NULL));
			MUST(tuttiRecv(in[p][k], counts[k], tuttiInt32, p, *comm, NULL));
		}
	MUST(tuttiGroupEnd());
	for (int k = 0; k < 4; k++)
		for (int p = 0; p < n; p++) {
			for (size_t i = 0; i < counts[k]; i++)
				WANT(in[p][k][i] == (int)i + 1000 * p + 100 * rank + k);
			free(out[p][k]);
			free(in[p][k]);
		}
	return 0;
}

Test(calls, sends_and_receives_of_a_group_run_concurrently, .timeout = 60)
{
	for (int n = 1; n <= 4; n++)
		run_both(exchange, n);
}

/* More tiles than can be in flight: the sends wait in the group for their own receive. */
static int send_to_self(tuttiComm_t *comm, int rank, int n, void *arg)
{
	enum { LEN = 6 << 20 };
	short *out = malloc(LEN * sizeof(short)), *in = calloc(LEN, sizeof(short));

	(void)n, (void)arg;
	for (int i = 0; i < LEN; i++)
		out[i] = (short)(i * 31 + rank);
	MUST(tuttiGroupStart());
	MUST(tuttiSend(out, LEN, tuttiFloat16, rank, *comm, NULL));
	MUST(tuttiRecv(in, LEN, tuttiFloat16, rank, *comm, NULL));
	MUST(tuttiGroupEnd());
	WANT(!memcmp(in, out, LEN * sizeof(short)));
	free(out);
	free(in);
	return 0;
}

Test(calls, a_rank_sends_many_tiles_to_itself, .timeout = 60)
{
	run_both(send_to_self, 1);
	run_both(send_to_self, 2);
}

/* No other rank can call the receive for a message that a rank sends to itself. */
static int unmatched_self_send(tuttiComm_t *comm, int rank, int n, void *arg)
{
	float x[11] = { 0 }, y[11];
	tuttiComm_t c = *comm;
	int bad = 0;

	(void)n, (void)arg;
#define REFUSED(call, text)                                                              \
	do {                                                                             \
		tuttiResult_t rc = (call);                                               \
		if (rc != tuttiInvalidUsage || !strstr(tuttiGetLastError(NULL), text)) { \
			fprintf(stderr, "%s, %s: result %d: %s\n", #call, text, rc,      \
				tuttiGetLastError(NULL));                                \
			bad = 1;                                                         \
		}                                                                        \
	} while (0)
	REFUSED(tuttiSend(x, 10, tuttiFloat32, rank, c, NULL), "tuttiGroupStart");
	REFUSED(tuttiRecv(y, 10, tuttiFloat32, rank, c, NULL), "tuttiGroupStart");
	MUST(tuttiGroupStart());
	MUST(tuttiSend(x, 10, tuttiFloat32, rank, c, NULL));
	REFUSED(tuttiGroupEnd(), "send of 10 float32 to itself has no receive");
	MUST(tuttiGroupStart());
	MUST(tuttiSend(x, 10, tuttiFloat32, rank, c, NULL));
	MUST(tuttiSend(x, 11, tuttiFloat32, rank, c, NULL));
	MUST(tuttiRecv(y, 10, tuttiFloat32, rank, c, NULL));
	MUST(tuttiRecv(y, 11, tuttiInt32, rank, c, NULL));
	REFUSED(tuttiGroupEnd(), "sends itself 11 float32, but receives 11 int32");
	MUST(tuttiAllReduce(x, y, 10, tuttiFloat32, tuttiSum, c, NULL));
	return bad;
}

Test(calls, a_send_to_self_without_its_receive_is_refused_at_once, .timeout = 60)
{
	run_both(unmatched_self_send, 2);
}

static int ping_pong(tuttiComm_t *comm, int rank, int n, void *arg)
{
	double x = 0;

	(void)arg;
	for (int i = 0; i < 1000; i++) {
		int from = i % n, to = (i + 1) % n;
		double y = i;

		if (rank == from)
			MUST(tuttiSend(&y, 1, tuttiFloat64, to, *comm, NULL));
		if (rank == to) {
			MUST(tuttiRecv(&x, 1, tuttiFloat64, from, *comm, NULL));
			WANT(x == i);
		}
	}
	return 0;
}

Test(calls, sends_and_receives_match_without_a_group, .timeout = 60)
{
	run_both(ping_pong, 2);
	run_both(ping_pong, 3);
}

/* Operations of two streams and of the caller on one communicator: results depend on call order
 * only. */
static int streams(tuttiComm_t *comm, int rank, int n, void *arg)
{
	enum { LEN = 50000 };
	static float a[LEN], b[LEN], c[LEN], d[LEN];
	tuttiStream_t s1, s2;

	(void)arg;
	MUST(tuttiStreamCreate(&s1));
	MUST(tuttiStreamCreate(&s2));
	for (int round = 0; round < 50; round++) {
		for (int i = 0; i < LEN; i++)
			a[i] = (float)(rank + i % 5), c[i] = (float)(2 * rank + round);
		MUST(tuttiAllReduce(a, b, LEN, tuttiFloat32, tuttiSum, *comm, s1));
		MUST(tuttiAllReduce(c, d, LEN, tuttiFloat32, tuttiMax, *comm, s2));
		MUST(tuttiBarrier(*comm, NULL));
		MUST(tuttiStreamSynchronize(s1));
		MUST(tuttiStreamSynchronize(s2));
		for (int i = 0; i < LEN; i++)
			WANT(b[i] == (float)(n * (n - 1) / 2 + n * (i % 5)) &&
			     d[i] == (float)(2 * (n - 1) + round));
	}
	WANT(tuttiStreamQuery(s1) == tuttiSuccess);
	MUST(tuttiStreamDestroy(s1));
	MUST(tuttiStreamDestroy(s2));
	return 0;
}

Test(calls, streams_run_asynchronously_in_call_order, .timeout = 60)
{
	run_both(streams, 2);
	run_both(streams, 3);
}

/* TUTTI_TILE_BYTES that is no multiple of the element size is rounded down. */
static int odd_tile(tuttiComm_t *comm, int rank, int n, void *arg)
{
	static double x[30011];

	(void)arg;
	/* the smallest count uses shared-memory slots */
	for (int len = 900; len <= 30011; len += 4000) {
		for (int i = 0; i < len; i++)
			x[i] = rank + i;
		MUST(tuttiAllReduce(x, x, (size_t)len, tuttiFloat64, tuttiSum, *comm, NULL));
		for (int i = 0; i < len; i++)
			WANT(x[i] == (double)n * i + n * (n - 1) / 2);
	}
	return 0;
}

Test(calls, tiles_of_any_size_split_no_element, .timeout = 60)
{
	setenv("TUTTI_TILE_BYTES", "4099", 1);
	run_both(odd_tile, 3);
}

static int pre_multiplied(tuttiComm_t *comm, int rank, int n, void *arg)
{
	float mine = (float)(rank + 1), in[1000], out[1000], part[1000];
	tuttiRedOp_t op;
	float want = 0;

	(void)arg;
	for (int r = 0; r < n; r++)
		want += (float)((r + 1) * 3);
	for (int i = 0; i < 1000; i++)
		in[i] = 3;
	MUST(tuttiRedOpCreatePreMulSum(&op, &mine, tuttiFloat32, tuttiScalarHostImmediate, *comm));
	MUST(tuttiAllReduce(in, out, 1000, tuttiFloat32, op, *comm, NULL));
	MUST(tuttiReduceScatter(in, part, (size_t)(1000 / n), tuttiFloat32, op, *comm, NULL));
	WANT(out[0] == want && out[999] == want && part[0] == want && part[1000 / n - 1] == want &&
	     in[5] == 3);
	MUST(tuttiReduce(in, rank == n - 1 ? out : NULL, 1000, tuttiFloat32, op, n - 1, *comm,
			 NULL));
	MUST(tuttiRedOpDestroy(op, *comm));
	WANT(tuttiAllReduce(in, out, 1000, tuttiFloat32, op, *comm, NULL) == tuttiInvalidArgument);
	MUST(tuttiAllReduce(in, in, 1000, tuttiFloat32, tuttiAvg, *comm, NULL));
	WANT(in[7] == 3);
	return 0;
}

Test(calls, a_pre_multiplied_sum_scales_each_input, .timeout = 60)
{
	for (int n = 1; n <= 4; n++)
		run_both(pre_multiplied, n);
}

/* A repeated call takes its plan from the cache, but its buffers are checked again: missing,
 * overlapping, in place or not. */
static int repeated_calls(tuttiComm_t *comm, int rank, int n, void *arg)
{
	int32_t in[64], out[64];

	(void)arg;
	for (int round = 0; round < 8; round++) {
		bool in_place = round & 1;
		int32_t *to = in_place ? in : out;

		for (int i = 0; i < 64; i++)
			in[i] = rank + i + round;
		WANT(tuttiReduce(in, to, 20, tuttiInt32, tuttiSum, 1, *comm, NULL) == tuttiSuccess);
		WANT(rank != 1 || to[19] == n * (n - 1) / 2 + n * (19 + round));
		WANT(tuttiAllGather(in + 30, out, 3, tuttiInt32, *comm, NULL) == tuttiSuccess);
		WANT(out[3 * (n - 1) + 2] == n - 1 + 32 + round);
		WANT(tuttiAllGather(NULL, out, 3, tuttiInt32, *comm, NULL) == tuttiInvalidArgument);
		WANT(tuttiAllGather(in + 30, in + 29, 3, tuttiInt32, *comm, NULL) ==
		     tuttiInvalidArgument);
		WANT(tuttiReduce(in, in + 3, 20, tuttiInt32, tuttiSum, rank, *comm, NULL) ==
		     tuttiInvalidArgument);
		WANT(tuttiAllReduce(in, in + 1, 5, tuttiInt32, tuttiSum, *comm, NULL) ==
		     tuttiInvalidArgument);
		in[50] = rank;
		WANT(tuttiAllReduce(in + 50, out, 1, tuttiInt32, tuttiMax, *comm, NULL) ==
			     tuttiSuccess &&
		     out[0] == n - 1);
		WANT(tuttiAllReduce(in + 50, NULL, 1, tuttiInt32, tuttiMax, *comm, NULL) ==
		     tuttiInvalidArgument);
	}
	return 0;
}

Test(calls, a_repeated_call_checks_its_buffers_like_the_first, .timeout = 60)
{
	for (int n = 2; n <= 4; n++)
		for (int t = 0; t < 2; t++) {
			struct ranks r = { .n = n, .transport = t ? "tcp" : "shm" };

			cr_expect_eq(ranks_run(&r, repeated_calls), 0, "n %d", n);
		}
}

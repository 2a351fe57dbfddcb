/*
 * test_uneven.c - collectives with a count per rank, against a plain reference, over shm and tcp
 *
 * Counts are random and often 0. Element i of part p of rank r is a number of its own, so each
 * element that lands in a wrong place is seen.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/must.h"

#define RANKS 5
#define ROUNDS 12
#define ROOM 40000 /* elements of a side */
#define NOTHING (-1)

/* Elements that rank `from` has for rank `to` in a round. */
static size_t length(int round, int from, int to)
{
	unsigned long long x = random_of((unsigned long long)round, (unsigned)(from * 64 + to));

	return x % 3 == 0 ? 0 : x % 3 == 1 ? x / 3 % 7 : x / 3 % (ROOM / RANKS / 2);
}

static int value(int round, int from, int to, size_t i)
{
	return (int)(round * 1000003 + from * 10007 + to * 101 + (int)i);
}

struct side {
	size_t counts[RANKS], displs[RANKS];
	int at[ROOM];
};

/* Parts in the reverse order of ranks with gaps, or adjacent. */
static void lay_out(struct side *s, int n, bool gaps)
{
	size_t next = 0;

	for (int i = 0; i < n; i++) {
		int r = gaps ? n - 1 - i : i;

		s->displs[r] = next;
		next += s->counts[r] + (gaps ? 3 : 0);
	}
	for (size_t i = 0; i < ROOM; i++)
		s->at[i] = NOTHING;
}

/* Are all elements those of the parts of the ranks, and the gaps untouched? from(r), to(r) by which */
static bool right(const struct side *s, int n, int round, int rank, bool to_rank)
{
	static __thread char seen[ROOM];

	memset(seen, 0, sizeof(seen));
	for (int r = 0; r < n; r++)
		for (size_t i = 0; i < s->counts[r]; i++) {
			if (s->at[s->displs[r] + i] != value(round, r, to_rank ? rank : 0, i))
				return false;
			seen[s->displs[r] + i] = 1;
		}
	for (size_t i = 0; i < ROOM; i++)
		if (!seen[i] && s->at[i] != NOTHING)
			return false;
	return true;
}

static int alltoallv(tuttiComm_t c, int rank, int n, int round, tuttiStream_t stream,
		     struct side *in, struct side *out)
{
	bool gaps = round % 2;

	for (int r = 0; r < n; r++) {
		in->counts[r] = length(round, rank, r);
		out->counts[r] = length(round, r, rank);
	}
	lay_out(in, n, gaps);
	lay_out(out, n, gaps);
	for (int r = 0; r < n; r++)
		for (size_t i = 0; i < in->counts[r]; i++)
			in->at[in->displs[r] + i] = value(round, rank, r, i);
	MUST(tuttiAlltoAllv(in->at, in->counts, gaps ? in->displs : NULL, out->at, out->counts,
			    gaps ? out->displs : NULL, tuttiInt32, c, stream));
	if (stream)
		MUST(tuttiStreamSynchronize(stream));
	WANT(right(out, n, round, rank, true));
	return 0;
}

static int allgatherv(tuttiComm_t c, int rank, int n, int round, tuttiStream_t stream,
		      struct side *in, struct side *out)
{
	bool gaps = round % 2, in_place = round % 3 == 0;
	int *mine;

	for (int r = 0; r < n; r++)
		out->counts[r] = length(round, r, 0);
	lay_out(out, n, gaps);
	mine = in_place ? out->at + out->displs[rank] : in->at;
	for (size_t i = 0; i < out->counts[rank]; i++)
		mine[i] = value(round, rank, 0, i);
	MUST(tuttiAllGatherv(mine, out->counts[rank], out->at, out->counts,
			     gaps ? out->displs : NULL, tuttiInt32, c, stream));
	if (stream)
		MUST(tuttiStreamSynchronize(stream));
	WANT(right(out, n, round, rank, false));
	return 0;
}

static int rooted(tuttiComm_t c, int rank, int n, int round, tuttiStream_t stream, struct side *in,
		  struct side *out)
{
	int root = round % n;
	bool gaps = round % 2, in_place = round % 3 == 0 && rank == root;
	size_t count = length(round, rank, 0);
	int *mine;

	for (int r = 0; r < n; r++)
		out->counts[r] = length(round, r, 0);
	lay_out(out, n, gaps);
	mine = in_place ? out->at + out->displs[rank] : in->at;
	for (size_t i = 0; i < count; i++)
		mine[i] = value(round, rank, 0, i);
	MUST(tuttiGatherv(mine, count, rank == root ? out->at : NULL,
			  rank == root ? out->counts : NULL, gaps ? out->displs : NULL, tuttiInt32,
			  root, c, stream));
	if (stream)
		MUST(tuttiStreamSynchronize(stream));
	WANT(rank != root || right(out, n, round, rank, false));
	for (size_t i = 0; i < count && !in_place; i++)
		mine[i] = NOTHING;
	MUST(tuttiScatterv(rank == root ? out->at : NULL, rank == root ? out->counts : NULL,
			   gaps ? out->displs : NULL, mine, count, tuttiInt32, root, c, stream));
	if (stream)
		MUST(tuttiStreamSynchronize(stream));
	for (size_t i = 0; i < count; i++)
		WANT(mine[i] == value(round, rank, 0, i));
	return 0;
}

static int reduce_scatterv(tuttiComm_t c, int rank, int n, int round, tuttiStream_t stream,
			   struct side *in, struct side *out)
{
	bool in_place = round % 3 == 0;
	int *result;

	for (int r = 0; r < n; r++)
		in->counts[r] = length(round, r, 0);
	lay_out(in, n, false);
	for (int r = 0; r < n; r++)
		for (size_t i = 0; i < in->counts[r]; i++)
			in->at[in->displs[r] + i] = value(round, rank, r, i);
	result = in_place ? in->at + in->displs[rank] : out->at;
	MUST(tuttiReduceScatterv(in->at, result, in->counts, tuttiInt32, tuttiSum, c, stream));
	if (stream)
		MUST(tuttiStreamSynchronize(stream));
	for (size_t i = 0; i < in->counts[rank]; i++) {
		int sum = 0;

		for (int r = 0; r < n; r++)
			sum += value(round, r, rank, i);
		WANT(result[i] == sum);
	}
	return 0;
}

typedef int uneven_fn(tuttiComm_t c, int rank, int n, int round, tuttiStream_t stream,
		      struct side *in, struct side *out);

static int rounds(tuttiComm_t *comm, int rank, int n, void *arg)
{
	static __thread struct side in, out;
	tuttiStream_t s;

	MUST(tuttiStreamCreate(&s));
	for (int round = 0; round < ROUNDS; round++)
		if ((*(uneven_fn **)arg)(*comm, rank, n, round, round % 4 == 3 ? s : NULL, &in,
					 &out))
			return 1;
	MUST(tuttiStreamDestroy(s));
	return 0;
}

static void everywhere(uneven_fn *fn)
{
	static const char *const transports[] = { "shm", "tcp" };

	for (int t = 0; t < 2; t++)
		for (int n = 1; n <= RANKS; n += n == 3 ? 2 : 1) {
			struct ranks r = {
				.n = n, .threads = true, .transport = transports[t], .arg = &fn
			};

			cr_expect_eq(ranks_run(&r, rounds), 0, "n %d, %s", n, transports[t]);
		}
}

Test(uneven, alltoallv_moves_each_part_to_its_rank, .timeout = 120)
{
	everywhere(alltoallv);
}

Test(uneven, allgatherv_concatenates_parts_of_any_length, .timeout = 120)
{
	everywhere(allgatherv);
}

Test(uneven, scatterv_returns_what_gatherv_gathered, .timeout = 120)
{
	everywhere(rooted);
}

Test(uneven, reduce_scatterv_gives_each_rank_the_sum_of_its_part, .timeout = 120)
{
	everywhere(reduce_scatterv);
}

/* The parts that a rank sends lie in the gaps of those that it receives. */
static int interleaved(tuttiComm_t *comm, int rank, int n, void *arg)
{
	size_t counts[2] = { 2, 2 }, from[2] = { 0, 4 }, to[2] = { 2, 6 };
	int all[8];

	(void)arg;
	for (int i = 0; i < 8; i++)
		all[i] = 10 * rank + i;
	MUST(tuttiAlltoAllv(all, counts, from, all, counts, to, tuttiInt32, *comm, NULL));
	for (int r = 0; r < n; r++)
		for (int i = 0; i < 2; i++)
			WANT(all[2 + 4 * r + i] == 10 * r + 4 * rank + i);
	MUST(tuttiAllGatherv(all, 2, all, counts, to, tuttiInt32, *comm, NULL));
	MUST(tuttiGatherv(all, 2, all, counts, to, tuttiInt32, 0, *comm, NULL));
	MUST(tuttiScatterv(all, counts, to, all, 2, tuttiInt32, 0, *comm, NULL));
	for (int i = 0; i < 2; i++)
		WANT(all[i] == 10 * rank + i);
	from[1] = 5;
	WANT(tuttiAlltoAllv(all, counts, from, all, counts, to, tuttiInt32, *comm, NULL) ==
		     tuttiInvalidArgument &&
	     strstr(tuttiGetLastError(NULL), "overlap"));
	WANT(tuttiAllGatherv(all + 1, 2, all, counts, to, tuttiInt32, *comm, NULL) ==
		     tuttiInvalidArgument &&
	     strstr(tuttiGetLastError(NULL), "overlap"));
	return 0;
}

Test(uneven, parts_may_lie_in_the_gaps_of_the_other_buffer, .timeout = 60)
{
	struct ranks r = { .n = 2, .threads = true };

	cr_expect_eq(ranks_run(&r, interleaved), 0);
}

static int nothing(tuttiComm_t *comm, int rank, int n, void *arg)
{
	size_t none[2] = { 0, 0 };
	int some;

	(void)n, (void)arg;
	MUST(tuttiReduceScatterv(NULL, NULL, none, tuttiInt32, tuttiSum, *comm, NULL));
	WANT(tuttiReduceScatterv(NULL, NULL, none, tuttiInt32, (tuttiRedOp_t)99, *comm, NULL) ==
	     tuttiInvalidArgument);
	if (rank == 0)
		tuttiAllReduce(&some, &some, 1, tuttiInt32, tuttiSum, *comm, NULL);
	else
		tuttiBarrier(*comm, NULL);
	WANT(tuttiReduceScatterv(NULL, NULL, none, tuttiInt32, tuttiSum, *comm, NULL) ==
	     tuttiInvalidUsage);
	return 0;
}

Test(uneven, a_reduce_scatterv_without_elements_is_checked_as_any_call, .timeout = 60)
{
	struct ranks r = { .n = 2, .threads = true };

	cr_expect_eq(ranks_run(&r, nothing), 0);
}

/* Rank 0 expects another count of rank 1 than rank 1 sends, 0 in one case. The sender may be done
 * when the receiver finds the difference; its next call fails. */
static int differing(tuttiComm_t *comm, int rank, int n, void *arg)
{
	size_t counts[2] = { 4, 4 };
	tuttiResult_t rc;
	int in[8] = { 0 }, out[16];

	(void)n;
	if (rank == 0)
		counts[1] = *(size_t *)arg;
	rc = tuttiAllGatherv(in, 4, out, counts, NULL, tuttiInt32, *comm, NULL);
	WANT(rank == 1 ||
	     (rc == tuttiInvalidUsage && strstr(tuttiGetLastError(*comm), "receive of ") &&
	      strstr(tuttiGetLastError(*comm), " int32 from rank 1")));
	WANT(tuttiBarrier(*comm, NULL) == tuttiInvalidUsage);
	return 0;
}

Test(uneven, counts_that_differ_are_found, .timeout = 60)
{
	size_t wrong[] = { 0, 3, 5 };

	for (int i = 0; i < 3; i++) {
		struct ranks r = { .n = 2, .threads = true, .arg = &wrong[i] };

		cr_expect_eq(ranks_run(&r, differing), 0, "count %zu", wrong[i]);
	}
}

static int wrong_arguments(tuttiComm_t *comm, int rank, int n, void *arg)
{
	size_t counts[2] = { 4, 4 }, huge[2] = { SIZE_MAX / 4, SIZE_MAX / 4 };
	int in[8] = { 0 }, out[8];

	(void)arg, (void)n;
	WANT(tuttiAllGatherv(in, 4, out, NULL, NULL, tuttiInt32, *comm, NULL) ==
		     tuttiInvalidArgument &&
	     strstr(tuttiGetLastError(NULL), "counts of recvbuff are NULL"));
	WANT(tuttiAllGatherv(in, 3, out, counts, NULL, tuttiInt32, *comm, NULL) ==
		     tuttiInvalidArgument &&
	     strstr(tuttiGetLastError(NULL), "sendcount is 3, but the table has 4"));
	WANT(tuttiAllGatherv(out + 1, 4, out, counts, NULL, tuttiInt32, *comm, NULL) ==
		     tuttiInvalidArgument &&
	     strstr(tuttiGetLastError(NULL), "overlap"));
	WANT(tuttiAlltoAllv(in, huge, NULL, out, huge, NULL, tuttiInt32, *comm, NULL) ==
		     tuttiInvalidArgument &&
	     strstr(tuttiGetLastError(NULL), "more than memory can hold"));
	WANT(tuttiAlltoAllv(in, counts, NULL, NULL, counts, NULL, tuttiInt32, *comm, NULL) ==
		     tuttiInvalidArgument &&
	     strstr(tuttiGetLastError(NULL), "recvbuff is NULL"));
	WANT(tuttiGatherv(in, 4, out, counts, NULL, tuttiInt32, 2, *comm, NULL) ==
		     tuttiInvalidArgument &&
	     strstr(tuttiGetLastError(NULL), "root 2 is not in 0..1"));
	WANT(tuttiScatterv(in, counts, NULL, out, 4, (tuttiDataType_t)99, 0, *comm, NULL) ==
		     tuttiInvalidArgument &&
	     strstr(tuttiGetLastError(NULL), "99 is not a datatype"));
	WANT(tuttiReduceScatterv(in, NULL, counts, tuttiInt32, tuttiSum, *comm, NULL) ==
		     tuttiInvalidArgument &&
	     strstr(tuttiGetLastError(NULL), "recvbuff is NULL"));
	WANT(tuttiAllGatherv(in, 4, out, counts, NULL, tuttiInt32, NULL, NULL) ==
	     tuttiInvalidArgument);
	return rank < 0;
}

Test(uneven, wrong_arguments_are_refused_before_anything_moves, .timeout = 60)
{
	struct ranks r = { .n = 2, .threads = true };

	cr_expect_eq(ranks_run(&r, wrong_arguments), 0);
}

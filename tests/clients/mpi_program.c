/*
 * mpi_program.c - a program of MPI that knows nothing of Tutti, for mpi.sh
 *
 *   mpi_program pending     Isend of 4 MiB, allreduce, wait; the receiver is in MPI_Recv before it makes
 *                           its allreduce: ends only if a rank in the allreduce drives MPI's progress
 *   mpi_program equal       each collective, and its form that only starts, against the MPI library's own
 *                           (PMPI_), on MPI_COMM_WORLD, a duplicate and a split, with data of
 *                           predefined and derived types
 *   mpi_program started     calls that only start, among messages and calls that wait
 *   mpi_program dups N      N duplicates, each with a barrier, freed
 *   mpi_program inter       collectives of an intercommunicator, scans
 *   mpi_program threads     MPI_THREAD_MULTIPLE: two threads with a duplicate each
 *
 * Made with mpi_abi.h, so no header of MPI is needed. Prints "right" and exits with 0.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpi/mpi_abi.h"

#ifdef TUTTI_MPI_ABI
#define MPI_THREAD_MULTIPLE 4096
#else
#define MPI_THREAD_MULTIPLE 3
#endif

#define MPI_MORE(X)                                                                  \
	X(Isend, const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *) \
	X(Irecv, void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *)       \
	X(Recv, void *, int, MPI_Datatype, int, int, MPI_Comm, void *)               \
	X(Send, const void *, int, MPI_Datatype, int, int, MPI_Comm)                 \
	X(Abort, MPI_Comm, int)                                                      \
	X(Comm_dup, MPI_Comm, MPI_Comm *)                                            \
	X(Comm_free, MPI_Comm *)                                                     \
	X(Comm_split, MPI_Comm, int, int, MPI_Comm *)                                \
	X(Type_vector, int, int, int, MPI_Datatype, MPI_Datatype *)                  \
	X(Type_commit, MPI_Datatype *)                                               \
	X(Type_free, MPI_Datatype *)                                                 \
	X(Init_thread, int *, char ***, int, int *)                                  \
	X(Intercomm_create, MPI_Comm, int, MPI_Comm, int, int, MPI_Comm *)           \
	X(Scan, const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm)           \
	X(Op_create, void (*)(void *, void *, int *, MPI_Datatype *), int, MPI_Op *) \
	X(Op_free, MPI_Op *)

#define DECLARE(name, ...)           \
	int MPI_##name(__VA_ARGS__); \
	int PMPI_##name(__VA_ARGS__);
#define BOTH_FORMS(name, started, ...) \
	DECLARE(name, __VA_ARGS__)     \
	DECLARE(started, __VA_ARGS__, MPI_Request *)
MPI_TAKEN(BOTH_FORMS)
MPI_COMPLETES(DECLARE)
MPI_USED(DECLARE)
MPI_MORE(DECLARE)
#undef BOTH_FORMS
#undef DECLARE

#ifdef TUTTI_MPI_OMPI
#define DECLARE(name, object, ...) extern char object[];
MPI_COMMS(DECLARE)
MPI_TYPES(DECLARE)
MPI_OPS(DECLARE)
#undef DECLARE
#define VALUE(object, mpich, abi) ((void *)object)
#elif defined(TUTTI_MPI_ABI)
#define VALUE(object, mpich, abi) ((void *)(uintptr_t)abi)
#else
#define VALUE(object, mpich, abi) mpich
#endif
#define HANDLE(name, ...) static MPI_Datatype name;
MPI_TYPES(HANDLE)
#undef HANDLE
#define HANDLE(name, ...) static MPI_Op name;
MPI_OPS(HANDLE)
#undef HANDLE
#define HANDLE(name, ...) static MPI_Comm name;
MPI_COMMS(HANDLE)
#undef HANDLE

/* started_Allreduce is MPI_Iallreduce, and so on. */
#define STARTED(name, started, ...) \
	static int (*const started_##name)(__VA_ARGS__, MPI_Request *) = MPI_##started;
MPI_TAKEN(STARTED)
#undef STARTED

#define MOST 20000 /* elements of a buffer */
static int rank, n;

static void name_handles(void)
{
#define HANDLE(name, object, mpich, abi) name = VALUE(object, mpich, abi);
	MPI_COMMS(HANDLE)
	MPI_TYPES(HANDLE)
	MPI_OPS(HANDLE)
#undef HANDLE
}

static int pending(void)
{
	enum { BYTES = 4 << 20 };
	char *data = calloc(1, BYTES), status[64];
	MPI_Request request;
	int one = 1, sum = 0, peer = rank ^ 1;

	for (int round = 0; round < 3; round++) {
		if (rank % 2 == 0 && peer < n) {
			memset(data, round + 1, BYTES);
			MPI_Isend(data, BYTES, MPI_CHAR, peer, 0, MPI_COMM_WORLD, &request);
			MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
			MPI_Wait(&request, MPI_STATUS_IGNORE);
		} else {
			if (peer < n)
				MPI_Recv(data, BYTES, MPI_CHAR, peer, 0, MPI_COMM_WORLD, status);
			MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
			if (peer < n && data[BYTES - 1] != round + 1)
				return 1;
		}
		if (sum != n)
			return 1;
	}
	free(data);
	return 0;
}

/* ---- equal ----------------------------------------------------------------------------------- */

static int in[MOST], first[MOST], second[MOST]; /* first: of MPI, second: of what is taken */
static int me, members;
static int failures;

/* Count what is not as it must be. */
#define WANT(fact)                                                                    \
	do {                                                                          \
		if (fact)                                                             \
			break;                                                        \
		fprintf(stderr, "rank %d, line %d: not %s\n", rank, __LINE__, #fact); \
		failures++;                                                           \
	} while (0)

static void begin(int seed)
{
	for (int i = 0; i < MOST; i++) {
		in[i] = (seed * 31 + me * 1009 + i * 7) % 1000 - 500;
		first[i] = second[i] = in[i] / 3;
	}
}

static void check(const char *call, const char *how)
{
	int at = 0;

	while (at < MOST && first[at] == second[at])
		at++;
	if (at == MOST)
		return;
	failures++;
	fprintf(stderr, "rank %d of %d: %s %s: element %d is %d, not %d\n", me, members, call, how,
		at, second[at], first[at]);
}

/* Complete a request by one of MPI's functions. */
static void complete(MPI_Request request, int how)
{
	int flag = 0, index;

	switch (how % 6) {
	case 0:
		WANT(!MPI_Wait(&request, MPI_STATUS_IGNORE));
		break;
	case 1:
		WANT(!MPI_Waitall(1, &request, MPI_STATUS_IGNORE));
		break;
	case 2:
		WANT(!MPI_Waitany(1, &request, &index, MPI_STATUS_IGNORE) && !index);
		break;
	case 3:
		WANT(!MPI_Waitsome(1, &request, &flag, &index, MPI_STATUS_IGNORE) && !index);
		break;
	case 4:
		while (!flag)
			WANT(!MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
		break;
	default:
		while (!flag)
			WANT(!MPI_Testany(1, &request, &index, &flag, MPI_STATUS_IGNORE));
	}
}

/* MPI's call writes `out`, which is first, then both forms write it, which is second. */
#define COMPARE(seed, how, call, ...)                      \
	do {                                               \
		int *out = first;                          \
		MPI_Request request;                       \
		begin(seed);                               \
		if (PMPI_##call(__VA_ARGS__))              \
			failures++;                        \
		out = second;                              \
		if (MPI_##call(__VA_ARGS__))               \
			failures++;                        \
		check(#call, how);                         \
		for (int i = 0; i < MOST; i++)             \
			second[i] = in[i] / 3;             \
		if (started_##call(__VA_ARGS__, &request)) \
			failures++;                        \
		complete(request, seed);                   \
		check(#call, how " started");              \
	} while (0)

static void add_and_double(void *a, void *b, int *length, MPI_Datatype *type)
{
	(void)type;
	for (int i = 0; i < *length; i++)
		((int *)b)[i] = ((int *)a)[i] + ((int *)b)[i];
}

/* x -> ax + b after x -> cx + d: does not commute */
static void affine(void *in_pairs, void *inout_pairs, int *length, MPI_Datatype *type)
{
	const unsigned *f = in_pairs;
	unsigned *g = inout_pairs;

	(void)type;
	for (int i = 0; i < 2 * *length; i += 2) {
		g[i + 1] += g[i] * f[i + 1];
		g[i] *= f[i];
	}
}

/* Combined by MPI_Reduce_local: pairs with places, logical operators, an op of the program on a
 * derived type */
static void operations(MPI_Comm c, int count, MPI_Op own, MPI_Datatype pair_of_ints)
{
	int counts[16];

	COMPARE(1, "maxloc", Allreduce, in, out, count, MPI_2INT, MPI_MAXLOC, c);
	COMPARE(2, "minloc in place", Allreduce, MPI_IN_PLACE, out, count, MPI_2INT, MPI_MINLOC, c);
	COMPARE(3, "land", Allreduce, in, out, count, MPI_INT, MPI_LAND, c);
	COMPARE(4, "lor", Allreduce, in, out, count, MPI_INT, MPI_LOR, c);
	COMPARE(5, "lxor", Allreduce, in, out, count, MPI_INT, MPI_LXOR, c);
	COMPARE(6, "short", Allreduce, in, out, count, MPI_SHORT, MPI_SUM, c);
	COMPARE(7, "derived", Allreduce, in, out, count, pair_of_ints, own, c);
	for (int r = 0; r < members; r++)
		counts[r] = r % 2 ? count / members : 1;
	COMPARE(8, "own op", Reduce_scatter, in, out, counts, pair_of_ints, own, c);
	COMPARE(9, "own op", Reduce_scatter_block, in, out, 4, pair_of_ints, own, c);
	for (int root = 0; root < members; root++)
		COMPARE(10, "own op", Reduce, me == root ? MPI_IN_PLACE : (void *)in, out, count,
			pair_of_ints, own, root, c);
}

static void reductions(MPI_Comm c, int count, MPI_Datatype pair_of_ints)
{
	const MPI_Datatype types[] = { MPI_INT,     MPI_FLOAT,   MPI_UNSIGNED,
				       MPI_INT32_T, MPI_INTEGER, MPI_SHORT };
	const MPI_Op ops[] = { MPI_SUM, MPI_MAX, MPI_MIN, MPI_PROD };
	int counts[16], some = count / members;
	MPI_Op own;

	for (int t = 0; t < 6; t++)
		for (int o = 0; o < 4; o++) {
			/* patterns of integers are odd floats; MPICH 4.0 takes unsigned numbers
			 * for signed ones in minimum and maximum */
			if (types[t] == MPI_FLOAT || (types[t] == MPI_UNSIGNED && o % 3))
				continue;
			COMPARE(t + o, "", Allreduce, in, out, count, types[t], ops[o], c);
			COMPARE(t + o, "in place", Allreduce, MPI_IN_PLACE, out, count, types[t],
				ops[o], c);
		}
	COMPARE(3, "bits", Allreduce, in, out, count * 4, MPI_BYTE, MPI_BXOR, c);
	MPI_Op_create(add_and_double, 0, &own);
	COMPARE(4, "own op", Allreduce, in, out, count, MPI_INT, own, c);
	MPI_Op_free(&own);
	MPI_Op_create(affine, 0, &own);
	operations(c, count, own, pair_of_ints);
	MPI_Op_free(&own);
	for (int root = 0; root < members; root++) {
		COMPARE(5, "", Reduce, in, out, count, MPI_INT, MPI_SUM, root, c);
		COMPARE(6, "in place", Reduce, me == root ? MPI_IN_PLACE : (void *)in, out, count,
			MPI_INT, MPI_SUM, root, c);
	}
	COMPARE(7, "", Reduce_scatter_block, in, out, some, MPI_INT, MPI_SUM, c);
	for (int r = 0; r < members; r++)
		counts[r] = r % 2 ? 0 : some / (r + 1);
	COMPARE(8, "", Reduce_scatter, in, out, counts, MPI_INT, MPI_SUM, c);
}

/* In place, MPI leaves the rest of the buffer undefined, so only the result is compared. */
static void reductions_in_place(MPI_Comm c, int count)
{
	int counts[16], some = count / members;

	for (int r = 0; r < members; r++)
		counts[r] = some / (r + 1);
	for (int block = 0; block < 2; block++) {
		int length = block ? some : counts[me];

		begin(9);
		if (block) {
			PMPI_Reduce_scatter_block(MPI_IN_PLACE, first, some, MPI_INT, MPI_SUM, c);
			MPI_Reduce_scatter_block(MPI_IN_PLACE, second, some, MPI_INT, MPI_SUM, c);
		} else {
			PMPI_Reduce_scatter(MPI_IN_PLACE, first, counts, MPI_INT, MPI_SUM, c);
			MPI_Reduce_scatter(MPI_IN_PLACE, second, counts, MPI_INT, MPI_SUM, c);
		}
		memset(first + length, 0, sizeof(int) * (size_t)(MOST - length));
		memset(second + length, 0, sizeof(int) * (size_t)(MOST - length));
		check(block ? "Reduce_scatter_block" : "Reduce_scatter", "in place");
	}
}

static void copies(MPI_Comm c, int some, MPI_Datatype every_other)
{
	int counts[16], displs[16], lengths[16], starts[16], at = 5;

	for (int r = members - 1; r >= 0; r--) {
		counts[r] = r % 3 == 1 ? 0 : some / (r + 1);
		displs[r] = at;
		at += counts[r] + 3;
	}
	for (int r = 0; r < members; r++) { /* what each rank sends to r is what r expects of it */
		lengths[r] = (me + r) % 3 ? (me + r) * 7 : 0;
		starts[r] = r * (4 * members * 7 + 1);
	}
	for (int root = 0; root < members; root++) {
		void *mine = me == root ? MPI_IN_PLACE : (void *)in;

		COMPARE(1, "", Bcast, out, some, MPI_INT, root, c);
		/* one rank's integers with gaps are the others' without */
		COMPARE(2, "derived", Bcast, out, me == root ? some : 2 * some,
			me == root ? every_other : MPI_INT, root, c);
		COMPARE(3, "", Gather, in, some, MPI_INT, out, some, MPI_INT, root, c);
		COMPARE(4, "in place", Gather, mine, some, MPI_INT, out, some, MPI_INT, root, c);
		COMPARE(5, "derived", Gather, in, 2 * some, MPI_INT, out, some, every_other, root,
			c);
		COMPARE(6, "", Gatherv, in, counts[me], MPI_INT, out, counts, displs, MPI_INT, root,
			c);
		COMPARE(7, "in place", Gatherv, mine, counts[me], MPI_INT, out, counts, displs,
			MPI_INT, root, c);
		COMPARE(8, "", Scatter, in, some, MPI_INT, out, some, MPI_INT, root, c);
		COMPARE(9, "derived", Scatter, in, some, every_other, out, 2 * some, MPI_INT, root,
			c);
		COMPARE(10, "", Scatterv, in, counts, displs, MPI_INT, out, counts[me], MPI_INT,
			root, c);
		COMPARE(11, "in place", Scatterv, in, counts, displs, MPI_INT,
			me == root ? MPI_IN_PLACE : (void *)out, counts[me], MPI_INT, root, c);
	}
	COMPARE(12, "", Allgather, in, some, MPI_INT, out, some, MPI_INT, c);
	COMPARE(13, "in place", Allgather, MPI_IN_PLACE, 0, MPI_INT, out, some, MPI_INT, c);
	COMPARE(14, "derived", Allgather, in, 2 * some, MPI_INT, out, some, every_other, c);
	COMPARE(15, "derived in place", Allgather, MPI_IN_PLACE, 0, MPI_INT, out, some, every_other,
		c);
	COMPARE(16, "", Allgatherv, in, counts[me], MPI_INT, out, counts, displs, MPI_INT, c);
	COMPARE(17, "in place", Allgatherv, MPI_IN_PLACE, 0, MPI_INT, out, counts, displs, MPI_INT,
		c);
	COMPARE(18, "", Alltoall, in, some, MPI_INT, out, some, MPI_INT, c);
	COMPARE(19, "in place", Alltoall, MPI_IN_PLACE, 0, MPI_INT, out, some, MPI_INT, c);
	COMPARE(20, "", Alltoallv, in, lengths, starts, MPI_INT, out, lengths, starts, MPI_INT, c);
	COMPARE(21, "derived", Alltoallv, in, lengths, starts, every_other, out, lengths, starts,
		every_other, c);
	COMPARE(22, "in place", Alltoallv, MPI_IN_PLACE, lengths, starts, MPI_INT, out, lengths,
		starts, MPI_INT, c);
	COMPARE(23, "from the gaps", Alltoallv, out + 2 * members * 7, lengths, starts, MPI_INT,
		out, lengths, starts, MPI_INT, c);
	MPI_Barrier(c);
	{
		MPI_Request request;

		started_Barrier(c, &request);
		complete(request, some);
	}
}

static void floats(MPI_Comm c, int count)
{
	static double a[MOST], b[MOST];
	float f[4] = { 1.5f, 2, 3, (float)me }, g[4];

	for (int i = 0; i < count; i++)
		a[i] = me + i;
	MPI_Allreduce(a, b, count, MPI_DOUBLE, MPI_SUM, c);
	for (int i = 0; i < count; i++)
		failures += b[i] != members * (members - 1) / 2 + members * i;
	MPI_Allreduce(f, g, 2, MPI_C_FLOAT_COMPLEX, MPI_SUM, c);
	failures += g[0] != 1.5f * (float)members || g[3] != (float)(members * (members - 1) / 2);
	MPI_Allreduce(f, g, 4, MPI_FLOAT, MPI_MAX, c);
	failures += g[3] != (float)(members - 1);
}

static int equal(void)
{
	MPI_Comm dup, half, all[3];
	MPI_Datatype every_other, pair_of_ints;

	MPI_Type_vector(2, 1, 2, MPI_INT, &every_other);
	MPI_Type_commit(&every_other);
	MPI_Type_vector(1, 2, 2, MPI_INT, &pair_of_ints);
	MPI_Type_commit(&pair_of_ints);
	MPI_Comm_dup(MPI_COMM_WORLD, &dup);
	MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
	all[0] = MPI_COMM_WORLD;
	all[1] = dup;
	all[2] = half;
	for (int i = 0; i < 3; i++) {
		MPI_Comm_rank(all[i], &me);
		MPI_Comm_size(all[i], &members);
		for (int count = 4 * members; count < MOST / 4; count *= 30) {
			reductions(all[i], count, pair_of_ints);
			reductions_in_place(all[i], count);
			copies(all[i], count / members, every_other);
			floats(all[i], count);
		}
	}
	MPI_Comm_free(&half); /* dup is left to MPI_Finalize */
	MPI_Type_free(&every_other);
	MPI_Type_free(&pair_of_ints);
	return failures;
}

/* ---- started --------------------------------------------------------------------------------- */

enum { LARGE = 1 << 20, MANY = 20 };

/* Rank 0 starts a sum, then sends; the others receive, then start theirs: a start must not wait. Of a
 * new communicator, the call is passed on. */
static void send_after_start(MPI_Comm c, int *data)
{
	int one = 1, sum = 0;
	MPI_Request request;

	if (rank)
		MPI_Recv(data, LARGE, MPI_INT, 0, 1, c, MPI_STATUS_IGNORE);
	MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, c, &request);
	for (int r = 1; r < n && !rank; r++)
		MPI_Send(data, LARGE, MPI_INT, r, 1, c);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	WANT(sum == n);
}

/* A call that waits, behind one that was started, while a large message is on its way */
static void wait_behind_start(MPI_Comm c, int *data)
{
	int one = 1, sum = 0, all[16];
	MPI_Request requests[17];

	if (rank)
		MPI_Recv(data, LARGE, MPI_INT, 0, 2, c, MPI_STATUS_IGNORE);
	for (int r = 1; r < n && !rank; r++)
		MPI_Isend(data, LARGE, MPI_INT, r, 2, c, &requests[r]);
	MPI_Iallgather(&rank, 1, MPI_INT, all, 1, MPI_INT, c, &requests[0]);
	MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, c);
	MPI_Waitall(rank ? 1 : n, requests, MPI_STATUS_IGNORE);
	WANT(sum == n);
	for (int r = 0; r < n; r++)
		WANT(all[r] == r);
}

/* Many at once, among messages, completed in any order; the last request is given back at once. */
static void many(MPI_Comm c)
{
	int given[MANY], sums[MANY] = { 0 }, index, done = 0, note = -1;
	MPI_Request requests[MANY + 2];

	for (int i = 0; i < MANY; i++) {
		given[i] = i * (rank + 1);
		MPI_Iallreduce(&given[i], &sums[i], 1, MPI_INT, MPI_SUM, c, &requests[i]);
	}
	MPI_Irecv(&note, 1, MPI_INT, (rank + 1) % n, 3, c, &requests[MANY]);
	MPI_Isend(&rank, 1, MPI_INT, (rank + n - 1) % n, 3, c, &requests[MANY + 1]);
	for (; done < MANY + 2; done++)
		WANT(!MPI_Waitany(MANY + 2, requests, &index, MPI_STATUS_IGNORE));
	for (int i = 0; i < MANY; i++)
		WANT(sums[i] == i * n * (n + 1) / 2);
	WANT(note == (rank + 1) % n);
	MPI_Ibcast(&note, 1, MPI_INT, 0, c, requests);
	MPI_Request_free(requests);
	MPI_Barrier(c);
	WANT(note == 1 % n);
}

static int started(void)
{
	int *data = calloc(LARGE, sizeof(*data));
	MPI_Comm dup;

	MPI_Comm_dup(MPI_COMM_WORLD, &dup);
	for (int round = 0; round < 3; round++) {
		send_after_start(dup, data);
		MPI_Barrier(dup);
		send_after_start(dup, data);
		wait_behind_start(dup, data);
		many(dup);
	}
	MPI_Comm_free(&dup);
	free(data);
	return failures;
}

static int dups(int times)
{
	for (int i = 0; i < times; i++) {
		int one = 1, sum = 0;
		MPI_Comm dup;

		MPI_Comm_dup(MPI_COMM_WORLD, &dup);
		MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, dup);
		if (sum != n)
			return 1;
		MPI_Comm_free(&dup);
	}
	return 0;
}

/* The first rank on one side, the others on the other: each side gets the sum of the other. */
static int inter(void)
{
	MPI_Comm half, both;
	int one = rank + 1, sum = 0, want = rank ? 1 : n * (n + 1) / 2 - 1, wrong;

	MPI_Comm_split(MPI_COMM_WORLD, rank != 0, rank, &half);
	MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank ? 0 : 1, 7, &both);
	MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, both);
	MPI_Barrier(both);
	wrong = sum != want;
	MPI_Comm_free(&both);
	MPI_Comm_free(&half);
	MPI_Scan(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	return wrong || sum != (rank + 1) * (rank + 2) / 2;
}

struct value_and_place {
	double value;
	int place;
};

static void *reduce_often(void *comm)
{
	for (int i = 0; i < 300; i++) {
		struct value_and_place mine = { (rank * 7 + i) % n, rank }, least = { 0 };
		int one = 1, sum = 0, again = 0;
		MPI_Request request;

		MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, *(MPI_Comm *)comm);
		MPI_Iallreduce(&one, &again, 1, MPI_INT, MPI_SUM, *(MPI_Comm *)comm, &request);
		MPI_Allreduce(&mine, &least, 1, MPI_DOUBLE_INT, MPI_MINLOC, *(MPI_Comm *)comm);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		if (sum != n || again != n || least.value != 0 || (least.place * 7 + i) % n)
			return comm;
	}
	return NULL;
}

/* n is no multiple of 7, so one rank has the least value. */
static int threads(void)
{
	MPI_Comm dups[2];
	pthread_t other;
	void *wrong;

	for (int i = 0; i < 2; i++)
		MPI_Comm_dup(MPI_COMM_WORLD, &dups[i]);
	if (pthread_create(&other, NULL, reduce_often, &dups[1]))
		return 1;
	if (reduce_often(&dups[0]))
		return 1;
	pthread_join(other, &wrong);
	for (int i = 0; i < 2; i++)
		MPI_Comm_free(&dups[i]);
	return wrong != NULL;
}

int main(int argc, char **argv)
{
	bool threaded = argc > 1 && !strcmp(argv[1], "threads");
	int failed = 1, provided = 0;

	name_handles();
	MPI_Init_thread(&argc, &argv, threaded ? MPI_THREAD_MULTIPLE : 0, &provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &n);
	if (argc > 1 && !strcmp(argv[1], "pending"))
		failed = pending();
	else if (argc > 1 && !strcmp(argv[1], "equal"))
		failed = equal();
	else if (argc > 1 && !strcmp(argv[1], "started"))
		failed = started();
	else if (argc > 2 && !strcmp(argv[1], "dups"))
		failed = dups(atoi(argv[2]));
	else if (argc > 1 && !strcmp(argv[1], "inter"))
		failed = inter();
	else if (threaded && provided < MPI_THREAD_MULTIPLE)
		failed = puts("no threads") < 0;
	else if (threaded)
		failed = threads();
	if (failed)
		MPI_Abort(MPI_COMM_WORLD, 1);
	MPI_Finalize();
	puts("right");
	return 0;
}

/*
 * mpi_program_equal.c - each collective, and its forms that start and complete apart, give the result
 * of the MPI library's own (PMPI_)
 *
 * Called by mpi_program.c. On MPI_COMM_WORLD, a duplicate and a split, with data of predefined and
 * derived types.
 */
#include "mpi_program.h"

#define MOST 20000                              /* elements of a buffer */
static int in[MOST], first[MOST], second[MOST]; /* first: of MPI, second: of what is taken */
static int me, members;

/* own_Allreduce is the MPI library's, started_Allreduce is MPI_Iallreduce, persistent_Allreduce is MPI_Allreduce_init or
 * NULL, and so on. */
#define FORMS(c, name, started, ...)                                                    \
	static int (*own_##name)(__VA_ARGS__);                                          \
	static int (*const started_##name)(__VA_ARGS__, MPI_Request *) = MPI_##started; \
	static int (*persistent_##name)(__VA_ARGS__, MPI_Info, MPI_Request *);
MPI_TAKEN(FORMS)
#undef FORMS

static void name_functions(void)
{
#define FORMS(c, name, ...)                              \
	*(void **)&own_##name = find_own("PMPI_" #name); \
	*(void **)&persistent_##name = find_persistent("MPI_" #name "_init");
	MPI_TAKEN(FORMS)
#undef FORMS
	if (!persistent_Barrier)
		puts("no persistent collectives");
}

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
	if (at < MOST) {
		failures++;
		fprintf(stderr, "rank %d of %d: %s %s: element %d is %d, not %d\n", me, members,
			call, how, at, second[at], first[at]);
	}
	for (int i = 0; i < MOST; i++)
		second[i] = in[i] / 3;
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

/* Persistent calls on one rank, and of operations that MPI combines, are passed on. They are left out: MPICH 4.0.2
 * gives wrong results in them by itself, and was seen to hang in them beside Tutti. */
static bool passed_on;

/* MPI's call writes `out`, which is first; then each form writes it, which is second. */
#define COMPARE(seed, how, call, ...)                                                     \
	do {                                                                              \
		int *out __attribute__((unused)) = first;                                 \
		MPI_Request request;                                                      \
                                                                                          \
		begin(seed);                                                              \
		WANT(!own_##call(__VA_ARGS__));                                           \
		out = second;                                                             \
		WANT(!MPI_##call(__VA_ARGS__));                                           \
		check(#call, how);                                                        \
		WANT(!started_##call(__VA_ARGS__, &request));                             \
		complete(request, seed);                                                  \
		check(#call, how " started");                                             \
		if (!persistent_##call || members == 1 || passed_on)                      \
			break;                                                            \
		WANT(!persistent_##call(__VA_ARGS__, MPI_INFO_NULL, &request));           \
		for (int start = 0; start < 2; start++) {                                 \
			WANT(!(start ? MPI_Start(&request) : MPI_Startall(1, &request))); \
			complete(request, (seed) + start);                                \
			check(#call, how " persistent");                                  \
		}                                                                         \
		WANT(!MPI_Request_free(&request));                                        \
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

	passed_on = true;
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
	passed_on = false;
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
			passed_on = types[t] == MPI_SHORT;
			COMPARE(t + o, "", Allreduce, in, out, count, types[t], ops[o], c);
			COMPARE(t + o, "in place", Allreduce, MPI_IN_PLACE, out, count, types[t],
				ops[o], c);
		}
	passed_on = false;
	COMPARE(3, "bits", Allreduce, in, out, count * 4, MPI_BYTE, MPI_BXOR, c);
	MPI_Op_create(add_and_double, 0, &own);
	passed_on = true;
	COMPARE(4, "own op", Allreduce, in, out, count, MPI_INT, own, c);
	passed_on = false;
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
	/* the result is at the start of the buffer, and the rest stays as it was */
	COMPARE(9, "in place", Reduce_scatter_block, MPI_IN_PLACE, out, some, MPI_INT, MPI_SUM, c);
	COMPARE(10, "in place", Reduce_scatter, MPI_IN_PLACE, out, counts, MPI_INT, MPI_SUM, c);
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
	passed_on = true;
	COMPARE(22, "in place", Alltoallv, MPI_IN_PLACE, lengths, starts, MPI_INT, out, lengths,
		starts, MPI_INT, c);
	passed_on = false;
	COMPARE(23, "from the gaps", Alltoallv, out + 2 * members * 7, lengths, starts, MPI_INT,
		out, lengths, starts, MPI_INT, c);
	COMPARE(24, "", Barrier, c);
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

void mode_equal(void)
{
	MPI_Comm dup, half, all[3];
	MPI_Datatype every_other, pair_of_ints;

	name_functions();
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
			copies(all[i], count / members, every_other);
			floats(all[i], count);
		}
	}
	MPI_Comm_free(&half); /* dup is left to MPI_Finalize */
	MPI_Type_free(&every_other);
	MPI_Type_free(&pair_of_ints);
}

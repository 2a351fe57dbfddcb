/*
 * mpi_program_large.c - collectives with large counts (MPI_Allreduce_c and the others of MPI 4) give the results of the
 * MPI library's own with int counts
 *
 * Called by mpi_program.c. The functions are looked up, since an MPI library older than MPI 4 lacks them. A last broadcast has
 * `times` MiB: with 2048 MiB, more elements than an int counts.
 */
#include "mpi_program.h"

enum { MOST = 4096 };
static int in[MOST], first[MOST], second[MOST]; /* first: of int counts, second: of large ones */

#define DECLARE(c, name, started, ...)                         \
	static int (*name##_c)(__VA_ARGS__);                   \
	static int (*started##_c)(__VA_ARGS__, MPI_Request *); \
	static int (*name##_init_c)(__VA_ARGS__, MPI_Info, MPI_Request *);
MPI_COLLECTIVES(DECLARE, _c, MPI_Count, MPI_Aint)
#undef DECLARE

static bool name_functions(void)
{
	if (!find_own("PMPI_Allreduce_c"))
		return false;
#define NAME(c, name, started, ...)                                         \
	*(void **)&name##_c = dlsym(RTLD_DEFAULT, "MPI_" #name "_c");       \
	*(void **)&started##_c = dlsym(RTLD_DEFAULT, "MPI_" #started "_c"); \
	*(void **)&name##_init_c = dlsym(RTLD_DEFAULT, "MPI_" #name "_init_c");
	MPI_COLLECTIVES(NAME, _c, MPI_Count, MPI_Aint)
#undef NAME
	return true;
}

static void begin(void)
{
	for (int i = 0; i < MOST; i++) {
		in[i] = (rank * 1009 + i * 7) % 1000 - 500;
		first[i] = second[i] = in[i] / 3;
	}
}

static void check(const char *call)
{
	if (memcmp(first, second, sizeof(first))) {
		failures++;
		fprintf(stderr, "rank %d: %s differs\n", rank, call);
	}
	for (int i = 0; i < MOST; i++)
		second[i] = in[i] / 3;
}

#define LIST(...) __VA_ARGS__
/* arguments of the function with int counts, which writes first, and of those with large ones, which write second */
#define COMPARE(name, started, arguments, large)                                      \
	do {                                                                          \
		MPI_Request request;                                                  \
                                                                                      \
		begin();                                                              \
		WANT(!MPI_##name arguments);                                          \
		WANT(!name##_c large);                                                \
		check(#name "_c");                                                    \
		WANT(!started##_c(LIST large, &request));                             \
		WANT(!MPI_Wait(&request, MPI_STATUS_IGNORE));                         \
		check(#started "_c");                                                 \
		WANT(!name##_init_c(LIST large, MPI_INFO_NULL, &request));            \
		WANT(!MPI_Start(&request) && !MPI_Wait(&request, MPI_STATUS_IGNORE)); \
		check(#name "_init_c");                                               \
		WANT(!MPI_Request_free(&request));                                    \
	} while (0)

static void compare_all(MPI_Comm c)
{
	int counts[16], displs[16], root = n - 1;
	MPI_Count large_counts[16];
	MPI_Aint large_displs[16];

	for (int r = 0; r < n; r++) {
		large_counts[r] = counts[r] = r ? 10 * r : 0;
		large_displs[r] = displs[r] = (n - 1 - r) * 200;
	}
	COMPARE(Allreduce, Iallreduce, (in, first, 100, MPI_INT, MPI_SUM, c),
		(in, second, 100, MPI_INT, MPI_SUM, c));
	COMPARE(Reduce, Ireduce, (in, first, 100, MPI_INT, MPI_MAX, root, c),
		(in, second, 100, MPI_INT, MPI_MAX, root, c));
	COMPARE(Bcast, Ibcast, (first, 100, MPI_INT, root, c), (second, 100, MPI_INT, root, c));
	COMPARE(Allgather, Iallgather, (in, 50, MPI_INT, first, 50, MPI_INT, c),
		(in, 50, MPI_INT, second, 50, MPI_INT, c));
	COMPARE(Allgatherv, Iallgatherv,
		(in, counts[rank], MPI_INT, first, counts, displs, MPI_INT, c),
		(in, counts[rank], MPI_INT, second, large_counts, large_displs, MPI_INT, c));
	COMPARE(Alltoall, Ialltoall, (in, 50, MPI_INT, first, 50, MPI_INT, c),
		(in, 50, MPI_INT, second, 50, MPI_INT, c));
	for (int r = 0; r < n; r++)
		large_counts[r] = counts[r] = rank + r;
	COMPARE(Alltoallv, Ialltoallv,
		(in, counts, displs, MPI_INT, first, counts, displs, MPI_INT, c),
		(in, large_counts, large_displs, MPI_INT, second, large_counts, large_displs,
		 MPI_INT, c));
	for (int r = 0; r < n; r++)
		large_counts[r] = counts[r] = 20 + r;
	COMPARE(Reduce_scatter, Ireduce_scatter, (in, first, counts, MPI_INT, MPI_SUM, c),
		(in, second, large_counts, MPI_INT, MPI_SUM, c));
	COMPARE(Reduce_scatter_block, Ireduce_scatter_block, (in, first, 50, MPI_INT, MPI_SUM, c),
		(in, second, 50, MPI_INT, MPI_SUM, c));
	COMPARE(Gather, Igather, (in, 50, MPI_INT, first, 50, MPI_INT, root, c),
		(in, 50, MPI_INT, second, 50, MPI_INT, root, c));
	COMPARE(Gatherv, Igatherv,
		(in, counts[rank], MPI_INT, first, counts, displs, MPI_INT, root, c),
		(in, counts[rank], MPI_INT, second, large_counts, large_displs, MPI_INT, root, c));
	COMPARE(Scatter, Iscatter, (in, 50, MPI_INT, first, 50, MPI_INT, root, c),
		(in, 50, MPI_INT, second, 50, MPI_INT, root, c));
	COMPARE(Scatterv, Iscatterv,
		(in, counts, displs, MPI_INT, first, counts[rank], MPI_INT, root, c),
		(in, large_counts, large_displs, MPI_INT, second, counts[rank], MPI_INT, root, c));
}

static void bcast_mib(MPI_Comm c, int mib)
{
	MPI_Count bytes = ((MPI_Count)mib << 20) + 8;
	char *data = malloc((size_t)bytes);

	if (!data)
		abort();
	data[0] = data[bytes - 1] = (char)rank;
	WANT(!Bcast_c(data, bytes, MPI_CHAR, 1, c));
	WANT(data[0] == 1 && data[bytes - 1] == 1);
	free(data);
}

void mode_large(void)
{
	MPI_Comm dup;

	if (!name_functions()) {
		puts("no large counts");
		return;
	}
	MPI_Comm_dup(MPI_COMM_WORLD, &dup);
	MPI_Barrier(dup);
	compare_all(dup);
	bcast_mib(dup, times);
	MPI_Comm_free(&dup);
}

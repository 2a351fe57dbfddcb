/*
 * mpi_program_times.c - the time of a call in a loop, for collectives and sizes (mpi_times.sh)
 *
 * Called by mpi_program.c. A line of rank 0 is a call, the bytes of a rank's part, and the microseconds of a call: the mean
 * of a loop and of the ranks, as in the OSU benchmarks, and the median of LOOPS loops, since other work on the machine
 * takes a processor for longer than a loop.
 */
#include <stdlib.h>
#include <time.h>

#include "mpi_program.h"

enum { MOST = 1 << 20, PARTS = 16, LOOPS = 15 }; /* bytes of a part; parts of a buffer */
static char *from, *to;

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void do_allreduce(int bytes)
{
	MPI_Allreduce(from, to, bytes / 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void do_reduce(int bytes)
{
	MPI_Reduce(from, to, bytes / 4, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
}

static void do_bcast(int bytes)
{
	MPI_Bcast(from, bytes, MPI_CHAR, 0, MPI_COMM_WORLD);
}

static void do_allgather(int bytes)
{
	MPI_Allgather(from, bytes, MPI_CHAR, to, bytes, MPI_CHAR, MPI_COMM_WORLD);
}

static void do_alltoall(int bytes)
{
	MPI_Alltoall(from, bytes, MPI_CHAR, to, bytes, MPI_CHAR, MPI_COMM_WORLD);
}

static void do_reduce_scatter(int bytes)
{
	MPI_Reduce_scatter_block(from, to, bytes / 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void do_barrier(int bytes)
{
	(void)bytes;
	MPI_Barrier(MPI_COMM_WORLD);
}

static const struct timed {
	const char *name;
	void (*call)(int bytes);
} timed[] = {
	{ "Allreduce", do_allreduce }, { "Reduce", do_reduce },
	{ "Bcast", do_bcast },         { "Allgather", do_allgather },
	{ "Alltoall", do_alltoall },   { "Reduce_scatter_block", do_reduce_scatter },
	{ "Barrier", do_barrier },
};

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double mean_us(const struct timed *t, int bytes, int calls)
{
	double began, mine, sum = 0;

	MPI_Barrier(MPI_COMM_WORLD);
	began = now_us();
	for (int i = 0; i < calls; i++)
		t->call(bytes);
	mine = (now_us() - began) / calls;
	MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	return sum / n;
}

static double median_us(const struct timed *t, int bytes, int calls)
{
	double us[LOOPS];

	for (int i = 0; i < calls / 10 + 2; i++)
		t->call(bytes);
	for (int i = 0; i < LOOPS; i++)
		us[i] = mean_us(t, bytes, calls / LOOPS + 1);
	qsort(us, LOOPS, sizeof(us[0]), by_size);
	return us[LOOPS / 2];
}

void mode_times(void)
{
	if (n > PARTS)
		MPI_Abort(MPI_COMM_WORLD, 2);
	from = calloc(PARTS, MOST);
	to = calloc(PARTS, MOST);
	for (size_t t = 0; t < sizeof(timed) / sizeof(timed[0]); t++)
		for (int bytes = 8; bytes <= (timed[t].call == do_barrier ? 8 : MOST); bytes *= 8) {
			double us = median_us(&timed[t], bytes, bytes < 32768 ? times : times / 10);

			if (!rank)
				printf("%s %d %.2f\n", timed[t].name, bytes, us);
		}
	free(from);
	free(to);
}

/*
 * mpi_turn.c - times allreduces of Open MPI call by call; compiled and called by compare.sh:
 * mpi_turn BYTES CALLS ...
 *
 * Rank 0 prints a line for each pair: bytes, mean and median of a call in us.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int by_time(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	int rank;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (int i = 1; i + 1 < argc; i += 2) {
		int count = atoi(argv[i]) / 4, calls = atoi(argv[i + 1]), warm = calls / 10 + 1;
		float *in = calloc((size_t)count, 4), *out = calloc((size_t)count, 4);
		double *us = calloc((size_t)calls, sizeof(*us)), sum = 0;

		for (int k = -warm; k < calls; k++) {
			double start = MPI_Wtime();

			MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
			if (k >= 0)
				sum += us[k] = (MPI_Wtime() - start) * 1e6;
		}
		qsort(us, (size_t)calls, sizeof(*us), by_time);
		if (rank == 0)
			printf("%d %.2f %.2f\n", count * 4, sum / calls, us[calls / 2]);
		free(in);
		free(out);
		free(us);
	}
	MPI_Finalize();
	return 0;
}

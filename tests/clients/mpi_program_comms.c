/*
 * mpi_program_comms.c - communicators: duplicates, orders of freeing, intercommunicators, one for each thread
 *
 * Called by mpi_program.c.
 */
#include <dirent.h>
#include <pthread.h>
#include <unistd.h>

#include "mpi_program.h"

/* Descriptors, threads and kilobytes of this process */
struct kept {
	int descriptors, threads, kilobytes;
};

static int entries(const char *folder)
{
	DIR *dir = opendir(folder);
	int count = 0;

	while (dir && readdir(dir))
		count++;
	if (dir)
		closedir(dir);
	return count;
}

static struct kept kept(void)
{
	struct kept k = { entries("/proc/self/fd"), entries("/proc/self/task"), 0 };
	FILE *f = fopen("/proc/self/statm", "r");

	WANT(f && fscanf(f, "%*d %d", &k.kilobytes) == 1);
	if (f)
		fclose(f);
	k.kilobytes *= (int)(sysconf(_SC_PAGESIZE) / 1024);
	return k;
}

static void use_duplicates(int count)
{
	for (int i = 0; i < count; i++) {
		int one = 1, sums[2] = { 0 };
		MPI_Comm dup;
		MPI_Request request;

		MPI_Comm_dup(MPI_COMM_WORLD, &dup);
		MPI_Allreduce(&one, &sums[0], 1, MPI_INT, MPI_SUM, dup);
		MPI_Iallreduce(&one, &sums[1], 1, MPI_INT, MPI_SUM, dup, &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		WANT(sums[0] == n && sums[1] == n);
		MPI_Comm_free(&dup);
	}
}

/* The first tenth fills caches. */
void mode_dups(void)
{
	struct kept before, after;

	use_duplicates(times / 10 + 5);
	before = kept();
	use_duplicates(times);
	after = kept();
	fprintf(stderr,
		"rank %d: %d duplicates: %d -> %d descriptors, %d -> %d threads, %d -> %d kB\n",
		rank, times, before.descriptors, after.descriptors, before.threads, after.threads,
		before.kilobytes, after.kilobytes);
	WANT(after.descriptors <= before.descriptors);
	WANT(after.threads <= before.threads);
	WANT(after.kilobytes <= before.kilobytes + 1024 + 2 * times);
}

/* Each rank frees two duplicates in another order than its neighbor, leaves a third to MPI_Finalize,
 * and comes there late, the highest rank first. */
void mode_orders(void)
{
	MPI_Comm dups[3];
	int one = 1, sum;

	for (int i = 0; i < 3; i++) {
		MPI_Comm_dup(MPI_COMM_WORLD, &dups[i]);
		MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, dups[i]);
		WANT(sum == n);
	}
	MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	MPI_Comm_free(&dups[rank % 2]);
	MPI_Comm_free(&dups[1 - rank % 2]);
	usleep(100000 * (useconds_t)(n - 1 - rank));
}

/* The first rank on one side, the others on the other: each side gets the sum of the other. */
void mode_inter(void)
{
	MPI_Comm half, both;
	int one = rank + 1, sum = 0, want = rank ? 1 : n * (n + 1) / 2 - 1;

	MPI_Comm_split(MPI_COMM_WORLD, rank != 0, rank, &half);
	MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank ? 0 : 1, 7, &both);
	MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, both);
	MPI_Barrier(both);
	WANT(sum == want);
	MPI_Comm_free(&both);
	MPI_Comm_free(&half);
	MPI_Scan(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	WANT(sum == (rank + 1) * (rank + 2) / 2);
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
void mode_threads(void)
{
	MPI_Comm dups[2];
	pthread_t other;
	void *wrong;

	for (int i = 0; i < 2; i++)
		MPI_Comm_dup(MPI_COMM_WORLD, &dups[i]);
	if (pthread_create(&other, NULL, reduce_often, &dups[1]))
		abort();
	WANT(!reduce_often(&dups[0]));
	pthread_join(other, &wrong);
	WANT(!wrong);
	for (int i = 0; i < 2; i++)
		MPI_Comm_free(&dups[i]);
}

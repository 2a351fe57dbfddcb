/*
 * first_result.c - time from the start to the first result:
 * first_result [NRANKS [ROUNDS [TRANSPORT]]]
 *
 * Prints milliseconds from the moment when all ranks start to join until the last rank has joined,
 * until the last rank has the result of an allreduce of one float, and of an allreduce of 1 MiB;
 * median and minimum of the rounds. For people: the program checks no time, because a busy machine
 * takes longer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "tutti.h"

enum { JOINED, FIRST, LARGE, MARKS };
enum { COUNT = 1 << 18 };

/* at: time of the last rank that reached the mark */
struct first_results { _Atomic int ready; _Atomic uint64_t at[MARKS]; };

static void mark(struct first_results *b, int which)
{
	uint64_t now = tt_now_ns(), was = b->at[which];

	while (was < now && !__atomic_compare_exchange_n((uint64_t *)&b->at[which], &was, now, false,
							 __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
}

static int rank_main(struct first_results *b, int start, const tuttiUniqueId *id, int n, int rank,
		     const char *transport)
{
	static float in[COUNT], out[COUNT];
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	tuttiComm_t comm;
	char byte;

	config.transport = transport;
	in[0] = 1;
	b->ready++;
	if (read(start, &byte, 1) < 0)                   /* until the parent closes its end */
		return 1;
	if (tuttiCommInitRankConfig(&comm, n, *id, rank, &config))
		goto failed;
	mark(b, JOINED);
	if (tuttiAllReduce(in, out, 1, tuttiFloat, tuttiSum, comm, NULL) || out[0] != (float)n)
		goto failed;
	mark(b, FIRST);
	if (tuttiAllReduce(in, out, COUNT, tuttiFloat, tuttiSum, comm, NULL))
		goto failed;
	mark(b, LARGE);
	return tuttiCommDestroy(comm) != tuttiSuccess;
failed:
	fprintf(stderr, "rank %d: %s\n", rank, tuttiGetLastError(NULL));
	return 1;
}

/* Milliseconds from the start to each mark. */
static int one_round(int n, const char *transport, double ret_ms[MARKS])
{
	struct first_results *b =
		mmap(NULL, sizeof(*b), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int start[2], how, failed = 0;
	tuttiUniqueId id;
	uint64_t began;

	if (b == MAP_FAILED || pipe(start) || tuttiGetUniqueId(&id))
		return 1;
	fflush(NULL);
	for (int r = 0; r < n; r++) {
		pid_t pid = fork();

		if (pid < 0)
			exit(1);
		if (pid == 0) {
			close(start[1]);
			_exit(rank_main(b, start[0], &id, n, r, transport));
		}
	}
	while (b->ready < n)
		usleep(1000);
	usleep(1000);
	began = tt_now_ns();
	close(start[1]);
	while (wait(&how) > 0)
		failed |= how;
	close(start[0]);
	for (int i = 0; i < MARKS; i++)
		ret_ms[i] = (double)(b->at[i] - began) / 1e6;
	munmap(b, sizeof(*b));
	return failed;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 2, rounds = argc > 2 ? atoi(argv[2]) : 11;
	const char *transport = argc > 3 ? argv[3] : "auto";
	double *ms[MARKS], one[MARKS];

	if (n < 1 || rounds < 1) {
		fprintf(stderr, "first_result [NRANKS [ROUNDS [TRANSPORT]]]\n");
		return 2;
	}
	for (int i = 0; i < MARKS; i++)
		if (!(ms[i] = calloc((size_t)rounds, sizeof(double))))
			return 1;
	for (int k = 0; k < rounds; k++) {
		if (one_round(n, transport, one))
			return 1;
		for (int i = 0; i < MARKS; i++)
			ms[i][k] = one[i];
	}
	printf("%d ranks, %s, ms, median (least) of %d rounds:", n, transport, rounds);
	for (int i = 0; i < MARKS; i++) {
		qsort(ms[i], (size_t)rounds, sizeof(double), by_size);
		printf(" %s %.2f (%.2f)", (const char *const[]){ "joined", "first", "1 MiB" }[i],
		       ms[i][rounds / 2], ms[i][0]);
		free(ms[i]);
	}
	printf("\n");
	return 0;
}

/*
 * message_times.c - the time of a message: two processes send one to and fro (tuttiMsgSend, tuttiMsgRecv)
 *
 * Prints half of the median time of an exchange, for some sizes. Called by people; docs/results/survival.md has the
 * figures.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "tests/support/ranks.h"

#define MOST 4000u
#define FIRST 20u /* exchanges that do not count: connections, credit */

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Times of n exchanges of messages, in ns */
static tuttiResult_t exchange(tuttiComm_t comm, int rank, void *data, size_t bytes, unsigned n,
			      uint64_t *ret_took)
{
	tuttiResult_t rc = tuttiSuccess;

	for (unsigned i = 0; !rc && i < FIRST + n; i++) {
		uint64_t began = tt_now_ns();

		if (rank)
			rc = tuttiMsgRecv(data, bytes, 0, 0, -1, comm, NULL);
		rc = rc ? rc : tuttiMsgSend(data, bytes, !rank, 0, 0, comm);
		if (!rank && !rc)
			rc = tuttiMsgRecv(data, bytes, 1, 0, -1, comm, NULL);
		if (i >= FIRST)
			ret_took[i - FIRST] = tt_now_ns() - began;
	}
	return rc;
}

static int run_rank(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	static const struct {
		size_t bytes;
		unsigned n;
	} cases[] = { { 1, MOST }, { 1024, MOST }, { 64 << 10, 1000 }, { 1 << 20, 100 } };
	static uint64_t took[MOST];
	static char data[1 << 20];

	(void)nranks, (void)arg;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (exchange(*comm, rank, data, cases[i].bytes, cases[i].n, took))
			return fprintf(stderr, "rank %d: %s\n", rank, tuttiGetLastError(NULL)), 1;
		qsort(took, cases[i].n, sizeof(took[0]), compare);
		if (!rank)
			printf("%8zu bytes %9.1f us\n", cases[i].bytes,
			       (double)took[cases[i].n / 2] / 2000);
	}
	fflush(stdout);
	return 0;
}

int main(void)
{
	struct ranks r = { .n = 2, .limit_s = 100 };

	return ranks_run(&r, run_rank) != 0;
}

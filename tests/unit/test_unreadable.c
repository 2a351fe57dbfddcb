/*
 * test_unreadable.c - collectives on memory that the kernel does not read for peers
 *
 * Secret memory (memfd_secret) stands for a mapping of a device: its process reads it, process_vm_readv does not.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "comm/comm.h"
#include "tests/support/must.h"
#include "tests/support/ranks.h"

/* Element i of the block from rank `from` to rank `to`; to 99: of the block for all ranks */
static int element(int from, int to, size_t i)
{
	return from * 1000003 + to * 7919 + (int)(i % 65521);
}

static void fill_parts(int *p, int rank, int first, int n, size_t count)
{
	for (int to = first; to < first + n; to++)
		for (size_t i = 0; i < count; i++)
			p[(size_t)(to - first) * count + i] = element(rank, to, i);
}

static bool holds(const int *p, int from, int to, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (p[i] != element(from, to, i))
			return false;
	return true;
}

/* Memory that the kernel does not read for peers, as it reads no mapping of a device. NULL: there is none */
static void *secret(size_t bytes)
{
	int fd = (int)syscall(SYS_memfd_secret, 0);
	void *p = fd < 0 || ftruncate(fd, (off_t)bytes)
			  ? MAP_FAILED
			  : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (fd >= 0)
		close(fd);
	return p == MAP_FAILED ? NULL : p;
}

/* Each call thrice: all ranks have ordinary memory; rank 0 has secret inputs and outputs; all have ordinary memory. */
static int keep_secrets(tuttiComm_t *comm, int rank, int n, void *arg)
{
	enum { COUNT = 70001 };
	const size_t bytes = (size_t)n * COUNT * sizeof(int);
	int *ordinary[2] = { malloc(bytes), malloc(bytes) };
	int *hidden[2] = { secret(bytes), secret(bytes) };
	uint64_t read[3] = { 0 };

	(void)arg;
	WANT(ordinary[0] && ordinary[1] && hidden[0] && hidden[1]);
	for (int i = 0; i < 3; i++) {
		int **at = i == 1 && rank == 0 ? hidden : ordinary, *in = at[0], *out = at[1];
		uint64_t before = (*comm)->paths.slots->read_bytes;

		fill_parts(in, rank + i, 99, 1, COUNT);
		MUST(tuttiAllReduce(in, out, COUNT, tuttiInt32, tuttiMax, *comm, NULL));
		WANT(holds(out, n - 1 + i, 99, COUNT));
		MUST(tuttiBroadcast(in, out, COUNT, tuttiInt32, 0, *comm, NULL));
		WANT(holds(out, i, 99, COUNT));
		MUST(tuttiAllGather(in, out, COUNT, tuttiInt32, *comm, NULL));
		WANT(holds(out, i, 99, COUNT) &&
		     holds(out + (n - 1) * COUNT, n - 1 + i, 99, COUNT));
		fill_parts(in, rank + i, 0, n, COUNT);
		MUST(tuttiAlltoAll(in, out, COUNT, tuttiInt32, *comm, NULL));
		WANT(holds(out, i, rank, COUNT) &&
		     holds(out + (n - 1) * COUNT, n - 1 + i, rank, COUNT));
		MUST(tuttiScatter(in, out, COUNT, tuttiInt32, 0, *comm, NULL));
		WANT(holds(out, i, rank, COUNT));
		read[i] = (*comm)->paths.slots->read_bytes - before;
	}
	WANT(read[0] && read[2]);
	for (int i = 0; i < 2; i++) {
		munmap(hidden[i], bytes);
		free(ordinary[i]);
	}
	return 0;
}

Test(unreadable, memory_of_a_rank_is_copied_by_all_collectives, .timeout = 100)
{
	void *p = secret(4096);

	if (!p)
		cr_skip_test("no secret memory: memfd_secret: %s", strerror(errno));
	munmap(p, 4096);
	setenv("TUTTI_CMA", "on", 1);
	for (int n = 2; n <= 5; n++) {
		struct ranks r = { .n = n, .transport = "shm", .algo = "two-shot" };

		if (n == 4)
			cr_assert(ranks_on_two_cores());
		cr_expect_eq(ranks_run(&r, keep_secrets), 0, "%d ranks", n);
	}
}
